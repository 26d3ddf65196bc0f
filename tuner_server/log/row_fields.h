// The one list of the fields of every row type: column names in the database, keys in exports.
// ForEachField(row, f) calls f(name, field) in order; the row may be const. Names are part of the
// stored format: a new field is a line here and a column in migrations.cc.
#pragma once

#include <concepts>
#include <type_traits>

#include "tuner_server/log/log_types.h"

namespace tilewright::log {

template <typename T, typename Row>
concept RowOf = std::same_as<std::remove_const_t<T>, Row>;

template <RowOf<JobRow> Row, typename F>
void ForEachField(Row& row, F&& f) {
  f("id", row.id);
  f("number", row.number);
  f("uid", row.uid);
  f("request_id", row.request_id);
  f("request_hash", row.request_hash);
  f("spec_json", row.spec_json);
  f("model_sha256", row.model_sha256);
  f("model_name", row.model_name);
  f("target", row.target);
  f("cost_model", row.cost_model);
  f("seed", row.seed);
  f("created_by", row.created_by);
  f("toolchain", row.toolchain);
  f("state", row.state);
  f("state_reason", row.state_reason);
  f("published_module", row.published_module);
  f("created_us", row.created_us);
  f("updated_us", row.updated_us);
  f("started_us", row.started_us);
  f("ended_us", row.ended_us);
  f("elapsed_s", row.elapsed_s);
}

template <RowOf<TaskRow> Row, typename F>
void ForEachField(Row& row, F&& f) {
  f("job", row.job);
  f("task_index", row.index);
  f("name", row.name);
  f("hash", row.hash);
  f("description", row.description);
  f("text", row.text);
  f("weight", row.weight);
  f("flops", row.flops);
  f("default_steps", row.default_steps);
  f("default_program_hash", row.default_program_hash);
  f("data_type", row.data_type);
  f("launch_names", row.launch_names);
}

template <RowOf<BatchRow> Row, typename F>
void ForEachField(Row& row, F&& f) {
  f("id", row.id);
  f("job", row.job);
  f("task", row.task);
  f("model_id", row.model_id);
  f("asked", row.asked);
  f("considered", row.considered);
  f("exploration_share", row.exploration_share);
  f("invalid", row.invalid);
  f("search_s", row.search_s);
  f("features_s", row.features_s);
  f("model_s", row.model_s);
  f("told", row.told);
  f("created_us", row.created_us);
}

template <RowOf<DraftRow> Row, typename F>
void ForEachField(Row& row, F&& f) {
  f("batch", row.batch);
  f("rank", row.rank);
  f("program_hash", row.program_hash);
  f("steps", row.steps);
  f("predicted", row.predicted);
  f("picked", row.picked);
  f("features", row.features);
  f("features_hash", row.features_hash);
}

template <RowOf<TrialRow> Row, typename F>
void ForEachField(Row& row, F&& f) {
  f("job", row.job);
  f("number", row.number);
  f("task", row.task);
  f("state", row.state);
  f("outcome", row.outcome);
  f("reason", row.reason);
  f("steps", row.steps);
  f("program_hash", row.program_hash);
  f("generated_by", row.generated_by);
  f("proposed_by", row.proposed_by);
  f("batch", row.batch);
  f("rank", row.rank);
  f("considered", row.considered);
  f("predicted", row.predicted);
  f("model_id", row.model_id);
  f("features", row.features);
  f("features_hash", row.features_hash);
  f("point", row.point);
  f("is_default", row.is_default);
  f("artifact_sha256", row.artifact_sha256);
  f("artifact_size", row.artifact_size);
  f("work_item", row.work_item);
  f("work_spec", row.work_spec);
  f("lower_s", row.lower_s);
  f("codegen_s", row.codegen_s);
  f("link_s", row.link_s);
  f("resources", row.resources);
  f("measurement_id", row.measurement_id);
  f("median", row.median);
  f("created_us", row.created_us);
  f("ended_us", row.ended_us);
}

template <RowOf<RecordRow> Row, typename F>
void ForEachField(Row& row, F&& f) {
  f("measurement_id", row.measurement_id);
  f("job", row.job);
  f("task", row.task);
  f("trial", row.trial);
  f("task_hash", row.key.task_hash);
  f("target_key", row.key.target_key);
  f("threads", row.key.threads);
  f("device_class", row.key.device_class);
  f("toolchain", row.key.toolchain);
  f("accepted", row.accepted);
  f("attempt", row.attempt);
  f("outcome", row.outcome);
  f("error_class", row.error_class);
  f("error_detail", row.error_detail);
  f("signal", row.signal);
  f("exit_code", row.exit_code);
  f("phase", row.phase);
  f("value_kind", row.value_kind);
  f("samples", row.samples);
  f("inner_loops", row.inner_loops);
  f("median", row.median);
  f("mad", row.mad);
  f("ci_rel", row.ci_rel);
  f("baseline_before", row.baseline_before);
  f("baseline_after", row.baseline_after);
  f("valid", row.valid);
  f("invalid_reasons", row.invalid_reasons);
  f("max_abs_error", row.max_abs_error);
  f("voluntary_context_switches", row.voluntary_context_switches);
  f("involuntary_context_switches", row.involuntary_context_switches);
  f("steal_fraction", row.steal_fraction);
  f("load_average", row.load_average);
  f("clock_mhz", row.clock_mhz);
  f("temperature_celsius", row.temperature_celsius);
  f("fetch_s", row.fetch_s);
  f("load_s", row.load_s);
  f("run_s", row.run_s);
  f("device", row.device);
  f("device_fingerprint", row.device_fingerprint);
  f("agent", row.agent);
  f("agent_address", row.agent_address);
  f("agent_version", row.agent_version);
  f("boot_id", row.boot_id);
  f("lease", row.lease);
  f("fencing_token", row.fencing_token);
  f("started_us", row.started_us);
  f("stored_us", row.stored_us);
}

template <RowOf<ModelRow> Row, typename F>
void ForEachField(Row& row, F&& f) {
  f("id", row.id);
  f("job", row.job);
  f("bytes", row.bytes);
  f("sha256", row.sha256);
  f("features_schema", row.features_schema);
  f("replaced", row.replaced);
  f("reason", row.reason);
  f("train_rows", row.train_rows);
  f("held_out_rows", row.held_out_rows);
  f("pairwise_accuracy", row.pairwise_accuracy);
  f("recall_at_8", row.recall_at_8);
  f("previous_recall_at_8", row.previous_recall_at_8);
  f("prior_recall_at_8", row.prior_recall_at_8);
  f("rounds", row.rounds);
  f("seconds", row.seconds);
  f("created_us", row.created_us);
}

template <RowOf<ModuleVersionRow> Row, typename F>
void ForEachField(Row& row, F&& f) {
  f("module", row.module);
  f("number", row.number);
  f("sha256", row.sha256);
  f("size", row.size);
  f("manifest_sha256", row.manifest_sha256);
  f("manifest_size", row.manifest_size);
  f("target", row.target);
  f("job", row.job);
  f("model_sha256", row.model_sha256);
  f("model_size", row.model_size);
  f("task_hashes", row.task_hashes);
  f("median_us", row.median_us);
  f("ci_rel", row.ci_rel);
  f("speedup", row.speedup);
  f("devices", row.devices);
  f("device_fingerprint", row.device_fingerprint);
  f("device_class", row.device_class);
  f("toolchain", row.toolchain);
  f("created_by", row.created_by);
  f("created_us", row.created_us);
  f("pruned_us", row.pruned_us);
  f("recipe", row.recipe);
  f("sizes", row.sizes);
}

template <RowOf<ModuleAliasRow> Row, typename F>
void ForEachField(Row& row, F&& f) {
  f("module", row.module);
  f("alias", row.alias);
  f("number", row.number);
  f("updated_us", row.updated_us);
  f("updated_by", row.updated_by);
}

template <RowOf<ModuleSignatureRow> Row, typename F>
void ForEachField(Row& row, F&& f) {
  f("module", row.module);
  f("number", row.number);
  f("key_id", row.key_id);
  f("signature", row.signature);
  f("created_us", row.created_us);
  f("created_by", row.created_by);
  f("format", row.format);
  f("revoked_us", row.revoked_us);
  f("revoked_by", row.revoked_by);
  f("revoke_reason", row.revoke_reason);
}

template <RowOf<ReleaseKeyRow> Row, typename F>
void ForEachField(Row& row, F&& f) {
  f("key_id", row.key_id);
  f("public_key", row.public_key);
  f("name", row.name);
  f("added_us", row.added_us);
  f("added_by", row.added_by);
  f("revoked_us", row.revoked_us);
  f("revoked_by", row.revoked_by);
  f("revoke_reason", row.revoke_reason);
}

}  // namespace tilewright::log
