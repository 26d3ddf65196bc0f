// The rows of the tuning log: plain values that every part of the tuner shares, without protobuf
// and without SQL, so that a log stays readable for years. Times of day are microseconds since the
// Unix epoch and for people only; durations are seconds; measured values are in the record's
// value_kind (nanoseconds for wall_ns and device_ns).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::log {

enum class JobState {
  kQueued = 1,
  kRunning = 2,
  kPaused = 3,
  kFinishing = 4,  // measuring is over; the model is being compiled and published
  kSucceeded = 5,
  kFailed = 6,
  kCancelling = 7,
  kCancelled = 8,
};
// Upper-case names as in tilewright.v1.Job.State ("QUEUED").
std::string_view JobStateName(JobState state);
std::optional<JobState> ParseJobState(std::string_view name);
bool IsFinal(JobState state);

enum class TrialState {
  kProposed = 1,
  kBuilt = 3,   // built and about to be handed to the tracker, which may or may not know it
  kQueued = 4,  // the tracker has it
  kSucceeded = 6,
  kInfeasible = 7,
  kFailed = 8,
  kCancelled = 9,
  kQuarantined = 10,
};
std::string_view TrialStateName(TrialState state);
std::optional<TrialState> ParseTrialState(std::string_view name);
bool IsFinal(TrialState state);

// Numbers and names as in tilewright.v1.Outcome.
enum class Outcome {
  kUnspecified = 0,
  kOk = 1,
  kEarlyStopped = 2,
  kBuildError = 3,
  kBuildTimeout = 4,
  kRunCrash = 5,
  kRunTimeout = 6,
  kWrongResult = 7,
  kDeviceLost = 8,
  kOutOfMemory = 9,
  kCancelled = 10,
};
std::string_view OutcomeName(Outcome outcome);
std::optional<Outcome> ParseOutcome(std::string_view name);

// A job: what was asked for, and how far it is.
struct JobRow {
  std::string id;            // last part of projects/default/jobs/{id}
  int64_t number = 0;        // creation order; given by the log
  std::string uid;           // unique for ever
  std::string request_id;    // idempotency key of the creation; may be empty
  std::string request_hash;  // of the request's content
  std::string spec_json;     // the request itself (tilewright.v1.Job as JSON); opaque to the log
  std::string model_sha256;  // hex
  std::string model_name;
  std::string target;  // canonical text
  std::string cost_model;
  uint64_t seed = 0;
  std::string created_by;
  std::string toolchain;  // of the search child that last opened the job
  JobState state = JobState::kQueued;
  std::string state_reason;
  std::string published_module;  // projects/default/modules/{module}/versions/{number}
  int64_t created_us = 0;
  int64_t updated_us = 0;
  int64_t started_us = 0;
  int64_t ended_us = 0;
  double elapsed_s = 0;  // running time so far, over restarts

  bool operator==(const JobRow&) const = default;
};

struct EventRow {
  enum class Kind { kState = 1, kTrial = 2, kText = 3 };
  int64_t seq = 0;  // 1, 2, 3 ... within the job
  Kind kind = Kind::kText;
  int64_t at_us = 0;
  JobState state = JobState::kQueued;  // kState
  int64_t trial = 0;                   // kTrial: its number
  std::string text = {};               // kState: the reason; kText: the line

  bool operator==(const EventRow&) const = default;
};

// A unique fused kernel of a job's model.
struct TaskRow {
  std::string job;
  int64_t index = 0;  // order within the job
  std::string name;   // unique in the job
  std::string hash;   // task identity
  std::string description;
  std::string text;  // canonical text
  int64_t weight = 1;
  double flops = 0;
  std::string default_steps;
  std::string default_program_hash;
  std::string data_type;     // of its products: "float32", "int8"; empty in logs of older versions
  std::string launch_names;  // of each use: task, launch, ONNX nodes (deploy/module/launch_names.h)

  bool operator==(const TaskRow&) const = default;
};

// One question to the search and what it cost.
struct BatchRow {
  std::string id;
  std::string job;
  std::string task;      // name
  std::string model_id;  // the model that ranked it; empty: none was trained yet
  int64_t asked = 0;
  int64_t considered = 0;
  double exploration_share = 0;  // share of the picks that is chosen at random
  int64_t invalid = 0;           // illegal programs made by the space's rules
  double search_s = 0;
  double features_s = 0;
  double model_s = 0;
  int64_t told = 0;  // ended trials of the job that the search knew, in the order of their ends
  int64_t created_us = 0;

  bool operator==(const BatchRow&) const = default;
};

// A candidate that a batch considered.
struct DraftRow {
  std::string batch;
  int64_t rank = 0;  // 1 = best predicted
  std::string program_hash;
  std::string steps;
  double predicted = 0;
  bool picked = false;
  std::vector<float> features;
  std::string features_hash;

  bool operator==(const DraftRow&) const = default;
};

// A candidate that was chosen to be measured.
struct TrialRow {
  std::string job;
  int64_t number = 0;  // 1, 2, 3 ... within the job; given by the log
  std::string task;    // name
  TrialState state = TrialState::kProposed;
  Outcome outcome = Outcome::kUnspecified;
  std::string reason;
  std::string steps;
  std::string program_hash;
  std::string generated_by;
  std::string proposed_by;
  std::string batch;  // empty: the default schedule, which no batch chose
  int64_t rank = 0;
  int64_t considered = 0;
  double predicted = 0;
  std::string model_id;
  std::vector<float> features;
  std::string features_hash;
  std::string point;  // its decisions in the task's space, as the search names them
  bool is_default = false;
  std::string artifact_sha256;  // hex; empty: not built
  int64_t artifact_size = 0;
  std::string work_item;  // name at the tracker
  std::string work_spec;  // what was submitted, byte for byte; opaque to the log
  double lower_s = 0;
  double codegen_s = 0;
  double link_s = 0;
  std::string resources;       // what the device's compiler says of its kernels; opaque to the log
  std::string measurement_id;  // of the accepted record
  double median = 0;           // of the accepted record
  int64_t created_us = 0;
  int64_t ended_us = 0;

  bool operator==(const TrialRow&) const = default;
};

// Under what a measurement may be reused: same task, same code, same kind of device.
struct RecordKey {
  std::string task_hash = {};
  std::string target_key = {};  // target without threads
  int64_t threads = 1;
  std::string device_class = {};
  std::string toolchain = {};

  bool operator==(const RecordKey&) const = default;
};

// One measurement (or one failed build: attempt 0). Immutable.
struct RecordRow {
  int64_t seq = 0;             // order of arrival; given by the log
  int64_t known_position = 0;  // among accepted ones, in that order; 0: not accepted; by the log
  std::string measurement_id;  // "{work item}/{attempt}"; unique
  std::string job;
  std::string task;   // name
  int64_t trial = 0;  // number
  RecordKey key;
  bool accepted = false;  // the record that ended its trial
  int64_t attempt = 0;
  Outcome outcome = Outcome::kUnspecified;
  std::string error_class;
  std::string error_detail;
  int64_t signal = 0;
  int64_t exit_code = 0;
  std::string phase;
  std::string value_kind;  // name of a unit (deploy/support/measure_units.h), or unspecified
  std::vector<double> samples;
  int64_t inner_loops = 0;
  double median = 0;
  double mad = 0;
  double ci_rel = 0;
  double baseline_before = 0;
  double baseline_after = 0;
  bool valid = false;
  std::vector<std::string> invalid_reasons;
  double max_abs_error = 0;
  int64_t voluntary_context_switches = 0;
  int64_t involuntary_context_switches = 0;
  double steal_fraction = 0;
  double load_average = 0;
  double clock_mhz = 0;
  double temperature_celsius = 0;
  double fetch_s = 0;
  double load_s = 0;
  double run_s = 0;
  std::string device;
  std::string device_fingerprint;
  std::string agent;
  std::string agent_address;
  std::string agent_version;
  std::string boot_id;
  std::string lease;
  int64_t fencing_token = 0;
  int64_t started_us = 0;
  int64_t stored_us = 0;

  // Only such a record may teach a model or choose a schedule.
  bool usable() const { return valid && outcome == Outcome::kOk && median > 0; }
  bool operator==(const RecordRow&) const = default;
};

// A trained cost model.
struct ModelRow {
  std::string id;
  std::string job;
  std::string bytes;  // XGBoost UBJSON; empty in lists
  std::string sha256;
  std::string features_schema;
  bool replaced = false;  // it became the model in use
  std::string reason;
  int64_t train_rows = 0;
  int64_t held_out_rows = 0;
  double pairwise_accuracy = 0;
  double recall_at_8 = 0;
  double previous_recall_at_8 = 0;
  double prior_recall_at_8 = 0;
  int64_t rounds = 0;
  double seconds = 0;
  int64_t created_us = 0;

  bool operator==(const ModelRow&) const = default;
};

// A published module. Immutable.
struct ModuleVersionRow {
  std::string module;  // last part of projects/default/modules/{module}
  int64_t number = 0;  // rises within the module; given by the log
  std::string sha256;  // of model.tw
  int64_t size = 0;
  std::string manifest_sha256;
  int64_t manifest_size = 0;
  std::string target;
  std::string job;  // id; empty: not made by a job
  std::string model_sha256;
  int64_t model_size = 0;
  std::vector<std::string> task_hashes;
  double median_us = 0;  // sum over tasks of weight x best median
  double ci_rel = 0;
  double speedup = 0;
  int64_t devices = 0;
  std::string device_fingerprint;
  std::string device_class;  // of most records; empty: not known
  std::string toolchain;     // that compiled it
  std::string created_by;    // who asked for it
  int64_t created_us = 0;
  int64_t pruned_us = 0;  // when its bytes were given up; 0: they are there
  // A digest of all that a compilation depends on: the same one gives the same code. Empty:
  // unknown.
  std::string recipe;
  std::string sizes;  // that it was made for (ModelSizes::ToText)

  bool operator==(const ModuleVersionRow&) const = default;
};

// A name that people move from version to version ("stable").
struct ModuleAliasRow {
  std::string module;
  std::string alias;
  int64_t number = 0;
  int64_t updated_us = 0;
  std::string updated_by;

  bool operator==(const ModuleAliasRow&) const = default;
};

// What a key's owner says about a version. Immutable, but for its revocation.
struct ModuleSignatureRow {
  std::string module;
  int64_t number = 0;
  std::string key_id;     // hex
  std::string signature;  // hex
  int64_t created_us = 0;
  std::string created_by;
  int64_t format = 1;      // 1: the bytes alone; 2: name, number, target and bytes
  int64_t revoked_us = 0;  // 0: it counts
  std::string revoked_by = {};
  std::string revoke_reason = {};

  bool operator==(const ModuleSignatureRow&) const = default;
};

// A key whose owner may release modules. A revoked one stays, so that it is never taken again.
struct ReleaseKeyRow {
  std::string key_id;      // hex
  std::string public_key;  // hex
  std::string name;        // whose it is, for people
  int64_t added_us = 0;
  std::string added_by;
  int64_t revoked_us = 0;  // 0: it counts
  std::string revoked_by = {};
  std::string revoke_reason = {};

  bool operator==(const ReleaseKeyRow&) const = default;
};

// When, by whom and why a key or a signature was revoked.
struct Revocation {
  int64_t now_us = 0;
  std::string caller;
  std::string reason;
};

}  // namespace tilewright::log
