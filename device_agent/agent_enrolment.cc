#include "device_agent/agent_enrolment.h"

#include <utility>

#include "deploy/daemon/enrolment_client.h"
#include "deploy/security/identity.h"
#include "deploy/security/revocation.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

using support::PathJoin;

constexpr uint64_t kMaxTicketBytes = 4096;
constexpr char kTicketIdFile[] = "ticket-id";  // of the identity: the ticket that it was made for

std::string TicketIdOf(const std::string& identity) {
  const auto text = support::ReadFile(PathJoin(identity, kTicketIdFile), kMaxTicketBytes);
  return text.ok() ? std::string(support::Trim(*text)) : "";
}

absl::Status WriteTicketId(const std::string& identity, const std::string& id) {
  return support::WriteFileAtomic(PathJoin(identity, kTicketIdFile), id + "\n");
}

// Ok when the identity can be used now and is of the ticket's fleet.
absl::Status CheckIdentity(const std::string& identity, const std::string& authority,
                           int64_t now_s) {
  TW_ASSIGN(const security::IdentityFiles files, security::LoadIdentity(identity, now_s));
  return security::PinnedAuthority(files.authorities, authority).status();
}

// Puts a complete identity in the place of another one.
absl::Status Replace(const std::string& identity, const std::string& fresh, int64_t now_s) {
  TW_ASSIGN(security::IdentityFiles files, security::LoadIdentity(fresh, now_s));
  // An old list of revoked certificates may be of an authority that is not trusted any more.
  TW_TRY(support::RemoveTree(PathJoin(identity, security::kRevocationFile)));
  const std::string revocations = PathJoin(fresh, security::kRevocationFile);
  if (support::FileExists(revocations)) {
    TW_ASSIGN(files.revocations, support::ReadFile(revocations, security::kMaxPemBytes));
  }
  TW_TRY(security::ReplaceIdentity(identity, files));
  TW_ASSIGN(const std::string token, security::ReadToken(fresh));
  return support::WriteFileAtomic(PathJoin(identity, security::kTokenFile), token + "\n", 0600);
}

}  // namespace

absl::StatusOr<std::string> ReadTicket(const std::string& path) {
  TW_TRY(security::CheckPrivateFile(path));
  TW_ASSIGN(const std::string text, support::ReadFile(path, kMaxTicketBytes));
  std::string ticket(support::Trim(text));
  TW_TRY(security::ParseTicket(ticket).status());
  return ticket;
}

bool NeedsEnrolment(const AgentEnrolment& enrolment, int64_t now_s, std::string* why) {
  why->clear();
  const std::string& identity = enrolment.identity;
  if (enrolment.address.empty() || identity.empty()) return false;
  if (!support::FileExists(PathJoin(identity, security::kCertificateFile))) return true;
  // Flags and ticket may stay or go once there is an identity.
  if (!support::FileExists(enrolment.ticket)) return false;
  const auto text = ReadTicket(enrolment.ticket);
  if (!text.ok()) {
    *why = "the identity that is there is used; the ticket cannot be: " +
           support::StatusText(text.status());
    return false;
  }
  const security::TicketText ticket = *security::ParseTicket(*text);
  const std::string used = TicketIdOf(identity);
  if (used == ticket.id) return false;
  if (!used.empty()) {
    *why = "ticket " + ticket.id + " is a new one: it replaces the identity of ticket " + used;
    return true;
  }
  // Made by hand, or by an agent that did not note its ticket.
  const absl::Status usable = CheckIdentity(identity, ticket.authority, now_s);
  if (!usable.ok()) {
    *why = "the identity that is there cannot be used (" + support::StatusText(usable) +
           "): ticket " + ticket.id + " replaces it";
    return true;
  }
  *why = "the identity that is there is used, not ticket " + ticket.id + "; remove " +
         PathJoin(identity, security::kCertificateFile) + " to use the ticket";
  return false;
}

absl::StatusOr<std::string> Enrol(const AgentEnrolment& enrolment, support::Clock* clock) {
  TW_ASSIGN(const std::string ticket, ReadTicket(enrolment.ticket));
  TW_ASSIGN(const security::TicketText parsed, security::ParseTicket(ticket));
  const bool again = support::FileExists(PathJoin(enrolment.identity, security::kCertificateFile));
  daemon::EnrolmentOptions options;
  options.address = enrolment.address;
  options.ticket = ticket;
  options.name = enrolment.name;
  // A new key beside the old identity: the old one may have been revoked because others have it. It
  // stays there until all is done, since the ticket counts for one key.
  options.identity = again ? enrolment.identity + ".enrol-" + parsed.id : enrolment.identity;
  TW_ASSIGN(std::string name, daemon::EnrolIdentity(options, clock));
  if (again) {
    TW_TRY(Replace(enrolment.identity, options.identity, clock->WallMicros() / 1'000'000));
  }
  TW_TRY(WriteTicketId(enrolment.identity, parsed.id));
  if (again) TW_TRY(support::RemoveTree(options.identity));
  return name;
}

}  // namespace tilewright::device_agent
