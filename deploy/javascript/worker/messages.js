// The messages between an agent and its worker, as tables for protobuf.js: what this worker reads
// and writes of proto/tilewright/v1/worker.proto and common.proto, which say what they mean.

const DURATION = { 1: ["seconds", "int"], 2: ["nanos", "int"] };

const UNIFORM = { 1: ["low", "double"], 2: ["high", "double"] };
const NORMAL = { 1: ["mean", "double"], 2: ["standard_deviation", "double"] };
const INTEGERS = { 1: ["low", "int"], 2: ["high", "int"] };
const DISTRIBUTION = { 1: ["uniform", UNIFORM], 2: ["normal", NORMAL], 3: ["integers", INTEGERS] };

const TENSOR_SPEC = {
  1: ["name", "string"],
  2: ["dtype", "string"],
  3: ["shape", "int", "repeated"],
  4: ["seed", "big"],
  5: ["distribution", DISTRIBUTION],
};

const PLAN = {
  1: ["min_repeats", "int"],
  2: ["max_repeats", "int"],
  3: ["min_repeat_time", DURATION],
  4: ["budget_per_candidate", DURATION],
  5: ["target_rel_ci", "double"],
  6: ["flush_cache", "bool"],
  7: ["warmup", DURATION],
  8: ["abort_if_slower_than_ns", "double"],
};

const MEASURE = {
  1: ["slot", "string"],
  2: ["baseline_slot", "string"],
  3: ["entry_point", "string"],
  4: ["inputs", { 1: ["tensors", TENSOR_SPEC, "repeated"] }],
  5: ["expected_output", "bytes"],
  6: ["tolerance", { 1: ["abs", "double"], 2: ["rel", "double"], 3: ["max_mismatch_fraction", "double"] }],
  7: ["plan", PLAN],
  9: ["wall_limit", DURATION],
};

export const REQUEST = {
  1: ["id", "big"],
  2: ["hello", { 1: ["device_kind", "string"], 2: ["memory_limit_bytes", "int"] }],
  3: ["load", { 1: ["slot", "string"], 2: ["module", "bytes"] }],
  4: ["measure", MEASURE],
  5: ["unload", { 1: ["slot", "string"] }],
  6: ["quit", {}],
  7: ["run", {
    1: ["slot", "string"],
    2: ["inputs", "bytes", "repeated"],
    4: ["repeat", "int"],
    5: ["per_launch", "bool"],
    6: ["output_bytes", "int"],
  }],
};

const ATTRIBUTE = {
  1: ["s", "string"],
  2: ["i", "int"],
  3: ["d", "double"],
  4: ["b", "bool"],
  5: ["unit", "string"],
};

const READY = {
  1: ["protocol_revision", "int"],
  2: ["software_version", "string"],
  3: ["sandboxed", "bool"],
  4: ["sandbox_detail", "string"],
  5: ["attributes", { 1: ["key", "string"], 2: ["value", ATTRIBUTE] }, "repeated"],
  6: ["sandbox_full", "bool"],
  7: ["sandbox_missing", "string"],
};

const MEASURED = {
  1: ["outcome", "int"],
  2: ["error_class", "string"],
  3: ["error_detail", "string"],
  4: ["value_kind", "int"],
  5: ["samples", "double", "repeated"],
  6: ["inner_loops", "int"],
  7: ["baseline_before", "double"],
  8: ["baseline_after", "double"],
  9: ["max_abs_error", "double"],
  10: ["phase", "int"],
  11: ["telemetry", { 4: ["load_average", "double"] }],
  12: ["load_time", DURATION],
  13: ["run_time", DURATION],
  16: ["clock", "string"],
};

const RAN = {
  1: ["outputs", "bytes", "repeated"],
  2: ["median_ns", "double"],
  3: ["p10_ns", "double"],
  4: ["p90_ns", "double"],
  5: ["launch_ns", "double", "repeated"],
  6: ["threads", "int"],
};

export const REPLY = {
  1: ["id", "big"],
  2: ["phase", { 1: ["phase", "int"], 2: ["monotonic_ns", "int"] }],
  3: ["ready", READY],
  4: ["loaded", { 1: ["slot", "string"] }],
  5: ["measured", MEASURED],
  6: ["error", { 1: ["slug", "string"], 2: ["detail", "string"] }],
  7: ["ran", RAN],
};

export const OUTCOME = {
  OK: 1, EARLY_STOPPED: 2, BUILD_ERROR: 3, RUN_CRASH: 5, RUN_TIMEOUT: 6, WRONG_RESULT: 7,
  OUT_OF_MEMORY: 9,
};

export const PHASE = {
  LOAD: 1, INPUTS: 2, PREPARE: 3, FIRST_RUN: 4, CHECK: 5, WARMUP: 6, BASELINE: 7, TIMED: 8,
  LAST_CHECK: 9,
};

export const WALL_NS = 1;  // ValueKind

export function nanoseconds(duration) {
  return (duration?.seconds ?? 0) * 1e9 + (duration?.nanos ?? 0);
}

export function durationOf(ns) {
  return { seconds: Math.floor(ns / 1e9), nanos: Math.floor(ns % 1e9) };
}
