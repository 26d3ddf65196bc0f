// libFuzzer entry for what strangers send to the fleet's daemons and what their files may hold: the
// first byte chooses the parser, the rest is its bytes. Whatever is accepted must mean something.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/daemon/server_host.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/tensor_io.h"
#include "deploy/security/audit_log.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "device_agent/spool.h"
#include "device_agent/test_faults.h"
#include "tracker/device_pool.h"
#include "tuner_server/cli/backup_manifest.h"
#include "tuner_server/jobs/work_items.h"
#include "tuner_server/log/import_export.h"
#include "tuner_server/log/memory_log.h"
#include "tuner_server/log/target_text.h"
#include "tuner_server/modules/module_store.h"
#include "tuner_server/service/job_messages.h"
#include "tuner_server/service/page_token.h"
#include "vta/isa/isa.h"

namespace tilewright {
namespace {

class MemorySpool final : public device_agent::SpoolFile {
 public:
  explicit MemorySpool(std::string* bytes) : bytes_(bytes) {}
  absl::StatusOr<std::string> Read() override { return *bytes_; }
  absl::Status WriteAt(int64_t size, std::string_view bytes, bool) override {
    bytes_->resize(static_cast<size_t>(size));
    bytes_->append(bytes);
    return absl::OkStatus();
  }
  absl::Status Replace(std::string_view content) override {
    *bytes_ = content;
    return absl::OkStatus();
  }

 private:
  std::string* const bytes_;
};

template <typename Message>
bool Parse(std::string_view bytes, Message* message) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

// What a spool gives back it gives back again after it was compacted.
void Spool(std::string_view text) {
  std::string bytes(text);
  device_agent::Ledger ledger;
  auto spool = device_agent::Spool::Open(std::make_unique<MemorySpool>(&bytes), "fuzz", &ledger);
  if (!spool.ok()) return;
  TW_CHECK((*spool)->Rewrite(ledger.Snapshot()).ok());
  device_agent::Ledger again;
  TW_CHECK(device_agent::Spool::Open(std::make_unique<MemorySpool>(&bytes), "fuzz", &again).ok());
  TW_CHECK(again.unacked().size() == ledger.unacked().size());
  TW_CHECK(again.leases().size() == ledger.leases().size());
}

void Module(std::string_view text) {
  const auto file = module::ModuleFile::FromBytes(text);
  if (file.ok()) TW_CHECK(module::ManifestFromJson(file->manifest_json()).ok());
}

void Manifest(std::string_view text) {
  const auto manifest = module::ManifestFromJson(text);
  if (!manifest.ok()) return;
  const auto json = module::ManifestToJson(*manifest);
  if (json.ok()) TW_CHECK(module::ManifestFromJson(*json).ok()) << *json;
}

void Npy(std::string_view text) {
  const auto tensor = runtime::ParseNpy(text);
  if (!tensor.ok()) return;
  TW_CHECK(runtime::ParseNpy(runtime::SerializeNpy(*tensor)).ok());
}

void Log(std::string_view text) {
  const auto log = log::MakeMemoryLog();
  const auto report = log::ImportLog(log.get(), text);
  if (!report.ok()) return;
  const auto again = log::ImportLog(log.get(), text);
  TW_CHECK(again.ok() && again->new_records == 0);
}

void Target(std::string_view text) { (void)log::ParseTargetText(text); }

// A file, for the audit log is read from one.
void Audit(std::string_view text) {
  static const std::string path = support::StrCat("/dev/shm/tilewright-fuzz-", getpid());
  if (!support::WriteFileAtomic(path, text).ok()) return;
  (void)security::VerifyAuditFile(path);
  (void)support::RemoveFile(path);
}

// A daemon's configuration file, with an option of each type that daemons have: taken in, or an
// error that says what is wrong.
void Config(std::string_view text) {
  CLI::App app;
  std::string address;
  int64_t milliseconds = 0;
  double weight = 0;
  bool insecure = false;
  std::vector<std::string> devices;
  app.add_option("--listen", address);
  app.add_option("--lease-ttl-ms", milliseconds);
  app.add_option("--weight", weight);
  app.add_flag("--insecure", insecure);
  app.add_option("--device", devices);
  app.allow_config_extras(CLI::config_extras_mode::error);
  std::istringstream file{std::string(text)};
  try {
    app.parse_from_stream(file);
  } catch (const CLI::Error& error) {
    TW_CHECK(error.get_exit_code() != 0 && error.what() != nullptr);
  }
}

// A token that is accepted is the one that its place in the list has.
void Page(std::string_view text) {
  constexpr std::string_view kList = "jobs state=RUNNING";
  v1::Page page;
  page.set_page_token(std::string(text));
  auto read = service::ReadPage(page, kList);
  if (read.ok() && !text.empty()) {
    TW_CHECK(read->position >= 0 && service::PageToken(kList, read->position) == text);
  }
  // As one with a right check and any place in it; only of its own list.
  int64_t position = 0;
  std::memcpy(&position, text.data(), std::min(text.size(), sizeof(position)));
  page.set_page_token(service::PageToken(kList, position));
  read = service::ReadPage(page, kList);
  TW_CHECK(read.ok() == (position >= 0) && (!read.ok() || read->position == position));
  TW_CHECK(!service::ReadPage(page, text).ok() || text == kList);
}

void Backup(std::string_view text) {
  const auto files = cli::ParseBackupManifest(text);
  if (!files.ok()) return;
  const auto again = cli::ParseBackupManifest(cli::BackupManifestText("d", "now", *files));
  TW_CHECK(again.ok() && again->size() == files->size());
}

// A job as a client sends it is kept as text: what is kept is read again as it was, and serves to
// make work items.
void Job(std::string_view bytes) {
  v1::Job job;
  if (!Parse(bytes, &job)) {
    (void)jobs::SpecFromJson(std::string(bytes));
    (void)jobs::ResourcesFromJson(std::string(bytes));
    return;
  }
  const auto text = jobs::SpecToJson(job);
  if (!text.ok()) return;
  const auto again = jobs::SpecFromJson(*text);
  TW_CHECK(again.ok()) << again.status();
  log::JobRow row;
  v1::BuilderTask task;
  jobs::WorkItemSource source;
  source.job = &row;
  source.spec = &*again;
  source.task = &task;
  source.best_ns = 1e6;
  source.artifact_sha256 = std::string(64, '0');
  (void)jobs::MakeWorkItem(source);
}

// Names of resources and addresses.
void Names(std::string_view text) {
  const auto job = service::ParseJobPath(text);
  if (job.ok()) TW_CHECK(!job->job.empty());
  (void)modules::ParseModuleParent(text);
  (void)jobs::ParseWorkItemName("j.1", text);
  (void)jobs::UserName(std::string(text));
  (void)daemon::ParseHostPort(std::string(text), "fuzz.address");
}

// An instruction of a VTA program that a module brings.
void VtaWord(std::string_view bytes) {
  vta::Word128 word;
  std::memcpy(&word, bytes.data(), std::min(bytes.size(), sizeof(word)));
  const auto isa = vta::Isa::Make(vta::Config{});
  TW_CHECK(isa.ok());
  const auto instruction = isa->Decode(word);
  if (!instruction.ok()) return;
  TW_CHECK(!vta::Disassemble(*instruction).empty());
  const auto again = isa->Encode(*instruction);
  TW_CHECK(again.ok()) << again.status();
  const auto same = isa->Decode(*again);
  TW_CHECK(same.ok() && *same == *instruction);
}

// Requests one after the other, each a byte for its kind and two for its size: agents that lie,
// consumers that make no sense. No answer is wrong, but the state must stay sound.
void Pool(std::string_view text) {
  tracker::DevicePool pool(tracker::PoolOptions{}, tracker::Snapshot{}, tracker::Now{});
  tracker::Now now;
  while (text.size() >= 3) {
    const char kind = text[0];
    const size_t size = static_cast<uint8_t>(text[1]) | static_cast<size_t>(text[2]) << 8;
    const std::string_view bytes = text.substr(3, size);
    text.remove_prefix(3 + bytes.size());
    now.mono_ns += tracker::kSecondNs;
    now.wall_us += 1'000'000;
    v1::SyncRequest sync;
    v1::WorkItem item;
    v1::MeasurementResult result;
    v1::CancelWorkRequest cancel;
    v1::PullResultsRequest pull;
    v1::AckResultsRequest ack;
    v1::CreateHoldRequest hold;
    if (kind == 's' && Parse(bytes, &sync) && pool.Sync(sync, "1.2.3.4", now).ok()) {
      v1::SyncResponse response;
      (void)pool.FillSyncResponse(sync.agent(), true, now, &response);
    }
    if (kind == 'w' && Parse(bytes, &item)) (void)pool.Submit("tuner", item, now);
    if (kind == 'r' && Parse(bytes, &result)) (void)pool.Report(result, "1.2.3.4", now);
    if (kind == 'c' && Parse(bytes, &cancel)) (void)pool.Cancel(cancel, now);
    v1::PullResultsResponse updates;
    if (kind == 'p' && Parse(bytes, &pull)) (void)pool.Pull(pull, &updates);
    if (kind == 'a' && Parse(bytes, &ack)) (void)pool.Acknowledge(ack);
    if (kind == 'h' && Parse(bytes, &hold)) (void)pool.CreateHold(hold, now);
    pool.Tick(now);
    (void)pool.TakeChanges();
    const absl::Status sound = pool.CheckInvariants();
    TW_CHECK(sound.ok()) << sound;
  }
}

}  // namespace
}  // namespace tilewright

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0]) {
    case 's':
      tilewright::Spool(text);
      break;
    case 'm':
      tilewright::Module(text);
      break;
    case 'j':
      tilewright::Manifest(text);
      break;
    case 'n':
      tilewright::Npy(text);
      break;
    case 'l':
      tilewright::Log(text);
      break;
    case 't':
      tilewright::Target(text);
      break;
    case 'a':
      tilewright::Audit(text);
      break;
    case 'c':
      tilewright::Config(text);
      break;
    case 'g':
      tilewright::Page(text);
      break;
    case 'b':
      tilewright::Backup(text);
      break;
    case 'o':
      tilewright::Job(text);
      break;
    case 'r':
      tilewright::Names(text);
      break;
    case 'v':
      tilewright::VtaWord(text);
      break;
    case 'f':
      (void)tilewright::device_agent::ParseTestFaults(text);
      break;
    case 'p':
      (void)tilewright::runtime::ParseTensorProto(text);
      break;
    default:
      tilewright::Pool(text);
  }
  return 0;
}
