// Real daemons with TLS and tokens on loopback: the fleet works, and everybody who should not be in
// is out, each with a typed refusal, on every RPC that reflection knows.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/credentials.h"
#include "deploy/daemon/server_host.h"
#include "deploy/daemon/wire.h"
#include "deploy/security/authority.h"
#include "deploy/security/identity.h"
#include "deploy/security/token_file.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"
#include "tests/support/measured_kernels.h"
#include "tilewright/v1/agent.grpc.pb.h"
#include "tilewright/v1/dispatch.grpc.pb.h"
#include "tilewright/v1/fleet_admin.grpc.pb.h"
#include "tilewright/v1/job.grpc.pb.h"
#include "tilewright/v1/module.grpc.pb.h"

namespace tilewright {
namespace {

using security::CertificateKind;
using security::Listener;
using security::Role;
using support::StrCat;
using ::testing::HasSubstr;

constexpr int64_t kDaySeconds = 86'400;
constexpr int64_t kWaitMs = 60'000;

int64_t NowSeconds() {
  support::SystemClock clock;
  return clock.WallMicros() / 1'000'000;
}

bool WaitFor(const std::function<bool()>& condition, int64_t timeout_ms = kWaitMs) {
  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + timeout_ms * 1'000'000;
  while (!condition()) {
    if (clock.NowNs() > end_ns) return false;
    support::SleepMs(20);
  }
  return true;
}

// A call by method name with an empty request, whatever the method's kind.
absl::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& request = "", std::string* response = nullptr) {
  grpc::Slice slice(request);
  const grpc::ByteBuffer in(&slice, 1);
  grpc::ByteBuffer out;
  grpc::ClientContext context;
  daemon::SetTimeout(&context, 3000);
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
    Issue(CertificateKind::kTracker, "lab");
    Issue(CertificateKind::kTuner, "main");
    Issue(CertificateKind::kAgent, "bench");
    Issue(CertificateKind::kAgent, "other");
    Issue(CertificateKind::kClient, "laptop");
    // Each token in both files: what keeps a role out of a daemon is the table, not the file.
    for (const char* file : {"tracker-tokens", "tuner-tokens"}) {
      Token(file, Role::kTuner, "main");
      Token(file, Role::kAgent, "bench");
      Token(file, Role::kAgent, "other");
      Token(file, Role::kEngineer, "ana");
      Token(file, Role::kCi, "nightly");
      Token(file, Role::kAdmin, "root");
    }
    ASSERT_TRUE(WriteToken("main", "tracker-tokens", "main").ok());
    ASSERT_TRUE(WriteToken("bench", "tracker-tokens", "bench").ok());
  }

  void TearDown() override {
    for (auto& [name, child] : children_) {
      kill(child->pid(), SIGTERM);
      if (!child->Wait(20'000).ok()) child->Kill(SIGKILL);
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

  void Issue(CertificateKind kind, const std::string& name, const std::string& folder = "",
             int64_t now_s = NowSeconds(), const std::string& pki = "pki",
             std::vector<std::string> hosts = {}) {
    security::LeafRequest request;
    request.peer = {kind, name};
    request.hosts = std::move(hosts);
    const absl::Status issued =
        security::IssueIdentity(File(pki), request, File(folder.empty() ? name : folder), now_s);
    ASSERT_TRUE(issued.ok()) << issued;
  }

  void Token(const std::string& file, Role role, const std::string& name) {
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
                    "--sync-hold-ms", "500"});
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
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  support::SystemClock clock_;
  std::unique_ptr<support::TempDir> dir_;
  std::map<std::string, security::NewToken> tokens_;  // by "file name"
  std::map<std::string, std::unique_ptr<support::Child>> children_;
  std::string tracker_;
  std::string tuner_;
};

v1::WorkItem HonestItem(const std::string& name, v1::ArtifactService::Stub* artifacts) {
  v1::WorkItem item;
  item.set_name(name);
  item.set_target("cpu,arch=x86_64,cpu=x86-64,threads=1");
  item.set_job("job");
  v1::Work* work = item.mutable_work();
  work->set_work_item(name);
  const auto upload = [&](const std::string& bytes) {
    const std::string hex = support::Sha256Hex(bytes);
    const absl::Status sent = daemon::UploadArtifact(artifacts, hex, bytes, 10'000);
    EXPECT_TRUE(sent.ok()) << sent;
    return daemon::MakeDigest(hex, static_cast<int64_t>(bytes.size()));
  };
  *work->mutable_artifact() = upload(tests::KernelModule("honest", {}));
  *work->mutable_expected_output() = upload(tests::KernelExpected());
  *work->mutable_inputs() = tests::KernelInputs();
  work->mutable_tolerance()->set_rel(1e-6);
  work->mutable_wall_limit()->set_seconds(30);
  work->mutable_plan()->set_min_repeats(3);
  work->mutable_plan()->set_max_repeats(4);
  return item;
}

TEST_F(SecureFleetTest, AFleetWithTlsWorksAndSaysWhoDidWhat) {
  StartTracker();
  StartTuner();
  StartAgent();
  const auto channel = DialAs(tracker_, "main", "tracker-tokens", "main");
  const auto dispatch = v1::DispatchService::NewStub(channel);
  const auto artifacts = v1::ArtifactService::NewStub(channel);
  v1::SubmitWorkRequest submit;
  submit.set_consumer("test");
  *submit.add_work_items() = HonestItem("w1", artifacts.get());
  v1::SubmitWorkResponse outcomes;
  grpc::ClientContext submit_context;
  daemon::SetTimeout(&submit_context, 10'000);
  ASSERT_TRUE(dispatch->SubmitWork(&submit_context, submit, &outcomes).ok());
  v1::PullResultsResponse pulled;
  ASSERT_TRUE(WaitFor([&] {
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 10'000);
    v1::PullResultsRequest request;
    request.set_consumer("test");
    EXPECT_TRUE(dispatch->PullResults(&context, request, &pulled).ok());
    return pulled.updates_size() > 0;
  }));
  EXPECT_EQ(pulled.updates(0).result().outcome(), v1::OK) << pulled.DebugString();
  EXPECT_EQ(pulled.updates(0).result().agent(), "agents/bench");

  const auto people =
      v1::FleetAdminService::NewStub(DialAs(tuner_, "laptop", "tuner-tokens", "ana"));
  v1::CreateHoldRequest hold;
  hold.mutable_hold()->set_device("devices/bench-cpu");
  hold.mutable_hold()->set_holder("ana");
  hold.mutable_ttl()->set_seconds(60);
  v1::Hold made;
  grpc::ClientContext hold_context;
  daemon::SetTimeout(&hold_context, 10'000);
  const grpc::Status held = people->CreateHold(&hold_context, hold, &made);
  ASSERT_TRUE(held.ok()) << held.error_message();
  ASSERT_TRUE(WaitFor([&] { return !Audit("tuner").empty() && !Audit("tracker").empty(); }));
  const nlohmann::json at_tuner = Audit("tuner").back();
  EXPECT_EQ(at_tuner["who"], "engineer/ana");
  EXPECT_EQ(at_tuner["certificate"], "spiffe://tilewright/client/laptop");
  EXPECT_EQ(at_tuner["from"], "127.0.0.1");
  EXPECT_EQ(at_tuner["what"], "devices/bench-cpu");
  EXPECT_EQ(at_tuner["outcome"], "OK");
  const nlohmann::json at_tracker = Audit("tracker").back();
  EXPECT_EQ(at_tracker["who"], "tuner/main");
  EXPECT_EQ(at_tracker["on_behalf_of"], "engineer/ana");
  EXPECT_EQ(at_tracker["what"], "devices/bench-cpu");
}

// What reflection of a daemon lists, method by method.
std::vector<std::string> MethodsOf(const std::shared_ptr<grpc::Channel>& channel) {
  std::string answer;
  const absl::Status listed =
      RawCall(channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
              "\x3a\x01*", &answer);
  EXPECT_TRUE(listed.ok()) << listed;
  std::vector<std::string> methods = {"/grpc.health.v1.Health/Check",
                                      "/grpc.reflection.v1alpha.ServerReflection/"
                                      "ServerReflectionInfo"};
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  for (const char* name : {"AgentService", "DispatchService", "FleetAdminService", "JobService",
                           "ModuleService", "ArtifactService"}) {
    const std::string full = StrCat("tilewright.v1.", name);
    if (answer.find(full) == std::string::npos) continue;
    const auto* service = pool->FindServiceByName(full);
    for (int i = 0; i < service->method_count(); ++i) {
      methods.push_back(StrCat("/", full, "/", service->method(i)->name()));
    }
  }
  // Nothing else is served: another service would need rows, and its own line above.
  size_t services = 0;
  for (size_t at = answer.find("tilewright.v1."); at != std::string::npos;
       at = answer.find("tilewright.v1.", at + 1)) {
    ++services;
  }
  EXPECT_EQ(services, 4u) << "each daemon has four services of ours";
  return methods;
}

TEST_F(SecureFleetTest, EveryRpcIsClosedToOutsidersAndToOtherRoles) {
  StartTracker();
  StartTuner();
  struct Somebody {
    const char* identity;
    const char* name;
    Role role;
  };
  const Somebody somebodies[] = {{"bench", "bench", Role::kAgent},
                                 {"main", "main", Role::kTuner},
                                 {"laptop", "nightly", Role::kCi},
                                 {"laptop", "ana", Role::kEngineer},
                                 {"laptop", "root", Role::kAdmin}};
  int refused = 0, passed = 0;
  for (const Listener listener : {Listener::kTracker, Listener::kTuner}) {
    const std::string& address = listener == Listener::kTracker ? tracker_ : tuner_;
    const std::string file = listener == Listener::kTracker ? "tracker-tokens" : "tuner-tokens";
    const auto outsider = Dial(address, "other", "");
    const auto guesser = Dial(address, "laptop", StrCat("twt_", std::string(12, 'a'), "_x_y"));
    const auto methods = MethodsOf(DialAs(address, "laptop", file, "root"));
    ASSERT_GE(methods.size(), 15u);
    for (const std::string& method : methods) {
      const security::MethodRule* rule = security::FindRule(method);
      ASSERT_NE(rule, nullptr) << "a new RPC needs a row in deploy/security/access.cc: " << method;
      EXPECT_EQ(support::Slug(RawCall(outsider, method)), "auth.token.missing") << method;
      EXPECT_EQ(RawCall(guesser, method).code(), absl::StatusCode::kUnauthenticated) << method;
    }
    EXPECT_EQ(support::Slug(RawCall(outsider, "/tilewright.v1.No/Such")), "auth.token.missing");
    for (const Somebody& somebody : somebodies) {
      const auto channel = DialAs(address, somebody.identity, file, somebody.name);
      for (const std::string& method : methods) {
        const std::string slug = support::Slug(RawCall(channel, method));
        const bool may = security::Allows(*security::FindRule(method), listener, somebody.role);
        EXPECT_EQ(slug == "auth.role.denied", !may)
            << method << " " << somebody.name << " " << slug;
        ++(may ? passed : refused);
      }
      EXPECT_EQ(support::Slug(RawCall(channel, "/tilewright.v1.No/Such")), "auth.method.unknown");
    }
  }
  EXPECT_GT(passed, 40);
  EXPECT_GT(refused, 60);
}

// The handshake itself refuses: nothing of HTTP/2 is reached.
TEST_F(SecureFleetTest, WithoutACertificateOfTheFleetThereIsNoConnection) {
  StartTracker();
  const std::string health = "/grpc.health.v1.Health/Check";
  const auto with = [&](const std::string& authorities, const std::string& key,
                        const std::string& certificate) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = authorities;
    options.pem_private_key = key;
    options.pem_cert_chain = certificate;
    return RawCall(daemon::MakeChannel(tracker_, {true, grpc::SslCredentials(options)}), health);
  };
  const auto read = [&](const std::string& name) {
    return support::ReadFile(File(name), 1 << 20).value_or("");
  };
  const auto closed = [](const absl::Status& status) {
    return status.code() == absl::StatusCode::kUnavailable;
  };
  EXPECT_TRUE(closed(RawCall(daemon::MakeChannel(tracker_, {true}), health))) << "plain text";
  EXPECT_TRUE(closed(with(read("pki/ca.pem"), "", ""))) << "no client certificate";
  ASSERT_TRUE(security::CreateAuthority(File("pki2"), "Test", 10, NowSeconds()).ok());
  Issue(CertificateKind::kClient, "eve", "eve", NowSeconds(), "pki2");
  EXPECT_TRUE(closed(with(read("pki/ca.pem"), read("eve/key.pem"), read("eve/cert.pem"))))
      << "signed by somebody else";
  EXPECT_EQ(
      support::Slug(with(read("pki2/ca.pem"), read("laptop/key.pem"), read("laptop/cert.pem"))),
      "rpc.tls")
      << "the client does not know the server's authority";
  Issue(CertificateKind::kClient, "old", "old", NowSeconds() - 100 * kDaySeconds);
  EXPECT_TRUE(closed(with(read("pki/ca.pem"), read("old/key.pem"), read("old/cert.pem"))))
      << "expired";
  EXPECT_EQ(
      support::Slug(with(read("pki/ca.pem"), read("laptop/key.pem"), read("laptop/cert.pem"))),
      "auth.token.missing")
      << "the same way, with the right certificate";
  // Our own clients find out before they dial, and say what is wrong.
  const auto slug = [&](const std::string& identity) {
    return support::Slug(daemon::TlsChannelCredentials(File(identity), "", &clock_).status());
  };
  EXPECT_EQ(slug("old"), "identity.certificate.expired");
  EXPECT_EQ(slug("nobody"), "identity.file.missing");
  ASSERT_TRUE(support::WriteFileAtomic(File("laptop/ca.pem"), read("pki2/ca.pem")).ok());
  EXPECT_EQ(slug("laptop"), "identity.certificate.untrusted");
}

TEST_F(SecureFleetTest, AFalseServerGetsNoCalls) {
  // The certificate of an agent, even one with a host name: of this fleet, but none of a server.
  Issue(CertificateKind::kAgent, "posing", "", NowSeconds(), "pki", {"127.0.0.1"});
  support::SystemClock clock;
  const std::string tokens = File("tracker-tokens");
  const auto serve = [&](const std::string& identity) {
    auto security =
        daemon::ServerSecurity::Open({File(identity), tokens, "", Listener::kTracker}, &clock);
    EXPECT_TRUE(security.ok()) << security.status();
    return *std::move(security);
  };
  const auto call = [&](daemon::ServerSecurity* security, const std::string& listen) {
    daemon::HostOptions options;
    options.listen = listen;
    options.security = security;
    daemon::ServerHost host(options);
    const absl::Status started = host.Start();
    EXPECT_TRUE(started.ok()) << started;
    return RawCall(DialAs(host.address(), "laptop", "tracker-tokens", "ana"),
                   "/grpc.health.v1.Health/Check");
  };
  for (const char* agent : {"other", "posing"}) {
    const auto security = serve(agent);
    const absl::Status status = call(security.get(), "127.0.0.1:0");
    EXPECT_EQ(support::Slug(status), "rpc.tls") << agent << " " << status;
  }
  const auto tracker = serve("lab");
  EXPECT_TRUE(call(tracker.get(), "127.0.0.1:0").ok());
  EXPECT_EQ(support::Slug(call(tracker.get(), "127.0.0.2:0")), "rpc.tls")
      << "not the host that the certificate names";
}

TEST_F(SecureFleetTest, ARevokedTokenIsOutWithoutARestart) {
  StartTracker();
  StartAgent();
  const auto admin =
      v1::FleetAdminService::NewStub(DialAs(tracker_, "laptop", "tracker-tokens", "root"));
  const auto reachability = [&] {
    v1::GetDeviceRequest request;
    request.set_name("devices/bench-cpu");
    v1::Device device;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 5000);
    const grpc::Status status = admin->GetDevice(&context, request, &device);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return device.reachability();
  };
  EXPECT_EQ(reachability(), v1::REACHABILITY_ONLINE);
  const auto agent = DialAs(tracker_, "bench", "tracker-tokens", "bench");
  const std::string health = "/grpc.health.v1.Health/Check";
  EXPECT_TRUE(RawCall(agent, health).ok());
  const std::string id = tokens_.at("tracker-tokens bench").row.id;
  ASSERT_TRUE(security::RevokeToken(File("tracker-tokens"), id, NowSeconds()).ok());
  ASSERT_TRUE(WaitFor([&] { return !RawCall(agent, health).ok(); }, 5000));
  EXPECT_EQ(support::Slug(RawCall(agent, health)), "auth.token.revoked");
  EXPECT_TRUE(WaitFor([&] { return reachability() == v1::REACHABILITY_OFFLINE; }, 20'000));
  // A new token in its place: the agent comes back by itself.
  Token("tracker-tokens", Role::kAgent, "bench");
  ASSERT_TRUE(WriteToken("bench", "tracker-tokens", "bench").ok());
  EXPECT_TRUE(WaitFor([&] { return reachability() == v1::REACHABILITY_ONLINE; }, 30'000));
}

TEST_F(SecureFleetTest, ARevokedCertificateIsOutWithoutARestart) {
  StartTracker();
  const auto laptop = DialAs(tracker_, "laptop", "tracker-tokens", "root");
  const auto bench = DialAs(tracker_, "bench", "tracker-tokens", "bench");
  const std::string health = "/grpc.health.v1.Health/Check";
  EXPECT_TRUE(RawCall(bench, health).ok());
  const auto revoked = Revoke("bench");
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  const std::string& list = *revoked;
  ASSERT_TRUE(support::WriteFileAtomic(File("lab/crl.pem"), list).ok());
  // Also on the connection that is open.
  ASSERT_TRUE(WaitFor([&] { return !RawCall(bench, health).ok(); }, 5000));
  EXPECT_EQ(support::Slug(RawCall(bench, health)), "auth.certificate.revoked");
  EXPECT_TRUE(RawCall(laptop, health).ok());
}

// Whoever dials refuses a server whose certificate was revoked, on the connection that it has, too,
// and goes back to it when it shows another one.
TEST_F(SecureFleetTest, ARevokedServerGetsNoCalls) {
  StartTracker();
  StartAgent();
  const auto watcher = DialAs(tracker_, "laptop", "tracker-tokens", "root");
  const auto admin = v1::FleetAdminService::NewStub(watcher);
  const auto reachability = [&] {
    v1::GetDeviceRequest request;
    request.set_name("devices/bench-cpu");
    v1::Device device;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 5000);
    return admin->GetDevice(&context, request, &device).ok() ? device.reachability()
                                                             : v1::REACHABILITY_UNSPECIFIED;
  };
  EXPECT_EQ(reachability(), v1::REACHABILITY_ONLINE);
  const auto visitor = DialAs(tracker_, "other", "tracker-tokens", "other");
  const std::string health = "/grpc.health.v1.Health/Check";
  EXPECT_TRUE(RawCall(visitor, health).ok());
  const auto revoked = Revoke("lab");
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  const std::string& list = *revoked;
  for (const char* dialer : {"other", "bench"}) {
    ASSERT_TRUE(support::WriteFileAtomic(File(dialer) + "/crl.pem", list).ok());
  }
  ASSERT_TRUE(WaitFor([&] { return !RawCall(visitor, health).ok(); }, 10'000));
  const absl::Status refused = RawCall(visitor, health);
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("auth.certificate.revoked"));
  EXPECT_TRUE(WaitFor([&] { return reachability() == v1::REACHABILITY_OFFLINE; }, 60'000))
      << "the agent goes on talking to a revoked tracker";
  // Started again with a certificate that counts: all come back by themselves.
  ASSERT_TRUE(security::RenewIdentity(File("pki"), File("lab"), 90, NowSeconds()).ok());
  children_.erase("tracker");
  StartTracker(tracker_);
  EXPECT_TRUE(WaitFor([&] { return RawCall(visitor, health).ok(); }, 60'000));
  EXPECT_TRUE(WaitFor([&] { return reachability() == v1::REACHABILITY_ONLINE; }, 60'000));
}

TEST_F(SecureFleetTest, AgentsSpeakForThemselvesOnly) {
  StartTracker();
  StartAgent();
  const auto stub = v1::AgentService::NewStub(DialAs(tracker_, "other", "tracker-tokens", "other"));
  const auto sync = [&](const std::string& agent) {
    v1::SyncRequest request;
    request.set_agent(agent);
    request.set_session_id("s");
    request.set_protocol_revision(1);
    v1::SyncResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 5000);
    return daemon::FromGrpc(stub->Sync(&context, request, &response));
  };
  EXPECT_EQ(support::Slug(sync("agents/bench")), "auth.agent.mismatch");
  EXPECT_EQ(sync("agents/bench").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(sync("agents/other").ok());
  // A result of another agent's device, with everything guessed right.
  const auto channel = DialAs(tracker_, "main", "tracker-tokens", "main");
  const auto artifacts = v1::ArtifactService::NewStub(channel);
  v1::ReportResultsRequest report;
  report.set_agent("agents/other");
  v1::MeasurementResult* result = report.add_results();
  result->set_work_item("w1");
  result->set_attempt(1);
  result->set_measurement_id("w1/1");
  result->set_device("devices/bench-cpu");
  result->set_fencing_token(1);
  result->set_outcome(v1::OK);
  v1::ReportResultsResponse acks;
  grpc::ClientContext context;
  daemon::SetTimeout(&context, 5000);
  ASSERT_TRUE(stub->ReportResults(&context, report, &acks).ok());
  EXPECT_EQ(acks.acks(0).disposition(), v1::DISPOSITION_REJECTED);
  EXPECT_THAT(acks.acks(0).detail(), HasSubstr("result.device.foreign"));
  report.set_agent("agents/bench");
  grpc::ClientContext again;
  daemon::SetTimeout(&again, 5000);
  EXPECT_EQ(support::Slug(daemon::FromGrpc(stub->ReportResults(&again, report, &acks))),
            "auth.agent.mismatch");
  // The token of one agent with the certificate of another.
  EXPECT_EQ(support::Slug(RawCall(DialAs(tracker_, "other", "tracker-tokens", "bench"),
                                  "/grpc.health.v1.Health/Check")),
            "auth.certificate.mismatch");
}

TEST_F(SecureFleetTest, RenewedCertificatesCountWithoutARestart) {
  StartTracker();
  const auto serial = [&] {
    const auto channel = DialAs(tracker_, "laptop", "tracker-tokens", "root");
    const auto stub = v1::FleetAdminService::NewStub(channel);
    grpc::ClientContext context;
    daemon::SetTimeout(&context, 5000);
    v1::ListDevicesResponse response;
    const grpc::Status status = stub->ListDevices(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    const auto pem = context.auth_context()->FindPropertyValues("x509_pem_cert");
    if (pem.empty()) return std::string();
    return security::ReadCertificates({pem[0].data(), pem[0].size()}, "peer")->front().serial;
  };
  const auto on_disk = [&] {
    const std::string pem = *support::ReadFile(File("lab/cert.pem"), 1 << 20);
    return security::ReadCertificates(pem, "lab")->front().serial;
  };
  const std::string first = serial();
  EXPECT_EQ(first, on_disk());
  ASSERT_TRUE(security::RenewIdentity(File("pki"), File("lab"), 90, NowSeconds()).ok());
  EXPECT_NE(on_disk(), first);
  EXPECT_TRUE(WaitFor([&] { return serial() == on_disk(); }, 30'000));
}

TEST_F(SecureFleetTest, DaemonsRefuseToStartHalfSecured) {
  const auto refusal = [&](std::vector<std::string> args, const std::string& name = "tracker") {
    support::Child* child = Start(name, std::move(args));
    const auto ended = child->Wait(20'000);
    EXPECT_TRUE(ended.ok()) << "it runs";
    if (!ended.ok()) return std::string("running");
    EXPECT_NE(ended->exit_code, 0);
    const auto line =
        nlohmann::json::parse(support::Split(child->stderr_tail(), '\n').front(), nullptr, false);
    const std::string slug = line.is_object() && line.contains("slug") ? line["slug"] : "";
    return slug.empty() ? child->stderr_tail() : StrCat(slug, " ", ended->exit_code);
  };
  EXPECT_THAT(refusal({"--listen", "0.0.0.0:0"}), HasSubstr("daemon.listen.insecure"));
  EXPECT_EQ(refusal({"--identity", File("lab")}), "daemon.security.incomplete 78");
  EXPECT_EQ(refusal({"--tokens", File("tracker-tokens")}), "daemon.security.incomplete 78");
  EXPECT_EQ(refusal({"--identity", File("lab"), "--tokens", File("none")}),
            "tokens.file.missing 66");
  EXPECT_EQ(refusal({"--identity", File("none"), "--tokens", File("tracker-tokens")}),
            "identity.file.missing 66");
  Issue(CertificateKind::kTracker, "old", "old", NowSeconds() - 100 * kDaySeconds);
  EXPECT_EQ(refusal({"--identity", File("old"), "--tokens", File("tracker-tokens")}),
            "identity.certificate.expired 78");
  // The same without starting: what a deployment script asks first.
  EXPECT_EQ(
      refusal({"--identity", File("old"), "--tokens", File("tracker-tokens"), "--check-config"}),
      "identity.certificate.expired 78");
  const auto checked = Start("tracker", {"--identity", File("lab"), "--tokens",
                                         File("tracker-tokens"), "--check-config"})
                           ->Wait(20'000);
  ASSERT_TRUE(checked.ok());
  EXPECT_EQ(checked->exit_code, 0);
  ASSERT_EQ(chmod(File("lab/key.pem").c_str(), 0644), 0);
  EXPECT_EQ(refusal({"--identity", File("lab"), "--tokens", File("tracker-tokens")}),
            "identity.key.permissions 78");
  EXPECT_EQ(
      refusal({"--tracker", "127.0.0.1:1", "--identity", File("old"), "--device", "cpu"}, "agent"),
      "identity.certificate.expired 78");
}

}  // namespace
}  // namespace tilewright
