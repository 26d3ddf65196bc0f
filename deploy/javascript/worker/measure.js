// One measurement, as device_agent/measure.cc does it on processors: first run and check, baseline,
// warm-up, samples, baseline, last run and check. Times are of the thread's wall clock: engines of
// JavaScript know no other of a thread. Disturbances only add time, so the agent trusts the fast
// samples.

import { TilewrightError } from "../error.js";
import { loadModule } from "../module.js";
import { compareOutputs } from "./compare.js";
import { generateInput } from "./input_gen.js";
import { durationOf, nanoseconds, OUTCOME, PHASE, WALL_NS } from "./messages.js";
import { SELF_TEST_SLOT, selfTestModule } from "./self_test.js";

// Where a plan says nothing (deploy/daemon/fleet_contract.h).
const USUAL = {
  minRepeats: 5, maxRepeats: 30, minRepeatNs: 300e3, budgetNs: 100e6, warmupNs: 2e6, relCi: 0.02,
};
const MOST_SAMPLES = 10000;
const MOST_LOOPS = 1 << 20;
const BASELINE_SAMPLES = 5;
const BASELINE_NS = 100e3;
const CALIBRATION_STEPS = 1 << 16;
// A run that is so much slower than the limit needs no second look; others get three.
const HOPELESS = 4;
const LOOKS = 3;
const FLUSH_BYTES = 64 << 20;
// Half of a 95 % interval of the median, in median absolute deviations.
const INTERVAL_PER_MAD = 1.96 * 1.2533 * 1.4826;

export const now = () => Number(process.hrtime.bigint());

// Why a measurement ended early.
class Ended extends Error {
  constructor(outcome, errorClass, detail) {
    super(detail);
    this.outcome = outcome;
    this.errorClass = errorClass;
  }
}

// Runs what may fail by the module's fault.
function guarded(outcome, errorClass, work) {
  try {
    return work();
  } catch (error) {
    throw ended(outcome, errorClass, error);
  }
}

function ended(outcome, errorClass, error) {
  const noMemory = error instanceof TilewrightError &&
    ["runtime.session.memory", "runtime.session.memory_limit", "runtime.session.too_large"].includes(error.slug);
  return noMemory
    ? new Ended(OUTCOME.OUT_OF_MEMORY, "ALLOCATION", error.message)
    : new Ended(outcome, errorClass, error.message);
}

// `job`: { slot, module: bytes, baseline: bytes or null, request: a decoded MeasureModule, inputs:
// typed arrays by the order of request.inputs, memoryLimitBytes }. `announce` gets each phase. Returns ModuleMeasured.
export async function measure(job, announce) {
  const measurement = new Measurement(job, announce);
  const start = now();
  const result = measurement.result;
  try {
    await measurement.load();
    result.load_time = durationOf(now() - start);
    measurement.run();
    Object.assign(result, { outcome: OUTCOME.OK, phase: 0 });
  } catch (error) {
    if (!(error instanceof Ended)) throw error;
    Object.assign(result, {
      outcome: error.outcome, error_class: error.errorClass, error_detail: error.message,
    });
  }
  result.load_time ??= durationOf(now() - start);
  result.run_time = durationOf(now() - start - nanoseconds(result.load_time));
  return result;
}

class Measurement {
  constructor(job, announce) {
    this.job = job;
    this.announce = announce;
    this.result = { value_kind: WALL_NS, samples: [], inner_loops: 1, clock: "monotonic" };
    const plan = job.request.plan ?? {};
    const minRepeats = Math.min(plan.min_repeats || USUAL.minRepeats, MOST_SAMPLES);
    this.plan = {
      minRepeats,
      maxRepeats: Math.min(Math.max(plan.max_repeats || USUAL.maxRepeats, minRepeats), MOST_SAMPLES),
      minRepeatNs: nanoseconds(plan.min_repeat_time) || USUAL.minRepeatNs,
      budgetNs: nanoseconds(plan.budget_per_candidate) || USUAL.budgetNs,
      warmupNs: plan.warmup === undefined ? USUAL.warmupNs : nanoseconds(plan.warmup),
      relCi: plan.target_rel_ci || USUAL.relCi,
      limitNs: plan.abort_if_slower_than_ns ?? 0,
      flush: plan.flush_cache ?? false,
    };
    this.baseline = null;
    this.flushed = null;
  }

  enter(phase) {
    this.result.phase = phase;
    this.announce(phase);
  }

  async load() {
    this.enter(PHASE.LOAD);
    const { job } = this;
    const entry = job.request.entry_point ?? "";
    if (entry !== "" && entry !== "main") {
      throw new Ended(OUTCOME.BUILD_ERROR, "LOAD_REFUSED", `expected main, found ${entry}`);
    }
    try {
      this.module = job.slot === SELF_TEST_SLOT ? await selfTestModule() : await loadModule(job.module);
      const { memoryLimitBytes } = job;
      this.session = await this.module.createSession({ memoryLimitBytes });
    } catch (error) {
      throw ended(OUTCOME.BUILD_ERROR, "LOAD_REFUSED", error);
    }
    try {
      if (job.baseline !== null) {
        const module = await loadModule(job.baseline);
        this.baseline = await module.createSession();
        this.baseline.bind(ownInputs(module));
      }
    } catch (error) {
      throw ended(OUTCOME.BUILD_ERROR, "BASELINE_REFUSED", error);
    }
    const far = this.module.manifest.measurement?.inputs.some((input) => input.far) ?? false;
    if (far || this.plan.flush) this.flushed = new Uint8Array(FLUSH_BYTES);
  }

  run() {
    this.enter(PHASE.INPUTS);
    const inputs = guarded(OUTCOME.BUILD_ERROR, "LOAD_REFUSED", () => this.inputs());
    this.enter(PHASE.PREPARE);
    this.attempt(() => this.session.bind(inputs));
    this.enter(PHASE.FIRST_RUN);
    this.runChecked(PHASE.CHECK, "FIRST_RUN");
    this.result.baseline_before = this.timeBaseline();
    const loops = this.warmUp();
    this.sample(loops);
    this.result.baseline_after = this.timeBaseline();
    this.runChecked(PHASE.LAST_CHECK, "LAST_RUN");
  }

  attempt(work) {
    return guarded(OUTCOME.RUN_CRASH, "KERNEL_ERROR", work);
  }

  // By name where every name is one of the module's inputs, else in order.
  inputs() {
    const given = this.job.request.inputs?.tensors ?? [];
    if (given.length === 0) return ownInputs(this.module);
    const names = this.module.inputs.map((input) => input.name);
    if (given.length !== names.length) {
      throw new Error(`measure.inputs.count: expected ${names.length} tensors, found ${given.length}`);
    }
    const byName = given.every((spec) => names.includes(spec.name));
    return Object.fromEntries(
      given.map((spec, i) => [byName ? spec.name : names[i], this.job.inputs[i]]));
  }

  // A run onto poison, compared with what is expected.
  runChecked(phase, errorClass) {
    this.session.poison();
    this.attempt(() => this.session.repeat(1));
    this.enter(phase);
    const { expected_output: expected, tolerance } = this.job.request;
    if (expected === undefined || expected.length === 0) return;
    const outputs = this.session.outputs();
    const { mismatch, maxAbsError } = compareOutputs(
      this.module.outputs.map(({ name, dtype }) => ({ dtype, data: outputs[name].data })), expected,
      tolerance);
    this.result.max_abs_error = Math.max(this.result.max_abs_error ?? 0, maxAbsError);
    if (mismatch !== null) throw new Ended(OUTCOME.WRONG_RESULT, errorClass, mismatch);
  }

  // Nanoseconds of so many runs.
  time(runs) {
    if (this.flushed !== null) flush(this.flushed);
    const start = now();
    this.attempt(() => this.session.repeat(runs));
    return Math.max(1, now() - start);
  }

  // The fastest of some samples: the first one warms up and sets the loops.
  timeBaseline() {
    this.enter(PHASE.BASELINE);
    const time = (loops) => {
      const start = now();
      if (this.baseline === null) for (let k = 0; k < loops; ++k) calibrate();
      else guarded(OUTCOME.BUILD_ERROR, "BASELINE_REFUSED", () => this.baseline.repeat(loops));
      return Math.max(1, now() - start);
    };
    time(1);
    const loops = loopsFor(time(1), BASELINE_NS);
    let best = Infinity;
    for (let i = 0; i < BASELINE_SAMPLES; ++i) best = Math.min(best, time(loops) / loops);
    return best;
  }

  // Runs for the plan's time, and again where it looks too slow: a disturbed run is no verdict.
  // Returns the runs of a sample.
  warmUp() {
    this.enter(PHASE.WARMUP);
    const end = now() + this.plan.warmupNs;
    const { limitNs } = this.plan;
    for (let run = 0, best = Infinity;; ++run) {
      best = Math.min(best, this.time(1));
      if (limitNs > 0 && best > limitNs) {
        if (best < HOPELESS * limitNs && run + 1 < LOOKS) continue;
        this.result.samples = [best];
        throw new Ended(OUTCOME.EARLY_STOPPED, "", "");
      }
      if (now() >= end) return this.flushed !== null ? 1 : loopsFor(best, this.plan.minRepeatNs);
    }
  }

  sample(loops) {
    this.enter(PHASE.TIMED);
    const { samples } = this.result;
    this.result.inner_loops = loops;
    const end = now() + this.plan.budgetNs;
    while (samples.length < this.plan.maxRepeats && (samples.length === 0 || now() < end)) {
      samples.push(this.time(loops) / loops);
      if (samples.length >= this.plan.minRepeats && relativeInterval(samples) <= this.plan.relCi) break;
    }
  }
}

function loopsFor(runNs, wantedNs) {
  return Math.min(MOST_LOOPS, Math.max(1, Math.round(wantedNs / runNs)));
}

function flush(bytes) {
  for (let i = 0; i < bytes.length; i += 64) bytes[i] = (bytes[i] + 1) & 0xff;
}

// A fixed chain of dependent steps: its time follows the clock of the core and nothing else.
let calibration = 1;
function calibrate() {
  let x = calibration | 1;
  for (let i = 0; i < CALIBRATION_STEPS; ++i) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
  }
  calibration = x;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

function relativeInterval(samples) {
  const center = median(samples);
  const deviation = median(samples.map((value) => Math.abs(value - center)));
  return INTERVAL_PER_MAD * deviation / (center * Math.sqrt(samples.length));
}

// What the module itself says of its inputs.
function ownInputs(module) {
  const { tensors, measurement } = module.manifest;
  const inputs = measurement?.inputs ?? [];
  return Object.fromEntries(inputs.map(({ tensor, seed, distribution, a, b }) => {
    const { name, dtype, shape } = tensors[tensor];
    const count = shape.reduce((product, dim) => product * dim.constant, 1);
    return [name, generateInput(dtype, count, lawOf(distribution, a, b), BigInt(seed))];
  }));
}

function lawOf(distribution, a, b) {
  if (distribution === "uniform") return { uniform: { low: a, high: b } };
  if (distribution === "normal") return { normal: { mean: a, standard_deviation: b } };
  return { integers: { low: a, high: b } };
}
