// tilewright-agent: offers this machine's devices to a tracker and measures what it is given.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deploy/daemon/daemon_main.h"
#include "deploy/daemon/server_host.h"
#include "deploy/daemon/wire.h"
#include "deploy/security/identity.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "deploy/support/version.h"
#include "device_agent/agent_enrolment.h"
#include "device_agent/agent_loop.h"
#include "device_agent/control_group.h"
#include "device_agent/device_spec.h"
#include "device_agent/host_state.h"

namespace tilewright::device_agent {
namespace {

constexpr uint64_t kMaxNameFile = 4096;

struct AgentFlags {
  std::string name;
  std::vector<std::string> labels;
  std::string pool;
  std::string worker;
  std::string test_faults;
  bool allow_weak_sandbox = false;
  int threads = 0;
  std::vector<int> cores;
  int64_t memory_limit_bytes = int64_t{4} << 30;
  int64_t cache_bytes = int64_t{4} << 30;
  int64_t wall_limit_ms = 10'000;
  int64_t drain_ms = 30'000;
  int64_t sync_hold_ms = 10'000;
  ResetOptions reset;
  std::string enrol;   // HOST:PORT
  std::string ticket;  // file
};

void AddFlags(CLI::App& app, AgentFlags* flags) {
  app.add_option(
      "--name", flags->name,
      "name of this agent, unique in the fleet (default: that of its certificate; else made "
      "up and kept in the state folder)");
  app.add_option("--label", flags->labels, "KEY=VALUE for selectors of work; repeatable");
  app.add_option("--pool", flags->pool, "device class (default: cpu-<processor>)");
  app.add_option(
      "--worker", flags->worker,
      "path of tilewright-worker, where there is no bridge (default: next to this program)");
  app.add_option("--threads", flags->threads,
                 "threads a module may use (0 = all cores of the device)")
      ->capture_default_str();
  app.add_option("--cores", flags->cores, "cores to measure on, separated by commas")
      ->delimiter(',');
  app.add_option("--memory-limit-bytes", flags->memory_limit_bytes,
                 "memory of one measurement, where the work says nothing")
      ->capture_default_str();
  app.add_option("--cache-bytes", flags->cache_bytes, "artifacts kept from the tracker")
      ->capture_default_str();
  app.add_option("--wall-limit-ms", flags->wall_limit_ms,
                 "longest measurement, where the work says nothing")
      ->capture_default_str();
  app.add_option("--drain-ms", flags->drain_ms, "a stop waits this long for what runs")
      ->capture_default_str();
  app.add_option("--sync-hold-ms", flags->sync_hold_ms,
                 "how long the tracker may hold a call without an event")
      ->capture_default_str();
  app.add_option(
      "--reset-command", flags->reset.command,
      "shell command that power-cycles the device named by $DEVICE; run when the tracker "
      "orders it (broken device, 'tilewright devices reset')");
  app.add_option("--reset-timeout-ms", flags->reset.timeout_ms, "the command is killed after this")
      ->capture_default_str();
  app.add_option("--reset-interval-ms", flags->reset.min_interval_ms,
                 "no reset sooner than this after the last one")
      ->capture_default_str();
  app.add_option("--resets-per-day", flags->reset.max_per_day, "no more resets than this")
      ->capture_default_str();
  app.add_flag("--allow-weak-sandbox", flags->allow_weak_sandbox,
               "work although this kernel refuses a part of the sandbox (namespaces, Landlock, "
               "system-call filter), which 'devices get' shows; for example in a container. Only "
               "where you trust everyone who submits work");
  app.add_option("--enrol", flags->enrol,
                 "HOST:PORT of the tracker's --enrol-listen: where --identity has no certificate "
                 "yet, make a key there and get one");
  app.add_option("--ticket", flags->ticket,
                 "file with the ticket that an administrator made ('tilewright certs ticket')");
  app.add_option("--test-faults", flags->test_faults,
                 "TESTS ONLY: seed=N,wrong=P,crash=P,hang=P makes that share of measurements fail, "
                 "noisy=P that share too noisy to count, self_tests=N the first self-tests");
}

AgentEnrolment EnrolmentOf(const AgentFlags& flags, const daemon::DaemonFlags& common) {
  return {flags.enrol, flags.ticket, common.identity, flags.name};
}

// Whether the identity has to be made first.
bool LacksIdentity(const AgentFlags& flags, const daemon::DaemonFlags& common) {
  support::SystemClock clock;
  std::string why;
  const bool lacks =
      NeedsEnrolment(EnrolmentOf(flags, common), clock.WallMicros() / 1'000'000, &why);
  if (!why.empty()) {
    daemon::LogWarning(lacks ? "agent.enrol.again" : "agent.enrol.kept",
                       {{"identity", common.identity}, {"message", why}});
  }
  return lacks;
}

absl::Status MakeIdentity(const AgentFlags& flags, const daemon::DaemonFlags& common) {
  support::SystemClock clock;
  TW_ASSIGN(const std::string name, Enrol(EnrolmentOf(flags, common), &clock));
  daemon::LogInfo("agent.enrolled", {{"agent", name}, {"identity", common.identity}});
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, std::string>> ParseLabels(
    const std::vector<std::string>& texts) {
  std::map<std::string, std::string> labels;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || text.find(',') != std::string::npos) {
      return support::InvalidArgument("agent.label.invalid",
                                      "expected KEY=VALUE, found " + support::Quote(text));
    }
    labels[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return labels;
}

// What the flags say of each device, with the agent's defaults filled in.
absl::StatusOr<std::vector<AgentDevice>> MakeDevices(
    const AgentFlags& flags, const std::vector<std::string>& texts, const std::string& agent,
    const std::map<std::string, std::string>& labels) {
  TW_ASSIGN(const std::vector<DeviceSpec> specs, ParseDevices(texts));
  std::vector<AgentDevice> devices;
  for (const DeviceSpec& spec : specs) {
    AgentDevice& device = devices.emplace_back();
    device.name = "devices/" + agent + "-" + spec.name;
    device.pool = spec.pool.empty() ? flags.pool : spec.pool;
    device.labels = labels;
    for (const auto& [key, value] : spec.labels) device.labels[key] = value;
    SupervisorOptions& worker = device.supervisor;
    worker.device = device.name;
    worker.device_kind = spec.kind;
    worker.sandbox_profile = spec.profile;
    worker.device_nodes = spec.nodes;
    worker.allow_weak_sandbox = flags.allow_weak_sandbox;
    worker.device_index = spec.index;
    worker.bridge = spec.bridge;
    worker.worker_path = flags.worker;
    if (flags.worker.empty() && spec.bridge.empty()) {
      TW_ASSIGN(worker.worker_path, support::FindSibling("tilewright-worker"));
    }
    // The agent's own --cores and --threads speak of this machine.
    const bool here = spec.bridge.empty();
    worker.threads = spec.threads == 0 && here ? flags.threads : spec.threads;
    worker.cores = spec.cores.empty() && here ? flags.cores : spec.cores;
    worker.memory_limit_bytes =
        spec.memory_limit_bytes > 0 ? spec.memory_limit_bytes : flags.memory_limit_bytes;
    worker.default_wall_ms = flags.wall_limit_ms;
    if (!flags.test_faults.empty()) {
      TW_ASSIGN(const TestFaults faults, ParseTestFaults(flags.test_faults));
      worker.failing_self_tests = faults.self_tests;
    }
  }
  return devices;
}

absl::Status CheckFlags(const AgentFlags& flags, const daemon::DaemonFlags& common) {
  if (common.tracker.empty()) {
    return support::InvalidArgument("agent.tracker.missing", "--tracker HOST:PORT is required");
  }
  TW_TRY(daemon::ParseHostPort(common.tracker, "daemon.tracker.invalid").status());
  if (!flags.enrol.empty()) {
    TW_TRY(daemon::ParseHostPort(flags.enrol, "agent.enrol.invalid").status());
    if (common.identity.empty() || flags.ticket.empty()) {
      return support::InvalidArgument("agent.enrol.incomplete",
                                      "--enrol needs --identity DIR and --ticket FILE");
    }
    if (!support::FileExists(support::PathJoin(common.identity, security::kCertificateFile))) {
      TW_TRY(ReadTicket(flags.ticket).status());
    }
  }
  if (!flags.name.empty()) TW_TRY(CheckName(flags.name));
  TW_ASSIGN(const auto labels, ParseLabels(flags.labels));
  if (!flags.test_faults.empty()) TW_TRY(ParseTestFaults(flags.test_faults).status());
  if (flags.threads < 0 || flags.memory_limit_bytes < 0 || flags.cache_bytes < 0 ||
      flags.reset.timeout_ms < 1 || flags.reset.min_interval_ms < 0 ||
      flags.reset.max_per_day < 0 || flags.wall_limit_ms < 1 || flags.drain_ms < 0 ||
      flags.sync_hold_ms < 0) {
    return support::InvalidArgument("agent.flags.invalid",
                                    "expected numbers that are not negative");
  }
  return MakeDevices(flags, common.device, "checked", labels).status();
}

// By flag, else the one of the certificate (a tracker with TLS knows agents by it), else one that
// was made up at the first start: it survives restarts and says nothing about machine or owner.
absl::StatusOr<std::string> AgentName(const AgentFlags& flags, const std::string& state_dir,
                                      const std::string& identity) {
  if (!flags.name.empty()) return flags.name;
  if (!identity.empty()) {
    TW_ASSIGN(const auto peer, security::ReadPeer(identity));
    if (peer.has_value() && peer->kind == security::CertificateKind::kAgent) return peer->name;
  }
  const std::string path = support::PathJoin(state_dir, "agent-name");
  if (support::FileExists(path)) {
    TW_ASSIGN(const std::string text, support::ReadFile(path, kMaxNameFile));
    const std::string name(support::Trim(text));
    TW_TRY(CheckName(name));
    return name;
  }
  const std::string name = "agent-" + NewUuid().substr(0, 8);
  TW_TRY(support::WriteFileAtomic(path, name + "\n"));
  return name;
}

absl::Status Serve(const AgentFlags& flags, daemon::DaemonContext& context) {
  // A machine's own bounds hold without: of the unit, of each process.
  const auto divided = DivideControlGroup();
  if (!divided.ok()) {
    daemon::LogWarning("agent.control_group", {{"text", support::StatusText(divided.status())}});
  }
  AgentLoopOptions options;
  options.state_dir = context.flags.state_dir;
  TW_ASSIGN(const std::string name, AgentName(flags, options.state_dir, context.flags.identity));
  TW_ASSIGN(const auto labels, ParseLabels(flags.labels));
  options.identity = {"agents/" + name, NewUuid(), ReadBootId(), support::Version()};
  TW_ASSIGN(options.devices, MakeDevices(flags, context.flags.device, name, labels));
  if (!flags.test_faults.empty()) {
    TW_ASSIGN(options.faults, ParseTestFaults(flags.test_faults));
    daemon::LogWarning("agent.test_faults",
                       {{"faults", flags.test_faults},
                        {"text",
                         "THIS AGENT MAKES MEASUREMENTS FAIL ON PURPOSE; never use it "
                         "for real work"}});
  }
  // Whoever opens the tracker to the network decides on plain text (its own --insecure); the agent,
  // which only dials out, says that it takes part.
  TW_ASSIGN(const daemon::HostPort tracker,
            daemon::ParseHostPort(context.flags.tracker, "daemon.tracker.invalid"));
  if (context.credentials == nullptr && !daemon::IsLoopbackHost(tracker.host)) {
    daemon::LogWarning("agent.insecure",
                       {{"text", "plain text to the tracker"}, {"tracker", context.flags.tracker}});
  }
  options.max_wait_ms = flags.sync_hold_ms;
  options.reset = flags.reset;
  options.drain_ms = flags.drain_ms;
  options.cache_bytes = flags.cache_bytes;
  options.ready_file = context.flags.port_file;
  options.ready_text = context.flags.tracker;
  TW_ASSIGN(
      const std::unique_ptr<AgentLoop> loop,
      AgentLoop::Create(std::move(options),
                        daemon::MakeChannel(context.flags.tracker, {false, context.credentials}),
                        context.metrics, context.stop));
  return loop->Run();
}

}  // namespace
}  // namespace tilewright::device_agent

int main(int argc, char** argv) {
  using tilewright::device_agent::AgentFlags;
  AgentFlags flags;
  tilewright::daemon::DaemonSpec spec;
  spec.name = "tilewright-agent";
  spec.description = "Measures kernels on this machine's devices for a tracker";
  spec.has_tracker = true;
  spec.has_device = true;
  spec.lacks_identity = [&](const tilewright::daemon::DaemonFlags& common) {
    return tilewright::device_agent::LacksIdentity(flags, common);
  };
  spec.make_identity = [&](const tilewright::daemon::DaemonFlags& common) {
    return tilewright::device_agent::MakeIdentity(flags, common);
  };
  return tilewright::daemon::DaemonMain(
      argc, argv, spec, [&](CLI::App& app) { AddFlags(app, &flags); },
      [&](const tilewright::daemon::DaemonContext& context) {
        return CheckFlags(flags, context.flags);
      },
      [&](tilewright::daemon::DaemonContext& context) { return Serve(flags, context); });
}
