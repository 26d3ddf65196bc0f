// Tickets for new agents: spent once, for one key, which may ask again; and everything else
// refused.
#include "deploy/security/enrolment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "deploy/security/authority.h"
#include "deploy/security/certificate_request.h"
#include "deploy/security/token_file.h"
#include "deploy/support/file.h"

namespace tilewright::security {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kNow = 1'790'000'000;
constexpr uint64_t kMaxBytes = 1 << 20;

class EnrolmentTest : public ::testing::Test {
 protected:
  EnrolmentTest() : dir_(*support::TempDir::Create("enrolment")) {
    EXPECT_TRUE(CreateAuthority(File("pki"), "Test fleet", 3650, kNow).ok());
    files_ = {File("pki"), File("tickets"), File("tokens")};
  }

  std::string File(const std::string& name) const { return dir_.File(name); }

  std::string Ticket(const std::string& name = "bench-3") {
    const auto made = CreateTicket(files_.tickets, files_.authority, name, 3600, kNow);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->ticket : "";
  }

  // The request of a device's own key.
  std::string Request(const std::string& device) {
    EXPECT_TRUE(RequestIdentity(File(device)).ok());
    return support::ReadFile(File(device + "/request.pem"), kMaxBytes).value_or("");
  }

  absl::StatusOr<Enrolled> Ask(const std::string& ticket, const std::string& request,
                               const std::string& name = "", int64_t now_s = kNow) {
    return Enrol(files_, {ticket, name, request}, now_s);
  }
  std::string Slug(const std::string& ticket, const std::string& request,
                   const std::string& name = "", int64_t now_s = kNow) {
    return support::Slug(Ask(ticket, request, name, now_s).status());
  }
  int LiveTokens() {
    const auto tokens = LoadTokens(files_.tokens);
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    int live = 0;
    for (const TokenRow& row : tokens.value_or(std::vector<TokenRow>())) {
      live += row.revoked_s == 0 ? 1 : 0;
    }
    return live;
  }

  support::TempDir dir_;
  EnrolmentFiles files_;
};

TEST_F(EnrolmentTest, ATicketGivesACertificateForTheDevicesOwnKey) {
  const auto enrolled = Ask(Ticket(), Request("device"), "bench-3");
  ASSERT_TRUE(enrolled.ok()) << enrolled.status();
  EXPECT_EQ(enrolled->name, "bench-3");
  EXPECT_EQ(enrolled->identity.key, "") << "the key is where it was made";
  ASSERT_TRUE(ReplaceIdentity(File("device"), enrolled->identity).ok());
  const auto loaded = LoadIdentity(File("device"), kNow);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto peer = ReadPeer(File("device"));
  ASSERT_TRUE(peer.ok() && peer->has_value());
  EXPECT_EQ((*peer)->kind, CertificateKind::kAgent);
  EXPECT_EQ((*peer)->name, "bench-3");
  const auto token = ParseToken(enrolled->token);
  ASSERT_TRUE(token.ok());
  const auto rows = LoadTokens(files_.tokens);
  ASSERT_EQ(rows->size(), 1U);
  EXPECT_EQ(rows->front().id, token->id);
  EXPECT_EQ(rows->front().role, Role::kAgent);
  EXPECT_EQ(rows->front().name, "bench-3");
}

TEST_F(EnrolmentTest, TheFileHoldsNoSecret) {
  const std::string ticket = Ticket();
  const std::string text = *support::ReadFile(files_.tickets, kMaxBytes);
  EXPECT_THAT(text, HasSubstr(ParseTicket(ticket)->id));
  EXPECT_THAT(text, Not(HasSubstr(ParseTicket(ticket)->secret)));
}

TEST_F(EnrolmentTest, AnotherKeyGetsNothingForASpentTicket) {
  const std::string ticket = Ticket();
  ASSERT_TRUE(Ask(ticket, Request("device")).ok());
  EXPECT_EQ(Slug(ticket, Request("thief")), "enrol.ticket.spent");
  EXPECT_EQ(LiveTokens(), 1);
  EXPECT_TRUE(Ask(ticket, Request("device")).ok()) << "the first one still may";
}

// Whoever's answer was lost asks again; what it was given before does not count any more.
TEST_F(EnrolmentTest, TheSameKeyMayAskAgain) {
  const std::string ticket = Ticket();
  const std::string request = Request("device");
  const auto first = Ask(ticket, request);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Ask(ticket, request, "", kNow + 10);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(first->token, second->token);
  EXPECT_EQ(LiveTokens(), 1);
  const auto tokens = LoadTokens(files_.tokens);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  for (const TokenRow& row : *tokens) {
    EXPECT_EQ(row.revoked_s == 0, row.id == ParseToken(second->token)->id);
  }
  EXPECT_EQ(Slug(ticket, request, "", kNow + 3600), "enrol.ticket.expired");
}

// The ticket is bound on the disk before anything is signed: a daemon that died in between has
// given nothing away, and the same key finds its ticket.
TEST_F(EnrolmentTest, ADeathBetweenSpendingAndSigningLosesNothing) {
  const std::string ticket = Ticket();
  const std::string request = Request("device");
  ASSERT_TRUE(support::WriteFileAtomic(File("pki/ca-key.pem"), "no key", 0600).ok());
  EXPECT_FALSE(Ask(ticket, request).ok());
  EXPECT_EQ(LoadTickets(files_.tickets)->front().key, *RequestFingerprint(request));
  ASSERT_TRUE(support::RemoveTree(File("pki")).ok());
  ASSERT_TRUE(CreateAuthority(File("pki"), "Test fleet", 3650, kNow).ok());
  EXPECT_EQ(Slug(ticket, Request("thief")), "enrol.ticket.spent");
  EXPECT_TRUE(Ask(ticket, request).ok());
}

TEST_F(EnrolmentTest, WhatDoesNotCountIsRefusedAndSpendsNothing) {
  const std::string ticket = Ticket();
  const std::string request = Request("device");
  EXPECT_EQ(Slug("twe_nonsense", request), "enrol.ticket.malformed");
  std::string mistyped = ticket;
  mistyped[20] = mistyped[20] == 'a' ? 'b' : 'a';
  EXPECT_EQ(Slug(mistyped, request), "enrol.ticket.malformed");
  const EnrolmentFiles other{File("pki"), File("other-tickets"), File("tokens")};
  const auto foreign = CreateTicket(other.tickets, other.authority, "bench-3", 3600, kNow);
  ASSERT_TRUE(foreign.ok());
  EXPECT_EQ(Slug(foreign->ticket, request), "enrol.ticket.unknown");
  EXPECT_EQ(Slug(ticket, request, "bench-4"), "enrol.name.mismatch");
  EXPECT_EQ(Slug(ticket, "no request"), "certs.request.invalid");
  EXPECT_EQ(Slug(ticket, request, "", kNow + 3600), "enrol.ticket.expired");
  EXPECT_EQ(LoadTickets(files_.tickets)->front().key, "");
  EXPECT_FALSE(support::FileExists(files_.tokens));
  EXPECT_TRUE(Ask(ticket, request).ok());
}

TEST_F(EnrolmentTest, TicketsAreForNamesAndForAWhile) {
  EXPECT_EQ(support::Slug(CreateTicket(files_.tickets, File("pki"), "a b", 60, kNow).status()),
            "certs.name.invalid");
  EXPECT_EQ(support::Slug(CreateTicket(files_.tickets, File("pki"), "a", 0, kNow).status()),
            "enrol.hours.invalid");
  EXPECT_FALSE(CreateTicket(files_.tickets, File("no-pki"), "a", 60, kNow).ok());
  ASSERT_TRUE(support::WriteFileAtomic(files_.tickets, "nonsense\n", 0600).ok());
  EXPECT_EQ(support::Slug(LoadTickets(files_.tickets).status()), "enrol.file.invalid");
}

TEST_F(EnrolmentTest, OnlyTheAuthorityOfTheTicketIsTrusted) {
  const std::string pin = ParseTicket(Ticket())->authority;
  ASSERT_TRUE(CreateAuthority(File("false"), "False fleet", 3650, kNow).ok());
  const std::string ours = *support::ReadFile(File("pki/ca.pem"), kMaxBytes);
  const std::string theirs = *support::ReadFile(File("false/ca.pem"), kMaxBytes);
  const auto picked = PinnedAuthority(theirs + ours, pin);
  ASSERT_TRUE(picked.ok()) << picked.status();
  EXPECT_EQ(ReadCertificates(*picked, "picked")->size(), 1U) << "nothing beside it";
  EXPECT_EQ(ReadCertificates(*picked, "picked")->front().sha256, pin);
  EXPECT_EQ(support::Slug(PinnedAuthority(theirs, pin).status()), "enrol.authority.mismatch");
  EXPECT_EQ(support::Slug(PinnedAuthority("", pin).status()), "enrol.authority.mismatch");
}

}  // namespace
}  // namespace tilewright::security
