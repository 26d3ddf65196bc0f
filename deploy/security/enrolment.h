// How a new device joins a fleet without getting a secret of the fleet first. An administrator
// makes a ticket for one agent. The device shows it, once, with a request for its own key
// (certificate_request.h), and gets that agent's certificate and bearer token. The text of a ticket
// is "twe_{id}_{secret}_{authority}_{check}"; {authority} is the SHA-256 of the authority's
// certificate, by which the device recognises the fleet. The file has one line for each ticket,
// with the SHA-256 of the secret:
//   {id} {name} {sha256} {created} {expires} {key} {bound}
// {key} is the SHA-256 of the public key that the ticket was spent for, {bound} is the time of
// that; before, they are "-" and 0. Times are seconds since the Unix epoch (UTC). Changes lock the
// file. Functions are stateless.
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
// unauthenticated (enrol.ticket.malformed) for a text that is no ticket, or has a typing mistake.
// The message never contains the text.
absl::StatusOr<TicketText> ParseTicket(std::string_view text);

// Reads the whole file. data_loss (enrol.file.invalid) names the line.
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

// The files of the daemon that enrols.
struct EnrolmentFiles {
  std::string authority;  // folder with its key
  std::string tickets;
  std::string tokens;  // of the tracker: the agent's bearer token is added to it
};
struct EnrolmentRequest {
  std::string ticket;
  std::string name;     // the name that the device expects; empty = the one of the ticket
  std::string request;  // PEM
};
struct Enrolled {
  std::string name;
  IdentityFiles identity;  // without a key
  std::string token;
};
// Spends the ticket for the key of the request (synced to the disk), then signs. Until the ticket
// ends, the same key may ask again, because an answer may be lost: it gets a new certificate and a
// new token, and the token it got before ends. unauthenticated (enrol.ticket.unknown, .expired,
// .malformed), permission_denied (enrol.ticket.spent, enrol.name.mismatch), invalid_argument
// (certs.request.invalid).
absl::StatusOr<Enrolled> Enrol(const EnrolmentFiles& files, const EnrolmentRequest& request,
                               int64_t now_s);

// Returns, as PEM, the one certificate of a PEM text that has this SHA-256: the one that a ticket
// names. permission_denied (enrol.authority.mismatch) if the text does not contain it.
absl::StatusOr<std::string> PinnedAuthority(std::string_view pem, const std::string& sha256);

}  // namespace tilewright::security
