// Trust that changes while real daemons run, and servers that are none: a token, a certificate or a
// server that was revoked is out without a restart, a renewed one counts, a false one gets no
// calls.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "deploy/daemon/credentials.h"
#include "deploy/daemon/server_host.h"
#include "deploy/daemon/wire.h"
#include "deploy/security/authority.h"
#include "deploy/security/identity.h"
#include "deploy/security/token_file.h"
#include "deploy/support/file.h"
#include "tests/fault/secure_fleet.h"
#include "tests/support/patience.h"
#include "tilewright/v1/agent.grpc.pb.h"
#include "tilewright/v1/dispatch.grpc.pb.h"
#include "tilewright/v1/fleet_admin.grpc.pb.h"

namespace tilewright {
namespace {

using security::CertificateKind;
using security::Listener;
using security::Role;

using SecureChangeTest = SecureFleetTest;

// Of the agent's device, as an administrator sees it; unspecified where nobody answers.
v1::Reachability Reachability(v1::FleetAdminService::Stub* admin) {
  v1::GetDeviceRequest request;
  request.set_name("devices/bench-cpu");
  v1::Device device;
  grpc::ClientContext context;
  daemon::SetTimeout(&context, tests::Patiently(5000));
  const bool ok = admin->GetDevice(&context, request, &device).ok();
  return ok ? device.reachability() : v1::REACHABILITY_UNSPECIFIED;
}

TEST_F(SecureChangeTest, AFalseServerGetsNoCalls) {
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

TEST_F(SecureChangeTest, ARevokedTokenIsOutWithoutARestart) {
  StartTracker();
  StartAgent();
  const auto admin =
      v1::FleetAdminService::NewStub(DialAs(tracker_, "laptop", "tracker-tokens", "root"));
  const auto reachability = [&] { return Reachability(admin.get()); };
  EXPECT_TRUE(WaitFor([&] { return reachability() == v1::REACHABILITY_ONLINE; }));
  const auto agent = DialAs(tracker_, "bench", "tracker-tokens", "bench");
  const std::string health = "/grpc.health.v1.Health/Check";
  EXPECT_TRUE(RawCall(agent, health).ok());
  const std::string id = tokens_.at("tracker-tokens bench").row.id;
  ASSERT_TRUE(security::RevokeToken(File("tracker-tokens"), id, NowSeconds()).ok());
  ASSERT_TRUE(
      WaitFor([&] { return support::Slug(RawCall(agent, health)) == "auth.token.revoked"; }));
  // At once, not when the agent has been silent for a minute, and with the reason.
  EXPECT_TRUE(WaitFor([&] { return reachability() == v1::REACHABILITY_REVOKED; }, 20'000));
  // A new token in its place: the agent comes back by itself.
  Token("tracker-tokens", Role::kAgent, "bench");
  ASSERT_TRUE(WriteToken("bench", "tracker-tokens", "bench").ok());
  EXPECT_TRUE(WaitFor([&] { return reachability() == v1::REACHABILITY_ONLINE; }));
}

TEST_F(SecureChangeTest, ARevokedCertificateIsOutWithoutARestart) {
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
  ASSERT_TRUE(
      WaitFor([&] { return support::Slug(RawCall(bench, health)) == "auth.certificate.revoked"; }));
  EXPECT_TRUE(RawCall(laptop, health).ok());
}

TEST_F(SecureChangeTest, ADeviceOfARevokedAgentSaysSoAtOnce) {
  StartTracker();
  StartAgent();
  const auto admin =
      v1::FleetAdminService::NewStub(DialAs(tracker_, "laptop", "tracker-tokens", "root"));
  const auto reachability = [&] { return Reachability(admin.get()); };
  EXPECT_TRUE(WaitFor([&] { return reachability() == v1::REACHABILITY_ONLINE; }));
  const auto revoked = Revoke("bench");
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  ASSERT_TRUE(support::WriteFileAtomic(File("lab/crl.pem"), *revoked).ok());
  EXPECT_TRUE(WaitFor([&] { return reachability() == v1::REACHABILITY_REVOKED; }, 20'000));
  v1::GetDeviceRequest request;
  request.set_name("devices/bench-cpu");
  v1::Device device;
  grpc::ClientContext context;
  daemon::SetTimeout(&context, tests::Patiently(5000));
  ASSERT_TRUE(admin->GetDevice(&context, request, &device).ok());
  ASSERT_FALSE(device.conditions().empty());
  EXPECT_NE(device.conditions().rbegin()->message().find("auth.certificate.revoked"),
            std::string::npos)
      << device.conditions().rbegin()->message();
  // Started again with a new certificate, it is back.
  ASSERT_TRUE(security::RenewIdentity(File("pki"), File("bench"), 90, NowSeconds()).ok());
  const auto agent = children_.extract("agent");
  kill(agent.mapped()->pid(), SIGTERM);
  ASSERT_TRUE(agent.mapped()->Wait(tests::Patiently(20'000)).ok());
  EXPECT_NE(agent.mapped()->stderr_tail().find("auth.certificate.revoked"), std::string::npos)
      << agent.mapped()->stderr_tail();
  StartAgent();
  EXPECT_TRUE(WaitFor([&] { return reachability() == v1::REACHABILITY_ONLINE; }));
}

// Whoever dials refuses a server whose certificate was revoked, on the connection that it has, too,
// and goes back to it when it shows another one.
TEST_F(SecureChangeTest, ARevokedServerGetsNoCalls) {
  StartTracker();
  StartAgent();
  const auto watcher = DialAs(tracker_, "laptop", "tracker-tokens", "root");
  const auto admin = v1::FleetAdminService::NewStub(watcher);
  const auto reachability = [&] { return Reachability(admin.get()); };
  EXPECT_TRUE(WaitFor([&] { return reachability() == v1::REACHABILITY_ONLINE; }));
  const auto visitor = DialAs(tracker_, "other", "tracker-tokens", "other");
  const std::string health = "/grpc.health.v1.Health/Check";
  EXPECT_TRUE(RawCall(visitor, health).ok());
  const auto revoked = Revoke("lab");
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  const std::string& list = *revoked;
  for (const char* dialer : {"other", "bench"}) {
    ASSERT_TRUE(support::WriteFileAtomic(File(dialer) + "/crl.pem", list).ok());
  }
  absl::Status refused;
  EXPECT_TRUE(WaitFor([&] {
    refused = RawCall(visitor, health);
    return absl::IsUnavailable(refused) &&
           refused.message().find("auth.certificate.revoked") != std::string::npos;
  })) << refused;
  EXPECT_TRUE(WaitFor([&] { return reachability() == v1::REACHABILITY_OFFLINE; }, 60'000))
      << "the agent goes on talking to a revoked tracker";
  // Started again with a certificate that counts: all come back by themselves.
  ASSERT_TRUE(security::RenewIdentity(File("pki"), File("lab"), 90, NowSeconds()).ok());
  children_.erase("tracker");
  StartTracker(tracker_);
  EXPECT_TRUE(WaitFor([&] { return RawCall(visitor, health).ok(); }, 60'000));
  EXPECT_TRUE(WaitFor([&] { return reachability() == v1::REACHABILITY_ONLINE; }, 60'000));
}

TEST_F(SecureChangeTest, RenewedCertificatesCountWithoutARestart) {
  StartTracker();
  const auto serial = [&] {
    const auto channel = DialAs(tracker_, "laptop", "tracker-tokens", "root");
    const auto stub = v1::FleetAdminService::NewStub(channel);
    grpc::ClientContext context;
    daemon::SetTimeout(&context, tests::Patiently(5000));
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
  EXPECT_TRUE(WaitFor([&] { return serial() == on_disk(); }));
}

}  // namespace
}  // namespace tilewright
