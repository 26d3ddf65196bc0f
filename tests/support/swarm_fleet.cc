#include "tests/support/swarm_fleet.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <utility>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/wire.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/security/authority.h"
#include "deploy/security/identity.h"
#include "deploy/security/token_file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "device_agent/fingerprint.h"
#include "tests/support/patience.h"
#include "tests/support/process_status.h"
#include "tilewright/v1/artifact.grpc.pb.h"

namespace tilewright::tests {
namespace {

using security::CertificateKind;
using security::Role;
using support::PathJoin;
using support::StrCat;

constexpr int kDays = 2;
constexpr int64_t kFleetCallMs = 10'000;
constexpr int64_t kStartMs = 60'000;
constexpr char kTuner[] = "steady";
constexpr char kClass[] = "swarm";

std::string AgentName(int number) { return StrCat("swarm", number); }

// The same token with every call, as the agent's own credentials send it.
class FixedToken final : public grpc::MetadataCredentialsPlugin {
 public:
  explicit FixedToken(std::string token) : bearer_("Bearer " + std::move(token)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status GetMetadata(grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
                           std::multimap<grpc::string, grpc::string>* metadata) override {
    metadata->emplace("authorization", bearer_);
    return grpc::Status::OK;
  }

 private:
  const std::string bearer_;
};

// This machine under another name.
v1::DeviceReport Device(int number) {
  v1::DeviceReport device = device_agent::DeviceFrom(
      device_agent::CpuAttributes(runtime::DetectCpu(), device_agent::ReadHostFacts(), {100, 0}));
  device.set_device("devices/" + AgentName(number));
  device.set_key(kClass);
  device.set_health(v1::HEALTH_GOOD);
  return device;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SwarmFleet>> SwarmFleet::Create(const SwarmFleetOptions& options) {
  auto fleet = std::unique_ptr<SwarmFleet>(new SwarmFleet(options));
  TW_ASSIGN(support::TempDir dir, support::TempDir::Create("swarm_fleet"));
  fleet->dir_ = std::make_unique<support::TempDir>(std::move(dir));
  TW_TRY(fleet->MakeIdentities());
  TW_TRY(fleet->StartTracker("127.0.0.1:0"));
  return fleet;
}

SwarmFleet::~SwarmFleet() = default;

absl::Status SwarmFleet::MakeIdentities() {
  const int64_t now_s = clock_.WallMicros() / 1'000'000;
  const std::string authority = dir_->File("authority");
  TW_TRY(security::CreateAuthority(authority, "Swarm", kDays, now_s));
  const auto issue = [&](CertificateKind kind, Role role, const std::string& name) {
    security::LeafRequest request;
    request.peer = {kind, name};
    request.days = kDays;
    const std::string folder = dir_->File(name);
    TW_TRY(security::IssueIdentity(authority, request, folder, now_s));
    if (kind == CertificateKind::kTracker) return absl::OkStatus();
    TW_ASSIGN(const security::NewToken token,
              security::CreateToken(dir_->File("tokens"), role, name, kDays, now_s));
    return support::WriteFileAtomic(PathJoin(folder, security::kTokenFile), token.token);
  };
  TW_TRY(issue(CertificateKind::kTracker, Role::kAdmin, "tracker"));
  TW_TRY(issue(CertificateKind::kTuner, Role::kTuner, kTuner));
  for (int i = 0; i < options_.agents; ++i) {
    TW_TRY(issue(CertificateKind::kAgent, Role::kAgent, AgentName(i)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> SwarmFleet::Credentials(
    const std::string& name) const {
  support::SystemClock clock;
  TW_ASSIGN(const security::IdentityFiles files,
            security::LoadIdentity(dir_->File(name), clock.WallMicros() / 1'000'000));
  TW_ASSIGN(const std::string token,
            support::ReadFile(PathJoin(dir_->File(name), security::kTokenFile), 1000));
  // deploy/daemon/credentials.h watches the files, on a thread for each identity.
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          files.authorities,
          std::vector<grpc::experimental::IdentityKeyCertPair>{{files.key, files.certificate}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return grpc::CompositeChannelCredentials(
      grpc::experimental::TlsCredentials(options),
      grpc::MetadataCredentialsFromPlugin(std::make_unique<FixedToken>(token)));
}

absl::Status SwarmFleet::StartTracker(const std::string& listen) {
  const std::string port_file = dir_->File("port");
  TW_TRY(support::RemoveTree(port_file));
  support::ChildOptions options;
  const std::string state = options_.state_dir.empty() ? dir_->File("state") : options_.state_dir;
  TW_ASSIGN(options.program, support::FindSibling("tilewright-tracker"));
  options.args = {"--state-dir",         state,      "--port-file",        port_file,  "--identity",
                  dir_->File("tracker"), "--tokens", dir_->File("tokens"), "--listen", listen};
  options.args.insert(options.args.end(), options_.tracker_args.begin(),
                      options_.tracker_args.end());
  TW_ASSIGN(tracker_, support::Child::Start(options));
  const int64_t end_ns = clock_.NowNs() + Patiently(kStartMs) * 1'000'000;
  while (support::ReadFile(port_file, 100).value_or("").find('\n') == std::string::npos) {
    if (tracker_->Wait(0).ok() || clock_.NowNs() > end_ns) {
      return support::Unavailable("swarm.tracker.start", tracker_->stderr_tail());
    }
    support::SleepMs(1);
  }
  TW_ASSIGN(const std::string text, support::ReadFile(port_file, 100));
  address_ = std::string(support::Trim(text));
  return absl::OkStatus();
}

absl::Status SwarmFleet::ConnectAgents(int64_t patience_ms) {
  TW_ASSIGN(const auto tuner, Credentials(kTuner));
  // Uploading the one artifact also warms the tracker up: its memory counts from here.
  const std::string bytes = "what agents of a swarm are said to measure";
  const auto artifacts = v1::ArtifactService::NewStub(daemon::MakeChannel(address_, {true, tuner}));
  const std::string hex = support::Sha256Hex(bytes);
  TW_TRY(daemon::UploadArtifact(artifacts.get(), hex, bytes, Patiently(kFleetCallMs)));
  SteadyWorkOptions work{.address = address_,
                         .credentials = tuner,
                         .items_per_s = options_.items_per_s,
                         .items_per_call = 5,
                         .model = {}};
  work.model.set_target("cpu,arch=x86_64,cpu=x86-64,threads=1");
  work.model.set_pool(kClass);
  work.model.set_job("steady");
  *work.model.mutable_work()->mutable_artifact() =
      daemon::MakeDigest(hex, static_cast<int64_t>(bytes.size()));
  work.model.mutable_work()->mutable_wall_limit()->set_seconds(10);
  work_ = std::make_unique<SteadyWork>(work);
  SwarmOptions options;
  options.address = address_;
  options.measure_ms = options_.measure_ms;
  options.on_grant = [work = work_.get()](const std::string& item, int attempt) {
    work->Granted(item, attempt);
  };
  swarm_ = std::make_unique<AgentSwarm>(options);
  std::vector<std::shared_ptr<grpc::ChannelCredentials>> credentials;
  for (int i = 0; i < options_.agents; ++i) {
    TW_ASSIGN(credentials.emplace_back(), Credentials(AgentName(i)));
  }
  for (int i = 0; i < options_.agents; ++i) {
    swarm_->Add(AgentName(i), Device(i), credentials[static_cast<size_t>(i)]);
  }
  return WaitUntilSynced(0, patience_ms);
}

absl::Status SwarmFleet::KillTracker() {
  tracker_->Kill();
  return tracker_->Wait(Patiently(kFleetCallMs)).status();
}

absl::Status SwarmFleet::RestartTracker() { return StartTracker(address_); }

absl::Status SwarmFleet::WaitUntilSynced(uint64_t epoch, int64_t patience_ms) {
  const int64_t end_ns = clock_.NowNs() + patience_ms * 1'000'000;
  while (swarm_->Synced(epoch + 1) < options_.agents) {
    if (clock_.NowNs() > end_ns) {
      return support::MakeError(absl::StatusCode::kDeadlineExceeded, "swarm.sync.timeout",
                                StrCat(swarm_->Synced(epoch + 1), " of ", options_.agents,
                                       " agents are back\n", tracker_->stderr_tail()));
    }
    support::SleepMs(5);
  }
  return absl::OkStatus();
}

double SwarmFleet::RssKb() const {
  return static_cast<double>(StatusKb("VmRSS", std::to_string(tracker_->pid())));
}

double SwarmFleet::CpuSeconds() const {
  const auto text =
      support::ReadFile(StrCat("/proc/", tracker_->pid(), "/stat"), 1 << 16).value_or("");
  const size_t at = text.rfind(')');  // the name may hold anything
  if (at == std::string::npos) return 0;
  std::istringstream fields(text.substr(at + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;  // state .. cmajflt
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace tilewright::tests
