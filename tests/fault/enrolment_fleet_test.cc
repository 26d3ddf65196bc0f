// A new agent joins a real fleet with nothing but a ticket; and those who should not, do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "deploy/daemon/credentials.h"
#include "deploy/daemon/enrolment_client.h"
#include "deploy/daemon/wire.h"
#include "deploy/security/audit_log.h"
#include "deploy/security/authority.h"
#include "deploy/security/enrolment.h"
#include "deploy/security/token_file.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "tests/fault/loopback_fleet.h"
#include "tilewright/v1/agent.grpc.pb.h"
#include "tilewright/v1/enrolment.grpc.pb.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using tests::LoopbackDaemon;
using tests::WaitFor;

constexpr uint64_t kMaxBytes = 1 << 20;

int64_t NowSeconds() { return support::SystemClock().WallMicros() / 1'000'000; }

class EnrolmentFleet : public ::testing::Test {
 protected:
  EnrolmentFleet() : dir_(*support::TempDir::Create("enrolment_fleet")) {}

  std::string File(const std::string& name) const { return dir_.File(name); }

  void SetUp() override {
    ASSERT_TRUE(security::CreateAuthority(File("pki"), "Test", 3650, NowSeconds()).ok());
    Issue("pki", security::CertificateKind::kTracker, "lab");
    Issue("pki", security::CertificateKind::kTuner, "main");
    const auto token =
        security::CreateToken(File("tokens"), security::Role::kTuner, "main", 1, NowSeconds());
    ASSERT_TRUE(token.ok());
    tuner_token_ = token->token;
    tracker_ = Tracker("tracker", "lab");
    tracker_->Start();
    ASSERT_TRUE(tracker_->Ready()) << tracker_->log();
  }

  void Issue(const std::string& authority, security::CertificateKind kind,
             const std::string& name) {
    security::LeafRequest request;
    request.peer = {kind, name};
    const absl::Status issued =
        security::IssueIdentity(File(authority), request, File(name), NowSeconds());
    ASSERT_TRUE(issued.ok()) << issued;
  }

  std::unique_ptr<LoopbackDaemon> Tracker(const std::string& state, const std::string& identity) {
    return std::make_unique<LoopbackDaemon>(
        "tilewright-tracker", File(state),
        std::vector<std::string>{"--listen", "127.0.0.1:0", "--identity", File(identity),
                                 "--tokens", File("tokens"), "--enrol-listen", "127.0.0.1:0",
                                 "--enrol-authority", File("pki"), "--enrol-tickets",
                                 File("tickets"), "--enrol-port-file", File(state + ".enrol")});
  }
  std::string Door(const std::string& state = "tracker") {
    return std::string(support::Trim(support::ReadFile(File(state + ".enrol"), 100).value_or("")));
  }

  std::string Ticket(const std::string& name, int64_t valid_s = 600, int64_t age_s = 0,
                     const std::string& authority = "pki") {
    const auto made = security::CreateTicket(File("tickets"), File(authority), name, valid_s,
                                             NowSeconds() - age_s);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->ticket : "";
  }

  absl::StatusOr<std::string> Enrol(const std::string& ticket, const std::string& folder,
                                    const std::string& name = "",
                                    const std::string& door = "tracker") {
    daemon::EnrolmentOptions options;
    options.address = Door(door);
    options.ticket = ticket;
    options.name = name;
    options.identity = File(folder);
    return daemon::EnrolIdentity(options, &clock_);
  }
  std::string Slug(const std::string& ticket, const std::string& folder,
                   const std::string& name = "", const std::string& door = "tracker") {
    const auto enrolled = Enrol(ticket, folder, name, door);
    return enrolled.ok() ? "" : support::Slug(enrolled.status());
  }

  // Whether the tracker knows a device of that agent.
  bool HasDevice(const std::string& name) {
    const auto credentials = daemon::TlsChannelCredentials(File("main"), tuner_token_, &clock_);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    const auto stub =
        v1::FleetAdminService::NewStub(grpc::CreateChannel(tracker_->Address(), *credentials));
    v1::GetDeviceRequest request;
    request.set_name(name);
    v1::Device device;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, tests::Patiently(20'000));
    return stub->GetDevice(&context, request, &device).ok() &&
           device.reachability() == v1::REACHABILITY_ONLINE;
  }

  support::SystemClock clock_;
  support::TempDir dir_;
  std::string tuner_token_;
  std::unique_ptr<LoopbackDaemon> tracker_;
};

TEST_F(EnrolmentFleet, AnAgentJoinsWithATicketAndComesBackWithout) {
  ASSERT_TRUE(support::WriteFileAtomic(File("ticket"), Ticket("bench-3") + "\n", 0600).ok());
  LoopbackDaemon agent("tilewright-agent", File("agent"),
                       {"--tracker", tracker_->Address(), "--identity", File("bench"), "--enrol",
                        Door(), "--ticket", File("ticket"), "--device", "cpu", "--threads", "1"});
  agent.Start();
  ASSERT_TRUE(agent.Ready()) << agent.log();
  EXPECT_THAT(agent.log(), HasSubstr("agent.enrolled"));
  EXPECT_TRUE(WaitFor([&] { return HasDevice("devices/bench-3-cpu"); })) << agent.log();
  EXPECT_EQ(agent.End().exit_code, 0);
  // Its identity is there: the ticket is not needed any more, nor the door.
  const std::string certificate = *support::ReadFile(File("bench/cert.pem"), kMaxBytes);
  ASSERT_TRUE(support::RemoveTree(File("ticket")).ok());
  agent.Start();
  ASSERT_TRUE(agent.Ready()) << agent.log();
  EXPECT_THAT(agent.log(), Not(HasSubstr("agent.enrolled")));
  EXPECT_EQ(*support::ReadFile(File("bench/cert.pem"), kMaxBytes), certificate);
  EXPECT_EQ(agent.End().exit_code, 0);
  // Who, from where, and no secret.
  const auto audited = security::VerifyAuditFile(File("tracker/audit.jsonl"));
  EXPECT_TRUE(audited.ok()) << audited.status();
  const std::string audit = *support::ReadFile(File("tracker/audit.jsonl"), kMaxBytes);
  EXPECT_THAT(audit, HasSubstr("EnrolmentService/Enrol"));
  EXPECT_THAT(audit, HasSubstr("agents/bench-3"));
  EXPECT_THAT(audit, Not(HasSubstr("twe_")));
  EXPECT_THAT(tracker_->log(), Not(HasSubstr("twe_")));
}

TEST_F(EnrolmentFleet, RefusalsAreTypedAndSpendNothing) {
  const std::string ticket = Ticket("bench-3");
  EXPECT_EQ(Slug(ticket, "a", "bench-4"), "enrol.name.mismatch");
  EXPECT_EQ(Slug(Ticket("late", 60, 120), "a"), "enrol.ticket.expired");
  EXPECT_EQ(Slug("twe_x", "a"), "enrol.ticket.malformed");
  EXPECT_FALSE(support::FileExists(File("a/cert.pem")));
  EXPECT_EQ(Slug(ticket, "a"), "") << "with the same key as before";
  EXPECT_EQ(Slug(ticket, "b"), "enrol.ticket.spent");
  EXPECT_FALSE(support::FileExists(File("b/cert.pem")));
  EXPECT_EQ(Slug(ticket, "a"), "") << "its answer may have been lost";
}

// A ticket's pin is what keeps it from a false tracker, which may hold any certificate but ours.
TEST_F(EnrolmentFleet, AFalseTrackerNeverSeesTheTicket) {
  ASSERT_TRUE(security::CreateAuthority(File("false"), "False", 3650, NowSeconds()).ok());
  const std::string elsewhere = Ticket("bench-3", 600, 0, "false");
  EXPECT_EQ(Slug(elsewhere, "a"), "enrol.authority.mismatch");
  // One that shows our authority's certificate, as anybody can, but has none signed by it.
  Issue("false", security::CertificateKind::kTracker, "impostor");
  const auto impostor = Tracker("impostor-state", "impostor");
  impostor->Start();
  ASSERT_TRUE(impostor->Ready()) << impostor->log();
  const std::string ticket = Ticket("bench-5");
  const auto enrolled = Enrol(ticket, "b", "", "impostor-state");
  EXPECT_TRUE(absl::IsUnavailable(enrolled.status())) << enrolled.status();
  const auto rows = security::LoadTickets(File("tickets"));
  ASSERT_TRUE(rows.ok()) << rows.status();
  for (const security::TicketRow& row : *rows) {
    EXPECT_EQ(row.key, "") << "nobody has seen a ticket";
  }
}

// The door is for enrolling, and slow for those who knock much.
TEST_F(EnrolmentFleet, TheDoorLeadsNowhereElse) {
  grpc::SslCredentialsOptions trusted;
  trusted.pem_root_certs = *support::ReadFile(File("pki/ca.pem"), kMaxBytes);
  const auto channel = grpc::CreateChannel(Door(), grpc::SslCredentials(trusted));
  const auto agents = v1::AgentService::NewStub(channel);
  v1::SyncResponse synced;
  grpc::ClientContext sync_context;
  daemon::SetTimeout(&sync_context, tests::Patiently(20'000));
  EXPECT_EQ(agents->Sync(&sync_context, v1::SyncRequest(), &synced).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  const auto door = v1::EnrolmentService::NewStub(channel);
  const auto call = [&](const std::string& ticket) {
    v1::EnrolRequest request;
    request.set_ticket(ticket);
    v1::EnrolResponse response;
    grpc::ClientContext context;
    daemon::SetTimeout(&context, tests::Patiently(20'000));
    return support::Slug(daemon::FromGrpc(door->Enrol(&context, request, &response)));
  };
  EXPECT_EQ(call(std::string(200'000, 'x')), "rpc.resource_exhausted") << "too much of it";
  std::string last;
  for (int i = 0; i < 400 && last != "enrol.rate"; ++i) last = call("twe_guess");
  EXPECT_EQ(last, "enrol.rate");
}

// The folder of an identity that was revoked, has ended or is somebody else's does not keep a new
// ticket from being used, and what happens with the ticket stands in the log.
TEST_F(EnrolmentFleet, ANewTicketReplacesAnOldIdentity) {
  const auto write_ticket = [&](const std::string& ticket) {
    ASSERT_TRUE(support::WriteFileAtomic(File("ticket"), ticket + "\n", 0600).ok());
  };
  LoopbackDaemon agent("tilewright-agent", File("agent"),
                       {"--tracker", tracker_->Address(), "--identity", File("bench"), "--enrol",
                        Door(), "--ticket", File("ticket"), "--device", "cpu", "--threads", "1"});
  const auto run = [&] {
    agent.Start();
    EXPECT_TRUE(agent.Ready()) << agent.log();
    EXPECT_TRUE(WaitFor([&] { return HasDevice("devices/bench-3-cpu"); })) << agent.log();
    EXPECT_EQ(agent.End().exit_code, 0);
  };
  const auto key = [&] { return *support::ReadFile(File("bench/key.pem"), kMaxBytes); };
  // Made by hand and good: it stays, and the log says so.
  Issue("pki", security::CertificateKind::kAgent, "bench-3");
  ASSERT_EQ(rename(File("bench-3").c_str(), File("bench").c_str()), 0);
  const auto token =
      security::CreateToken(File("tokens"), security::Role::kAgent, "bench-3", 1, NowSeconds());
  ASSERT_TRUE(support::WriteFileAtomic(File("bench/token"), token->token, 0600).ok());
  const std::string by_hand = key();
  write_ticket(Ticket("bench-3"));
  run();
  EXPECT_THAT(agent.log(), HasSubstr("agent.enrol.kept"));
  EXPECT_EQ(key(), by_hand);
  // Ended.
  ASSERT_TRUE(support::RemoveTree(File("bench")).ok());
  security::LeafRequest request;
  request.peer = {security::CertificateKind::kAgent, "bench-3"};
  request.days = 1;
  ASSERT_TRUE(
      security::IssueIdentity(File("pki"), request, File("bench"), NowSeconds() - 10 * 86'400)
          .ok());
  const std::string ended = key();
  run();
  EXPECT_THAT(agent.log(), HasSubstr("agent.enrol.again"));
  const std::string first = key();
  EXPECT_NE(first, ended) << "an own key";
  run();
  EXPECT_THAT(agent.log(), Not(HasSubstr("agent.enrol"))) << "the same ticket: nothing to do";
  EXPECT_EQ(key(), first);
  // Good, but there is another ticket: the old identity may have been revoked.
  write_ticket(Ticket("bench-3"));
  run();
  EXPECT_THAT(agent.log(), HasSubstr("agent.enrol.again"));
  EXPECT_NE(key(), first);
  // One that cannot be used: refused aloud, and the identity is as before.
  const std::string last = key();
  write_ticket(Ticket("bench-3", 60, 120));
  agent.Start();
  EXPECT_NE(agent.End(0).exit_code, 0);
  EXPECT_THAT(agent.log(), HasSubstr("enrol.ticket.expired"));
  EXPECT_EQ(key(), last);
}

TEST_F(EnrolmentFleet, FlagsThatDoNotGoTogetherAreRefused) {
  LoopbackDaemon agent("tilewright-agent", File("agent"),
                       {"--tracker", tracker_->Address(), "--enrol", Door(), "--check-config"});
  agent.Start();
  EXPECT_EQ(agent.End(0).exit_code, 64);
  LoopbackDaemon tracker("tilewright-tracker", File("other"),
                         {"--listen", "127.0.0.1:0", "--enrol-listen", "127.0.0.1:0"});
  tracker.Start();
  EXPECT_EQ(tracker.End(0).exit_code, 64);
}

}  // namespace
}  // namespace tilewright
