#include "tuner_server/log/migrations.h"

#include <array>

namespace tilewright::log {
namespace {

// 1: jobs, tasks, batches, drafts, trials, records, models, module versions.
//
// Column names are those of row_fields.h. Numbers that people see (jobs.number, trials.number) are
// given inside the inserting transaction, so they have no gaps. Floats are raw little-endian
// (features: 32 bit, samples: 64 bit); lists of words are separated by blanks.
constexpr std::string_view kVersion1 = R"sql(
CREATE TABLE jobs (
  id TEXT NOT NULL PRIMARY KEY,
  project TEXT NOT NULL DEFAULT 'default',
  number INTEGER NOT NULL UNIQUE,
  uid TEXT NOT NULL UNIQUE,
  request_id TEXT NOT NULL,
  request_hash TEXT NOT NULL,
  spec_json TEXT NOT NULL,
  model_sha256 TEXT NOT NULL,
  model_name TEXT NOT NULL,
  target TEXT NOT NULL,
  cost_model TEXT NOT NULL,
  seed INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  toolchain TEXT NOT NULL,
  state TEXT NOT NULL,
  state_reason TEXT NOT NULL,
  published_module TEXT NOT NULL,
  created_us INTEGER NOT NULL,
  updated_us INTEGER NOT NULL,
  started_us INTEGER NOT NULL,
  ended_us INTEGER NOT NULL,
  elapsed_s REAL NOT NULL
) STRICT;
CREATE UNIQUE INDEX jobs_by_request ON jobs(request_id) WHERE request_id <> '';

CREATE TABLE job_events (
  job TEXT NOT NULL REFERENCES jobs(id),
  seq INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  at_us INTEGER NOT NULL,
  state TEXT NOT NULL,
  trial INTEGER NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE tasks (
  job TEXT NOT NULL REFERENCES jobs(id),
  task_index INTEGER NOT NULL,
  name TEXT NOT NULL,
  hash TEXT NOT NULL,
  description TEXT NOT NULL,
  text TEXT NOT NULL,
  weight INTEGER NOT NULL,
  flops REAL NOT NULL,
  default_steps TEXT NOT NULL,
  default_program_hash TEXT NOT NULL,
  PRIMARY KEY (job, task_index),
  UNIQUE (job, name),
  UNIQUE (job, hash)
) STRICT, WITHOUT ROWID;

CREATE TABLE batches (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  job TEXT NOT NULL REFERENCES jobs(id),
  task TEXT NOT NULL,
  model_id TEXT NOT NULL,
  asked INTEGER NOT NULL,
  considered INTEGER NOT NULL,
  exploration_share REAL NOT NULL,
  invalid INTEGER NOT NULL,
  search_s REAL NOT NULL,
  features_s REAL NOT NULL,
  model_s REAL NOT NULL,
  created_us INTEGER NOT NULL
) STRICT;
CREATE INDEX batches_by_job ON batches(job, seq);

CREATE TABLE drafts (
  batch TEXT NOT NULL REFERENCES batches(id),
  rank INTEGER NOT NULL,
  program_hash TEXT NOT NULL,
  steps TEXT NOT NULL,
  predicted REAL NOT NULL,
  picked INTEGER NOT NULL,
  features BLOB NOT NULL,
  features_hash TEXT NOT NULL,
  PRIMARY KEY (batch, rank)
) STRICT, WITHOUT ROWID;

CREATE TABLE trials (
  job TEXT NOT NULL REFERENCES jobs(id),
  number INTEGER NOT NULL,
  task TEXT NOT NULL,
  state TEXT NOT NULL,
  outcome TEXT NOT NULL,
  reason TEXT NOT NULL,
  steps TEXT NOT NULL,
  program_hash TEXT NOT NULL,
  generated_by TEXT NOT NULL,
  proposed_by TEXT NOT NULL,
  batch TEXT NOT NULL,
  rank INTEGER NOT NULL,
  considered INTEGER NOT NULL,
  predicted REAL NOT NULL,
  model_id TEXT NOT NULL,
  features BLOB NOT NULL,
  features_hash TEXT NOT NULL,
  is_default INTEGER NOT NULL,
  artifact_sha256 TEXT NOT NULL,
  artifact_size INTEGER NOT NULL,
  work_item TEXT NOT NULL,
  work_spec BLOB NOT NULL,
  lower_s REAL NOT NULL,
  codegen_s REAL NOT NULL,
  link_s REAL NOT NULL,
  measurement_id TEXT NOT NULL,
  median REAL NOT NULL,
  created_us INTEGER NOT NULL,
  ended_us INTEGER NOT NULL,
  PRIMARY KEY (job, number),
  FOREIGN KEY (job, task) REFERENCES tasks(job, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE records (
  seq INTEGER PRIMARY KEY,
  measurement_id TEXT NOT NULL UNIQUE,
  job TEXT NOT NULL,
  task TEXT NOT NULL,
  trial INTEGER NOT NULL,
  task_hash TEXT NOT NULL,
  target_key TEXT NOT NULL,
  threads INTEGER NOT NULL,
  device_class TEXT NOT NULL,
  toolchain TEXT NOT NULL,
  accepted INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  error_class TEXT NOT NULL,
  error_detail TEXT NOT NULL,
  signal INTEGER NOT NULL,
  exit_code INTEGER NOT NULL,
  phase TEXT NOT NULL,
  value_kind TEXT NOT NULL,
  samples BLOB NOT NULL,
  inner_loops INTEGER NOT NULL,
  median REAL NOT NULL,
  mad REAL NOT NULL,
  ci_rel REAL NOT NULL,
  baseline_before REAL NOT NULL,
  baseline_after REAL NOT NULL,
  valid INTEGER NOT NULL,
  invalid_reasons TEXT NOT NULL,
  max_abs_error REAL NOT NULL,
  voluntary_context_switches INTEGER NOT NULL,
  involuntary_context_switches INTEGER NOT NULL,
  steal_fraction REAL NOT NULL,
  load_average REAL NOT NULL,
  clock_mhz REAL NOT NULL,
  temperature_celsius REAL NOT NULL,
  fetch_s REAL NOT NULL,
  load_s REAL NOT NULL,
  run_s REAL NOT NULL,
  device TEXT NOT NULL,
  device_fingerprint TEXT NOT NULL,
  agent TEXT NOT NULL,
  agent_address TEXT NOT NULL,
  agent_version TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  lease TEXT NOT NULL,
  fencing_token INTEGER NOT NULL,
  started_us INTEGER NOT NULL,
  stored_us INTEGER NOT NULL,
  FOREIGN KEY (job, trial) REFERENCES trials(job, number)
) STRICT;
CREATE INDEX records_by_trial ON records(job, trial, seq);
CREATE UNIQUE INDEX records_accepted ON records(job, trial) WHERE accepted = 1;
CREATE INDEX records_best ON records(task_hash, target_key, threads, device_class, toolchain,
                                     median)
  WHERE accepted = 1 AND valid = 1 AND outcome = 'OK' AND median > 0;

CREATE TABLE models (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  job TEXT NOT NULL REFERENCES jobs(id),
  bytes BLOB NOT NULL,
  sha256 TEXT NOT NULL,
  features_schema TEXT NOT NULL,
  replaced INTEGER NOT NULL,
  reason TEXT NOT NULL,
  train_rows INTEGER NOT NULL,
  held_out_rows INTEGER NOT NULL,
  pairwise_accuracy REAL NOT NULL,
  recall_at_8 REAL NOT NULL,
  previous_recall_at_8 REAL NOT NULL,
  prior_recall_at_8 REAL NOT NULL,
  rounds INTEGER NOT NULL,
  seconds REAL NOT NULL,
  created_us INTEGER NOT NULL,
  UNIQUE (job, id)
) STRICT;
CREATE INDEX models_by_id ON models(id);

CREATE TABLE module_versions (
  seq INTEGER PRIMARY KEY,
  project TEXT NOT NULL DEFAULT 'default',
  module TEXT NOT NULL,
  number INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  size INTEGER NOT NULL,
  manifest_sha256 TEXT NOT NULL,
  manifest_size INTEGER NOT NULL,
  target TEXT NOT NULL,
  job TEXT NOT NULL,
  model_sha256 TEXT NOT NULL,
  model_size INTEGER NOT NULL,
  task_hashes TEXT NOT NULL,
  median_us REAL NOT NULL,
  ci_rel REAL NOT NULL,
  speedup REAL NOT NULL,
  devices INTEGER NOT NULL,
  device_fingerprint TEXT NOT NULL,
  created_us INTEGER NOT NULL,
  UNIQUE (module, number)
) STRICT;
CREATE UNIQUE INDEX module_versions_by_job ON module_versions(job) WHERE job <> '';
)sql";

// 2: what a search needs to go on exactly as the one before it: decisions of each pick, and how
// much of the log a batch was chosen by.
constexpr std::string_view kVersion2 = R"sql(
ALTER TABLE trials ADD COLUMN point TEXT NOT NULL DEFAULT '';
ALTER TABLE batches ADD COLUMN told INTEGER NOT NULL DEFAULT 0;
)sql";

// 3: modules by alias, with signatures, provenance and retention.
constexpr std::string_view kVersion3 = R"sql(
ALTER TABLE module_versions ADD COLUMN device_class TEXT NOT NULL DEFAULT '';
ALTER TABLE module_versions ADD COLUMN toolchain TEXT NOT NULL DEFAULT '';
ALTER TABLE module_versions ADD COLUMN created_by TEXT NOT NULL DEFAULT '';
ALTER TABLE module_versions ADD COLUMN pruned_us INTEGER NOT NULL DEFAULT 0;

CREATE TABLE module_aliases (
  module TEXT NOT NULL,
  alias TEXT NOT NULL,
  number INTEGER NOT NULL,
  updated_us INTEGER NOT NULL,
  updated_by TEXT NOT NULL,
  PRIMARY KEY (module, alias),
  FOREIGN KEY (module, number) REFERENCES module_versions(module, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE module_signatures (
  module TEXT NOT NULL,
  number INTEGER NOT NULL,
  key_id TEXT NOT NULL,
  signature TEXT NOT NULL,
  created_us INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  PRIMARY KEY (module, number, key_id),
  FOREIGN KEY (module, number) REFERENCES module_versions(module, number)
) STRICT, WITHOUT ROWID;
)sql";

// 4: what is known of a task, by arrival: jobs beside each other ask for it all the time.
constexpr std::string_view kVersion4 = R"sql(
CREATE INDEX records_known ON records(task_hash, target_key, threads, toolchain)
  WHERE accepted = 1 AND valid = 1;
)sql";

// 5: a module that is there already is not compiled again.
constexpr std::string_view kVersion5 = R"sql(
ALTER TABLE module_versions ADD COLUMN recipe TEXT NOT NULL DEFAULT '';
CREATE INDEX module_versions_by_recipe ON module_versions(recipe) WHERE recipe <> '';
)sql";

// 6: what is known in the order in which it became so: a record may be accepted long after it was
// stored, when others have read past it.
constexpr std::string_view kVersion6 = R"sql(
ALTER TABLE records ADD COLUMN known_position INTEGER NOT NULL DEFAULT 0;
UPDATE records SET known_position = seq WHERE accepted = 1;
CREATE INDEX records_by_known_position ON records(known_position);
DROP INDEX records_known;
CREATE INDEX records_known ON records(task_hash, target_key, threads, toolchain, known_position)
  WHERE accepted = 1 AND valid = 1;
)sql";

// 7: what a task is called in the model and in modules.
constexpr std::string_view kVersion7 = R"sql(
ALTER TABLE tasks ADD COLUMN data_type TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN launch_names TEXT NOT NULL DEFAULT '';
)sql";

// 8: signatures that cover name, number and target; several by one key, so that a bad one cannot
// take the place of a good one. Whether the server keeps the numbers of module versions in a file
// of its own, too (one row if it does).
constexpr std::string_view kVersion8 = R"sql(
CREATE TABLE new_signatures (
  module TEXT NOT NULL,
  number INTEGER NOT NULL,
  key_id TEXT NOT NULL,
  signature TEXT NOT NULL,
  created_us INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  format INTEGER NOT NULL,
  PRIMARY KEY (module, number, key_id, signature),
  FOREIGN KEY (module, number) REFERENCES module_versions(module, number)
) STRICT, WITHOUT ROWID;
INSERT INTO new_signatures
  SELECT module, number, key_id, signature, created_us, created_by, 1 FROM module_signatures;
DROP TABLE module_signatures;
ALTER TABLE new_signatures RENAME TO module_signatures;
CREATE TABLE module_numbering (since_us INTEGER NOT NULL) STRICT;
)sql";

// 9: a checksum in each row, and the columns that it is about. Rows get theirs when the log is
// opened for writing (row_seals.h), these and those of every later version alike.
constexpr std::string_view kVersion9 = R"sql(
ALTER TABLE jobs ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE batches ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE drafts ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trials ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE records ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE models ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE module_versions ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE module_aliases ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE module_signatures ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
CREATE TABLE sealed_tables (
  name TEXT NOT NULL PRIMARY KEY,
  columns TEXT NOT NULL
) STRICT, WITHOUT ROWID;
)sql";

// 10: keys whose signatures release modules, and revocations of keys and of single signatures.
constexpr std::string_view kVersion10 = R"sql(
CREATE TABLE release_keys (
  key_id TEXT NOT NULL PRIMARY KEY,
  public_key TEXT NOT NULL,
  name TEXT NOT NULL,
  added_us INTEGER NOT NULL,
  added_by TEXT NOT NULL,
  revoked_us INTEGER NOT NULL,
  revoked_by TEXT NOT NULL,
  revoke_reason TEXT NOT NULL,
  checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
ALTER TABLE module_signatures ADD COLUMN revoked_us INTEGER NOT NULL DEFAULT 0;
ALTER TABLE module_signatures ADD COLUMN revoked_by TEXT NOT NULL DEFAULT '';
ALTER TABLE module_signatures ADD COLUMN revoke_reason TEXT NOT NULL DEFAULT '';
)sql";

// 11: the sizes that a module version was made for.
constexpr std::string_view kVersion11 = R"sql(
ALTER TABLE module_versions ADD COLUMN sizes TEXT NOT NULL DEFAULT '';
)sql";

// 12: what the device's compiler says of a trial's kernels.
constexpr std::string_view kVersion12 = R"sql(
ALTER TABLE trials ADD COLUMN resources TEXT NOT NULL DEFAULT '';
)sql";

constexpr std::array<sql::Migration, 12> kMigrations = {{{1, kVersion1},
                                                         {2, kVersion2},
                                                         {3, kVersion3},
                                                         {4, kVersion4},
                                                         {5, kVersion5},
                                                         {6, kVersion6},
                                                         {7, kVersion7},
                                                         {8, kVersion8},
                                                         {9, kVersion9},
                                                         {10, kVersion10},
                                                         {11, kVersion11},
                                                         {12, kVersion12}}};

}  // namespace

std::span<const sql::Migration> TuningLogMigrations() { return kMigrations; }

}  // namespace tilewright::log
