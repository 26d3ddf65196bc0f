// The worker in Node.js (deploy/javascript/worker): messages, generated inputs, floats of 16 bits,
// and a worker process that an agent's frames drive: right and wrong results, a kernel that never
// ends, one that fails, a slow one, nonsense.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { doubleToHalf, halfToDouble } from "../../deploy/javascript/worker/half_float.js";
import { generateInput } from "../../deploy/javascript/worker/input_gen.js";
import { OUTCOME, REPLY, REQUEST } from "../../deploy/javascript/worker/messages.js";
import { decode, encode } from "../../deploy/javascript/worker/protobuf.js";
import { codeOf, fileOf, manifest } from "../support/small_wasm_module.mjs";

const WORKER = fileURLToPath(new URL("../../deploy/javascript/worker/worker.js", import.meta.url));

test("messages are read as they were written", () => {
  const table = {
    1: ["id", "big"], 2: ["count", "int"], 3: ["on", "bool"], 4: ["x", "double"], 5: ["name", "string"],
    6: ["raw", "bytes"], 7: ["inner", { 1: ["list", "int", "repeated"] }], 15: ["more", "double", "repeated"],
  };
  const message = {
    id: 2n ** 64n - 1n, count: -7, on: true, x: -0.5, name: "é", raw: Uint8Array.of(0, 255),
    inner: { list: [1, -1, 300] }, more: [1.5, Infinity],
  };
  assert.deepEqual(decode(table, encode(table, message)), message);
  // As protoc writes them: packed numbers, and fields that nobody here knows.
  const packed = Uint8Array.of(0x3a, 5, 0x0a, 3, 1, 0xac, 2, 0xf8, 7, 5, 0xfd, 7, 1, 2, 3, 4);
  assert.deepEqual(decode(table, packed), { inner: { list: [1, 300] }, more: [] });
  const whole = encode(table, message);
  for (let length = 1; length < whole.length; ++length) {
    try {
      decode(table, whole.slice(0, length));
    } catch (error) {
      assert.ok(error instanceof RangeError, error.stack);
    }
  }
});

// deploy/runtime/input_gen.h, word by word.
function word(seed, index) {
  const wrap = (value) => BigInt.asUintN(64, value);
  let z = wrap(seed + BigInt(index + 1) * 0x9e3779b97f4a7c15n);
  z = wrap((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
  z = wrap((z ^ (z >> 27n)) * 0x94d049bb133111ebn);
  return z ^ (z >> 31n);
}

function sixteens(seed, index) {
  let sum = 0n;
  for (let k = 0; k < 3; ++k) {
    for (let w = word(seed, 3 * index + k), part = 0; part < 4; ++part, w >>= 16n) sum += w & 0xffffn;
  }
  return Number(sum);
}

test("generated inputs are those of the contract", () => {
  const count = 500;
  for (const seed of [0n, 1n, 2n ** 63n, 2n ** 64n - 1n, 0x123456789abcdef0n]) {
    const uniform = (i) => Number(word(seed, i) >> 11n) * 2 ** -53;
    const cases = [
      ["float64", { uniform: { low: -1, high: 3 } }, (i) => -1 + 4 * uniform(i)],
      ["float32", { uniform: { low: 1, high: 2 } }, (i) => Math.min(Math.fround(1 + uniform(i)), 2 - 2 ** -23)],
      ["int8", { uniform: { low: -7.5, high: 7.5 } }, (i) => Math.trunc(-7.5 + 15 * uniform(i)) + 0],
      ["bool", { uniform: { low: 0, high: 1 } }, (i) => Number(uniform(i) > 0.5)],
      ["float64", { normal: { mean: 1, standard_deviation: 2 } },
        (i) => 1 + 2 * (sixteens(seed, i) * 2 ** -16 - 6)],
      ["int32", { integers: { low: -7, high: 7 } }, (i) => Number(word(seed, i) % 15n) - 7],
      ["int64", { integers: { low: 0, high: 2 ** 40 } }, (i) => word(seed, i) % (2n ** 40n + 1n)],
      ["bool", { integers: { low: 0, high: 1 } }, (i) => Number(word(seed, i) % 2n)],
    ];
    for (const [dtype, law, value] of cases) {
      const found = generateInput(dtype, count, law, seed);
      for (let i = 0; i < count; ++i) assert.equal(found[i], value(i), `${dtype} ${seed} ${i}`);
    }
  }
});

test("floats of 16 bits are rounded to the nearest, ties to even", () => {
  for (const brain of [false, true]) {
    const infinity = brain ? 0x7f80 : 0x7c00;
    for (let bits = 0; bits < infinity; ++bits) {
      const value = halfToDouble(bits, brain), next = halfToDouble(bits + 1, brain);
      assert.equal(doubleToHalf(value, brain), bits);
      assert.equal(doubleToHalf(-value, brain), bits | 0x8000);
      if (next === Infinity) continue;
      const middle = (value + next) / 2;
      assert.equal(doubleToHalf(middle, brain), bits + (bits & 1), `${bits}`);
      assert.equal(doubleToHalf(middle * (1 + 2 ** -50), brain), bits + 1);
      assert.equal(doubleToHalf(middle * (1 - 2 ** -50), brain), bits);
    }
    assert.equal(doubleToHalf(1e300, brain), infinity);
    assert.ok(Number.isNaN(halfToDouble(doubleToHalf(NaN, brain), brain)));
  }
});

// A worker process, and frames to and from it.
class Process {
  constructor() {
    this.child = spawn(process.execPath, [WORKER], { stdio: ["pipe", "pipe", "pipe"] });
    this.replies = this.#read();
    this.id = 0n;
    this.errors = "";
    this.child.stderr.on("data", (text) => { this.errors += text; });
    this.ended = new Promise((resolve) => { this.child.on("exit", resolve); });
  }

  async* #read() {
    let bytes = Buffer.alloc(0);
    for await (const piece of this.child.stdout) {
      bytes = Buffer.concat([bytes, piece]);
      while (bytes.length >= 4 && bytes.length >= 4 + bytes.readUInt32LE()) {
        const end = 4 + bytes.readUInt32LE();
        yield decode(REPLY, new Uint8Array(bytes.subarray(4, end)));
        bytes = bytes.subarray(end);
      }
    }
  }

  frame(message) {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(message.length);
    this.child.stdin.write(Buffer.concat([length, message]));
  }

  // The answer, and the phases before it.
  async ask(request) {
    const id = ++this.id;
    this.frame(encode(REQUEST, { id, ...request }));
    const phases = [];
    for (;;) {
      const { value, done } = await this.replies.next();
      assert.ok(!done, `the worker ended: ${this.errors}`);
      assert.equal(value.id, id);
      if (value.phase === undefined) return { ...value, phases };
      phases.push(value.phase.phase);
    }
  }

  load(file, slot = "candidate") {
    return this.ask({ load: { slot, module: file } });
  }
}

const QUICK = { min_repeats: 3, max_repeats: 3, min_repeat_time: { nanos: 1000 }, warmup: { nanos: 1000 } };
const INPUT = { name: "t0", dtype: "f32", shape: [1], seed: 5n, distribution: { uniform: { low: 1, high: 2 } } };
const four = Float32Array.of(4 * generateInput("float32", 1, INPUT.distribution, 5n)[0]);

function measurement(more = {}) {
  return {
    measure: {
      slot: "candidate", inputs: { tensors: [INPUT] }, expected_output: new Uint8Array(four.buffer),
      tolerance: { rel: 1e-6 }, plan: QUICK, wall_limit: { seconds: 20 }, ...more,
    },
  };
}

test("a worker describes itself and measures", async () => {
  const worker = new Process();
  const { ready } = await worker.ask({ hello: { device_kind: "cpu" } });
  assert.equal(ready.protocol_revision, 1);
  const attributes = Object.fromEntries(ready.attributes.map(({ key, value }) => [key, value.s]));
  assert.equal(attributes.arch, "wasm");
  assert.ok(attributes.features.split(",").includes("simd128"));
  assert.equal((await worker.ask(measurement())).error.slug, "worker.slot.empty");
  assert.equal((await worker.load(fileOf(manifest()))).loaded.slot, "candidate");

  const good = await worker.ask(measurement());
  assert.equal(good.measured.outcome, OUTCOME.OK, good.measured.error_detail);
  assert.deepEqual(good.phases, [1, 2, 3, 4, 5, 7, 6, 8, 7, 9]);
  assert.equal(good.measured.samples.length, 3);
  assert.ok(good.measured.samples.every((ns) => ns > 0) && good.measured.baseline_before > 0);

  const wrong = await worker.ask(measurement({ expected_output: new Uint8Array(4) }));
  assert.equal(wrong.measured.outcome, OUTCOME.WRONG_RESULT);
  assert.equal(wrong.measured.error_class, "FIRST_RUN");
  const slow = await worker.ask(measurement({ plan: { ...QUICK, abort_if_slower_than_ns: 0.001 } }));
  assert.equal(slow.measured.outcome, OUTCOME.EARLY_STOPPED);
  const other = await worker.ask(measurement({ inputs: { tensors: [INPUT, INPUT] } }));
  assert.equal(other.measured.outcome, OUTCOME.BUILD_ERROR);

  await worker.ask({ unload: { slot: "candidate" } });
  assert.equal((await worker.ask(measurement())).error.slug, "worker.slot.empty");
  worker.frame(encode(REQUEST, { id: 99n, quit: {} }));
  assert.equal(await worker.ended, 0);
});

test("a kernel that fails or never ends costs its measurement only", async () => {
  const worker = new Process();
  const endless = [0, 0x03, 0x40, 0x0c, 0, 0x0b, 0x41, 0, 0x0b];  // loop, br 0, end; 0
  const cases = [
    [codeOf([0, 0x00, 0x0b]), OUTCOME.RUN_CRASH, "KERNEL_ERROR"],
    [codeOf([0, 0x41, 7, 0x0b]), OUTCOME.RUN_CRASH, "KERNEL_ERROR"],
    [codeOf(endless), OUTCOME.RUN_TIMEOUT, "WALL_LIMIT"],
    [Uint8Array.of(1, 2, 3), OUTCOME.BUILD_ERROR, "LOAD_REFUSED"],
  ];
  for (const [code, outcome, errorClass] of cases) {
    await worker.load(fileOf(manifest(code), code));
    const { measured } = await worker.ask(measurement({ wall_limit: { seconds: 1 } }));
    assert.equal(measured.outcome, outcome, measured.error_detail);
    assert.equal(measured.error_class, errorClass);
  }
  const large = manifest();
  large.arena_bytes = 64 * 2 ** 20;
  await worker.ask({ hello: { memory_limit_bytes: 8 * 2 ** 20 } });
  await worker.load(fileOf(large));
  assert.equal((await worker.ask(measurement())).measured.outcome, OUTCOME.OUT_OF_MEMORY);
  await worker.load(fileOf(manifest()));
  assert.equal((await worker.ask(measurement())).measured.outcome, OUTCOME.OK);
  worker.frame(Uint8Array.of(0x0f, 0xff, 0xff));  // no message
  assert.equal(await worker.ended, 76);
  assert.match(worker.errors, /worker\.request\.invalid/);
});

test("a worker runs a module for a person", async () => {
  const worker = new Process();
  await worker.load(fileOf(manifest()), "m");
  const input = new Uint8Array(Float32Array.of(1.5).buffer);
  const run = { slot: "m", inputs: [input], repeat: 2, per_launch: true, output_bytes: 64 };
  const { ran } = await worker.ask({ run });
  assert.deepEqual(new Float32Array(ran.outputs[0].slice().buffer), Float32Array.of(6));
  assert.equal(ran.launch_ns.length, 2);
  assert.equal((await worker.ask({ run: { ...run, output_bytes: 3 } })).error.slug, "run.sandbox.too_large");
  assert.equal((await worker.ask({ run: { ...run, inputs: [] } })).error.slug, "runtime.session.input_bytes");
  worker.child.stdin.end();
  assert.equal(await worker.ended, 0);
});
