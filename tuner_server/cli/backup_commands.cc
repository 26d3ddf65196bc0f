#include "tuner_server/cli/backup_commands.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "deploy/security/certificate.h"
#include "deploy/security/identity.h"
#include "deploy/sql/backup.h"
#include "deploy/sql/database.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/backup_manifest.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/modules/version_numbers.h"

namespace tilewright::cli {
namespace {

namespace fs = std::filesystem;
using support::PathJoin;
using support::StrCat;

constexpr char kManifest[] = "backup.json";
constexpr uint64_t kMaxManifestBytes = 1 << 30;
constexpr size_t kPieceBytes = 1 << 20;
constexpr char kTrackerDatabase[] = "tracker.db";
constexpr char kTunerDatabase[] = "tuner.db";

// What makes no sense elsewhere: locks, SQLite's side files (their content is in the copy), builds
// under way, and the artifacts of a tracker, which tuners send again.
bool Skipped(const std::string& path, bool tracker) {
  const std::vector<std::string> parts = support::Split(path, '/');
  if (parts[0] == "lock" || (tracker && parts[0] == "artifacts")) return true;
  if (std::find(parts.begin(), parts.end() - 1, "builds") != parts.end() - 1) return true;
  return path.ends_with(".db-wal") || path.ends_with(".db-shm") || path.ends_with(".tmp");
}

// The regular files under `folder`, sorted. Files may come and go meanwhile.
absl::StatusOr<std::vector<std::string>> FilesUnder(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code gone;
    if (!at->is_regular_file(gone) || gone) continue;
    files.push_back(fs::relative(at->path(), folder, gone).string());
  }
  if (error) return support::Internal("backup.folder.failed", folder + ": " + error.message());
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<BackupFile> HashFile(const std::string& folder, const std::string& path) {
  std::ifstream in(PathJoin(folder, path), std::ios::binary);
  if (!in) return support::NotFound("backup.file.missing", PathJoin(folder, path));
  BackupFile row;
  row.path = path;
  support::Sha256 hash;
  std::string piece(kPieceBytes, '\0');
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0) {
    hash.Update(piece.data(), static_cast<size_t>(in.gcount()));
    row.bytes += static_cast<uint64_t>(in.gcount());
  }
  if (in.bad()) return support::Internal("backup.file.unreadable", PathJoin(folder, path));
  row.sha256 = support::DigestHex(hash.Finish());
  return row;
}

absl::Status CopyFile(const std::string& from, const std::string& to) {
  std::error_code error;
  TW_TRY(support::MakeDirs(support::DirName(to)));
  fs::copy_file(from, to, error);
  if (!error) return absl::OkStatus();
  if (error == std::errc::no_such_file_or_directory)
    return support::NotFound("backup.file.gone", from);
  if (error == std::errc::no_space_on_device) {
    return support::ResourceExhausted("backup.disk.full", to);
  }
  return support::Internal("backup.copy.failed", StrCat(from, " to ", to, ": ", error.message()));
}

absl::StatusOr<std::vector<BackupFile>> CopyState(const std::string& state, const std::string& to,
                                                  bool tracker) {
  TW_ASSIGN(std::vector<std::string> files, FilesUnder(state));
  // Databases first: what they name was there before them and is copied after them.
  std::stable_partition(files.begin(), files.end(),
                        [](const std::string& path) { return path.ends_with(".db"); });
  std::vector<BackupFile> rows;
  for (const std::string& path : files) {
    if (Skipped(path, tracker)) continue;
    const std::string target = PathJoin(to, path);
    absl::Status copied;
    if (path.ends_with(".db")) {
      TW_TRY(support::MakeDirs(support::DirName(target)));
      copied = sql::BackupDatabase(PathJoin(state, path), target);
    } else {
      copied = CopyFile(PathJoin(state, path), target);
      if (absl::IsNotFound(copied)) continue;  // it was deleted meanwhile: not in use
    }
    TW_TRY(copied);
    TW_ASSIGN(BackupFile row, HashFile(to, path));
    rows.push_back(std::move(row));
  }
  return rows;
}

// Everything under the folder for its owner alone, whatever the umask says and whatever the copied
// files had: measurements, models and modules are nobody else's.
absl::Status MakePrivate(const std::string& folder) {
  std::error_code error;
  fs::permissions(folder, fs::perms::owner_all, error);
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const fs::perms file = fs::perms::owner_read | fs::perms::owner_write;
    fs::permissions(at->path(), at->is_directory() ? fs::perms::owner_all : file, error);
    if (error) break;
  }
  if (!error) return absl::OkStatus();
  return support::Internal("backup.permissions.failed", folder + ": " + error.message());
}

// Writes `target`.partial with `fill` and renames it: whole, or not there. Its owner alone can read
// it, also while it is written.
template <typename Fill>
absl::Status MakeWhole(const std::string& target, const Fill& fill) {
  const std::string partial = target + ".partial";
  TW_TRY(support::RemoveTree(partial));
  TW_TRY(security::MakePrivateFolder(partial));
  absl::Status status = fill(partial);
  if (status.ok()) status = MakePrivate(partial);
  std::error_code error;
  if (status.ok()) fs::rename(partial, target, error);
  if (error) status = support::Internal("backup.rename.failed", target + ": " + error.message());
  if (!status.ok()) support::RemoveTree(partial).IgnoreError();
  return status;
}

absl::StatusOr<std::vector<BackupFile>> ReadManifest(const std::string& backup) {
  const std::string path = PathJoin(backup, kManifest);
  TW_ASSIGN(const std::string text, support::ReadFile(path, kMaxManifestBytes));
  auto files = ParseBackupManifest(text);
  return files.ok() ? std::move(files) : support::WithContext(files.status(), path);
}

absl::StatusOr<std::vector<BackupFile>> Verify(const std::string& backup) {
  TW_ASSIGN(std::vector<BackupFile> rows, ReadManifest(backup));
  std::set<std::string> listed = {kManifest};
  for (const BackupFile& row : rows) {
    listed.insert(row.path);
    TW_ASSIGN(const BackupFile found, HashFile(backup, row.path));
    if (found.bytes == row.bytes && found.sha256 == row.sha256) continue;
    return support::DataLoss("backup.file.damaged",
                             PathJoin(backup, row.path) + " is not what was backed up");
  }
  TW_ASSIGN(const std::vector<std::string> files, FilesUnder(backup));
  for (const std::string& path : files) {
    if (listed.count(path) != 0) continue;
    return support::DataLoss("backup.file.foreign",
                             PathJoin(backup, path) + " does not belong to the backup");
  }
  return rows;
}

void PrintRows(const BackupOptions& options, const std::vector<BackupFile>& rows,
               const std::string& what) {
  uint64_t bytes = 0;
  for (const BackupFile& row : rows) bytes += row.bytes;
  if (options.format == OutputFormat::kJson) {
    PrintJson({{"backup", options.backup}, {"files", rows.size()}, {"bytes", bytes}});
  } else {
    PrintOut(StrCat(what, ": ", rows.size(), " files, ", bytes, " bytes"));
  }
}

absl::Status Create(const BackupOptions& options) {
  const bool tracker = support::FileExists(PathJoin(options.state_dir, kTrackerDatabase));
  if (!tracker && !support::FileExists(PathJoin(options.state_dir, kTunerDatabase))) {
    return support::NotFound(
        "backup.state.unknown",
        StrCat("expected ", kTrackerDatabase, " or ", kTunerDatabase, " in ", options.state_dir,
               "; the state of an agent needs no backup: what it holds is measured again"));
  }
  if (support::FileExists(options.backup)) {
    return support::AlreadyExists("backup.exists", options.backup + " is there already");
  }
  std::vector<BackupFile> rows;
  TW_TRY(MakeWhole(options.backup, [&](const std::string& partial) -> absl::Status {
    TW_ASSIGN(rows, CopyState(options.state_dir, partial, tracker));
    support::SystemClock clock;
    const std::string text =
        BackupManifestText(tracker ? "tilewright-tracker" : "tilewright-tuner",
                           security::TimeText(clock.WallMicros() / 1'000'000), rows);
    return support::WriteFileAtomic(PathJoin(partial, kManifest), text);
  }));
  PrintRows(options, rows, options.backup);
  return absl::OkStatus();
}

absl::Status Restore(const BackupOptions& options) {
  TW_ASSIGN(const std::vector<BackupFile> rows, Verify(options.backup));
  std::error_code error;
  if (support::FileExists(options.state_dir) && !fs::is_empty(options.state_dir, error)) {
    return support::AlreadyExists(
        "backup.state.exists",
        options.state_dir + " is not empty; stop the daemon and move the folder away first");
  }
  fs::remove(options.state_dir, error);
  TW_TRY(MakeWhole(options.state_dir, [&](const std::string& partial) -> absl::Status {
    for (const BackupFile& row : rows) {
      TW_TRY(CopyFile(PathJoin(options.backup, row.path), PathJoin(partial, row.path)));
    }
    if (!support::FileExists(PathJoin(partial, kTunerDatabase))) return absl::OkStatus();
    // Tells the tuner that it does not know the numbers which module versions got after the backup.
    return support::WriteFileAtomic(PathJoin(partial, modules::kNumbersFile), "restored\n");
  }));
  PrintRows(options, rows, options.state_dir);
  return absl::OkStatus();
}

}  // namespace

int BackupCreate(const BackupOptions& options) {
  return Finish("backup create", "cannot back up " + options.state_dir, Create(options));
}

int BackupVerify(const BackupOptions& options) {
  const auto rows = Verify(options.backup);
  if (rows.ok()) PrintRows(options, *rows, options.backup + " is whole");
  return Finish("backup verify", "not a whole backup: " + options.backup, rows.status());
}

int BackupRestore(const BackupOptions& options) {
  return Finish("backup restore", "cannot restore " + options.backup, Restore(options));
}

}  // namespace tilewright::cli
