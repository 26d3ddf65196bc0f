#include "deploy/daemon/daemon_main.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "deploy/daemon/certificate_watch.h"
#include "deploy/daemon/credentials.h"
#include "deploy/daemon/heap.h"
#include "deploy/daemon/reload.h"
#include "deploy/security/identity.h"
#include "deploy/support/clock.h"
#include "deploy/support/failpoint.h"
#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/state_folder.h"
#include "deploy/support/strings.h"
#include "deploy/support/version.h"

namespace tilewright::daemon {
namespace {

constexpr int64_t kLockPatienceMs = 3'000;

// The one thing a signal handler can reach: the event descriptor of the installed StopSignal.
volatile sig_atomic_t g_stop_fd = -1;

extern "C" void OnStopSignal(int) {
  const int saved = errno;
  const uint64_t one = 1;
  if (g_stop_fd >= 0) {
    [[maybe_unused]] const ssize_t written = write(g_stop_fd, &one, sizeof(one));
  }
  errno = saved;
}

// How many letters must change to make one word of the other.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

// What is wrong with the configuration file: the first key that is no flag, and the nearest one
// that is; else the parser's words.
std::string ConfigProblem(const CLI::App* app, const std::string& error) {
  std::set<std::string> known;
  for (const CLI::Option* option : app->get_options()) {
    if (!option->get_configurable()) continue;
    for (const std::string& name : option->get_lnames()) known.insert(name);
  }
  const auto file = app->get_config_ptr()->as<std::string>();
  for (const CLI::ConfigItem& item : app->get_config_formatter()->from_file(file)) {
    const std::string key = item.fullname();
    if (key == "++" || key == "--" || known.count(key) != 0) continue;
    const auto nearest = std::min_element(known.begin(), known.end(), [&](auto& a, auto& b) {
      return EditDistance(a, key) < EditDistance(b, key);
    });
    return support::StrCat("daemon.config.unknown: ", file, ": ", support::Quote(key, 80),
                           " is no setting; the nearest one is ", support::Quote(*nearest));
  }
  return "daemon.config.invalid: " + error;
}

// The exit code of a call that was to print something.
int Printed() {
  std::cout.flush();
  if (std::cout.good()) return 0;
  std::cerr << "error: daemon.stdout.failed: cannot write standard output\n";
  return 74;
}

// CLI11 reports everything by exceptions; this is the only place that sees them.
// Returns an exit code when the process is to end now.
std::optional<int> ParseCommandLine(CLI::App* app, int argc, const char* const* argv) {
  try {
    app->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& success) {
    app->exit(success);
    return Printed();
  } catch (const CLI::ConfigError& error) {
    std::cerr << "error: " << ConfigProblem(app, error.what()) << "\n";
    return 78;
  } catch (const CLI::FileError& error) {
    std::cerr << "error: daemon.config.unreadable: " << error.what() << "\n";
    return 78;
  } catch (const CLI::ParseError& error) {
    std::cerr << "error: daemon.flags.invalid: " << error.what() << "\n"
              << "run with --help for the flags\n";
    return 64;
  }
}

void AddFlags(CLI::App* app, const DaemonSpec& spec, DaemonFlags* flags, bool* check_config) {
  app->set_version_flag("--version", support::Version());
  if (spec.has_listen) {
    app->add_option("--listen", flags->listen, "HOST:PORT to serve on (port 0 = any)")
        ->capture_default_str();
    app->add_option("--port-file", flags->port_file,
                    "file that gets one line HOST:PORT when the daemon is ready");
  }
  if (spec.has_tracker) {
    app->add_option("--tracker", flags->tracker, "HOST:PORT of the tracker");
  }
  if (spec.has_device) {
    app->add_option("--device", flags->device,
                    "KIND[,name=NAME][,cores=0-3+8][,threads=N][,pool=CLASS][,memory=BYTES]"
                    "[,label.KEY=VALUE][,bridge=COMMAND]; repeatable (default: cpu)");
  }
  if (!spec.has_listen) {
    app->add_option("--port-file", flags->port_file,
                    "file that is written when the daemon is ready");
  }
  app->add_option("--state-dir", flags->state_dir,
                  "folder for everything the daemon keeps (required)");
  app->add_option("--metrics", flags->metrics, "HOST:PORT of the Prometheus endpoint");
  app->add_option(
      "--metrics-identity", flags->metrics_identity,
      "folder with cert.pem and key.pem: metrics over HTTPS (a tracker's or tuner's may "
      "be its --identity)");
  app->add_option("--metrics-token", flags->metrics_token,
                  "file with the bearer token that a reader of metrics must show (16 characters or "
                  "more, chmod 600)");
  app->add_flag("--metrics-insecure", flags->metrics_insecure,
                "allow plain text beyond the local machine for metrics alone");
  app->add_option("--identity", flags->identity,
                  "folder with ca.pem, cert.pem, key.pem and token ('tilewright certs'): TLS");
  if (spec.has_listen) {
    app->add_option("--tokens", flags->tokens,
                    "file of the bearer tokens that callers must show ('tilewright tokens')");
  }
  app->add_flag("--insecure", flags->insecure, "allow plain text beyond the local machine");
  app->add_option("--log-level", flags->log_level, "debug, info, warning or error")
      ->capture_default_str();
  app->add_option("--test-failpoint", flags->test_failpoint,
                  "TESTS ONLY: NAME=N, the process dies at that failpoint the N-th time");
  app->set_config("--config", "", "file with lines \"flag = value\"");
  app->add_flag("--check-config", *check_config, "check flags and configuration file, then exit")
      ->configurable(false);
  app->allow_config_extras(CLI::config_extras_mode::error);
}

// gRPC's own messages become lines of our log.
void OnGrpcLog(gpr_log_func_args* args) {
  const LogLevel level = args->severity == GPR_LOG_SEVERITY_ERROR  ? LogLevel::kWarning
                         : args->severity == GPR_LOG_SEVERITY_INFO ? LogLevel::kInfo
                                                                   : LogLevel::kDebug;
  Log(level, "grpc.message",
      {{"message", args->message}, {"file", args->file}, {"line", args->line}});
}

MetricsOptions MetricsOf(const DaemonFlags& flags) {
  MetricsOptions options;
  options.listen = flags.metrics;
  options.identity = flags.metrics_identity;
  options.token_file = flags.metrics_token;
  options.plain_text = flags.metrics_insecure || flags.insecure;
  return options;
}

// Whether the daemon could keep its state there; the folder need not exist yet.
absl::Status CheckStateDir(const std::string& path) {
  if (path.empty()) {
    return support::InvalidArgument("daemon.state_dir.missing", "--state-dir is required");
  }
  std::string there = path;
  while (!there.empty() && !support::FileExists(there)) there = support::DirName(there);
  if (there.empty()) there = ".";
  if (support::IsDirectory(there) && access(there.c_str(), R_OK | W_OK | X_OK) == 0) {
    return absl::OkStatus();
  }
  return support::PermissionDenied(
      "daemon.state_dir.unwritable",
      support::StrCat("expected a folder that this user can write, found ", there,
                      there == path ? "" : " above " + path));
}

// Reads what the flags name, without listening or writing.
absl::Status CheckSecurity(const DaemonSpec& spec, const DaemonFlags& flags) {
  support::SystemClock clock;
  if (!flags.identity.empty()) {
    TW_TRY(security::LoadIdentity(flags.identity, clock.WallMicros() / 1'000'000).status());
  }
  if (spec.has_tracker && !flags.identity.empty()) {
    TW_TRY(TlsChannelCredentials(flags.identity, "", &clock).status());
  }
  if (!spec.has_listen) return absl::OkStatus();
  return ServerSecurity::Open({flags.identity, flags.tokens, "", spec.listener, nullptr}, &clock)
      .status();
}

// Everything for which a start would be refused, without listening or writing. A start calls this
// first, and --check-config calls nothing else: the two cannot differ. Not looked at: whether ports
// are free and the state folder is locked, since the daemon may be running.
absl::Status CheckStart(const DaemonSpec& spec, const DaemonFlags& flags, bool lacks_identity,
                        const std::function<absl::Status(const DaemonContext&)>& check) {
  TW_TRY(ParseLogLevel(flags.log_level).status());
  TW_TRY(CheckStateDir(flags.state_dir));
  if (!flags.tracker.empty()) {
    TW_TRY(ParseHostPort(flags.tracker, "daemon.tracker.invalid").status());
  }
  if (!lacks_identity) TW_TRY(CheckSecurity(spec, flags));
  if (spec.has_listen) {
    TW_TRY(CheckListen(flags.listen, !flags.identity.empty(), flags.insecure));
  }
  TW_TRY(CheckMetrics(MetricsOf(flags)));
  return check ? check(DaemonContext{flags, nullptr, nullptr}) : absl::OkStatus();
}

int Fail(const absl::Status& status) {
  LogError("daemon.failed", {{"slug", support::Slug(status)},
                             {"code", absl::StatusCodeToString(status.code())},
                             {"error", support::StatusText(status)}});
  return ExitCode(status);
}

bool CommandLineHas(std::string_view flag, int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == flag || (word.rfind(flag, 0) == 0 && word[flag.size()] == '=')) return true;
  }
  return false;
}

// Makes the folder, or closes one that older versions left open to other users.
absl::Status PrepareStateDir(const std::string& path) {
  const absl::StatusOr<bool> closed = support::MakeStateFolder(path);
  if (absl::IsFailedPrecondition(closed.status())) {
    LogWarning("daemon.state_dir.shared", {{"error", support::StatusText(closed.status())}});
    return absl::OkStatus();
  }
  TW_TRY(closed.status());
  if (*closed) {
    LogWarning("daemon.state_dir.closed",
               {{"state_dir", path},
                {"message", "other users of this machine could read the state; now they cannot"}});
  }
  return absl::OkStatus();
}

absl::Status Run(const DaemonSpec& spec, const DaemonFlags& flags, const std::string& reload_from,
                 const std::function<absl::Status(DaemonContext&)>& body) {
  support::IgnoreSigpipe();
  TW_ASSIGN(const std::unique_ptr<StopSignal> stop, StopSignal::Install());
  TW_ASSIGN(
      const auto reload,
      ReloadSignal::Install(reload_from, ParseLogLevel(flags.log_level).value_or(LogLevel::kInfo)));
  TW_TRY(PrepareStateDir(flags.state_dir));
  auto lock = support::FileLock::Lock(support::PathJoin(flags.state_dir, "lock"), kLockPatienceMs);
  if (!lock.ok()) {
    if (lock.status().code() != absl::StatusCode::kUnavailable) return lock.status();
    return support::Aborted("daemon.state_dir.locked", support::StatusText(lock.status()));
  }
  TW_ASSIGN(const std::unique_ptr<Metrics> metrics, Metrics::Create(spec.name, MetricsOf(flags)));
  if (!metrics->address().empty()) {
    LogInfo("daemon.metrics",
            {{"address", metrics->address()}, {"tls", !flags.metrics_identity.empty()}});
  }
  support::SystemClock clock;
  std::unique_ptr<CertificateWatch> watch;
  if (!flags.identity.empty()) {
    watch = std::make_unique<CertificateWatch>(flags.identity, metrics.get(), &clock);
  }
  DaemonContext context{flags, metrics.get(), stop.get()};
  std::unique_ptr<ServerSecurity> security;
  if (spec.has_listen) {
    TW_ASSIGN(security, ServerSecurity::Open({flags.identity, flags.tokens,
                                              support::PathJoin(flags.state_dir, "audit.jsonl"),
                                              spec.listener, metrics.get()},
                                             &clock));
    context.security = security.get();
  }
  if (spec.has_tracker && !flags.identity.empty()) {
    TW_ASSIGN(context.credentials, TlsChannelCredentials(flags.identity, "", &clock));
  }
  LogInfo("daemon.start", {{"version", support::Version()}, {"state_dir", flags.state_dir}});
  TW_TRY(body(context));
  LogInfo("daemon.stop");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<StopSignal>> StopSignal::Install() {
  TW_CHECK(g_stop_fd < 0) << "one StopSignal per process";
  auto stop = std::unique_ptr<StopSignal>(new StopSignal());
  stop->event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop->event_fd_ < 0) {
    return support::ErrnoError(errno, "daemon.signals.failed", "eventfd");
  }
  g_stop_fd = stop->event_fd_;
  struct sigaction action{};
  action.sa_handler = OnStopSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal_number : {SIGTERM, SIGINT}) {
    if (sigaction(signal_number, &action, nullptr) != 0) {
      return support::ErrnoError(errno, "daemon.signals.failed", "sigaction");
    }
  }
  return stop;
}

StopSignal::~StopSignal() {
  if (event_fd_ < 0) return;
  signal(SIGTERM, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  g_stop_fd = -1;
  close(event_fd_);
}

bool StopSignal::Wait(int64_t timeout_ms) {
  if (requested_.load()) return true;
  pollfd waiting{event_fd_, POLLIN, 0};
  const int result = poll(&waiting, 1, static_cast<int>(timeout_ms));
  if (result > 0) requested_.store(true);
  return requested_.load();
}

void StopSignal::Request() {
  requested_.store(true);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
}

HostOptions DaemonContext::host_options() const {
  HostOptions options;
  options.listen = flags.listen;
  options.insecure = flags.insecure;
  options.port_file = flags.port_file;
  options.metrics = metrics;
  options.security = security;
  return options;
}

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 64;
    case absl::StatusCode::kDataLoss:
      return 65;
    case absl::StatusCode::kNotFound:
      return 66;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return 69;
    case absl::StatusCode::kResourceExhausted:
      return 74;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return 75;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return 77;
    case absl::StatusCode::kFailedPrecondition:
      return 78;
    default:
      return 70;
  }
}

int DaemonMain(int argc, const char* const* argv, const DaemonSpec& spec,
               const std::function<void(CLI::App&)>& add_flags,
               const std::function<absl::Status(const DaemonContext&)>& check,
               const std::function<absl::Status(DaemonContext&)>& body) {
  BoundHeaps();
  // All that a daemon and its children write is for their own user alone: models, measurements,
  // modules, locks.
  umask(077);
  support::ForbidInspection();
  CLI::App app(spec.description, spec.name);
  DaemonFlags flags;
  bool check_config = false;
  AddFlags(&app, spec, &flags, &check_config);
  if (add_flags) add_flags(app);
  if (const auto code = ParseCommandLine(&app, argc, argv)) return *code;

  const auto level = ParseLogLevel(flags.log_level);
  InitLog(spec.name, level.value_or(LogLevel::kInfo));
  gpr_set_log_function(OnGrpcLog);
  // Held to the end of the process: gRPC's own clean-up waits ten seconds for a connection that is
  // just being closed, one stop in fifty or so.
  grpc_init();
  const bool lacks_identity = spec.lacks_identity && spec.lacks_identity(flags);
  const absl::Status checked = CheckStart(spec, flags, lacks_identity, check);
  if (!checked.ok()) return Fail(checked);
  if (check_config) {
    std::cout << "ok\n";
    return Printed();
  }
  if (!flags.test_failpoint.empty()) {
    const absl::Status armed = support::ArmFailpoint(flags.test_failpoint);
    if (!armed.ok()) return Fail(armed);
    LogWarning("daemon.failpoint", {{"failpoint", flags.test_failpoint},
                                    {"text", "THIS PROCESS DIES ON PURPOSE; for tests only"}});
  }
  if (lacks_identity) {
    absl::Status made = spec.make_identity(flags);
    if (made.ok()) made = CheckSecurity(spec, flags);
    if (!made.ok()) return Fail(made);
  }
  // What the command line says wins over the file, also later.
  const bool fixed = CommandLineHas("--log-level", argc, argv);
  const auto* config = app.get_config_ptr();
  const absl::Status status =
      Run(spec, flags, fixed || config->empty() ? "" : config->as<std::string>(), body);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace tilewright::daemon
