// The device's side of enrolment (deploy/security/enrolment.h): makes an identity folder from a key
// of its own and a ticket.
#pragma once

#include <cstdint>
#include <string>

#include "deploy/support/clock.h"
#include "deploy/support/status.h"

namespace tilewright::daemon {

struct EnrolmentOptions {
  std::string address;   // HOST:PORT of a tracker's --enrol-listen
  std::string ticket;    // the text
  std::string name;      // of the agent, if configured; empty = the name in the ticket
  std::string identity;  // folder; the key that is there is used again
  int64_t timeout_ms = 20'000;
};

// Makes the key, sends the request with the ticket to the server that has the ticket's authority,
// and writes certificate, authorities, revoked certificates and token. Returns the agent's name.
// May be called again after any failure: the key stays. Errors are those of the service (enrol.*),
// permission_denied (enrol.authority.mismatch) if the server has another authority, and unavailable
// if no server answers.
absl::StatusOr<std::string> EnrolIdentity(const EnrolmentOptions& options, support::Clock* clock);

}  // namespace tilewright::daemon
