// tilewright-tracker: the broker between tuners and agents.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/credentials.h"
#include "deploy/daemon/daemon_main.h"
#include "deploy/daemon/systemd.h"
#include "deploy/security/enrolment.h"
#include "deploy/security/identity.h"
#include "deploy/security/rate_limiter.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tracker/enrolment_service.h"
#include "tracker/tracker_loop.h"
#include "tracker/tracker_metrics.h"
#include "tracker/tracker_service.h"
#include "tracker/tracker_store.h"

namespace tilewright::tracker {
namespace {

// Refused calls of a revoked agent that the loop hears of.
constexpr security::RateLimit kRevokedCalls = {1, 4};

struct TrackerFlags {
  int64_t lease_ttl_ms = 30'000;
  int64_t recovery_ms = 30'000;
  int64_t offline_after_ms = 60'000;
  int default_batch = 8;
  int64_t artifact_cache_bytes = int64_t{20} << 30;
  int64_t max_open_items = 1'000'000;
  int max_devices_per_agent = 256;
  int64_t age_class_s = 300;
  std::vector<std::string> shares;
  std::string enrol_listen;  // HOST:PORT; empty = nobody enrols here
  std::string enrol_authority;
  std::string enrol_tickets;
  std::string enrol_port_file;
};

absl::StatusOr<SharePolicy> Shares(const TrackerFlags& flags) {
  SharePolicy policy;
  for (const std::string& text : flags.shares) TW_TRY(AddUserPolicy(text, &policy));
  return policy;
}

// Certificates are signed and tokens written here: all of it must be there, and TLS.
absl::Status CheckEnrolment(const TrackerFlags& flags, const daemon::DaemonFlags& common) {
  if (flags.enrol_listen.empty()) return absl::OkStatus();
  TW_TRY(daemon::ParseHostPort(flags.enrol_listen, "tracker.enrol.invalid").status());
  if (flags.enrol_authority.empty() || flags.enrol_tickets.empty() || common.identity.empty() ||
      common.tokens.empty()) {
    return support::InvalidArgument("tracker.enrol.incomplete",
                                    "--enrol-listen needs --enrol-authority DIR, --enrol-tickets "
                                    "FILE, --identity DIR and --tokens FILE");
  }
  TW_TRY(security::CheckPrivateFile(support::PathJoin(flags.enrol_authority, "ca-key.pem")));
  return security::LoadTickets(flags.enrol_tickets).status();
}

// The listener of devices that have no certificate yet.
class EnrolmentDoor {
 public:
  EnrolmentDoor(const TrackerFlags& flags, const daemon::DaemonContext& context,
                support::Clock* clock)
      : service_({flags.enrol_authority, flags.enrol_tickets, context.flags.tokens},
                 context.security, clock),
        listen_(flags.enrol_listen),
        port_file_(flags.enrol_port_file),
        identity_(context.flags.identity),
        metrics_(context.metrics),
        clock_(clock) {}

  absl::Status Start() {
    if (listen_.empty()) return absl::OkStatus();
    daemon::HostOptions options;
    options.listen = listen_;
    options.port_file = port_file_;
    options.metrics = metrics_;
    options.max_message_bytes = kMaxEnrolmentBytes;
    TW_ASSIGN(options.credentials, daemon::TlsServerOnlyCredentials(identity_, clock_));
    host_ = std::make_unique<daemon::ServerHost>(options);
    host_->AddService(&service_, kEnrolmentServiceName);
    TW_TRY(host_->Start());
    daemon::LogInfo("enrol.serving", {{"address", host_->address()}});
    return absl::OkStatus();
  }
  void Stop() {
    if (host_ != nullptr) host_->Stop();
  }

 private:
  EnrolmentServiceImpl service_;
  const std::string listen_;
  const std::string port_file_;
  const std::string identity_;
  daemon::Metrics* const metrics_;
  support::Clock* const clock_;
  std::unique_ptr<daemon::ServerHost> host_;
};

absl::Status CheckFlags(const TrackerFlags& flags) {
  if (flags.lease_ttl_ms < 100 || flags.recovery_ms < 0 || flags.offline_after_ms < 100 ||
      flags.default_batch < 1 || flags.artifact_cache_bytes < 0 || flags.max_open_items < 1 ||
      flags.max_devices_per_agent < 1 || flags.age_class_s < 1) {
    return support::InvalidArgument("tracker.flags.invalid",
                                    "expected times of at least 100 ms and a batch of at least 1");
  }
  return Shares(flags).status();
}

// Devices of an agent that is refused say so at once, not when they are missed.
void TellRevokedAgents(daemon::ServerSecurity* security, TrackerLoop* loop, support::Clock* clock) {
  const auto limiter = std::make_shared<security::RateLimiter>(clock);
  security->set_on_revoked([loop, limiter](std::string_view uri, const std::string& credential,
                                           const absl::Status& why) {
    const auto peer = security::ParsePeerUri(uri);
    if (!peer.ok() || peer->kind != security::CertificateKind::kAgent) return;
    if (!limiter->Take(std::string(uri), kRevokedCalls)) return;
    LoopCall call;
    call.apply = [agent = "agents/" + peer->name, credential, reason = support::StatusText(why)](
                     DevicePool& pool, Now now) {
      pool.RevokeAgent(agent, credential, reason, now);
      return absl::OkStatus();
    };
    call.finish = [](const absl::Status&) {};
    loop->Post(std::move(call));
  });
}

absl::Status Serve(const TrackerFlags& flags, daemon::DaemonContext& context) {
  const std::string& dir = context.flags.state_dir;
  support::SystemClock clock;
  TW_ASSIGN(const std::unique_ptr<TrackerStore> store,
            TrackerStore::Open(support::PathJoin(dir, "tracker.db")));
  // Work waits for no artifact to be synced: one that a power cut takes is asked for again.
  TW_ASSIGN(const std::unique_ptr<daemon::BlobStore> blobs,
            daemon::BlobStore::Open(support::PathJoin(dir, "artifacts"),
                                    daemon::BlobStore::Durability::kSoon));
  TrackerMetrics metrics(context.metrics);
  PoolOptions pool_options;
  pool_options.lease_ttl_ns = flags.lease_ttl_ms * 1'000'000;
  pool_options.recovery_ns = flags.recovery_ms * 1'000'000;
  pool_options.offline_after_ns = flags.offline_after_ms * 1'000'000;
  pool_options.suspect_after_ns =
      std::min(pool_options.suspect_after_ns, pool_options.offline_after_ns);
  pool_options.default_batch = flags.default_batch;
  pool_options.max_open_items = flags.max_open_items;
  pool_options.max_devices_per_agent = flags.max_devices_per_agent;
  pool_options.age_class_ns = flags.age_class_s * kSecondNs;
  TW_ASSIGN(pool_options.share, Shares(flags));
  LoopOptions loop_options;
  loop_options.max_artifact_bytes = flags.artifact_cache_bytes;
  TW_ASSIGN(
      const std::unique_ptr<TrackerLoop> loop,
      TrackerLoop::Create(loop_options, pool_options, store.get(), blobs.get(), &clock, &metrics));

  daemon::ArtifactServiceOptions artifact_options;
  artifact_options.metrics = context.metrics;
  daemon::ArtifactServiceImpl artifacts(blobs.get(), artifact_options);
  AgentServiceImpl agents(loop.get(), context.security);
  DispatchServiceImpl dispatch(loop.get(), blobs.get());
  FleetAdminServiceImpl admin(loop.get());
  daemon::ServerHost host(context.host_options());
  host.AddService(&agents, kAgentServiceName);
  host.AddService(&dispatch, kDispatchServiceName);
  host.AddService(&admin, kFleetAdminServiceName);
  host.AddService(&artifacts, daemon::kArtifactServiceName);

  absl::Status fatal;  // written by the loop before it asks for the stop
  loop->Start([&](absl::Status status) {
    fatal = std::move(status);
    context.stop->Request();
  });
  TellRevokedAgents(context.security, loop.get(), &clock);
  EnrolmentDoor enrolment(flags, context, &clock);
  TW_TRY(enrolment.Start());
  TW_TRY(host.Start());
  daemon::LogInfo("tracker.serving", {{"address", host.address()}});
  daemon::NotifySystemd("READY=1");
  context.stop->Wait(-1);
  daemon::NotifySystemd("STOPPING=1");
  enrolment.Stop();
  loop->Drain();
  host.Stop();
  loop->Stop();
  return fatal;
}

}  // namespace
}  // namespace tilewright::tracker

int main(int argc, char** argv) {
  using tilewright::tracker::TrackerFlags;
  TrackerFlags flags;
  tilewright::daemon::DaemonSpec spec;
  spec.name = "tilewright-tracker";
  spec.description = "Hands work items of tuners to the devices of agents";
  spec.has_listen = true;
  spec.listener = tilewright::security::Listener::kTracker;
  const auto add_flags = [&](CLI::App& app) {
    app.add_option("--lease-ttl-ms", flags.lease_ttl_ms,
                   "a lease ends this long after its agent's last call")
        ->capture_default_str();
    app.add_option("--recovery-ms", flags.recovery_ms,
                   "after a start, leases live at least this long")
        ->capture_default_str();
    app.add_option("--offline-after-ms", flags.offline_after_ms,
                   "a device unheard of for this long is offline")
        ->capture_default_str();
    app.add_option("--default-batch", flags.default_batch, "work items in one grant")
        ->capture_default_str();
    app.add_option("--artifact-cache-bytes", flags.artifact_cache_bytes,
                   "unused artifacts are dropped beyond this size")
        ->capture_default_str();
    app.add_option("--max-open-items", flags.max_open_items,
                   "limit of work items queued or running; beyond it tuners must wait")
        ->capture_default_str();
    app.add_option("--max-devices-per-agent", flags.max_devices_per_agent,
                   "limit of devices that one agent may have, those that are gone included; "
                   "'tilewright devices forget' removes one")
        ->capture_default_str();
    app.add_option("--age-class-s", flags.age_class_s,
                   "a job that was not served for this many seconds moves up one priority class")
        ->capture_default_str();
    app.add_option("--share", flags.shares,
                   "USER:weight=W,items=N,devices=N,seconds_per_day=S gives a user a weight and "
                   "quotas (any subset); USER * is everyone else; repeatable");
    app.add_option("--enrol-listen", flags.enrol_listen,
                   "HOST:PORT where new agents get certificates for tickets ('tilewright certs "
                   "ticket'); off by default");
    app.add_option("--enrol-authority", flags.enrol_authority,
                   "folder of the authority that signs them, with its key");
    app.add_option("--enrol-tickets", flags.enrol_tickets, "file of the tickets");
    app.add_option("--enrol-port-file", flags.enrol_port_file,
                   "file that gets the address of --enrol-listen once it is served");
  };
  return tilewright::daemon::DaemonMain(
      argc, argv, spec, add_flags,
      [&](const tilewright::daemon::DaemonContext& context) -> absl::Status {
        TW_TRY(CheckEnrolment(flags, context.flags));
        return CheckFlags(flags);
      },
      [&](tilewright::daemon::DaemonContext& context) { return Serve(flags, context); });
}
