// Published modules: versions are rows of the tuning log, their bytes are in the blob store, by
// digest. A version never changes. Publishing stores bytes first, then one row, so that a crash
// leaves at most a blob that no row names. Publishing does not sign: a release is an act of its
// own. Owns neither the log nor the blob store; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/daemon/blob_store.h"
#include "deploy/support/mutex.h"
#include "deploy/support/status.h"
#include "tuner_server/log/tuning_log.h"
#include "tuner_server/modules/retention.h"
#include "tuner_server/modules/version_choice.h"
#include "tuner_server/modules/version_numbers.h"

namespace tilewright::modules {

// What is known about a new module apart from its bytes.
struct PublishRequest {
  std::string path;             // the model.tw to publish; it is not moved
  std::string expected_sha256;  // checked when not empty
  std::string module;           // see ModuleName
  std::string job;              // a job publishes once
  std::string target;
  std::string model_sha256;
  int64_t model_size = 0;
  double median_us = 0;
  double ci_rel = 0;
  double speedup = 0;
  int64_t devices = 0;
  std::string device_fingerprint;
  std::string device_class;
  std::string toolchain;
  std::string created_by;
  std::string recipe;  // of log::ModuleVersionRow
  std::string sizes;   // likewise
  int64_t now_us = 0;
};

struct ResolveRequest {
  std::string module = {};        // empty: any
  std::string model_sha256 = {};  // empty: any
  std::string task_hash = {};     // empty: any
  VersionWish wish = {};          // which target and sizes
  std::string device_class = {};  // that it was tuned on; empty: any
  std::string alias = {};         // only what this names; needs `module`
  int64_t number = 0;             // this version only; 0: the best that fits
  double max_latency_us = 0;      // at most this time, and measured; 0: any
  // Not slower than this one (NotSlower); module empty: any.
  std::string limit_module = {};
  int64_t limit_number = 0;
};

class ModuleStore {
 public:
  // `numbers` (not owned) keeps numbers from being used twice; null: the log alone gives them.
  ModuleStore(log::TuningLog* log, daemon::BlobStore* blobs, VersionNumbers* numbers = nullptr)
      : log_(log), blobs_(blobs), numbers_(numbers) {}

  // Adds a version. data_loss if the file is not an intact module, or
  // (module.publish.digest_mismatch) not the expected one. The digest in the answer names bytes
  // that the blob store holds.
  absl::StatusOr<log::ModuleVersionRow> Publish(const PublishRequest& request);

  // Returns the version of that name and recipe whose bytes are there, and makes it what the job
  // publishes. not_found if there is none.
  absl::StatusOr<log::ModuleVersionRow> Reuse(const std::string& job, std::string_view module,
                                              const std::string& recipe);

  // Finds a version by its full name, projects/default/modules/{module}/versions/{number}.
  // invalid_argument (module.name.bad), not_found.
  absl::StatusOr<log::ModuleVersionRow> Get(std::string_view name);

  // Returns the best version that answers (see version_choice.h) and says why. not_found
  // (module.not_found, module.not_found.too_slow) says which versions there are;
  // failed_precondition (module.resolve.not_measured) if the version to compare with has no time.
  absl::StatusOr<Choice> Resolve(const ResolveRequest& request);

  // Returns why a question for the module and target of this version leads to another one; empty if
  // it leads to this one.
  absl::StatusOr<std::string> WhyNotDefault(const log::ModuleVersionRow& version);

  // Points an alias of a module at one of its versions; 0 removes it. invalid_argument
  // (module.alias.bad) and the log's errors.
  absl::Status SetAlias(const log::ModuleAliasRow& alias);

  // Returns the measurements that a version was built on, as far as the log still has them.
  absl::StatusOr<std::vector<log::RecordRow>> Origins(const log::ModuleVersionRow& version);

  // Drops what the policy does not keep (see retention.h), rows before bytes: a crash leaves at
  // most bytes that no row names. `module` empty: all. A dry run changes nothing.
  absl::StatusOr<PruneReport> Prune(const std::string& module, const RetentionPolicy& policy,
                                    bool dry_run, int64_t now_us);

  log::TuningLog* log() const { return log_; }

 private:
  absl::StatusOr<std::vector<log::ModuleVersionRow>> AllVersions(const std::string& module);
  absl::StatusOr<log::ModuleVersionRow> AddVersion(log::ModuleVersionRow row)
      TW_REQUIRES(publish_mutex_);
  absl::StatusOr<int64_t> WantedNumber(const ResolveRequest& request);
  absl::StatusOr<std::vector<log::ModuleVersionRow>> Answers(const ResolveRequest& request);
  absl::StatusOr<std::vector<log::ModuleVersionRow>> FastEnough(
      std::vector<log::ModuleVersionRow> versions, const ResolveRequest& request);

  log::TuningLog* log_;
  daemon::BlobStore* blobs_;
  VersionNumbers* numbers_;
  // Held while bytes and the row that names them are added or dropped.
  support::Mutex publish_mutex_;
};

// Makes a text fit to name a module: lower-case letters, digits and ".-_", 1 to 63 of them.
std::string ModuleName(std::string_view text);

// Returns the {module} of "projects/default/modules/{module}"; "" for "projects/default" or
// nothing, and for the module "-", which means all. invalid_argument (module.name.bad) for anything
// else.
absl::StatusOr<std::string> ParseModuleParent(std::string_view name);

}  // namespace tilewright::modules
