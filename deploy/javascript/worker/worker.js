#!/usr/bin/env node
// A worker of the fleet whose processor is WebAssembly in Node.js: the counterpart of
// tilewright-worker (proto/tilewright/v1/worker.proto). An agent runs it behind a bridge:
//   tilewright-agent … --device "cpu,name=node,bridge=exec node deploy/javascript/worker/worker.js"
// Frames on standard input and output: their length, 32 bits, and a message. Every measurement has
// a thread and a memory of its own.
import { readFileSync, writeSync } from "node:fs";
import os from "node:os";
import { fileURLToPath } from "node:url";
import v8 from "node:v8";
import { Worker } from "node:worker_threads";

import { engineFeatures } from "../code.js";
import { DTYPES } from "../dtype.js";
import { TilewrightError } from "../error.js";
import { loadModule } from "../module.js";
import { generateInput } from "./input_gen.js";
import { nanoseconds, OUTCOME, REPLY, REQUEST, WALL_NS } from "./messages.js";
import { now } from "./measure.js";
import { decode, encode } from "./protobuf.js";
import { SELF_TEST_SLOT } from "./self_test.js";

const PROTOCOL_REVISION = 1;
const VERSION = JSON.parse(
  readFileSync(fileURLToPath(new URL("../package.json", import.meta.url)), "utf8")).version;
const MOST_REQUEST_BYTES = 2 * 2 ** 30;
const MOST_CACHED_BYTES = 512 * 2 ** 20;
const EXIT_PROTOCOL = 76;
// Texts of element types in requests.
const TYPES = new Map([
  ["f32", "float32"], ["f64", "float64"], ["f16", "float16"], ["bf16", "bfloat16"], ["i8", "int8"],
  ["i16", "int16"], ["i32", "int32"], ["i64", "int64"], ["u8", "uint8"], ["u16", "uint16"],
  ["u32", "uint32"], ["u64", "uint64"], ["bool", "bool"],
]);

// All kernels by the optimising compiler, at once: the quick one's code would be measured instead.
v8.setFlagsFromString("--no-liftoff");
v8.setFlagsFromString("--no-wasm-lazy-compilation");
if (Number(process.versions.node.split(".")[0]) < 21) {
  v8.setFlagsFromString("--experimental-wasm-relaxed-simd");
}

// The frames of standard input.
async function* frames() {
  let waiting = [], bytes = 0;
  const take = (count) => {
    const all = waiting.length === 1 ? waiting[0] : Buffer.concat(waiting);
    waiting = [all.subarray(count)];
    bytes -= count;
    return all.subarray(0, count);
  };
  let wanted = null;
  for await (const piece of process.stdin) {
    waiting.push(piece);
    bytes += piece.length;
    for (;;) {
      if (wanted === null && bytes >= 4) wanted = take(4).readUInt32LE();
      if (wanted > MOST_REQUEST_BYTES) throw new RangeError(`a frame of ${wanted} bytes`);
      if (wanted === null || bytes < wanted) break;
      yield new Uint8Array(take(wanted));
      wanted = null;
    }
  }
}

function send(id, reply) {
  const message = encode(REPLY, { id, ...reply });
  const frame = Buffer.alloc(4 + message.length);
  frame.writeUInt32LE(message.length);
  frame.set(message, 4);
  for (let done = 0; done < frame.length;) {
    try {
      done += writeSync(1, frame, done);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;  // a pipe that is full
    }
  }
}

// Inputs and weights of a task, made once: all its candidates get the same.
class InputCache {
  #made = new Map();
  #bytes = 0;

  get(spec) {
    const { dtype, shape, seed = 0n, distribution = {} } = spec;
    const type = TYPES.get(dtype);
    if (type === undefined) throw new TilewrightError("measure.inputs.type", `unknown ${dtype}`);
    const key = JSON.stringify([type, shape, String(seed), distribution]);
    if (!this.#made.has(key)) {
      const count = shape.reduce((product, extent) => product * extent, 1);
      const data = generateInput(type, count, distribution, seed);
      const shared = new (DTYPES.get(type).array)(new SharedArrayBuffer(data.byteLength));
      shared.set(data);
      if (this.#bytes + data.byteLength > MOST_CACHED_BYTES) this.#clear();
      this.#made.set(key, shared);
      this.#bytes += data.byteLength;
    }
    return this.#made.get(key);
  }

  #clear() {
    this.#made.clear();
    this.#bytes = 0;
  }
}

function text(s) {
  return { s };
}

function attributes() {
  const features = engineFeatures();
  const relaxed = features.includes("relaxed_simd");
  const [cpu] = os.cpus();
  const rows = {
    kind: text("cpu"),
    arch: text("wasm"),
    cpu: text(relaxed ? "relaxed_simd" : "simd128"),
    cpu_accepts: text(relaxed ? "simd128,relaxed_simd" : "simd128"),
    cpu_model: text(`${cpu?.model ?? process.arch}, V8 ${process.versions.v8}`),
    features: text(features.join(",")),
    kernel: text(`Node.js ${process.versions.node}`),
    cores: { i: 1 },
    memory_bytes: { i: 2 ** 32, unit: "bytes" },
    sandbox: text("strict"),
    sandboxed: { b: true },
    sandbox_detail: text("WebAssembly: code reaches its memory only"),
  };
  return Object.entries(rows).map(([key, value]) => ({ key, value }));
}

class Service {
  #modules = new Map();
  #inputs = new InputCache();
  #memoryLimitBytes = undefined;

  async answer(request) {
    if (request.hello !== undefined) return this.#hello(request.hello);
    if (request.load !== undefined) {
      const { slot = "", module = new Uint8Array(0) } = request.load;
      this.#modules.set(slot, module.slice());
      return { loaded: { slot } };
    }
    if (request.unload !== undefined) {
      this.#modules.delete(request.unload.slot ?? "");
      return { loaded: { slot: request.unload.slot ?? "" } };
    }
    if (request.measure !== undefined) return this.#measure(request.id, request.measure);
    if (request.run !== undefined) return this.#run(request.run);
    return error("worker.request.unknown", "expected hello, load, measure, unload, run or quit");
  }

  #hello({ device_kind: kind = "cpu", memory_limit_bytes: limit = 0 }) {
    if (kind !== "cpu") return error("worker.device.refused", `expected the kind cpu, found ${kind}`);
    this.#memoryLimitBytes = limit > 0 ? limit : undefined;
    return {
      ready: {
        protocol_revision: PROTOCOL_REVISION,
        software_version: VERSION,
        sandboxed: true,
        sandbox_full: true,
        sandbox_detail: "WebAssembly: code reaches its memory only",
        attributes: attributes(),
      },
    };
  }

  async #measure(id, request) {
    const slot = request.slot ?? "";
    const module = this.#modules.get(slot) ?? null;
    if (module === null && slot !== SELF_TEST_SLOT) {
      return error("worker.slot.empty", "expected a module in the slot");
    }
    const baselineSlot = request.baseline_slot ?? "";
    const baseline = baselineSlot === SELF_TEST_SLOT ? null : this.#modules.get(baselineSlot) ?? null;
    let inputs;
    try {
      inputs = (request.inputs?.tensors ?? []).map((spec) => this.#inputs.get(spec));
    } catch (cause) {
      return { measured: failed(OUTCOME.BUILD_ERROR, "LOAD_REFUSED", cause.message) };
    }
    const job = {
      slot, module, baseline, request: owned(request), inputs,
      memoryLimitBytes: this.#memoryLimitBytes,
    };
    const wallMs = nanoseconds(request.wall_limit) / 1e6;
    return { measured: await inThread(job, wallMs, (phase) => send(id, { phase })) };
  }

  async #run({ slot = "", inputs, repeat = 1, per_launch: perLaunch = false, output_bytes: most }) {
    const bytes = this.#modules.get(slot);
    if (bytes === undefined) return error("worker.slot.empty", "expected a module in the slot");
    try {
      const module = await loadModule(bytes);
      const session = await module.createSession({ memoryLimitBytes: this.#memoryLimitBytes });
      const named = Object.fromEntries(module.inputs.map(({ name, dtype }, i) => {
        const copy = (inputs[i] ?? new Uint8Array(0)).slice().buffer;
        return [name, new (DTYPES.get(dtype).array)(copy)];
      }));
      const times = [], launches = [];
      let outputs;
      for (let run = 0; run <= repeat; ++run) {  // the first one warms up
        const start = now();
        const profiled = perLaunch ? session.runProfiled(named) : { outputs: session.run(named) };
        if (run > 0 || repeat === 0) times.push(now() - start);
        outputs = profiled.outputs;
        if (run > 0 && perLaunch) launches.push(profiled.launches.map(({ ms }) => ms * 1e6));
      }
      const data = module.outputs.map(({ name }) => bytesOf(outputs[name].data));
      if (data.reduce((sum, { length }) => sum + length, 0) > (most ?? Infinity)) {
        return error("run.sandbox.too_large", "the outputs are longer than the caller wants");
      }
      times.sort((a, b) => a - b);
      const at = (list, share) => list[Math.floor(share * (list.length - 1))];
      const medians = (launches[0] ?? []).map(
        (_, i) => at(launches.map((row) => row[i]).sort((a, b) => a - b), 0.5));
      return {
        ran: {
          outputs: data, median_ns: at(times, 0.5), p10_ns: at(times, 0.1), p90_ns: at(times, 0.9),
          launch_ns: medians, threads: 1,
        },
      };
    } catch (cause) {
      if (!(cause instanceof TilewrightError)) throw cause;
      return error(cause.slug, cause.detail);
    }
  }
}

function error(slug, detail) {
  return { error: { slug, detail } };
}

function bytesOf(data) {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

// Views of a frame would take all of it to the thread.
function owned(request) {
  return { ...request, expected_output: request.expected_output?.slice() };
}

function failed(outcome, errorClass, detail) {
  return {
    outcome, error_class: errorClass, error_detail: detail, value_kind: WALL_NS, samples: [],
    clock: "monotonic",
  };
}

// Measures in a thread, which is ended after wallMs (0: never).
function inThread(job, wallMs, onPhase) {
  return new Promise((resolve) => {
    const thread = new Worker(new URL("measure_thread.js", import.meta.url), { workerData: job });
    let phase = 0;
    const finish = (measured) => {
      clearTimeout(timer);
      thread.terminate();
      resolve(measured);
    };
    const timer = wallMs > 0
      ? setTimeout(() => finish({
        ...failed(OUTCOME.RUN_TIMEOUT, "WALL_LIMIT", `no end after ${wallMs} ms`), phase,
      }), wallMs)
      : undefined;
    thread.on("message", (message) => {
      if (message.measured !== undefined) return finish(withTelemetry(message.measured));
      ({ phase } = message);
      return onPhase({ phase, monotonic_ns: now() });
    });
    thread.on("error", (cause) => {
      const noMemory = cause.code === "ERR_WORKER_OUT_OF_MEMORY" || cause instanceof RangeError;
      finish({
        ...(noMemory ? failed(OUTCOME.OUT_OF_MEMORY, "ALLOCATION", cause.message)
          : failed(OUTCOME.RUN_CRASH, "WORKER", cause.message)),
        phase,
      });
    });
  });
}

function withTelemetry(measured) {
  return { ...measured, telemetry: { load_average: os.loadavg()[0] } };
}

const service = new Service();
try {
  for await (const frame of frames()) {
    const request = decode(REQUEST, frame);
    if (request.quit !== undefined) break;
    send(request.id ?? 0n, await service.answer(request));
  }
  process.exit(0);
} catch (cause) {
  console.error(`error: worker.request.invalid: ${cause.message}`);
  process.exit(EXIT_PROTOCOL);
}
