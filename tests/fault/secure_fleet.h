// Tracker, tuner and agent with TLS and tokens on loopback, each with an identity of one authority,
// and tokens of every role. For single-threaded tests.
#pragma once

#include <grpcpp/impl/codegen/client_unary_call.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "deploy/daemon/credentials.h"
#include "deploy/daemon/wire.h"
#include "deploy/security/authority.h"
#include "deploy/security/identity.h"
#include "deploy/security/token_file.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"
#include "tests/support/patience.h"

namespace tilewright {

inline constexpr int64_t kDaySeconds = 86'400;
inline constexpr int64_t kWaitMs = 60'000;

inline int64_t NowSeconds() {
  support::SystemClock clock;
  return clock.WallMicros() / 1'000'000;
}

inline bool WaitFor(const std::function<bool()>& condition, int64_t timeout_ms = kWaitMs) {
  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + tests::Patiently(timeout_ms) * 1'000'000;
  while (!condition()) {
    if (clock.NowNs() > end_ns) return false;
    support::SleepMs(20);
  }
  return true;
}

// A call by method name with an empty request, whatever the method's kind.
inline absl::Status RawCall(const std::shared_ptr<grpc::Channel>& channel,
                            const std::string& method, const std::string& request = "",
                            std::string* response = nullptr) {
  grpc::Slice slice(request);
  const grpc::ByteBuffer in(&slice, 1);
  grpc::ByteBuffer out;
  grpc::ClientContext context;
  daemon::SetTimeout(&context, tests::Patiently(20'000));
  const grpc::internal::RpcMethod rpc(method.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
  const grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
      channel.get(), rpc, &context, in, &out);
  std::vector<grpc::Slice> slices;
  if (response != nullptr && status.ok() && out.Dump(&slices).ok()) {
    for (const grpc::Slice& s : slices) {
      response->append(reinterpret_cast<const char*>(s.begin()), s.size());
    }
  }
  return daemon::FromGrpc(status);
}

class SecureFleetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create("secure_fleet");
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
    ASSERT_TRUE(
        security::CreateAuthority(File("pki"), "Test", 3650, NowSeconds() - 200 * kDaySeconds)
            .ok());
    Issue(security::CertificateKind::kTracker, "lab");
    Issue(security::CertificateKind::kTuner, "main");
    Issue(security::CertificateKind::kAgent, "bench");
    Issue(security::CertificateKind::kAgent, "other");
    Issue(security::CertificateKind::kClient, "laptop");
    // Each token in both files: what keeps a role out of a daemon is the table, not the file.
    for (const char* file : {"tracker-tokens", "tuner-tokens"}) {
      Token(file, security::Role::kTuner, "main");
      Token(file, security::Role::kAgent, "bench");
      Token(file, security::Role::kAgent, "other");
      Token(file, security::Role::kEngineer, "ana");
      Token(file, security::Role::kCi, "nightly");
      Token(file, security::Role::kAdmin, "root");
    }
    ASSERT_TRUE(WriteToken("main", "tracker-tokens", "main").ok());
    ASSERT_TRUE(WriteToken("bench", "tracker-tokens", "bench").ok());
  }

  void TearDown() override {
    for (auto& [name, child] : children_) {
      kill(child->pid(), SIGTERM);
      if (!child->Wait(tests::Patiently(20'000)).ok()) child->Kill(SIGKILL);
      if (HasFailure())
        std::fprintf(stderr, "--- %s\n%s\n", name.c_str(), child->stderr_tail().c_str());
    }
  }

  std::string File(const std::string& name) const { return dir_->File(name); }

  // Revokes an identity's certificate; the authority's new list.
  absl::StatusOr<std::string> Revoke(const std::string& identity) {
    TW_ASSIGN(const std::string pem, support::ReadFile(File(identity + "/cert.pem"), 1 << 20));
    TW_ASSIGN(const auto infos, security::ReadCertificates(pem, identity));
    TW_TRY(
        security::RevokeCertificates(File("pki"), {infos.front().serial}, NowSeconds()).status());
    return support::ReadFile(File("pki/crl.pem"), 1 << 20);
  }

  void Issue(security::CertificateKind kind, const std::string& name,
             const std::string& folder = "", int64_t now_s = NowSeconds(),
             const std::string& pki = "pki", std::vector<std::string> hosts = {}) {
    security::LeafRequest request;
    request.peer = {kind, name};
    request.hosts = std::move(hosts);
    const absl::Status issued =
        security::IssueIdentity(File(pki), request, File(folder.empty() ? name : folder), now_s);
    ASSERT_TRUE(issued.ok()) << issued;
  }

  void Token(const std::string& file, security::Role role, const std::string& name) {
    auto made = security::CreateToken(File(file), role, name, 1, NowSeconds());
    ASSERT_TRUE(made.ok()) << made.status();
    tokens_[file + " " + name] = *made;
  }

  absl::Status WriteToken(const std::string& identity, const std::string& file,
                          const std::string& name) {
    return support::WriteFileAtomic(File(identity + "/token"),
                                    tokens_.at(file + " " + name).token + "\n", 0600);
  }

  // A daemon that serves or ends; its exit code or -1 while it runs.
  support::Child* Start(const std::string& name, std::vector<std::string> args) {
    support::ChildOptions options;
    options.program = support::FindSibling("tilewright-" + name).value();
    options.args = {"--state-dir", File(name + "-state"), "--port-file", File(name + ".port")};
    options.args.insert(options.args.end(), args.begin(), args.end());
    auto child = support::Child::Start(options);
    EXPECT_TRUE(child.ok()) << child.status();
    return (children_[name] = *std::move(child)).get();
  }

  std::string Address(const std::string& name) {
    EXPECT_TRUE(WaitFor([&] {
      return support::FileExists(File(name + ".port")) || children_.at(name)->Wait(0).ok();
    }));
    const auto text = support::ReadFile(File(name + ".port"), 100);
    EXPECT_TRUE(text.ok()) << children_.at(name)->stderr_tail();
    return text.ok() ? std::string(support::Trim(*text)) : "";
  }

  void StartTracker(const std::string& listen = "127.0.0.1:0") {
    Start("tracker", {"--listen", listen, "--identity", File("lab"), "--tokens",
                      File("tracker-tokens"), "--offline-after-ms", "2000"});
    tracker_ = Address("tracker");
  }
  void StartTuner() {
    Start("tuner", {"--listen", "127.0.0.1:0", "--identity", File("main"), "--tokens",
                    File("tuner-tokens"), "--tracker", tracker_, "--build-children", "1"});
    tuner_ = Address("tuner");
  }
  void StartAgent() {
    Start("agent", {"--tracker", tracker_, "--identity", File("bench"), "--device", "cpu",
                    "--sync-hold-ms", "500", "--allow-weak-sandbox"});
    Address("agent");
  }

  // A channel with the certificate of `identity` and somebody's token ("" = none).
  std::shared_ptr<grpc::Channel> Dial(const std::string& address, const std::string& identity,
                                      const std::string& token) {
    auto credentials = daemon::TlsChannelCredentials(File(identity), token, &clock_);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    return daemon::MakeChannel(address, {true, *credentials});
  }
  std::shared_ptr<grpc::Channel> DialAs(const std::string& address, const std::string& identity,
                                        const std::string& file, const std::string& name) {
    return Dial(address, identity, tokens_.at(file + " " + name).token);
  }

  std::vector<nlohmann::json> Audit(const std::string& name) {
    std::ifstream file(File(name + "-state/audit.jsonl"));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) {
      nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (json.is_object()) lines.push_back(std::move(json));  // the last one may be half written
    }
    return lines;
  }

  support::SystemClock clock_;
  std::unique_ptr<support::TempDir> dir_;
  std::map<std::string, security::NewToken> tokens_;  // by "file name"
  std::map<std::string, std::unique_ptr<support::Child>> children_;
  std::string tracker_;
  std::string tuner_;
};

}  // namespace tilewright
