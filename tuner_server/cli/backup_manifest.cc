#include "tuner_server/cli/backup_manifest.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tilewright::cli {
namespace {

constexpr int kFormatVersion = 1;

// The backup may have been damaged, or edited: nothing is taken for what it should be.
bool ReadFileRow(const nlohmann::json& json, BackupFile* file) {
  if (!json.is_object()) return false;
  const auto path = json.find("path"), bytes = json.find("bytes"), sha256 = json.find("sha256");
  if (path == json.end() || !path->is_string()) return false;
  if (bytes == json.end() || !bytes->is_number_unsigned()) return false;
  if (sha256 == json.end() || !sha256->is_string()) return false;
  *file = {path->get<std::string>(), bytes->get<uint64_t>(), sha256->get<std::string>()};
  const std::filesystem::path inside(file->path);
  return !file->path.empty() && inside.is_relative() &&
         file->path.find('\0') == std::string::npos &&
         std::find(inside.begin(), inside.end(), "..") == inside.end();
}

}  // namespace

std::string BackupManifestText(const std::string& daemon, const std::string& created,
                               const std::vector<BackupFile>& files) {
  nlohmann::json json = {{"format", kFormatVersion},
                         {"daemon", daemon},
                         {"created", created},
                         {"files", nlohmann::json::array()}};
  for (const BackupFile& file : files) {
    json["files"].push_back({{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  return json.dump(1) + "\n";
}

absl::StatusOr<std::vector<BackupFile>> ParseBackupManifest(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto bad =
      support::DataLoss("backup.manifest.invalid", "expected the list of a backup of format " +
                                                       std::to_string(kFormatVersion));
  if (!json.is_object()) return bad;
  const auto format = json.find("format"), files = json.find("files");
  if (format == json.end() || *format != nlohmann::json(kFormatVersion)) return bad;
  if (files == json.end() || !files->is_array()) return bad;
  std::vector<BackupFile> rows;
  for (const auto& file : *files) {
    BackupFile row;
    if (!ReadFileRow(file, &row)) return bad;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tilewright::cli
