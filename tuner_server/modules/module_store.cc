#include "tuner_server/modules/module_store.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "deploy/module/module_file.h"
#include "deploy/support/failpoint.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

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
  row.device_class = request.device_class;
  row.toolchain = request.toolchain;
  row.created_by = request.created_by;
  row.recipe = request.recipe;
  row.sizes = request.sizes;
  row.created_us = request.now_us;
  std::set<std::string> tasks;
  for (const module::Function& function : file.manifest().functions) {
    for (const module::Launch& launch : function.launches) {
      if (!launch.task.empty()) tasks.insert(launch.task);
    }
  }
  row.task_hashes.assign(tasks.begin(), tasks.end());
  const support::MutexLock lock(publish_mutex_);
  TW_TRY(blobs_->PutVerified(sha256, bytes));
  support::HitFailpoint(support::Failpoint::tuner_module_bytes);
  TW_ASSIGN(row.manifest_sha256, blobs_->Put(file.manifest_json()));
  support::HitFailpoint(support::Failpoint::tuner_module_manifest);
  return AddVersion(std::move(row));
}

// The number is written down outside of the log before the log uses it.
absl::StatusOr<log::ModuleVersionRow> ModuleStore::AddVersion(log::ModuleVersionRow row) {
  if (numbers_ == nullptr) return log_->AddModuleVersion(row);
  TW_ASSIGN(row.number, numbers_->Reserve(row.module, row.sha256));
  TW_ASSIGN(const log::ModuleVersionRow published, log_->AddModuleVersion(row));
  // The job had published before a crash.
  if (published.number != row.number) TW_TRY(numbers_->Withdraw());
  return published;
}

absl::StatusOr<log::ModuleVersionRow> ModuleStore::Reuse(const std::string& job,
                                                         std::string_view module,
                                                         const std::string& recipe) {
  const support::MutexLock lock(publish_mutex_);
  TW_ASSIGN(const log::ModuleVersionRow version,
            log_->UseModuleVersion(job, ModuleName(module), recipe));
  if (blobs_->Contains(version.sha256) && blobs_->Contains(version.manifest_sha256)) return version;
  // The row of a restored log, say; what the job publishes instead takes its place.
  return support::NotFound("module.reuse.bytes", "the bytes of " + version.sha256 + " are gone");
}

absl::StatusOr<log::ModuleVersionRow> ModuleStore::Get(std::string_view name) {
  const size_t at = name.find(kVersions);
  if (at == std::string_view::npos) return BadName(name);
  TW_ASSIGN(const std::string module, ParseModuleParent(name.substr(0, at)));
  const auto number = support::ParseInt64(name.substr(at + kVersions.size()));
  if (module.empty() || !number) return BadName(name);
  return log_->GetModuleVersion(module, *number);
}

absl::Status ModuleStore::SetAlias(const log::ModuleAliasRow& alias) {
  const bool named = std::all_of(alias.alias.begin(), alias.alias.end(), IsNameChar);
  if (!named || alias.alias.empty() || alias.alias.size() > kMaxNameBytes ||
      support::ParseInt64(alias.alias)) {
    return support::InvalidArgument(
        "module.alias.bad",
        StrCat("expected lower-case letters, digits and .-_ (not only digits), found ",
               support::Quote(alias.alias)));
  }
  return log_->SetModuleAlias(alias);
}

absl::StatusOr<std::vector<log::RecordRow>> ModuleStore::Origins(
    const log::ModuleVersionRow& version) {
  TW_ASSIGN(const std::string text, blobs_->Get(version.manifest_sha256));
  TW_ASSIGN(const module::Manifest manifest, module::ManifestFromJson(text));
  std::vector<log::RecordRow> origins;
  const auto records = manifest.provenance.find("log_records");
  if (records == manifest.provenance.end()) return origins;
  for (const std::string& id : support::Split(records->second, ',')) {
    absl::StatusOr<log::RecordRow> record = log_->GetRecord(id);
    if (record.ok()) {
      origins.push_back(*std::move(record));
    } else if (!absl::IsNotFound(record.status())) {
      return record.status();
    }
  }
  return origins;
}

absl::StatusOr<std::vector<log::ModuleVersionRow>> ModuleStore::AllVersions(
    const std::string& module) {
  std::vector<log::ModuleVersionRow> versions;
  log::ModuleQuery query{.module = module, .with_pruned = false, .limit = kPageRows};
  for (;;) {
    TW_ASSIGN(const log::ModulePage page, log_->ListModuleVersions(query));
    if (page.versions.empty()) return versions;
    versions.insert(versions.end(), page.versions.begin(), page.versions.end());
    query.before_position = page.last_position;
  }
}

absl::StatusOr<PruneReport> ModuleStore::Prune(const std::string& module,
                                               const RetentionPolicy& policy, bool dry_run,
                                               int64_t now_us) {
  const support::MutexLock lock(publish_mutex_);
  TW_ASSIGN(const std::vector<log::ModuleVersionRow> versions, AllVersions(module));
  TW_ASSIGN(const std::vector<log::ModuleAliasRow> aliases, log_->ListModuleAliases(module));
  PruneReport report = PlanPruning(versions, aliases, policy);
  if (dry_run || report.pruned.empty()) return report;
  TW_ASSIGN(report.pruned, log_->PruneModuleVersions(report.pruned, now_us));
  TW_ASSIGN(const std::vector<log::ModuleVersionRow> left, AllVersions(""));
  std::set<std::string> named;
  for (const log::ModuleVersionRow& version : left) named.insert(version.sha256);
  for (const log::ModuleVersionRow& version : report.pruned) {
    if (named.count(version.sha256) == 0) TW_TRY(blobs_->Remove(version.sha256));
  }
  return report;
}

// The number that the question names, itself or by an alias; 0: none.
absl::StatusOr<int64_t> ModuleStore::WantedNumber(const ResolveRequest& request) {
  if (request.alias.empty()) return request.number;
  TW_ASSIGN(const std::vector<log::ModuleAliasRow> aliases,
            log_->ListModuleAliases(request.module));
  for (const log::ModuleAliasRow& row : aliases) {
    if (row.module == request.module && row.alias == request.alias) return row.number;
  }
  return support::NotFound("module.not_found",
                           StrCat(request.module, " has no alias ", request.alias));
}

// All versions that answer, whatever their target and time.
absl::StatusOr<std::vector<log::ModuleVersionRow>> ModuleStore::Answers(
    const ResolveRequest& request) {
  TW_ASSIGN(const int64_t number, WantedNumber(request));
  log::ModuleQuery query{.module = request.module,
                         .model_sha256 = request.model_sha256,
                         .task_hash = request.task_hash,
                         .limit = kPageRows};
  std::vector<log::ModuleVersionRow> answers;
  std::set<std::string> other_classes;
  bool pruned = false;
  for (;;) {
    TW_ASSIGN(log::ModulePage page, log_->ListModuleVersions(query));
    if (page.versions.empty()) break;
    for (log::ModuleVersionRow& version : page.versions) {
      if (number != 0 && version.number != number) continue;
      if (!request.device_class.empty() && version.device_class != request.device_class) {
        other_classes.insert(version.device_class);
      } else if (version.pruned_us != 0) {
        pruned = true;
      } else {
        answers.push_back(std::move(version));
      }
    }
    query.before_position = page.last_position;
  }
  if (!answers.empty()) return answers;
  std::string why = "no version answers the question";
  if (!other_classes.empty()) {
    why = StrCat("none was tuned on device class ", request.device_class,
                 "; there are versions of ", support::Join(other_classes, "; "));
  } else if (pruned) {
    why = "the versions that would answer were pruned: their bytes are gone";
  }
  return support::NotFound("module.not_found", why);
}

// Those within the limits that the question has, or an error that says what the best has.
absl::StatusOr<std::vector<log::ModuleVersionRow>> ModuleStore::FastEnough(
    std::vector<log::ModuleVersionRow> versions, const ResolveRequest& request) {
  std::string limit;
  if (request.max_latency_us > 0) {
    limit = support::FormatFixed(request.max_latency_us, 1) + " µs";
    std::erase_if(versions, [&](const log::ModuleVersionRow& version) {
      return version.median_us <= 0 || version.median_us > request.max_latency_us;
    });
  }
  if (!request.limit_module.empty()) {
    TW_ASSIGN(const log::ModuleVersionRow best,
              log_->GetModuleVersion(request.limit_module, request.limit_number));
    if (best.median_us <= 0) {
      return support::FailedPrecondition("module.resolve.not_measured",
                                         ShortName(best) + " was not measured");
    }
    limit += StrCat(limit.empty() ? "" : " and ", MedianText(best), " of ", ShortName(best));
    std::erase_if(versions, [&](const auto& version) { return !NotSlower(version, best); });
  }
  if (!versions.empty()) return versions;
  return support::NotFound("module.not_found.too_slow", "no version is within " + limit);
}

absl::StatusOr<Choice> ModuleStore::Resolve(const ResolveRequest& request) {
  TW_ASSIGN(std::vector<log::ModuleVersionRow> answers, Answers(request));
  TW_ASSIGN(const Choice best, ChooseVersion(answers, request.wish));
  auto fast = FastEnough(std::move(answers), request);
  if (support::Slug(fast.status()) == "module.not_found.too_slow") {
    return support::WithContext(fast.status(), StrCat("the best, ", ShortName(best.version),
                                                      ", takes ", MedianText(best.version)));
  }
  TW_TRY(fast.status());
  return ChooseVersion(*fast, request.wish);
}

absl::StatusOr<std::string> ModuleStore::WhyNotDefault(const log::ModuleVersionRow& version) {
  const auto best = Resolve({.module = version.module, .wish = {.target = version.target}});
  if (absl::IsNotFound(best.status())) return std::string();  // dropped meanwhile
  TW_TRY(best.status());
  if (best->version.number == version.number) return std::string();
  return StrCat(ShortName(version), " takes ", MedianText(version), " and ",
                ShortName(best->version), " takes ", MedianText(best->version), ": ",
                version.module, " without a number stays ", ShortName(best->version));
}

}  // namespace tilewright::modules
