#include "deploy/runtime/elf_check.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::runtime {
namespace {

constexpr size_t kMaxSegments = 64;
constexpr uint64_t kMaxAddress = uint64_t{1} << 40;
constexpr uint64_t kPageBytes = 4096;

absl::Status Bad(const std::string& what) { return support::DataLoss("runtime.code.elf", what); }

// Whether [offset, offset + size) is inside [begin, begin + length), without overflow.
bool Inside(uint64_t offset, uint64_t size, uint64_t begin, uint64_t length) {
  return offset >= begin && offset - begin <= length && size <= length - (offset - begin);
}

template <typename T>
T At(std::string_view image, uint64_t offset) {
  T value;
  std::memcpy(&value, image.data() + offset, sizeof(value));
  return value;
}

class SharedObject {
 public:
  explicit SharedObject(std::string_view image) : image_(image) {}

  absl::Status Check(int machine) {
    TW_TRY(CheckHeader(machine));
    TW_TRY(ReadSegments());
    TW_TRY(CheckOthers());
    TW_TRY(ReadDynamic());
    return CheckTables();
  }

 private:
  absl::Status CheckHeader(int machine) {
    if (image_.size() < sizeof(header_)) return Bad("too short");
    header_ = At<Elf64_Ehdr>(image_, 0);
    if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 ||
        header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB ||
        header_.e_type != ET_DYN || header_.e_machine != machine) {
      return Bad("expected a shared object for this machine");
    }
    const bool table =
        header_.e_phentsize == sizeof(Elf64_Phdr) && header_.e_phnum > 0 &&
        header_.e_phnum <= kMaxSegments && header_.e_phoff % 8 == 0 &&
        Inside(header_.e_phoff, header_.e_phnum * sizeof(Elf64_Phdr), 0, image_.size());
    return table ? absl::OkStatus() : Bad("expected the table of segments inside the file");
  }

  absl::Status ReadSegments() {
    uint64_t end = 0, file_end = 0;  // of the segments so far, which are in order
    for (size_t i = 0; i < header_.e_phnum; ++i) {
      const auto segment = At<Elf64_Phdr>(image_, header_.e_phoff + i * sizeof(Elf64_Phdr));
      const bool sized = Inside(segment.p_offset, segment.p_filesz, 0, image_.size()) &&
                         segment.p_vaddr < kMaxAddress && segment.p_memsz < kMaxAddress;
      if (segment.p_type == PT_DYNAMIC || segment.p_type == PT_LOAD) {
        if (!sized) return Bad("expected each segment inside the file");
      }
      if (segment.p_type == PT_DYNAMIC) dynamic_ = segment;
      if (segment.p_type != PT_LOAD) {
        others_.push_back(segment);
        continue;
      }
      const bool aligned = segment.p_align >= kPageBytes &&
                           (segment.p_align & (segment.p_align - 1)) == 0 &&
                           segment.p_align < kMaxAddress &&
                           (segment.p_vaddr - segment.p_offset) % segment.p_align == 0;
      if (!aligned || segment.p_filesz > segment.p_memsz || segment.p_vaddr < end ||
          segment.p_offset < file_end || (segment.p_flags & PF_R) == 0) {
        return Bad("expected segments in order, aligned, and no longer than their memory");
      }
      end = segment.p_vaddr + segment.p_memsz;
      file_end = segment.p_offset + segment.p_filesz;
      loads_.push_back(segment);
    }
    return loads_.empty() ? Bad("expected a segment to load") : absl::OkStatus();
  }

  // Segments that say something about those that are loaded.
  absl::Status CheckOthers() const {
    for (const Elf64_Phdr& segment : others_) {
      if (segment.p_type == PT_GNU_STACK) {
        if ((segment.p_flags & PF_X) != 0) return Bad("expected a stack without code");
        continue;
      }
      const bool bytes = segment.p_filesz == 0 || Holder(segment.p_vaddr, segment.p_filesz);
      // Made read-only after loading: other memory must not be.
      const bool relro = segment.p_type != PT_GNU_RELRO || Writable(segment);
      const bool local =
          segment.p_type != PT_TLS ||
          (segment.p_filesz <= segment.p_memsz && segment.p_memsz < kPageBytes &&
           segment.p_align <= kPageBytes && (segment.p_align & (segment.p_align - 1)) == 0);
      if (!bytes || !relro || !local) return Bad("expected all parts inside the loaded segments");
    }
    return absl::OkStatus();
  }

  bool Writable(const Elf64_Phdr& part) const {
    for (const Elf64_Phdr& load : loads_) {
      const uint64_t end = (load.p_vaddr + load.p_memsz + kPageBytes - 1) / kPageBytes * kPageBytes;
      if (Inside(part.p_vaddr, part.p_memsz, load.p_vaddr, end - load.p_vaddr)) {
        return (load.p_flags & PF_W) != 0;
      }
    }
    return false;
  }

  // The segment whose bytes of the file hold these addresses.
  const Elf64_Phdr* Holder(uint64_t address, uint64_t size) const {
    for (const Elf64_Phdr& load : loads_) {
      if (Inside(address, size, load.p_vaddr, load.p_filesz)) return &load;
    }
    return nullptr;
  }

  // The loader writes into the table, and reads it up to its DT_NULL.
  absl::Status ReadDynamic() {
    if (!dynamic_.has_value()) return Bad("expected a dynamic table");
    const Elf64_Phdr* holder = Holder(dynamic_->p_vaddr, dynamic_->p_filesz);
    if (holder == nullptr || (holder->p_flags & PF_W) == 0 || dynamic_->p_vaddr % 8 != 0) {
      return Bad("expected the dynamic table in a segment that can be written");
    }
    const uint64_t begin = holder->p_offset + (dynamic_->p_vaddr - holder->p_vaddr);
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic_->p_filesz; at += sizeof(Elf64_Dyn)) {
      const auto entry = At<Elf64_Dyn>(image_, begin + at);
      if (entry.d_tag == DT_NULL) return absl::OkStatus();
      if (entry.d_tag != DT_NEEDED) {
        tags_[entry.d_tag] = entry.d_un.d_val;
      } else {
        names_.push_back(entry.d_un.d_val);
      }
    }
    return Bad("expected an end of the dynamic table");
  }

  uint64_t Tag(int64_t tag) const {
    const auto found = tags_.find(tag);
    return found == tags_.end() ? 0 : found->second;
  }

  // A table that the loader reads: where it is, and how long where a tag says that.
  absl::Status CheckTable(int64_t address, int64_t size, uint64_t least, const char* what) const {
    if (tags_.count(address) == 0) return absl::OkStatus();
    const uint64_t bytes = size == DT_NULL ? least : Tag(size);
    if (Holder(Tag(address), bytes < least ? least : bytes) != nullptr) return absl::OkStatus();
    return Bad(std::string("expected the ") + what + " inside a segment");
  }

  absl::Status CheckTables() const {
    if (tags_.count(DT_STRTAB) == 0 || tags_.count(DT_SYMTAB) == 0 || Tag(DT_STRSZ) == 0 ||
        Tag(DT_SYMENT) != sizeof(Elf64_Sym)) {
      return Bad("expected a table of symbols");
    }
    TW_TRY(CheckTable(DT_STRTAB, DT_STRSZ, 1, "strings"));
    TW_TRY(CheckTable(DT_SYMTAB, DT_NULL, sizeof(Elf64_Sym), "symbols"));
    TW_TRY(CheckTable(DT_RELA, DT_RELASZ, 0, "relocations"));
    TW_TRY(CheckTable(DT_JMPREL, DT_PLTRELSZ, 0, "relocations of calls"));
    TW_TRY(CheckTable(DT_REL, DT_RELSZ, 0, "relocations without addend"));
    TW_TRY(CheckTable(DT_INIT_ARRAY, DT_INIT_ARRAYSZ, 0, "constructors"));
    TW_TRY(CheckTable(DT_FINI_ARRAY, DT_FINI_ARRAYSZ, 0, "destructors"));
    TW_TRY(CheckTable(DT_INIT, DT_NULL, 1, "first function"));
    TW_TRY(CheckTable(DT_FINI, DT_NULL, 1, "last function"));
    TW_TRY(CheckTable(DT_HASH, DT_NULL, 2 * sizeof(Elf64_Word), "hash table"));
    TW_TRY(CheckTable(DT_GNU_HASH, DT_NULL, 4 * sizeof(Elf64_Word), "hash table"));
    TW_TRY(CheckTable(DT_VERSYM, DT_NULL, sizeof(Elf64_Half), "versions"));
    TW_TRY(CheckTable(DT_VERNEED, DT_NULL, sizeof(Elf64_Verneed), "versions"));
    TW_TRY(CheckTable(DT_VERDEF, DT_NULL, sizeof(Elf64_Verdef), "versions"));
    if ((tags_.count(DT_RELA) != 0 && Tag(DT_RELAENT) != sizeof(Elf64_Rela)) ||
        (tags_.count(DT_JMPREL) != 0 && Tag(DT_PLTREL) != DT_RELA)) {
      return Bad("expected relocations with addend");
    }
    for (const int64_t function : {DT_INIT, DT_FINI}) {
      if (tags_.count(function) != 0 && !Executable(Tag(function))) {
        return Bad("expected functions in a segment of code");
      }
    }
    TW_TRY(CheckNames());
    TW_TRY(CheckHash());
    TW_TRY(CheckRelocations(Tag(DT_RELA), Tag(DT_RELASZ)));
    return CheckRelocations(Tag(DT_JMPREL), Tag(DT_PLTRELSZ));
  }

  bool Executable(uint64_t address) const {
    const Elf64_Phdr* holder = Holder(address, 1);
    return holder != nullptr && (holder->p_flags & PF_X) != 0;
  }

  uint64_t OffsetOf(uint64_t address) const {
    const Elf64_Phdr* holder = Holder(address, 1);
    return holder->p_offset + (address - holder->p_vaddr);
  }

  // Four numbers (buckets, first symbol, words of the filter, shift), the filter, the buckets.
  absl::Status CheckHash() const {
    if (tags_.count(DT_GNU_HASH) == 0) return absl::OkStatus();
    const uint64_t at = OffsetOf(Tag(DT_GNU_HASH));
    const auto buckets = At<uint32_t>(image_, at);
    const auto words = At<uint32_t>(image_, at + 8);
    const uint64_t bytes = 16 + uint64_t{words} * 8 + uint64_t{buckets} * 4;
    const bool good = buckets > 0 && words > 0 && (words & (words - 1)) == 0 &&
                      Holder(Tag(DT_GNU_HASH), bytes) != nullptr;
    return good ? absl::OkStatus() : Bad("expected the hash table inside a segment");
  }

  absl::Status CheckRelocations(uint64_t address, uint64_t bytes) const {
    if (bytes % sizeof(Elf64_Rela) != 0) return Bad("expected whole relocations");
    for (uint64_t at = 0; at < bytes; at += sizeof(Elf64_Rela)) {
      const auto entry = At<Elf64_Rela>(image_, OffsetOf(address) + at);
      const uint64_t symbol = Tag(DT_SYMTAB) + ELF64_R_SYM(entry.r_info) * sizeof(Elf64_Sym);
      if (!WritableAt(entry.r_offset) || Holder(symbol, sizeof(Elf64_Sym)) == nullptr ||
          At<Elf64_Sym>(image_, OffsetOf(symbol)).st_name >= Tag(DT_STRSZ)) {
        return Bad("expected relocations of data by symbols of the table");
      }
    }
    return absl::OkStatus();
  }

  bool WritableAt(uint64_t address) const {
    for (const Elf64_Phdr& load : loads_) {
      if (Inside(address, sizeof(uint64_t), load.p_vaddr, load.p_memsz)) {
        return (load.p_flags & PF_W) != 0;
      }
    }
    return false;
  }

  // Names are offsets into the strings, which must end inside their table.
  absl::Status CheckNames() const {
    const uint64_t bytes = Tag(DT_STRSZ);
    const Elf64_Phdr* holder = Holder(Tag(DT_STRTAB), bytes);
    const uint64_t end = holder->p_offset + (Tag(DT_STRTAB) - holder->p_vaddr) + bytes;
    bool good = image_[end - 1] == '\0' && Tag(DT_SONAME) < bytes && Tag(DT_RUNPATH) < bytes &&
                Tag(DT_RPATH) < bytes;
    for (const uint64_t name : names_) good = good && name < bytes;
    return good ? absl::OkStatus() : Bad("expected names inside the table of strings");
  }

  const std::string_view image_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> loads_;
  std::vector<Elf64_Phdr> others_;
  std::optional<Elf64_Phdr> dynamic_;
  std::map<int64_t, uint64_t> tags_;
  std::vector<uint64_t> names_;  // of libraries
};

}  // namespace

absl::Status CheckSharedObject(std::string_view image, int machine) {
  return SharedObject(image).Check(machine);
}

}  // namespace tilewright::runtime
