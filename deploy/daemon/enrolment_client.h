// The device's side of enrolment (deploy/security/enrolment.h): an own key, a ticket, and what
// comes of them as an identity folder.
#pragma once

#include <cstdint>
#include <string>

#include "deploy/support/clock.h"
#include "deploy/support/status.h"

namespace tilewright::daemon {

struct EnrolmentOptions {
  std::string address;   // HOST:PORT of a tracker's --enrol-listen
  std::string ticket;    // the text
  std::string name;      // whom the device takes itself for; empty = whatever the ticket says
  std::string identity;  // folder; the key that is there is used again
  int64_t timeout_ms = 20'000;
};

// Makes the key, sends the request with the ticket to whoever has the ticket's authority, and
// writes certificate, authorities, list of revoked ones and token. Whatever fails, it may be called
// again: the key stays. Returns the agent's name. Errors are those of the service (enrol.*),
// permission_denied (enrol.authority.mismatch) where somebody else answers, unavailable where
// nobody does.
absl::StatusOr<std::string> EnrolIdentity(const EnrolmentOptions& options, support::Clock* clock);

}  // namespace tilewright::daemon
