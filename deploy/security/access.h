// Who may call what: one table of all RPCs of the fleet. A method without a row is refused, so a
// new RPC needs a row here (the test walks every service of both daemons). Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deploy/security/certificate.h"
#include "deploy/support/status.h"

namespace tilewright::security {

enum class Role {
  kAgent,     // measures: syncs with the tracker, reports, reads artifacts
  kTuner,     // the tuner daemon, towards the tracker
  kCi,        // resolves and fetches modules
  kEngineer,  // submits, watches, cancels jobs; holds devices
  kAdmin,     // all that an engineer may; drains devices
};

std::string RoleText(Role role);  // "agent", "tuner", "ci", "engineer", "admin"
// invalid_argument (tokens.role.invalid).
absl::StatusOr<Role> ParseRole(std::string_view text);

// Which of the two listening daemons is asked: the tuner forwards what the tracker answers.
enum class Listener { kTracker, kTuner };

struct MethodRule {
  std::string_view method;  // "/package.Service/Method"
  unsigned on_tracker = 0;  // roles, a bit each; 0 = nobody
  unsigned on_tuner = 0;
  bool audited = false;  // a line in the audit log for each call, not only for refused ones
};

const std::vector<MethodRule>& MethodRules();
// Null for a method without a row.
const MethodRule* FindRule(std::string_view method);
bool Allows(const MethodRule& rule, Listener listener, Role role);

// Whether a token may be used over this certificate: a token of an agent only by that agent, a
// person's never by a machine's certificate. Certificates of other authorities (no peer) bind
// nothing.
bool CertificateFits(const Peer& peer, Role role, std::string_view name);

// Calls that one token may make: so many at once, then this many a second.
struct RateLimit {
  double per_second = 0;
  double burst = 0;
};
RateLimit LimitOf(Role role);

}  // namespace tilewright::security
