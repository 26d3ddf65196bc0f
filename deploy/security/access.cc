#include "deploy/security/access.h"

#include <array>
#include <utility>

#include "deploy/support/strings.h"

namespace tilewright::security {
namespace {

constexpr unsigned Bit(Role role) { return 1u << static_cast<unsigned>(role); }

constexpr unsigned kAgents = Bit(Role::kAgent);
constexpr unsigned kTuners = Bit(Role::kTuner);
constexpr unsigned kAdmins = Bit(Role::kAdmin);
constexpr unsigned kPeople = Bit(Role::kEngineer) | kAdmins;
constexpr unsigned kReaders = kPeople | Bit(Role::kCi);
constexpr unsigned kAll = kReaders | kAgents | kTuners;

// One row per RPC: on the tracker, on the tuner, audited.
constexpr MethodRule kRules[] = {
    {"/tilewright.v1.AgentService/Sync", kAgents, 0, false},
    {"/tilewright.v1.AgentService/ReportResults", kAgents, 0, false},

    {"/tilewright.v1.DispatchService/SubmitWork", kTuners, 0, false},
    {"/tilewright.v1.DispatchService/PullResults", kTuners, 0, false},
    {"/tilewright.v1.DispatchService/AckResults", kTuners, 0, false},
    {"/tilewright.v1.DispatchService/CancelWork", kTuners, 0, true},
    {"/tilewright.v1.DispatchService/GetPoolLoad", kTuners, 0, false},

    {"/tilewright.v1.FleetAdminService/ListDevices", kTuners | kPeople, kPeople, false},
    {"/tilewright.v1.FleetAdminService/GetDevice", kTuners | kPeople, kPeople, false},
    {"/tilewright.v1.FleetAdminService/SetDeviceAdminState", kTuners | kAdmins, kAdmins, true},
    {"/tilewright.v1.FleetAdminService/CreateHold", kTuners | kPeople, kPeople, true},
    {"/tilewright.v1.FleetAdminService/ReleaseHold", kTuners | kPeople, kPeople, true},
    {"/tilewright.v1.FleetAdminService/ResetDevice", kTuners | kAdmins, kAdmins, true},
    {"/tilewright.v1.FleetAdminService/ForgetDevice", kTuners | kAdmins, kAdmins, true},
    {"/tilewright.v1.FleetAdminService/ListShares", kTuners | kPeople, kPeople, false},

    {"/tilewright.v1.ArtifactService/FindMissing", kTuners, kPeople, false},
    {"/tilewright.v1.ArtifactService/BatchWrite", kTuners, kPeople, false},
    {"/tilewright.v1.ArtifactService/Write", kTuners, kPeople, false},
    {"/tilewright.v1.ArtifactService/Read", kAgents | kTuners, kReaders, false},

    {"/tilewright.v1.JobService/CreateJob", 0, kPeople, true},
    {"/tilewright.v1.JobService/CancelJob", 0, kPeople, true},
    {"/tilewright.v1.JobService/GetJob", 0, kPeople, false},
    {"/tilewright.v1.JobService/ListJobs", 0, kPeople, false},
    {"/tilewright.v1.JobService/WatchJob", 0, kPeople, false},
    {"/tilewright.v1.JobService/ListTasks", 0, kPeople, false},
    {"/tilewright.v1.JobService/ListTrials", 0, kPeople, false},
    {"/tilewright.v1.JobService/ExportLog", 0, kPeople, true},
    {"/tilewright.v1.JobService/ImportLog", 0, kAdmins, true},

    {"/tilewright.v1.ModuleService/ResolveModule", 0, kReaders, true},
    {"/tilewright.v1.ModuleService/GetModuleVersion", 0, kReaders, false},
    {"/tilewright.v1.ModuleService/ListModuleVersions", 0, kReaders, false},
    {"/tilewright.v1.ModuleService/SetModuleAlias", 0, kPeople, true},
    {"/tilewright.v1.ModuleService/AddModuleSignature", 0, kPeople, true},
    {"/tilewright.v1.ModuleService/RevokeModuleSignature", 0, kPeople, true},
    {"/tilewright.v1.ModuleService/AddReleaseKey", 0, kAdmins, true},
    {"/tilewright.v1.ModuleService/ListReleaseKeys", 0, kReaders, false},
    {"/tilewright.v1.ModuleService/RevokeReleaseKey", 0, kAdmins, true},
    {"/tilewright.v1.ModuleService/ReleaseModule", 0, kPeople, true},
    {"/tilewright.v1.ModuleService/PruneModules", 0, kAdmins, true},

    // On a listener of its own, where a ticket counts (tracker/enrolment_service); nowhere else.
    {"/tilewright.v1.EnrolmentService/GetAuthority", 0, 0, false},
    {"/tilewright.v1.EnrolmentService/Enrol", 0, 0, false},

    {"/grpc.health.v1.Health/Check", kAll, kAll, false},
    {"/grpc.health.v1.Health/Watch", kAll, kAll, false},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", kAll, kAll, false},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", kAll, kAll, false},
};

constexpr std::array<std::pair<Role, std::string_view>, 5> kRoles = {{
    {Role::kAgent, "agent"},
    {Role::kTuner, "tuner"},
    {Role::kCi, "ci"},
    {Role::kEngineer, "engineer"},
    {Role::kAdmin, "admin"},
}};

}  // namespace

std::string RoleText(Role role) {
  for (const auto& [known, text] : kRoles) {
    if (known == role) return std::string(text);
  }
  return "";
}

absl::StatusOr<Role> ParseRole(std::string_view text) {
  for (const auto& [role, known] : kRoles) {
    if (known == text) return role;
  }
  return support::InvalidArgument(
      "tokens.role.invalid",
      "expected agent, tuner, ci, engineer or admin, found " + support::Quote(text));
}

const std::vector<MethodRule>& MethodRules() {
  static const std::vector<MethodRule>* const rules =
      new std::vector<MethodRule>(std::begin(kRules), std::end(kRules));
  return *rules;
}

const MethodRule* FindRule(std::string_view method) {
  for (const MethodRule& rule : kRules) {
    if (rule.method == method) return &rule;
  }
  return nullptr;
}

bool Allows(const MethodRule& rule, Listener listener, Role role) {
  const unsigned roles = listener == Listener::kTracker ? rule.on_tracker : rule.on_tuner;
  return (roles & Bit(role)) != 0;
}

bool CertificateFits(const Peer& peer, Role role, std::string_view name) {
  switch (peer.kind) {
    case CertificateKind::kAgent:
      return role == Role::kAgent && peer.name == name;
    case CertificateKind::kTuner:
      return role == Role::kTuner && peer.name == name;
    case CertificateKind::kClient:
      return role != Role::kAgent && role != Role::kTuner;
    case CertificateKind::kTracker:
      return false;  // it dials nobody
  }
  return false;
}

RateLimit LimitOf(Role role) {
  switch (role) {
    case Role::kTuner:
      return {5000, 20'000};  // every job of a server has its own calls
    case Role::kAgent:
      return {500, 2000};  // a report per candidate, some under a millisecond
    default:
      return {200, 1000};  // commands; artifacts travel in large pieces
  }
}

}  // namespace tilewright::security
