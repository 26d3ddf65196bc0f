#include "tuner_server/modules/module_store.h"

#include <set>
#include <utility>
#include <vector>

#include "deploy/module/module_file.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/target_text.h"

namespace tilewright::modules {
namespace {

using support::StrCat;

constexpr std::string_view kProject = "projects/default";
constexpr std::string_view kModules = "/modules/";
constexpr std::string_view kVersions = "/versions/";
constexpr uint64_t kMaxModuleBytes = uint64_t{4} << 30;
constexpr size_t kMaxNameBytes = 63;
constexpr int64_t kPageRows = 100;

absl::Status BadName(std::string_view name) {
  return support::InvalidArgument(
      "module.name.bad",
      StrCat("expected projects/default/modules/{module}[/versions/{number}], found ",
             support::Quote(name)));
}

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

// How well a module tuned for `tuned` answers a question for `wanted`.
Match MatchTarget(const std::string& tuned, const std::string& wanted, bool exact) {
  if (wanted.empty() || tuned == wanted) return Match::kExact;
  if (exact) return Match::kNone;
  const auto a = log::ParseTargetText(tuned);
  const auto b = log::ParseTargetText(wanted);
  if (!a.ok() || !b.ok()) return Match::kNone;
  return a->WithoutThreads() == b->WithoutThreads() ? Match::kCompatible : Match::kNone;
}

}  // namespace

std::string ModuleName(std::string_view text) {
  std::string name;
  for (const char c : support::ToLower(text)) {
    if (name.size() == kMaxNameBytes) break;
    if (IsNameChar(c)) {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "model" : name;
}

absl::StatusOr<std::string> ParseModuleParent(std::string_view name) {
  std::string_view rest = name;
  if (rest.empty() || rest == kProject) return std::string();
  if (rest.substr(0, kProject.size()) != kProject) return BadName(name);
  rest.remove_prefix(kProject.size());
  if (rest.substr(0, kModules.size()) != kModules) return BadName(name);
  rest.remove_prefix(kModules.size());
  if (rest == "-") return std::string();
  if (rest.empty() || rest.find('/') != std::string_view::npos) return BadName(name);
  return std::string(rest);
}

absl::StatusOr<log::ModuleVersionRow> ModuleStore::Publish(const PublishRequest& request) {
  TW_ASSIGN(const std::string bytes, support::ReadFile(request.path, kMaxModuleBytes));
  const std::string sha256 = support::Sha256Hex(bytes);
  if (!request.expected_sha256.empty() && sha256 != request.expected_sha256) {
    return support::DataLoss("module.publish.digest_mismatch",
                             StrCat("expected ", request.expected_sha256, ", found ", sha256));
  }
  TW_ASSIGN(const module::ModuleFile file, module::ModuleFile::FromBytes(bytes));
  log::ModuleVersionRow row;
  row.module = ModuleName(request.module);
  row.sha256 = sha256;
  row.size = static_cast<int64_t>(bytes.size());
  row.manifest_size = static_cast<int64_t>(file.manifest_json().size());
  row.target = request.target;
  row.job = request.job;
  row.model_sha256 = request.model_sha256;
  row.model_size = request.model_size;
  row.median_us = request.median_us;
  row.ci_rel = request.ci_rel;
  row.speedup = request.speedup;
  row.devices = request.devices;
  row.device_fingerprint = request.device_fingerprint;
  row.created_us = request.now_us;
  std::set<std::string> tasks;
  for (const module::Function& function : file.manifest().functions) {
    for (const module::Launch& launch : function.launches) {
      if (!launch.task.empty()) tasks.insert(launch.task);
    }
  }
  row.task_hashes.assign(tasks.begin(), tasks.end());
  TW_TRY(blobs_->PutVerified(sha256, bytes));
  TW_ASSIGN(row.manifest_sha256, blobs_->Put(file.manifest_json()));
  return log_->AddModuleVersion(row);
}

absl::StatusOr<log::ModuleVersionRow> ModuleStore::Get(std::string_view name) {
  const size_t at = name.find(kVersions);
  if (at == std::string_view::npos) return BadName(name);
  TW_ASSIGN(const std::string module, ParseModuleParent(name.substr(0, at)));
  const auto number = support::ParseInt64(name.substr(at + kVersions.size()));
  if (module.empty() || !number) return BadName(name);
  return log_->GetModuleVersion(module, *number);
}

absl::StatusOr<Resolved> ModuleStore::Resolve(const ResolveRequest& request) {
  log::ModuleQuery query{request.module, request.model_sha256, request.task_hash, 0, kPageRows};
  Resolved best;
  std::set<std::string> other_targets;
  for (;;) {
    TW_ASSIGN(log::ModulePage page, log_->ListModuleVersions(query));
    if (page.versions.empty()) break;
    for (log::ModuleVersionRow& version : page.versions) {
      if (request.number != 0 && version.number != request.number) continue;
      const Match match = MatchTarget(version.target, request.target, request.exact);
      if (match == Match::kExact) {
        std::string why = request.target.empty() ? "the newest version"
                                                 : "the newest version tuned for this target";
        return Resolved{match, std::move(version), std::move(why)};
      }
      if (match == Match::kCompatible && best.match == Match::kNone) {
        best = {match, version,
                StrCat("tuned for ", version.target, ", the same processor with another number ",
                       "of threads; none was tuned for ", request.target)};
      }
      other_targets.insert(version.target);
    }
    query.before_position = page.last_position;
  }
  if (best.match != Match::kNone) return best;
  best.explanation = other_targets.empty()
                         ? "no version answers the question"
                         : StrCat("none is tuned for ", request.target, "; there are versions for ",
                                  support::Join(other_targets, "; "));
  return best;
}

}  // namespace tilewright::modules
