#include "tuner_server/cli/log_import.h"

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/server_client.h"
#include "tuner_server/log/import_export.h"
#include "tuner_server/log/log_check.h"
#include "tuner_server/log/sqlite_log.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

constexpr std::string_view kSqliteMagic = "SQLite format 3";
constexpr uint64_t kMaxImportBytes = uint64_t{4} << 30;
constexpr uint64_t kMaxChecksumBytes = 4096;
constexpr int64_t kImportTimeoutMs = 600'000;

// Adds one source's lines to a log, wherever that is.
using Importer = std::function<absl::StatusOr<log::ImportReport>(const std::string& lines)>;

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
  TW_TRY(log::RequireWhole(path));
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

// The lines travel as an artifact, so that what arrives is what was sent.
absl::StatusOr<log::ImportReport> ImportAt(ServerClient* server, const std::string& lines,
                                           const std::string& job_prefix) {
  v1::ImportLogRequest request;
  TW_ASSIGN(*request.mutable_lines(), server->Upload(lines));
  request.set_job_prefix(job_prefix);
  TW_ASSIGN(
      const v1::ImportLogResponse response,
      server->Call(server->jobs(), &v1::JobService::Stub::ImportLog, request, kImportTimeoutMs));
  log::ImportReport report;
  report.new_records = response.new_records();
  report.known = response.known();
  report.conflicts = response.conflicts();
  report.examples.assign(response.examples().begin(), response.examples().end());
  return report;
}

absl::Status ImportAll(const LogImportOptions& options, const Importer& importer) {
  std::vector<std::string> texts;  // all are read before anything is written
  for (const std::string& source : options.sources) {
    TW_ASSIGN(std::string text, LinesOf(options, source));
    texts.push_back(std::move(text));
  }
  Table table({{"source"}, {"new records", true}, {"known", true}, {"conflicts", true}});
  nlohmann::json rows = nlohmann::json::array();
  std::vector<std::string> examples;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto report = importer(texts[i]);
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

absl::Status Import(const LogImportOptions& options) {
  if (!options.sha256.empty() && options.sources.size() != 1) {
    return support::InvalidArgument("cli.usage.sha256", "--sha256 is for one file");
  }
  if (options.log_path.empty()) {
    TW_ASSIGN(ServerClient server, ServerClient::Connect(options.server));
    return ImportAll(options, [&](const std::string& lines) {
      return ImportAt(&server, lines, options.job_prefix);
    });
  }
  TW_TRY(log::CheckLogIsFree(options.log_path));
  // Made when the sources have been read and found whole: a refused import leaves no empty log.
  std::unique_ptr<log::TuningLog> log;
  return ImportAll(options, [&](const std::string& lines) -> absl::StatusOr<log::ImportReport> {
    if (log == nullptr) {
      TW_ASSIGN(log, log::OpenSqliteLog(options.log_path, {}));
    }
    return log::ImportLog(log.get(), lines, {options.job_prefix});
  });
}

}  // namespace

int LogImport(const LogImportOptions& options, const std::string& command) {
  const std::string into = options.log_path.empty() ? "the server's log" : options.log_path;
  return Finish(command, "cannot import into " + into, Import(options));
}

}  // namespace tilewright::cli
