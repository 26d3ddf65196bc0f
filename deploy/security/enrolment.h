// How a new device joins without a secret of the fleet going there: an administrator makes a ticket
// for one agent; whoever shows it, once, together with a request for a key of its own
// (certificate_request.h), gets that agent's certificate and bearer token. A ticket's text is
// "twe_{id}_{secret}_{authority}_{check}"; {authority} is the SHA-256 of the authority's
// certificate, by which the device knows the fleet. The file keeps one line for each, with the
// SHA-256 of the secret:
//   {id} {name} {sha256} {created} {expires} {key} {bound}
// {key} is the SHA-256 of the public key that it was spent for, {bound} when; "-" and 0 before.
// Times are seconds since the Unix epoch (UTC). Changes lock the file. Functions are stateless.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/security/identity.h"
#include "deploy/support/status.h"

namespace tilewright::security {

inline constexpr int64_t kTicketSeconds = 3600;

struct TicketRow {
  std::string id;      // 12 hexadecimal digits
  std::string name;    // of the agent
  std::string sha256;  // of the secret
  int64_t created_s = 0;
  int64_t expires_s = 0;
  std::string key;  // empty = not spent
  int64_t bound_s = 0;
};

struct TicketText {
  std::string id;
  std::string secret;
  std::string authority;  // SHA-256 of its certificate's DER bytes
};
// unauthenticated (enrol.ticket.malformed): no ticket, or a typing mistake in one. The message
// never holds the text.
absl::StatusOr<TicketText> ParseTicket(std::string_view text);

// The whole file. data_loss (enrol.file.invalid) names the line.
absl::StatusOr<std::vector<TicketRow>> ParseTicketRows(std::string_view text);
absl::StatusOr<std::vector<TicketRow>> LoadTickets(const std::string& path);

struct NewTicket {
  TicketRow row;
  std::string ticket;  // shown once, then only the hash is left
};
// Adds a ticket for an agent of that name (and the file, 0600, if missing), pinned to the newest
// certificate of the folder `authority`. invalid_argument (certs.name.invalid).
absl::StatusOr<NewTicket> CreateTicket(const std::string& path, const std::string& authority,
                                       const std::string& name, int64_t valid_s, int64_t now_s);

// Of the daemon that enrols.
struct EnrolmentFiles {
  std::string authority;  // folder with its key
  std::string tickets;
  std::string tokens;  // of the tracker: gets the agent's bearer token
};
struct EnrolmentRequest {
  std::string ticket;
  std::string name;     // whom the device takes itself for; empty = whatever the ticket says
  std::string request;  // PEM
};
struct Enrolled {
  std::string name;
  IdentityFiles identity;  // without a key
  std::string token;
};
// Spends the ticket for the key of the request, on the disk, before anything is signed. The same
// key may ask again until the ticket ends (an answer was lost): it gets a new certificate and a new
// token, and what it was given before as a token ends. unauthenticated (enrol.ticket.unknown,
// .expired, .malformed), permission_denied (enrol.ticket.spent, enrol.name.mismatch),
// invalid_argument (certs.request.invalid).
absl::StatusOr<Enrolled> Enrol(const EnrolmentFiles& files, const EnrolmentRequest& request,
                               int64_t now_s);

// Of a PEM text of certificates the one with that SHA-256, as PEM: what a ticket vouches for, and
// nothing beside it. permission_denied (enrol.authority.mismatch) when it is not among them.
absl::StatusOr<std::string> PinnedAuthority(std::string_view pem, const std::string& sha256);

}  // namespace tilewright::security
