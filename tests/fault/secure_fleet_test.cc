// Real daemons with TLS and tokens on loopback: the fleet works, and everybody who should not be in
// is out, each with a typed refusal, on every RPC that reflection knows.
#include "tests/fault/secure_fleet.h"

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
#include "tests/support/patience.h"
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

v1::WorkItem HonestItem(const std::string& name, v1::ArtifactService::Stub* artifacts) {
  v1::WorkItem item;
  item.set_name(name);
  item.set_target("cpu,arch=x86_64,cpu=x86-64,threads=1");
  item.set_job("job");
  v1::Work* work = item.mutable_work();
  work->set_work_item(name);
  const auto upload = [&](const std::string& bytes) {
    const std::string hex = support::Sha256Hex(bytes);
    const absl::Status sent =
        daemon::UploadArtifact(artifacts, hex, bytes, tests::Patiently(10'000));
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
  daemon::SetTimeout(&submit_context, tests::Patiently(10'000));
  ASSERT_TRUE(dispatch->SubmitWork(&submit_context, submit, &outcomes).ok());
  v1::PullResultsResponse pulled;
  ASSERT_TRUE(WaitFor([&] {
    grpc::ClientContext context;
    daemon::SetTimeout(&context, tests::Patiently(10'000));
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
  daemon::SetTimeout(&hold_context, tests::Patiently(10'000));
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
                                      "/grpc.reflection.v1.ServerReflection/"
                                      "ServerReflectionInfo",
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
    daemon::SetTimeout(&context, tests::Patiently(20'000));
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
  daemon::SetTimeout(&context, tests::Patiently(20'000));
  ASSERT_TRUE(stub->ReportResults(&context, report, &acks).ok());
  EXPECT_EQ(acks.acks(0).disposition(), v1::DISPOSITION_REJECTED);
  EXPECT_THAT(acks.acks(0).detail(), HasSubstr("result.device.foreign"));
  report.set_agent("agents/bench");
  grpc::ClientContext again;
  daemon::SetTimeout(&again, tests::Patiently(20'000));
  EXPECT_EQ(support::Slug(daemon::FromGrpc(stub->ReportResults(&again, report, &acks))),
            "auth.agent.mismatch");
  // The token of one agent with the certificate of another.
  EXPECT_EQ(support::Slug(RawCall(DialAs(tracker_, "other", "tracker-tokens", "bench"),
                                  "/grpc.health.v1.Health/Check")),
            "auth.certificate.mismatch");
}

TEST_F(SecureFleetTest, DaemonsRefuseToStartHalfSecured) {
  const auto refusal = [&](std::vector<std::string> args, const std::string& name = "tracker") {
    support::Child* child = Start(name, std::move(args));
    const auto ended = child->Wait(tests::Patiently(20'000));
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
                           ->Wait(tests::Patiently(20'000));
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
