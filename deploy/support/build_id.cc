#include "deploy/support/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "deploy/support/strings.h"

namespace tilewright::support {
namespace {

// Of one segment of notes: name and contents are padded to four bytes.
std::string FindNote(const char* at, size_t size) {
  constexpr std::string_view kName{"GNU", 4};  // with its NUL
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note{};
    std::memcpy(&note, at, sizeof(note));
    const size_t name = (note.n_namesz + 3U) & ~3U, contents = (note.n_descsz + 3U) & ~3U;
    if (size - sizeof(note) < name + contents) return {};
    at += sizeof(note);
    if (note.n_type == NT_GNU_BUILD_ID && std::string_view(at, note.n_namesz) == kName) {
      return HexEncode(std::string_view(at + name, note.n_descsz));
    }
    at += name + contents;
    size -= sizeof(note) + name + contents;
  }
  return {};
}

// The first object is the program itself.
int TakeFirst(dl_phdr_info* info, size_t /*size*/, void* id) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    std::string found = FindNote(notes, segment.p_memsz);
    if (found.empty()) continue;
    *static_cast<std::string*>(id) = std::move(found);
    break;
  }
  return 1;
}

}  // namespace

std::string BuildId() {
  std::string id;
  dl_iterate_phdr(TakeFirst, &id);
  return id;
}

}  // namespace tilewright::support
