// deploy/javascript: loops, and sizes that a run finds. Modules that a few lines make here, sizes
// that are equal as polynomials, and manifests that are not what they should be. Every mutated one
// gives a TilewrightError or a result. SEED repeats a run.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Dim } from "../../deploy/javascript/dim.js";
import { nestLoops, stepsOf } from "../../deploy/javascript/loops.js";
import { Polynomial } from "../../deploy/javascript/polynomial.js";
import { planSizes } from "../../deploy/javascript/size_plan.js";
import { loadModule, TilewrightError } from "../../deploy/javascript/tilewright.js";
import { Mutator } from "../support/mutate_json.mjs";
import {
  FINITE_CODE, fileOf, findingInTripsManifest, findingManifest, loopManifest,
} from "../support/small_wasm_module.mjs";

const load = (json) => loadModule(fileOf(json, FINITE_CODE));
const inputs = (x, n, going = 1) =>
  ({ x: Float32Array.of(x), n: BigInt64Array.of(BigInt(n)), going: Uint8Array.of(going) });
const finding = (x, n, found = n) =>
  ({ ...inputs(x, n, n > 0 ? 1 : 0), n_and_1: BigInt64Array.of(BigInt(found + 1)) });

async function slugOf(json, given) {
  try {
    (await (await load(json)).createSession()).run(given);
    return "";
  } catch (error) {
    assert.ok(error instanceof TilewrightError, error.stack);
    return error.slug;
  }
}

test("a loop runs as long as its condition holds", async () => {
  const session = await (await load(loopManifest())).createSession();
  for (const [n, last] of [[1, 12], [3, 48], [8, 1536]]) {
    const { rows, last: found } = session.run(inputs(3, n));
    assert.deepEqual(found.data, Float32Array.of(last));
    assert.deepEqual([...rows.data.slice(0, n)], Array.from({ length: n }, (_, i) => 3 * 2 ** (i + 1)));
  }
  assert.deepEqual(session.run(inputs(3, 5, 0)).last.data, Float32Array.of(6), "no trips");
  assert.throws(() => session.run(inputs(3, 9)), { slug: "runtime.session.trips" });
  assert.deepEqual(session.run(inputs(3, 1)).last.data, Float32Array.of(12), "after an error");
  session.bind(inputs(1, 2));
  session.poison();
  session.repeat(3);
  assert.deepEqual(session.outputs().last.data, Float32Array.of(8));
  const { launches } = session.runProfiled(inputs(3, 4));
  assert.deepEqual(launches.map(({ symbol }) => symbol),
    ["tw_kernel_double", "tw_kernel_count", "tw_kernel_double"]);
});

test("an endless loop ends with what its kernels say", async () => {
  const json = loopManifest();
  json.functions[0].loops[0].carried[0].next = 2;
  json.functions[0].loops[0].stacked = [];
  json.functions[0].outputs = [10];
  assert.equal(await slugOf(json, inputs(1, 1)), "runtime.run.kernel_failed");
});

test("a run finds how many rows there are", async () => {
  const module = await load(findingManifest());
  assert.deepEqual(module.sizeVars, [{ name: "steps", min: 0, max: 8, found: true }]);
  assert.deepEqual(module.outputs[0].shape, ["steps", 1]);
  const session = await module.createSession();
  for (const n of [3, 8, 0, 1]) {
    const { rows, last } = session.run(finding(1, n));
    assert.deepEqual(rows.shape, [n, 1]);
    assert.deepEqual([...rows.data], Array.from({ length: n }, (_, i) => 2 ** (i + 1)));
    assert.deepEqual(last.data, Float32Array.of(2 ** (n + 1)));
  }
  for (const [n, found] of [[3, 9], [3, -1], [9, 9]]) {
    assert.throws(() => session.run(finding(1, n, found)),
      { slug: "runtime.session.found_size", message: /expected a size of 0 to 8 for steps, found/ });
  }
  assert.throws(() => session.run(finding(1, 9, 8)), { slug: "runtime.session.trips" });
  assert.deepEqual(session.run(finding(1, 2)).rows.shape, [2, 1], "after errors");
});

test("what the model states is checked", async () => {
  const json = findingManifest();
  json.functions[0].checks.push({ tensor: 13, expected: [4], what: "Reshape" });
  json.tensors.push({ ...json.tensors[12], id: 13, name: "stated" });
  json.functions[0].launches.push(
    { ...json.functions[0].launches[3], args: [11, 13, 4] });
  const session = await (await load(json)).createSession();
  assert.deepEqual(session.run(finding(1, 4)).rows.shape, [4, 1]);
  assert.throws(() => session.run(finding(1, 3)),
    { slug: "runtime.session.stated_shape", message: /the model states \[4\], and the run has \[3\]/ });
});

test("sizes that operators need to be equal are checked when they are found", async () => {
  const json = findingManifest();
  json.equal_sizes = [{ left: "steps", right: "2*(steps / 2)", what: "Add" }];
  const session = await (await load(json)).createSession();
  assert.deepEqual(session.run(finding(1, 4)).rows.shape, [4, 1]);
  assert.throws(() => session.run(finding(1, 3)), { slug: "module.sizes.unequal" });
});

test("each trip finds its own sizes", async () => {
  const session = await (await load(findingInTripsManifest())).createSession();
  for (const n of [1, 6, 0, 2]) assert.deepEqual(session.run(finding(1, n)).rows.shape, [n, 1]);
  assert.throws(() => session.run(finding(1, 7)),
    { slug: "runtime.session.found_size", message: /0 to 5 for left, found 6/ });
  const changes = {
    "behind the loop": (m) => { m.functions[0].launches.at(-1).sizes = ["left"]; },
    "before it is found": (m) => { m.functions[0].launches[0].sizes = ["left"]; },
    "leaves a loop": (m) => { m.tensors[9].shape = ["left", 1]; },
  };
  for (const [what, change] of Object.entries(changes)) {
    const json = findingInTripsManifest();
    change(json);
    await assert.rejects(load(json),
      { slug: "module.manifest.found_size", message: new RegExp(what) }, what);
  }
});

test("loops nest", () => {
  const fn = (...ranges) => ({
    name: "main", launches: Array(6).fill({}),
    loops: ranges.map(([first, end]) => ({ first, end })),
  });
  const shape = (steps) =>
    steps.map((step) => (typeof step === "number" ? step : [step.index, ...shape(step.steps)]));
  assert.deepEqual(shape(stepsOf(fn())), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(shape(stepsOf(fn([1, 3], [3, 5], [1, 5], [1, 6]))), [0, [3, [2, [0, 1, 2], [1, 3, 4]], 5]]);
  assert.deepEqual(shape(stepsOf(fn([0, 2], [0, 2], [4, 6]))), [[1, [0, 0, 1]], 2, 3, [2, 4, 5]]);
  assert.equal(stepsOf(fn(...Array(64).fill([0, 6]))).length, 1);
  const refused = [[[0, 7]], [[-1, 2]], [[2, 2]], [[3, 2]], [[0, 3], [2, 5]], [[2, 5], [0, 3]],
    [[0, 4], [1, 2]], [[3, 5], [1, 2]], [[0, 1], [2, 4], [3, 6]], Array(65).fill([0, 6]), Array(4097).fill([0, 6])];
  for (const ranges of refused) {
    assert.throws(() => nestLoops(fn(...ranges), "main"), { slug: "module.manifest.loop" },
      JSON.stringify(ranges));
  }
});

test("expressions are polynomials, and ranges", () => {
  const product = (...texts) => Polynomial.product(texts.map((text) => new Dim(text, "d")));
  const equal = [
    [["N", "M"], ["M", "N"]], [["2*N"], [2, "N"]], [["(2*N + 5) / 2"], ["N + 2"]], [["N", 1], ["N"]],
    [["N + 1", "N - 1"], ["N*N - 1"]], [["(4*N + M) / 2"], ["2*N + M / 2"]], [["-N + 9"], ["9 - N"]],
    [["(N - 3) / 2"], ["(N + 1) / 2 - 2"]], [[0, "N"], [0]],
  ];
  for (const [a, b] of equal) assert.ok(product(...a).equals(product(...b)), `${a} = ${b}`);
  const different = [[["N"], ["M"]], [["N / 2", 2], ["N"]], [["N", "N"], ["N"]], [["N + 1"], ["N"]]];
  for (const [a, b] of different) assert.ok(!product(...a).equals(product(...b)), `${a} != ${b}`);
  const multiple = (a, b) => product(...a).isMultipleOf(product(...b));
  assert.ok(multiple(["4*N + 2*N*M"], ["2*N"]) && multiple([6], [3]) && multiple([0], [3]));
  assert.ok(!multiple(["4*N + M"], ["2*N"]) && !multiple([6], [4]) && !multiple([6], [0]));
  assert.ok(!multiple(["N"], ["N", "N"]) && !multiple(["N*M"], ["N + M"]));
  const many = Array.from({ length: 8 }, (_, i) => `a${i} + b${i}`);
  assert.throws(() => product(...many), { slug: "module.manifest.expression" });
  const most = (text) => new Dim(text, "d").most((name) => (name === "N" ? [2, 10] : [-1, 3]));
  const cases = [["N", 10], ["12 - N", 10], ["N*M", 30], ["(7 - N) / 2", 2], ["N - M", 11], ["-N*M", 10]];
  for (const [text, value] of cases) assert.equal(most(text), value, text);
});

test("places are for all sizes that a run may find", () => {
  const dims = (values) => values.map((value) => new Dim(value, "d"));
  const of = (id, kind, shape, after = []) =>
    ({ id, kind, dtype: "float32", shape: dims(shape), offset: 0, after });
  const open = {
    size_vars: [{ name: "N", min: 1, max: 64 }, { name: "M", min: 2, max: 20 }],
    tensors: [of(0, "input", ["N"]), of(1, "intermediate", ["N - M"]), of(2, "output", ["M"], [])],
  };
  const fn = {
    inputs: [0], outputs: [2], checks: [], loops: [], prepare: [],
    launches: [{ args: [0, 1, 2], sizes: dims(["M"]), workspace_bytes: new Dim("80 - 4*M", "d") }],
  };
  const plan = planSizes(open, fn, new Map([["N", 10], ["M", 20]]), new Set(["M"]));
  assert.deepEqual(plan.places.map(({ shape }) => shape), [[10], [8], [20]]);
  assert.equal(plan.workspaceBytes, 72);
});

test("manifests whose loops and sizes contradict themselves are refused", async () => {
  const loop = (change) => (m) => change(m.functions[0].loops[0], m);
  const looped = [
    ["", () => {}],
    ["", loop((l, m) => { m.tensors[9].shape = [4, 2]; })],  // a view of the stack
    ["module.manifest.version", (m) => { m.format_version = 1; }],
    ["module.manifest.version", (m) => { m.format_version = 9; }],
    ["module.manifest.version", (m) => { delete m.functions[0].loops; }],
    ["module.manifest.type", loop((l) => { delete l.stacked; })],
    ["module.manifest.type", loop((l) => { l.carried[0].more = 1; })],
    ["module.manifest.loop", loop((l) => { l.end = 4; })],
    ["module.manifest.loop", loop((l) => { l.carried = []; })],
    ["module.manifest.loop", loop((l) => { l.carried.shift(); })],  // no bool first
    ["module.manifest.loop", loop((l) => { l.carried[1].value = 0; })],  // an input
    ["module.manifest.loop", loop((l) => { l.carried[1].next = 99; })],
    ["module.manifest.loop", loop((l) => { l.carried[1].next = -1; })],
    ["module.manifest.loop", loop((l) => { l.carried[1].next = 9; })],  // another size
    ["module.manifest.loop", loop((l) => { l.carried[1].init = 1; })],  // another type
    ["module.manifest.loop", loop((l) => { l.stacked[0].whole = 6; })],
    ["module.manifest.loop", loop((l) => { l.stacked[0].whole = 0; })],
    ["module.manifest.loop", loop((l) => { l.stacked[0].part = 9; })],
    ["module.manifest.loop", loop((l) => { l.stacked[0].part = 8; })],
    ["module.manifest.loop", loop((l, m) => {
      m.tensors.push({ ...m.tensors[6], id: 11, shape: [3], bytes: 12 });
      l.stacked[0].part = 11;
    })],
    ["module.manifest.loop", loop((l, m) => {  // an output of no function
      m.tensors.push({ ...m.tensors[10], id: 11, name: "other" });
      l.carried[1].next = 11;
    })],
    ["module.manifest.unwritten_output", loop((l) => { l.stacked = []; })],
  ];
  const found = [
    ["", () => {}],
    ["module.manifest.version", (m) => { m.format_version = 7; }],
    ["module.manifest.size_var", (m) => { m.functions[0].checks[0].expected = [3]; }],
    ["module.manifest.size_var", (m) => { m.functions[0].checks[0].expected = ["steps + 1"]; }],
    ["module.manifest.unwritten_output", (m) => { m.functions[0].launches[3].args = [11, 8, 4]; }],
    ["module.manifest.size_var", (m) => { m.size_vars[0].max = -1; }],
    ["module.manifest.type", (m) => { m.size_vars[0].max = 7.5; }],
    ["module.manifest.expression", (m) => { m.functions[0].checks[0].expected = ["other"]; }],
    ["module.manifest.check", (m) => { m.functions[0].checks[0].expected = ["steps", 1]; }],
    ["module.manifest.found_size", (m) => { m.functions[0].launches[2].sizes = ["steps"]; }],
    ["module.manifest.found_size", (m) => { m.functions[0].launches[3].workspace_bytes = "steps"; }],
    ["module.manifest.workspace", (m) => { m.functions[0].launches[3].workspace_bytes = 1; }],
    ["module.manifest.found_size", (m) => { m.functions[0].launches[0].args = [9, 6]; }],
    ["module.manifest.found_size", (m) => { m.tensors[11].shape = ["steps + 1"]; }],
    ["module.manifest.at", (m) => {
      m.functions[0].prepare = [{ ...m.functions[0].launches[0], sizes: ["steps"] }];
    }],
  ];
  for (const [make, cases] of [[loopManifest, looped], [findingManifest, found]]) {
    const given = make === loopManifest ? inputs(1, 2) : finding(1, 2);
    for (const [slug, change] of cases) {
      const changed = make();
      change(changed);
      assert.equal(await slugOf(changed, given), slug, change.toString());
    }
  }
});

test("mutated loops and sizes give an error or a result, never another failure", async () => {
  const mutator = new Mutator([-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 64, 2 ** 31, 2 ** 46, 1e300,
    "steps", "left - 3", "steps*left", "", null, [], {}, [1], ["steps"]]);
  const makers = [[loopManifest, inputs(1, 3)], [findingManifest, finding(1, 3)], [findingInTripsManifest, finding(1, 4)]];
  let runs = 0;
  for (let round = 0; round < 3000; ++round) {
    const [make, given] = makers[round % makers.length];
    const changed = make();
    // What is about loops and sizes more often than the rest.
    const parts = [changed, changed.functions[0].loops, changed.functions[0].checks ?? [], changed.tensors,
      changed.functions[0].launches];
    for (let edits = 1 + mutator.below(2); edits > 0; --edits) {
      mutator.change(parts[mutator.below(parts.length)]);
    }
    runs += await slugOf(changed, given) === "" ? 1 : 0;  // asserts the kind of error
  }
  assert.ok(runs > 100, `${runs} of 3000 ran`);
});
