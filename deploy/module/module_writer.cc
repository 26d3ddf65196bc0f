#include "deploy/module/module_writer.h"

#include <string_view>
#include <utility>

#include "deploy/module/module_file.h"
#include "deploy/module/module_format.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"

namespace tilewright::module {
namespace {

using support::Sha256;

// Calls `take` with the chunks of a cord, whose views need not be of the standard library's type.
template <typename Take>
void ForEachChunk(const absl::Cord& cord, const Take& take) {
  for (const absl::string_view chunk : cord.Chunks()) {
    take(std::string_view(chunk.data(), chunk.size()));
  }
}

template <typename Int>
void Put(std::string* out, Int value) {
  for (size_t i = 0; i < sizeof(Int); ++i) {
    out->push_back(static_cast<char>((value >> (8 * i)) & 0xFF));
  }
}

std::string EncodeTable(const std::vector<Section>& sections) {
  std::string table;
  for (const Section& section : sections) {
    Put<uint32_t>(&table, section.kind);
    Put<uint32_t>(&table, section.index);
    Put<uint64_t>(&table, section.offset);
    Put<uint64_t>(&table, section.size);
    table.append(reinterpret_cast<const char*>(section.digest.data()), kDigestBytes);
    Put<uint64_t>(&table, 0);
  }
  return table;
}

std::string EncodeHeader(const std::string& table, uint32_t sections, uint64_t file_size) {
  std::string header(kMagic);
  Put<uint32_t>(&header, kModuleFileVersion);
  Put<uint32_t>(&header, sections);
  Put<uint64_t>(&header, file_size);
  const Sha256::Digest digest = DigestOf(table);
  header.append(reinterpret_cast<const char*>(digest.data()), kDigestBytes);
  Put<uint64_t>(&header, 0);
  return header;
}

// The file as pieces, one behind the other, that refer to the parts and to what else it owns.
class FilePieces {
 public:
  // `parts` must outlive it.
  static absl::StatusOr<FilePieces> Of(const ModuleParts& parts) {
    FilePieces file;
    TW_TRY(file.Lay(parts));
    return file;
  }

  // Calls `take` with each piece.
  template <typename Take>
  void ForEach(const Take& take) const {
    take(std::string_view(head_));
    uint64_t at = head_.size();
    for (size_t i = 0; i < sections_.size(); ++i) {
      take(std::string_view(kZeros, sections_[i].offset - at));
      ForEachChunk(contents_[i], take);
      at = sections_[i].offset + sections_[i].size;
    }
  }
  uint64_t bytes() const { return bytes_; }

 private:
  static constexpr char kZeros[kPageAlignment] = {};

  absl::Status Lay(const ModuleParts& parts) {
    Manifest manifest = parts.manifest;
    if (manifest.code.size() != parts.code.size()) {
      return support::InvalidArgument("module.file.code_count",
                                      "expected " + std::to_string(manifest.code.size()) +
                                          " code objects, found " +
                                          std::to_string(parts.code.size()));
    }
    Add(kManifest, 0, absl::Cord());  // its text holds the digests of the others
    for (size_t i = 0; i < parts.code.size(); ++i) {
      Add(kCode, static_cast<uint32_t>(i),
          absl::MakeCordFromExternal(parts.code[i], [](absl::string_view) {}));
      manifest.code[i].size = static_cast<int64_t>(sections_.back().size);
      manifest.code[i].digest = support::DigestHex(sections_.back().digest);
    }
    manifest.constants_bytes = static_cast<int64_t>(parts.constants.size());
    manifest.constants_digest.clear();
    if (!parts.constants.empty()) {
      Add(kConstants, 0, parts.constants);
      manifest.constants_digest = support::DigestHex(sections_.back().digest);
    }
    if (sections_.size() > kMaxSections) {
      return support::InvalidArgument("module.file.code_count", "too many code objects");
    }
    TW_ASSIGN(std::string json, ManifestToJson(manifest));
    sections_[0].size = json.size();
    sections_[0].digest = DigestOf(json);
    contents_[0] = absl::Cord(std::move(json));
    bytes_ = kHeaderBytes + kEntryBytes * sections_.size();
    for (Section& section : sections_) {
      section.offset = AlignUp(bytes_, AlignmentOf(section.kind));
      bytes_ = section.offset + section.size;
    }
    const std::string table = EncodeTable(sections_);
    head_ = EncodeHeader(table, static_cast<uint32_t>(sections_.size()), bytes_) + table;
    return absl::OkStatus();
  }

  void Add(SectionKind kind, uint32_t index, absl::Cord contents) {
    Sha256 hash;
    ForEachChunk(contents, [&](std::string_view chunk) { hash.Update(chunk); });
    sections_.push_back({kind, index, 0, contents.size(), hash.Finish()});
    contents_.push_back(std::move(contents));
  }

  std::string head_;  // header and table
  std::vector<Section> sections_;
  std::vector<absl::Cord> contents_;
  uint64_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::string> SerializeModule(const ModuleParts& parts) {
  TW_ASSIGN(const FilePieces file, FilePieces::Of(parts));
  std::string out;
  out.reserve(file.bytes());
  file.ForEach([&](std::string_view piece) { out.append(piece); });
  return out;
}

absl::StatusOr<WrittenModule> WriteModule(const std::string& path, const ModuleParts& parts) {
  TW_ASSIGN(const FilePieces file, FilePieces::Of(parts));
  Sha256 hash;
  std::vector<std::string_view> pieces;
  file.ForEach([&](std::string_view piece) {
    hash.Update(piece);
    pieces.push_back(piece);
  });
  TW_TRY(support::WriteFileAtomic(path, pieces));
  return WrittenModule{support::DigestHex(hash.Finish()), file.bytes()};
}

}  // namespace tilewright::module
