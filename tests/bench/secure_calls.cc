// What TLS and tokens cost: a real tracker in plain text and one with identity and tokens, the same
// calls to both. Prints, for each: time to connect N clients (each its own connection and
// handshake), the daemon's memory per connection, and the latency of a unary call.
//
//   secure_calls [CONNECTIONS] [CALLS]
//   default       1000          2000      client and server share the machine
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "deploy/daemon/credentials.h"
#include "deploy/daemon/wire.h"
#include "deploy/security/authority.h"
#include "deploy/security/token_file.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"
#include "tests/support/process_status.h"
#include "tilewright/v1/dispatch.grpc.pb.h"

namespace tilewright {
namespace {

using support::PathJoin;

support::SystemClock g_clock;

double SecondsSince(int64_t start_ns) {
  return static_cast<double>(g_clock.NowNs() - start_ns) * 1e-9;
}

struct Tracker {
  std::unique_ptr<support::Child> child;
  std::string address;

  double RssKb() const {
    return static_cast<double>(tests::StatusKb("VmRSS", std::to_string(child->pid())));
  }
};

Tracker StartTracker(const std::string& dir, const std::vector<std::string>& more) {
  support::ChildOptions options;
  options.program = support::FindSibling("tilewright-tracker").value();
  const std::string port_file = PathJoin(dir, "port");
  options.args = {"--state-dir", PathJoin(dir, "state"), "--port-file", port_file};
  options.args.insert(options.args.end(), more.begin(), more.end());
  Tracker tracker;
  tracker.child = support::Child::Start(options).value();
  while (!support::FileExists(port_file) && !tracker.child->Wait(10).ok()) {
  }
  tracker.address = std::string(support::Trim(support::ReadFile(port_file, 100).value()));
  return tracker;
}

absl::Status Call(v1::DispatchService::Stub* stub) {
  grpc::ClientContext context;
  daemon::SetTimeout(&context, 60'000);
  v1::PoolLoad load;
  return daemon::FromGrpc(stub->GetPoolLoad(&context, {}, &load));
}

void Measure(const char* name, const Tracker& tracker, int connections, int calls,
             const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  std::vector<std::unique_ptr<v1::DispatchService::Stub>> stubs;
  const double rss_before = tracker.RssKb();
  int64_t start_ns = g_clock.NowNs();
  for (int i = 0; i < connections; ++i) {
    stubs.push_back(
        v1::DispatchService::NewStub(daemon::MakeChannel(tracker.address, {true, credentials})));
    const absl::Status status = Call(stubs.back().get());
    TW_CHECK(status.ok()) << status;
  }
  const double connect_s = SecondsSince(start_ns);
  const double kb_each = (tracker.RssKb() - rss_before) / connections;
  std::vector<double> us;
  for (int i = 0; i < calls; ++i) {
    start_ns = g_clock.NowNs();
    const absl::Status status = Call(stubs[static_cast<size_t>(i) % stubs.size()].get());
    TW_CHECK(status.ok()) << status;
    us.push_back(SecondsSince(start_ns) * 1e6);
  }
  std::sort(us.begin(), us.end());
  std::printf(
      "%-6s connect %d: %.2f s (%.2f ms each), %.0f KB each; call p50 %.0f us, p99 %.0f us\n", name,
      connections, connect_s, connect_s * 1e3 / connections, kb_each, us[us.size() / 2],
      us[us.size() * 99 / 100]);
}

int Main(int argc, char** argv) {
  const int connections = argc > 1 ? std::atoi(argv[1]) : 1000;
  const int calls = argc > 2 ? std::atoi(argv[2]) : 2000;
  const support::TempDir dir = support::TempDir::Create("secure_calls").value();
  TW_CHECK(connections > 0 && calls > 0);
  const int64_t now_s = g_clock.WallMicros() / 1'000'000;
  const std::string pki = dir.File("pki");
  TW_CHECK(security::CreateAuthority(pki, "Bench", 10, now_s).ok());
  for (const auto kind : {security::CertificateKind::kTracker, security::CertificateKind::kTuner}) {
    security::LeafRequest request;
    request.peer = {kind, "bench"};
    request.days = 5;
    TW_CHECK(security::IssueIdentity(pki, request, dir.File(security::KindText(kind)), now_s).ok());
  }
  const std::string tokens = dir.File("tokens");
  const auto token = security::CreateToken(tokens, security::Role::kTuner, "bench", 1, now_s);
  const auto credentials =
      daemon::TlsChannelCredentials(dir.File("tuner"), token->token, &g_clock).value();
  TW_CHECK(support::MakeDirs(dir.File("a")).ok() && support::MakeDirs(dir.File("b")).ok());
  Measure("plain", StartTracker(dir.File("a"), {}), connections, calls, nullptr);
  Measure("tls",
          StartTracker(dir.File("b"), {"--identity", dir.File("tracker"), "--tokens", tokens}),
          connections, calls, credentials);
  return 0;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) { return tilewright::Main(argc, argv); }
