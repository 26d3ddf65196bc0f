// Whether an agent has to get its identity for a ticket before it starts, and how it does. A folder
// that holds an identity already is replaced only for a ticket that was not used for it, and only
// once the new identity is complete.
#pragma once

#include <cstdint>
#include <string>

#include "deploy/security/enrolment.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"

namespace tilewright::device_agent {

struct AgentEnrolment {
  std::string address;   // --enrol HOST:PORT; empty = never
  std::string ticket;    // --ticket FILE
  std::string identity;  // --identity DIR
  std::string name;      // --name; empty = the one in the ticket
};

// Whether the identity has to be made first. Reads files only. `why` says what decided, for people;
// empty where there is nothing to say (no --enrol, a first start, the ticket of this identity).
bool NeedsEnrolment(const AgentEnrolment& enrolment, int64_t now_s, std::string* why);

// The ticket, of a file that only its owner can read. Errors of CheckPrivateFile, ReadFile and
// ParseTicket.
absl::StatusOr<std::string> ReadTicket(const std::string& path);

// Gets the identity; errors are EnrolIdentity's. After a failure the old identity is as before, and
// the call may be repeated. Returns the agent's name.
absl::StatusOr<std::string> Enrol(const AgentEnrolment& enrolment, support::Clock* clock);

}  // namespace tilewright::device_agent
