#include "tuner_server/cli/log_source.h"

#include <cstdio>

#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "tuner_server/cli/embedded.h"
#include "tuner_server/cli/server_client.h"
#include "tuner_server/log/import_export.h"
#include "tuner_server/log/log_check.h"
#include "tuner_server/log/memory_log.h"
#include "tuner_server/log/sqlite_log.h"

namespace tilewright::cli {
namespace {

absl::StatusOr<std::unique_ptr<log::TuningLog>> OpenFile(const std::string& path) {
  TW_TRY(support::FileSize(path).status());  // not_found says which file
  return log::OpenSqliteLog(path, {.read_only = true});
}

// What is to be exported is whole, or is what is whole of it.
absl::StatusOr<std::unique_ptr<log::TuningLog>> OpenForExport(const std::string& path,
                                                              bool skip_damaged) {
  TW_TRY(support::FileSize(path).status());
  if (!skip_damaged) {
    TW_TRY(log::RequireWhole(path));
    return OpenFile(path);
  }
  TW_ASSIGN(const log::LogHealth health, log::CheckLogFile(path, log::CheckDepth::kRows));
  if (!health.whole()) {
    std::fprintf(stderr, "left out: %lld damaged rows and what belongs to them; see 'log check'\n",
                 static_cast<long long>(health.damaged()));
  }
  return log::OpenSqliteLog(path, {.read_only = true, .whole_rows_only = true});
}

absl::Status StreamFromServer(const ServerPlace& server, const ExportRequest& request,
                              const std::function<absl::Status(std::string_view)>& sink) {
  TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
  grpc::ClientContext context;
  daemon::SetTimeout(&context, kTransferTimeoutMs);
  v1::ExportLogRequest ask;
  if (!request.job.empty()) ask.set_name(JobName(request.job));
  ask.set_features(request.features);
  ask.set_drafts(request.drafts);
  auto reader = client.jobs()->ExportLog(&context, ask);
  v1::Chunk chunk;
  absl::Status sunk;
  while (sunk.ok() && reader->Read(&chunk)) sunk = sink(chunk.data());
  if (!sunk.ok()) context.TryCancel();
  const absl::Status status = daemon::FromGrpc(reader->Finish());
  TW_TRY(sunk);
  return status.ok() ? status : support::WithContext(status, "server " + client.address());
}

}  // namespace

absl::StatusOr<LogPlace> ResolveLogPlace(const LogPlace& flags) {
  if (!flags.log_path.empty() && !flags.server.address.empty()) {
    return support::InvalidArgument("cli.usage.log", "give --log or --server, not both");
  }
  if (!flags.log_path.empty() || !flags.server.address.empty()) return flags;
  if (support::GetEnv("TILEWRIGHT_SERVER").has_value()) {
    TW_ASSIGN(const std::string address, ServerAddress(""));
    return LogPlace{"", {address, flags.server.identity}};
  }
  TW_ASSIGN(const std::string state_dir, EmbeddedStateDir(""));
  const std::string path = EmbeddedLog(state_dir);
  if (support::FileExists(path)) return LogPlace{path, {}};
  return support::NotFound("cli.log.source",
                           "expected --log, --server or TILEWRIGHT_SERVER, or a log of an earlier "
                           "tune at " +
                               path + ", found none");
}

absl::StatusOr<std::unique_ptr<log::TuningLog>> OpenLog(const LogPlace& place,
                                                        const std::string& job, bool drafts) {
  if (!place.log_path.empty()) return OpenFile(place.log_path);
  std::unique_ptr<log::TuningLog> log = log::MakeMemoryLog();
  for (const bool with_drafts : {false, true}) {
    if (with_drafts && !drafts) continue;
    std::string lines;
    TW_TRY(StreamFromServer(place.server, {job, false, with_drafts}, [&](std::string_view piece) {
      lines.append(piece);
      return absl::OkStatus();
    }));
    TW_TRY(log::ImportLog(log.get(), lines).status());
  }
  return log;
}

absl::Status StreamExport(const LogPlace& place, const ExportRequest& request,
                          const std::function<absl::Status(std::string_view)>& sink) {
  if (place.log_path.empty()) {
    if (!request.skip_damaged) return StreamFromServer(place.server, request, sink);
    return support::InvalidArgument(
        "cli.usage.skip_damaged",
        "--skip-damaged reads a log file: expected --log, found a server");
  }
  TW_ASSIGN(const std::unique_ptr<log::TuningLog> log,
            OpenForExport(place.log_path, request.skip_damaged));
  return log::ExportLog(
      log.get(), {LastPart(request.job), request.features, request.drafts, request.skip_damaged},
      sink);
}

}  // namespace tilewright::cli
