// The tuning log as JSON lines, for people, other tools and other logs. One line per record
// ("kind":"record"), or per draft that a batch considered ("kind":"draft"). Every line carries
// "schema":1; fields are only ever added under one schema number.
//
// A record line has:
//   schema kind measurement_id job task task_hash task_index task_text task_description weight
//   flops default_steps default_program_hash data_type launch_names trial trial_state target
//   target_key threads toolchain model_name model_sha256 cost_model seed steps program_hash
//   generated_by proposed_by batch_id
//   rank considered predicted model_id features_hash [features] point is_default artifact_sha256
//   artifact_size lower_s codegen_s link_s resources (JSON) accepted attempt outcome error_class
//   error_detail signal exit_code phase value_kind samples inner_loops median mad ci_rel baseline
//   baseline_before baseline_after valid invalid_reasons max_abs_error, counters of the host,
//   fetch_s load_s run_s, device {name fingerprint address class agent agent_version boot_id lease
//   fencing_token}, started_us stored_us
// For a task's default schedule, which no search chose, generated_by and proposed_by are "default",
// batch_id is empty, rank and considered are 0. attempt 0 is a build that failed.
//
// A draft line has:
//   schema kind batch_id job task model_id asked considered exploration_share invalid search_s
//   features_s model_s `told` created_us rank program_hash steps predicted picked features_hash
//   [features]
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::log {

inline constexpr int kExportSchema = 1;

struct ExportOptions {
  std::string job = {};   // empty: all jobs
  bool features = false;  // with the feature vectors
  bool drafts = false;    // the drafts of all batches instead of the records
  // Leaves out records whose trial, task or job the log does not have, as one that was opened with
  // whole_rows_only may not. Otherwise that is an error.
  bool skip_incomplete = false;
};

// Calls `sink` with pieces of whole lines, in order of arrival. not_found for an unknown job; an
// error of the sink ends the export.
absl::Status ExportLog(TuningLog* log, const ExportOptions& options,
                       const std::function<absl::Status(std::string_view)>& sink);

struct ImportReport {
  int64_t lines = 0;
  int64_t new_records = 0;
  int64_t known = 0;                  // records that were there already, with equal fields
  int64_t conflicts = 0;              // records skipped: the log has another one of that name
  std::vector<std::string> examples;  // of conflicts, the first few
};

struct ImportOptions {
  std::string job_prefix = {};  // put before the names of all imported jobs
};

// Adds the rows that ExportLog wrote. Skips known rows, so importing twice is harmless. Skips and
// counts rows that contradict the log. After invalid_argument log.import.bad_line (with the line's
// number) nothing is added. A valid record in another unit than that of its device class makes its
// line a bad one.
absl::StatusOr<ImportReport> ImportLog(TuningLog* log, std::string_view text,
                                       const ImportOptions& options = {});

}  // namespace tilewright::log
