// Published modules: versions in the tuning log, bytes in the blob store, both by digest. A version
// is immutable; publishing is blobs first, then one row, so a crash leaves at most an unreferenced
// blob. Owns neither the log nor the blob store; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/daemon/blob_store.h"
#include "deploy/security/module_signature.h"
#include "deploy/support/mutex.h"
#include "deploy/support/status.h"
#include "tuner_server/log/tuning_log.h"
#include "tuner_server/modules/retention.h"

namespace tilewright::modules {

// What is known about a new module besides its bytes.
struct PublishRequest {
  std::string path;             // the model.tw to publish; stays where it is
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
  int64_t now_us = 0;
};

struct ResolveRequest {
  std::string module = {};        // empty: any
  std::string model_sha256 = {};  // empty: any
  std::string task_hash = {};     // empty: any
  std::string target = {};        // canonical text; empty: any
  std::string device_class = {};  // that it was tuned on; empty: any
  std::string alias = {};         // only what this names; needs `module`
  bool exact = false;             // no other target will do
  int64_t number = 0;             // this version only; 0: the newest that fits
};

enum class Match { kExact, kCompatible, kNone };

struct Resolved {
  Match match = Match::kNone;
  log::ModuleVersionRow version;  // valid unless kNone
  std::string explanation;        // for people; always says why
};

class ModuleStore {
 public:
  // `signer` (not owned) signs whatever is published; null: nobody does.
  ModuleStore(log::TuningLog* log, daemon::BlobStore* blobs,
              const security::ModuleSigner* signer = nullptr)
      : log_(log), blobs_(blobs), signer_(signer) {}

  // data_loss when the file is not an intact module, or (module.publish.digest_mismatch) not the
  // expected one. The digest in the answer names bytes that the blob store holds.
  absl::StatusOr<log::ModuleVersionRow> Publish(const PublishRequest& request);

  // The version of that name and recipe whose bytes are there, as what the job publishes; not_found
  // where there is none.
  absl::StatusOr<log::ModuleVersionRow> Reuse(const std::string& job, std::string_view module,
                                              const std::string& recipe);

  // By full name, projects/default/modules/{module}/versions/{number}. invalid_argument
  // module.name.bad, not_found.
  absl::StatusOr<log::ModuleVersionRow> Get(std::string_view name);

  // The newest version that answers; no fall-back without a word.
  absl::StatusOr<Resolved> Resolve(const ResolveRequest& request);

  // Points an alias of a module at one of its versions; 0 removes it. invalid_argument
  // (module.alias.bad) and the log's errors.
  absl::Status SetAlias(const log::ModuleAliasRow& alias);

  // The measurements that a version was built on, as far as the log still has them.
  absl::StatusOr<std::vector<log::RecordRow>> Origins(const log::ModuleVersionRow& version);

  // Gives up what the policy does not keep (see retention.h), rows before bytes: a crash leaves at
  // most bytes that nothing names. `module` empty: all. A dry run changes nothing.
  absl::StatusOr<PruneReport> Prune(const std::string& module, const RetentionPolicy& policy,
                                    bool dry_run, int64_t now_us);

  log::TuningLog* log() const { return log_; }

 private:
  absl::StatusOr<std::vector<log::ModuleVersionRow>> AllVersions(const std::string& module);

  log::TuningLog* log_;
  daemon::BlobStore* blobs_;
  const security::ModuleSigner* signer_;
  // Held while bytes and the row that names them come or go.
  support::Mutex publish_mutex_;
};

// A text made fit to name a module: lower-case letters, digits and ".-_", 1 to 63 of them.
std::string ModuleName(std::string_view text);

// The {module} of "projects/default/modules/{module}"; "" for "projects/default" or nothing,
// and for the module "-", which means all. invalid_argument module.name.bad for anything else.
absl::StatusOr<std::string> ParseModuleParent(std::string_view name);

}  // namespace tilewright::modules
