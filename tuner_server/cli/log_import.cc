#include "tuner_server/cli/log_import.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/log/import_export.h"
#include "tuner_server/log/sqlite_log.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

constexpr std::string_view kSqliteMagic = "SQLite format 3";
constexpr uint64_t kMaxImportBytes = uint64_t{4} << 30;
constexpr uint64_t kMaxChecksumBytes = 4096;

absl::Status CheckSum(const LogImportOptions& options, const std::string& path,
                      std::string_view bytes) {
  std::string wanted = options.sha256;
  const std::string beside = path + ".sha256";
  if (wanted.empty() && support::FileExists(beside)) {
    TW_ASSIGN(const std::string line, support::ReadFile(beside, kMaxChecksumBytes));
    wanted = line.substr(0, line.find_first_of(" \t\r\n"));
  }
  if (wanted.empty()) return absl::OkStatus();
  const std::string found = support::Sha256Hex(bytes);
  if (found == support::ToLower(wanted)) return absl::OkStatus();
  return support::DataLoss("cli.mismatch.sha256",
                           StrCat(path, ": expected sha256 ", wanted, ", found ", found));
}

// A source as JSON lines: records with features, then drafts.
absl::StatusOr<std::string> LinesOf(const LogImportOptions& options, const std::string& path) {
  TW_ASSIGN(std::string bytes, support::ReadFile(path, kMaxImportBytes));
  TW_TRY(CheckSum(options, path, bytes));
  if (!std::string_view(bytes).starts_with(kSqliteMagic)) return bytes;
  TW_ASSIGN(const auto log, log::OpenSqliteLog(path, {.read_only = true}));
  std::string lines;
  for (const bool drafts : {false, true}) {
    TW_TRY(log::ExportLog(log.get(), {"", /*features=*/true, drafts},
                          [&lines](std::string_view piece) {
                            lines.append(piece);
                            return absl::OkStatus();
                          }));
  }
  return lines;
}

// The log of a daemon that runs belongs to it.
absl::StatusOr<std::optional<support::FileLock>> LockOf(const std::string& log_path) {
  const std::string path = support::PathJoin(support::DirName(log_path), "lock");
  if (!support::FileExists(path)) return std::optional<support::FileLock>();
  auto lock = support::FileLock::TryLock(path);
  if (!lock.ok()) {
    return support::WithContext(lock.status(), "a server uses this log: stop it first");
  }
  return std::optional<support::FileLock>(*std::move(lock));
}

absl::Status Import(const LogImportOptions& options) {
  if (!options.sha256.empty() && options.sources.size() != 1) {
    return support::InvalidArgument("cli.usage.sha256", "--sha256 is for one file");
  }
  TW_ASSIGN(const auto lock, LockOf(options.log_path));
  std::vector<std::string> texts;  // all are read before anything is written
  for (const std::string& source : options.sources) {
    TW_ASSIGN(std::string text, LinesOf(options, source));
    texts.push_back(std::move(text));
  }
  TW_ASSIGN(const auto log, log::OpenSqliteLog(options.log_path, {}));
  Table table({{"source"}, {"new records", true}, {"known", true}, {"conflicts", true}});
  nlohmann::json rows = nlohmann::json::array();
  std::vector<std::string> examples;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto report = log::ImportLog(log.get(), texts[i], {options.job_prefix});
    if (!report.ok()) return support::WithContext(report.status(), options.sources[i]);
    table.AddRow({options.sources[i], StrCat(report->new_records), StrCat(report->known),
                  StrCat(report->conflicts)});
    rows.push_back({{"source", options.sources[i]},
                    {"new_records", report->new_records},
                    {"known", report->known},
                    {"conflicts", report->conflicts},
                    {"examples", report->examples}});
    examples.insert(examples.end(), report->examples.begin(), report->examples.end());
  }
  if (options.format == OutputFormat::kJson) {
    PrintJson(rows);
    return absl::OkStatus();
  }
  PrintOut(table.Render());
  for (const std::string& example : examples) PrintOut("left out: " + example);
  if (!examples.empty()) PrintOut("to keep both, import with --job-prefix");
  return absl::OkStatus();
}

}  // namespace

int LogImport(const LogImportOptions& options, const std::string& command) {
  return Finish(command, "cannot import into " + options.log_path, Import(options));
}

}  // namespace tilewright::cli
