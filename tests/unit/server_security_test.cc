// TLS, tokens and the audit log of a listener in this process, used from many threads while tokens
// come and go and certificates are renewed. (Who may call what: security_test.cc; real daemons:
// tests/fault/secure_fleet_test.cc.)
#include "deploy/daemon/server_security.h"

#include <grpc/grpc.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/credentials.h"
#include "deploy/daemon/server_host.h"
#include "deploy/daemon/wire.h"
#include "deploy/security/authority.h"
#include "deploy/security/token_file.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tests/support/uri_identity.h"
#include "tilewright/v1/fleet_admin.grpc.pb.h"

namespace tilewright::daemon {
namespace {

using security::CertificateKind;
using security::Role;

constexpr int64_t kTimeoutMs = 20'000;

// Answers an audited call with whom the listener takes the caller for.
class WhoAmI final : public v1::FleetAdminService::Service {
 public:
  explicit WhoAmI(const ServerSecurity* security) : security_(security) {}
  grpc::Status CreateHold(grpc::ServerContext* context, const v1::CreateHoldRequest*,
                          v1::Hold* response) override {
    response->set_holder(security_->CallerText(*context));
    return grpc::Status::OK;
  }

 private:
  const ServerSecurity* security_;
};

class ServerSecurityTest : public ::testing::Test {
 protected:
  // Between the tests gRPC would clean up, which takes ten seconds now and then.
  static void SetUpTestSuite() { grpc_init(); }

  void SetUp() override {
    auto dir = support::TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
    now_s_ = clock_.WallMicros() / 1'000'000;
    ASSERT_TRUE(security::CreateAuthority(File("pki"), "Test", 100, now_s_).ok());
    Issue(CertificateKind::kTuner, "main");
    Issue(CertificateKind::kClient, "laptop");
    ana_ = Token(Role::kEngineer, "ana");
    auto blobs = BlobStore::Open(File("blobs"));
    ASSERT_TRUE(blobs.ok());
    blobs_ = *std::move(blobs);
  }

  std::string File(const std::string& name) { return dir_->File(name); }

  void Issue(CertificateKind kind, const std::string& name) {
    security::LeafRequest request;
    request.peer = {kind, name};
    ASSERT_TRUE(security::IssueIdentity(File("pki"), request, File(name), now_s_).ok());
  }

  security::NewToken Token(Role role, const std::string& name) {
    auto made = security::CreateToken(File("tokens"), role, name, 1, now_s_);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  void StartHost(const std::string& listen = "127.0.0.1:0") {
    auto security = ServerSecurity::Open(
        {File("main"), File("tokens"), File("audit.jsonl"), security::Listener::kTuner}, &clock_);
    ASSERT_TRUE(security.ok()) << security.status();
    security_ = *std::move(security);
    artifacts_ = std::make_unique<ArtifactServiceImpl>(blobs_.get(), ArtifactServiceOptions());
    who_ = std::make_unique<WhoAmI>(security_.get());
    HostOptions options;
    options.listen = listen;
    options.security = security_.get();
    host_ = std::make_unique<ServerHost>(options);
    host_->AddService(artifacts_.get(), kArtifactServiceName);
    host_->AddService(who_.get(), "tilewright.v1.FleetAdminService");
    const absl::Status started = host_->Start();
    ASSERT_TRUE(started.ok()) << started;
  }

  std::shared_ptr<grpc::Channel> Dial(const std::string& token) {
    auto credentials = TlsChannelCredentials(File("laptop"), token, &clock_);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    return MakeChannel(host_->address(), {true, *credentials});
  }

  absl::StatusOr<std::string> Who(const std::shared_ptr<grpc::Channel>& channel) {
    const auto stub = v1::FleetAdminService::NewStub(channel);
    v1::CreateHoldRequest request;
    request.mutable_hold()->set_device("devices/d");
    v1::Hold hold;
    grpc::ClientContext context;
    SetTimeout(&context, kTimeoutMs);
    TW_TRY(FromGrpc(stub->CreateHold(&context, request, &hold)));
    return hold.holder();
  }

  support::SystemClock clock_;
  int64_t now_s_ = 0;
  std::unique_ptr<support::TempDir> dir_;
  security::NewToken ana_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<ServerSecurity> security_;
  std::unique_ptr<ArtifactServiceImpl> artifacts_;
  std::unique_ptr<WhoAmI> who_;
  std::unique_ptr<ServerHost> host_;
};

TEST_F(ServerSecurityTest, HandlersKnowTheCallerAndTheAuditLogTheRest) {
  StartHost();
  EXPECT_EQ(*Who(Dial(ana_.token)), "engineer/ana");
  EXPECT_EQ(support::Slug(Who(Dial("")).status()), "auth.token.missing");
  host_->Stop();
  const auto whole = security::VerifyAuditFile(File("audit.jsonl"));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->lines, 2);
  std::ifstream file(File("audit.jsonl"));
  std::string line;
  std::getline(file, line);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["who"], "engineer/ana");
  EXPECT_EQ(json["token"], ana_.row.id);
  EXPECT_EQ(json["what"], "devices/d");
  EXPECT_EQ(json["from"], "127.0.0.1");
}

// What the handshake lets in must still name exactly one member: here with the fleet's authority in
// the part of a company's.
TEST_F(ServerSecurityTest, ACertificateWithoutExactlyOneNameIsRefused) {
  using std::string_literals::operator""s;
  StartHost();
  const auto slug = [&](const std::vector<std::string>& uris) {
    EXPECT_TRUE(tests::IssueWithUris(File("pki"), uris, File("laptop"), now_s_).ok());
    return support::Slug(Who(Dial(ana_.token)).status());
  };
  EXPECT_EQ(slug({"spiffe://tilewright/client/laptop"}), "") << "names count, not who wrote them";
  EXPECT_EQ(slug({}), "auth.certificate.unnamed");
  EXPECT_EQ(slug({"spiffe://tilewright/client/laptop", "spiffe://tilewright/tuner/main"}),
            "auth.certificate.unnamed");
  EXPECT_EQ(slug({"spiffe://example.org/client/laptop"}), "auth.certificate.unnamed");
  EXPECT_EQ(slug({"spiffe://tilewright/king/laptop"}), "auth.certificate.unnamed");
  // A NUL: no name is cut there. Some versions of TLS refuse the handshake itself.
  const std::string nul = slug({"spiffe://tilewright/client/laptop\0.example.org"s});
  EXPECT_TRUE(nul == "auth.certificate.unnamed" || nul.starts_with("rpc.")) << nul;
}

TEST_F(ServerSecurityTest, WithTlsAndTokensADaemonMayListenAnywhere) { StartHost("0.0.0.0:0"); }

TEST_F(ServerSecurityTest, ArtifactsOfAnySizeTravel) {
  StartHost();
  const auto stub = v1::ArtifactService::NewStub(Dial(ana_.token));
  const std::string data((5 << 20) + 17, 'x');
  const std::string name = support::Sha256Hex(data);
  ASSERT_TRUE(UploadArtifact(stub.get(), name, data, kTimeoutMs).ok());
  std::string back;
  ASSERT_TRUE(StreamArtifact(stub.get(), name, kTimeoutMs, [&](std::string_view piece) {
                back += piece;
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(back, data);
}

TEST_F(ServerSecurityTest, CallsGoOnWhileTokensAndCertificatesChange) {
  StartHost();
  std::atomic<bool> stop{false};
  std::atomic<int64_t> calls{0}, failures{0}, revoked{0};
  std::vector<std::thread> callers;
  const security::NewToken leaver = Token(Role::kEngineer, "leaver");
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&, i] {
      const auto channel = Dial(i == 0 ? leaver.token : ana_.token);
      while (!stop.load()) {
        const auto who = Who(channel);
        ++calls;
        support::SleepMs(10);  // well below the limit of calls
        if (who.ok() && *who == (i == 0 ? "engineer/leaver" : "engineer/ana")) continue;
        const bool expected = i == 0 && support::Slug(who.status()) == "auth.token.revoked";
        ++(expected ? revoked : failures);
        if (!expected) ADD_FAILURE() << who.status();
      }
    });
  }
  const int64_t start_ns = clock_.NowNs();
  const auto elapsed_ms = [&] { return (clock_.NowNs() - start_ns) / 1'000'000; };
  // On a busy machine longer, until the revocation was seen and enough was called.
  constexpr int64_t kCalls = 50;
  const auto goes_on = [&] {
    return elapsed_ms() < 3000 ||
           ((revoked.load() == 0 || calls.load() <= kCalls) && elapsed_ms() < 60'000);
  };
  for (int round = 0; goes_on(); ++round) {
    Token(Role::kCi, support::StrCat("ci-", round));
    EXPECT_TRUE(security::RenewIdentity(File("pki"), File("main"), 10, now_s_).ok());
    EXPECT_TRUE(security::RenewIdentity(File("pki"), File("laptop"), 10, now_s_).ok());
    if (round == 3) {
      EXPECT_TRUE(security::RevokeToken(File("tokens"), leaver.row.id, now_s_).ok());
    }
    EXPECT_TRUE(Who(Dial(ana_.token)).ok()) << "a new connection at any moment";
    support::SleepMs(50);
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failures.load(), 0);
  EXPECT_GT(revoked.load(), 0);
  EXPECT_GT(calls.load(), kCalls);
  host_->Stop();
  const auto whole = security::VerifyAuditFile(File("audit.jsonl"));
  EXPECT_TRUE(whole.ok()) << whole.status();
}

}  // namespace
}  // namespace tilewright::daemon
