// Who may call what: one table of all RPCs of the fleet. A method without a row is refused, so each
// new RPC needs a row. Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deploy/security/certificate.h"
#include "deploy/support/status.h"

namespace tilewright::security {

enum class Role {
  kAgent,     // measures: syncs with the tracker, reports, reads artifacts
  kTuner,     // the tuner daemon, when it calls the tracker
  kCi,        // resolves and fetches modules
  kEngineer,  // submits, watches, cancels jobs; releases modules; holds devices
  kAdmin,     // may do all that an engineer may; drains devices, prunes modules
};

std::string RoleText(Role role);  // "agent", "tuner", "ci", "engineer", "admin"
// invalid_argument (tokens.role.invalid).
absl::StatusOr<Role> ParseRole(std::string_view text);

// Which of the two listening daemons is called. The tuner forwards some calls to the tracker.
enum class Listener { kTracker, kTuner };

struct MethodRule {
  std::string_view method;  // "/package.Service/Method"
  unsigned on_tracker = 0;  // roles, a bit each; 0 = no role
  unsigned on_tuner = 0;
  bool audited = false;  // each call is in the audit log, not only refused ones
};

const std::vector<MethodRule>& MethodRules();
// Null for a method without a row.
const MethodRule* FindRule(std::string_view method);
bool Allows(const MethodRule& rule, Listener listener, Role role);

// Whether a token may be used over this certificate: an agent's token only over that agent's
// certificate, a person's token never over a machine's.
bool CertificateFits(const Peer& peer, Role role, std::string_view name);

// How many calls one token may make: a burst, then a steady number a second.
struct RateLimit {
  double per_second = 0;
  double burst = 0;
};
RateLimit LimitOf(Role role);

}  // namespace tilewright::security
