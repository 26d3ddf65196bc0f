#include "deploy/module/module_file.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "deploy/module/module_format.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/shortage.h"
#include "deploy/support/status.h"

namespace tilewright::module {
namespace {

using support::DataLoss;
using support::Sha256;

template <typename Int>
Int Take(std::string_view bytes, uint64_t offset) {
  Int value = 0;
  for (size_t i = 0; i < sizeof(Int); ++i) {
    value |= static_cast<Int>(static_cast<uint8_t>(bytes[offset + i])) << (8 * i);
  }
  return value;
}

bool AllZero(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

absl::StatusOr<std::vector<Section>> DecodeTable(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes || bytes.substr(0, kMagic.size()) != kMagic) {
    return DataLoss("module.file.magic", "expected a Tilewright module, found something else");
  }
  const auto version = Take<uint32_t>(bytes, 8);
  if (version > kModuleFileVersion) {
    return support::Unimplemented("module.file.version", "expected at most " +
                                                             std::to_string(kModuleFileVersion) +
                                                             ", found " + std::to_string(version));
  }
  const auto count = Take<uint32_t>(bytes, 12);
  const auto file_size = Take<uint64_t>(bytes, 16);
  if (version == 0 || count == 0 || count > kMaxSections || !AllZero(bytes.substr(56, 8))) {
    return DataLoss("module.file.header", "impossible version, section count or reserved bytes");
  }
  const uint64_t table_end = kHeaderBytes + kEntryBytes * count;
  if (file_size != bytes.size() || table_end > bytes.size()) {
    return DataLoss("module.file.truncated", "expected " + std::to_string(file_size) +
                                                 " bytes, found " + std::to_string(bytes.size()));
  }
  const std::string_view table = bytes.substr(kHeaderBytes, kEntryBytes * count);
  const Sha256::Digest digest = DigestOf(table);
  if (std::memcmp(digest.data(), bytes.data() + 24, kDigestBytes) != 0) {
    return DataLoss("module.file.table_digest", "the section table does not match its digest");
  }
  std::vector<Section> sections(count);
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t at = kEntryBytes * i;
    sections[i].kind = Take<uint32_t>(table, at);
    sections[i].index = Take<uint32_t>(table, at + 4);
    sections[i].offset = Take<uint64_t>(table, at + 8);
    sections[i].size = Take<uint64_t>(table, at + 16);
    std::memcpy(sections[i].digest.data(), table.data() + at + 24, kDigestBytes);
    if (!AllZero(table.substr(at + 56, 8))) {
      return DataLoss("module.file.table", "reserved bytes are not zero");
    }
  }
  return sections;
}

// Order, places and padding: sections follow each other exactly as the writer lays them out.
absl::Status CheckLayout(std::string_view bytes, const std::vector<Section>& sections) {
  uint64_t end = kHeaderBytes + kEntryBytes * sections.size();
  for (size_t i = 0; i < sections.size(); ++i) {
    const Section& section = sections[i];
    const bool last = i + 1 == sections.size();
    const bool expected_kind = i == 0
                                   ? section.kind == kManifest && section.index == 0
                                   : (section.kind == kCode && section.index == i - 1) ||
                                         (section.kind == kConstants && last && section.index == 0);
    if (!expected_kind) {
      return DataLoss("module.file.table", "unexpected section " + std::to_string(i));
    }
    const uint64_t start = AlignUp(end, AlignmentOf(section.kind));
    if (section.offset != start || start > bytes.size() || section.size > bytes.size() - start) {
      return DataLoss("module.file.section_bounds",
                      "section " + std::to_string(i) + " is not where it belongs");
    }
    if (!AllZero(bytes.substr(end, start - end))) {
      return DataLoss("module.file.padding",
                      "bytes before section " + std::to_string(i) + " are not zero");
    }
    end = start + section.size;
  }
  if (end != bytes.size()) return DataLoss("module.file.trailing", "bytes after the last section");
  return absl::OkStatus();
}

absl::Status CheckDigest(std::string_view contents, const Section& section, std::string_view what) {
  if (DigestOf(contents) != section.digest) {
    return DataLoss("module.file." + std::string(what) + "_digest",
                    "the contents do not match their digest");
  }
  return absl::OkStatus();
}

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

}  // namespace

struct ModuleFile::Impl {
  // One of the two holds the bytes.
  std::optional<support::MappedFile> mapped;
  std::unique_ptr<void, FreeDeleter> memory;

  std::string_view bytes;
  std::vector<Section> sections;
  Manifest manifest;
  size_t num_code = 0;

  std::string_view Contents(size_t section) const {
    return bytes.substr(sections[section].offset, sections[section].size);
  }
  bool HasConstants() const { return sections.back().kind == kConstants; }

  absl::Status Parse(const ReadOptions& options);
  absl::Status CheckAgainstManifest() const;
};

absl::Status ModuleFile::Impl::Parse(const ReadOptions& options) {
  TW_ASSIGN(sections, DecodeTable(bytes));
  TW_TRY(CheckLayout(bytes, sections));
  num_code = sections.size() - 1 - (HasConstants() ? 1 : 0);
  TW_TRY(CheckDigest(Contents(0), sections[0], "manifest"));
  for (size_t i = 0; i < num_code; ++i) {
    TW_TRY(CheckDigest(Contents(i + 1), sections[i + 1], "code"));
  }
  if (options.verify_constants && HasConstants()) {
    TW_TRY(CheckDigest(Contents(sections.size() - 1), sections.back(), "constants"));
  }
  TW_ASSIGN(manifest, ManifestFromJson(Contents(0)));
  return CheckAgainstManifest();
}

// The manifest repeats sizes and digests, so that it alone (as the module store shows it) pins the
// module's contents; both must tell the same.
absl::Status ModuleFile::Impl::CheckAgainstManifest() const {
  bool same = manifest.code.size() == num_code;
  for (size_t i = 0; same && i < num_code; ++i) {
    same = manifest.code[i].size == static_cast<int64_t>(sections[i + 1].size) &&
           manifest.code[i].digest == support::DigestHex(sections[i + 1].digest);
  }
  if (HasConstants()) {
    same = same && manifest.constants_bytes == static_cast<int64_t>(sections.back().size) &&
           manifest.constants_digest == support::DigestHex(sections.back().digest);
  } else {
    same = same && manifest.constants_bytes == 0;
  }
  if (!same) return DataLoss("module.file.mismatch", "the manifest does not match the sections");
  return absl::OkStatus();
}

ModuleFile::ModuleFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModuleFile::ModuleFile(ModuleFile&&) noexcept = default;
ModuleFile& ModuleFile::operator=(ModuleFile&&) noexcept = default;
ModuleFile::~ModuleFile() = default;

absl::StatusOr<ModuleFile> ModuleFile::Open(const std::string& path, const ReadOptions& options) {
  auto impl = std::make_unique<Impl>();
  TW_ASSIGN(support::MappedFile mapped, support::MappedFile::Open(path));
  impl->mapped.emplace(std::move(mapped));
  impl->bytes = impl->mapped->view();
  const absl::Status parsed = impl->Parse(options);
  if (!parsed.ok()) return support::WithContext(parsed, path);
  return ModuleFile(std::move(impl));
}

absl::StatusOr<ModuleFile> ModuleFile::FromBytes(std::string_view bytes,
                                                 const ReadOptions& options) {
  auto impl = std::make_unique<Impl>();
  const size_t capacity = AlignUp(bytes.size() + 1, kPageAlignment);
  impl->memory.reset(std::aligned_alloc(kPageAlignment, capacity));
  if (impl->memory == nullptr) {
    return support::MarkShortage(
        support::ResourceExhausted("module.file.memory",
                                   std::to_string(capacity) + " bytes are not available"),
        support::Shortage::kMemory);
  }
  std::memcpy(impl->memory.get(), bytes.data(), bytes.size());
  impl->bytes = std::string_view(static_cast<const char*>(impl->memory.get()), bytes.size());
  TW_TRY(impl->Parse(options));
  return ModuleFile(std::move(impl));
}

const Manifest& ModuleFile::manifest() const { return impl_->manifest; }
std::string_view ModuleFile::manifest_json() const { return impl_->Contents(0); }
size_t ModuleFile::num_code() const { return impl_->num_code; }

std::string_view ModuleFile::code(size_t index) const {
  TW_CHECK(index < impl_->num_code) << "code object " << index;
  return impl_->Contents(index + 1);
}

std::string_view ModuleFile::constants() const {
  return impl_->HasConstants() ? impl_->Contents(impl_->sections.size() - 1) : std::string_view();
}

std::string_view ModuleFile::bytes() const { return impl_->bytes; }

absl::Status ModuleFile::VerifyConstants() const {
  if (!impl_->HasConstants()) return absl::OkStatus();
  return CheckDigest(constants(), impl_->sections.back(), "constants");
}

}  // namespace tilewright::module
