// deploy/javascript without a compiler: expressions over sizes, modules that a few lines make here,
// places of tensors that sizes decide, and files that are not what they should be. Every damaged or
// mutated file gives a TilewrightError. SEED repeats a run.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Dim } from "../../deploy/javascript/dim.js";
import { loadModule, TilewrightError } from "../../deploy/javascript/tilewright.js";
import { planSizes } from "../../deploy/javascript/size_plan.js";
import { Mutator } from "../support/mutate_json.mjs";
import { CODE, codeOf, digest, fileOf, manifest } from "../support/small_wasm_module.mjs";

async function slugOf(file) {
  try {
    const session = await (await loadModule(file)).createSession();
    session.run({ t0: Float32Array.of(1) });
    return "";
  } catch (error) {
    assert.ok(error instanceof TilewrightError, error.stack);
    return error.slug;
  }
}

test("a module computes, and its digest is that of the file", async () => {
  const file = fileOf(manifest());
  const module = await loadModule(file, { digest: digest(file).toString("hex") });
  assert.deepEqual(module.inputs, [{ name: "t0", dtype: "float32", shape: [1] }]);
  const session = await module.createSession();
  assert.deepEqual(session.run({ t0: Float32Array.of(1.5) }).t2, { data: Float32Array.of(6), shape: [1] });
  assert.equal(session.runProfiled({ t0: Float32Array.of(2) }).launches.length, 2);
  await assert.rejects(loadModule(file, { digest: "0".repeat(64) }), { slug: "module.file.digest" });
});

test("inputs are checked", async () => {
  const session = await (await loadModule(fileOf(manifest()))).createSession();
  const cases = [
    [{}, "runtime.session.call_tensors"],
    [{ t0: Float32Array.of(1), other: Float32Array.of(1) }, "runtime.session.input_name"],
    [{ t0: Float64Array.of(1) }, "runtime.c_api.dtype"],
    [{ t0: Float32Array.of(1, 2) }, "runtime.session.input_bytes"],
    [{ t0: { data: Float32Array.of(1), shape: [1, 1] } }, "runtime.c_api.shape"],
    [{ t0: null }, "runtime.c_api.dtype"],
  ];
  for (const [inputs, slug] of cases) assert.throws(() => session.run(inputs), { slug });
});

test("a session's memory has a limit", async () => {
  const large = manifest();
  large.arena_bytes = 8 * 2 ** 20;
  const module = await loadModule(fileOf(large));
  const session = await module.createSession({ memoryLimitBytes: 4 * 2 ** 20 });
  assert.throws(() => session.run({ t0: Float32Array.of(1) }), { slug: "runtime.session.memory_limit" });
  const enough = await module.createSession({ memoryLimitBytes: 16 * 2 ** 20 });
  assert.deepEqual(enough.run({ t0: Float32Array.of(1) }).t2.data, Float32Array.of(4));
});

test("expressions have the values of deploy/support/dim.h", () => {
  const sizes = new Map([["N", 7], ["seq_len", 5]]);
  const cases = [
    ["N", 7], ["2*N + 1", 15], ["(N + 1) / 2", 4], ["-N + 9", 2], ["N*seq_len", 35],
    ["((N - 9) / 2)*3", -3], ["(N / 2 + 1) / 2", 2], ["3*(N + 2*seq_len) - 1", 50],
  ];
  for (const [text, value] of cases) assert.equal(new Dim(text, "d").evaluate(sizes), value, text);
  assert.equal(new Dim("N", "d").variable, "N");
  assert.equal(new Dim("N + 1", "d").variable, null);
  const bad = ["", "N +", "(N", "N)", "N/0", "2N*", "N ** 2", "N".repeat(65), "(".repeat(40), 1.5];
  for (const text of bad) assert.throws(() => new Dim(text, "d"), TilewrightError, text);
  assert.throws(() => new Dim("N*N*N*N*N*N*N*N*N*N*N*N*N*N*N*N*N*N*N*N", "d").evaluate(sizes),
    { slug: "module.sizes.dimension" });
});

test("tensors of open sizes begin behind those that live with them", () => {
  const dims = (values) => values.map((value) => new Dim(value, "d"));
  const of = (id, kind, shape, after = []) =>
    ({ id, kind, dtype: "float32", shape: dims(shape), offset: 0, after });
  const open = {
    size_vars: [{ name: "N", min: 1, max: 64 }],
    tensors: [of(0, "input", ["N"]), of(1, "intermediate", ["3*N"]), of(2, "intermediate", ["N"], [1]),
      of(3, "intermediate", [1], [1, 2]), of(4, "output", ["N"])],
  };
  const fn = {
    inputs: [0], outputs: [4], checks: [], loops: [], prepare: [],
    launches: [{ args: [0, 1, 2, 3, 4], sizes: dims(["N"]), workspace_bytes: new Dim("8*N", "d") }],
  };
  const plan = planSizes(open, fn, new Map([["N", 10]]), new Set());
  assert.deepEqual(plan.places.map(({ offset }) => offset), [0, 0, 128, 192, 0]);
  assert.equal(plan.arenaBytes, 196);
  assert.deepEqual(plan.launches, [{ sizes: [10], workspaceBytes: 80 }]);
  open.alignment = 16;
  const closer = planSizes(open, fn, new Map([["N", 10]]), new Set());
  assert.deepEqual(closer.places.map(({ offset }) => offset), [0, 0, 128, 176, 0]);
});

test("manifests that contradict themselves are refused by reason", async () => {
  const cases = [
    ["module.manifest.type", (m) => { m.surprise = 1; }],
    ["module.manifest.type", (m) => { delete m.code; }],
    ["module.manifest.type", (m) => { m.tensors[0].bytes = "4"; }],
    ["module.manifest.version", (m) => { m.format_version = 99; }],
    ["module.manifest.version", (m) => { m.alignment = 32; }],
    ["module.manifest.alignment", (m) => { m.alignment = 8; m.format_version = 9; }],
    ["module.manifest.tensor_offset", (m) => {
      m.alignment = 32;
      m.format_version = 9;
      m.tensors[1].offset = 16;
    }],
    ["module.manifest.dtype", (m) => { m.tensors[0].dtype = "float31"; }],
    ["module.manifest.tensor_id", (m) => { m.tensors[1].id = 0; }],
    ["module.manifest.tensor_bytes", (m) => { m.tensors[1].bytes = 8; }],
    ["module.manifest.tensor_offset", (m) => { m.tensors[1].offset = 64; }],
    ["module.manifest.tensor_offset", (m) => { m.tensors[1].offset = 4; }],
    ["module.manifest.arg", (m) => { m.functions[0].launches[0].args[0] = 7; }],
    ["module.manifest.code_index", (m) => { m.functions[0].launches[0].code = 1; }],
    ["module.manifest.num_outputs", (m) => { m.functions[0].launches[0].num_outputs = 3; }],
    ["module.manifest.function_ends", (m) => { m.functions[0].outputs = [0]; }],
    ["module.manifest.functions", (m) => { m.functions[0].name = "other"; }],
    ["module.manifest.expression", (m) => { m.tensors[1].shape = ["N"]; }],
    ["module.manifest.after", (m) => { m.tensors[1].after = [1]; }],
    ["module.manifest.state", (m) => { m.tensors[1].entries_of = 0; }],
    ["module.manifest.arg", (m) => { m.tensors[1].kind = "state"; }],
    ["module.manifest.arg", (m) => { m.functions[0].launches[0].args = [1, 0]; }],
    ["module.manifest.unwritten_output", (m) => { m.functions[0].launches.pop(); }],
    ["module.manifest.workspace", (m) => { m.functions[0].launches[0].workspace_bytes = 1; }],
    ["module.file.mismatch", (m) => { m.code[0].size = 1; }],
    ["runtime.code.format", (m) => { m.code[0].format = "elf-x86_64"; }],
    ["runtime.code.format", (m) => { m.code[0].device = "opencl"; }],
    ["runtime.load.library", (m) => { m.code[0].format = "library"; }],
    ["runtime.load.abi_version", (m) => { m.code[0].abi_version = 9; }],
    ["runtime.load.cpu_features", (m) => { m.cpu_features = ["hyperdrive", "simd128"]; }],
    ["runtime.code.symbol", (m) => { m.functions[0].launches[0].symbol = "tw_kernel_absent"; }],
    ["runtime.code.symbol", (m) => { m.functions[0].launches[0].symbol = "tw_kernel_toString"; }],
    ["runtime.session.too_large", (m) => { m.arena_bytes = 2 ** 33; }],
  ];
  for (const [slug, change] of cases) {
    const changed = manifest();
    change(changed);
    assert.equal(await slugOf(fileOf(changed)), slug, change.toString());
  }
  assert.equal(await slugOf(fileOf("{")), "module.manifest.json");
  assert.equal(await slugOf(fileOf("[1]")), "module.manifest.type");
});

test("code that is none, or that wants more than memory, is refused", async () => {
  const withCode = (code) => fileOf(manifest(code), code);
  assert.equal(await slugOf(withCode(CODE.slice(0, -1))), "runtime.code.load");
  const other = Uint8Array.from(CODE);
  other[other.indexOf("e".charCodeAt(0), 20)] = "f".charCodeAt(0);  // fnv.memory
  assert.equal(await slugOf(withCode(other)), "runtime.code.load");
  const unreachable = [0, 0x00, 0x0b];
  assert.equal(await slugOf(withCode(codeOf(unreachable))), "runtime.run.kernel_failed");
});

test("a changed byte anywhere is found", async () => {
  const file = fileOf(manifest());
  for (let at = 0; at < file.length; at += at < 4096 ? 7 : 61) {
    const damaged = Uint8Array.from(file);
    damaged[at] ^= 0x40;
    assert.match(await slugOf(damaged), /^module\.file\./, `byte ${at}`);
  }
  for (const length of [0, 7, 63, 64, 200, file.length - 1]) {
    assert.match(await slugOf(file.slice(0, length)), /^module\.file\./, `${length} bytes`);
  }
});

test("mutated manifests give an error or a result, never another failure", async () => {
  const mutator = new Mutator([-1, 0, 1, 64, 2 ** 31, 2 ** 46, 2 ** 52, 1e300, "N", "", null, [], {}, true]);
  for (let round = 0; round < 2000; ++round) {
    const changed = manifest();
    changed.size_vars = round % 2 === 0 ? [] : [{ name: "N", min: 1, max: 4 }];
    if (round % 2 === 1) {
      changed.format_version = 2;
      changed.tensors[0].shape = ["N"];
    }
    for (let edits = 1 + mutator.below(3); edits > 0; --edits) mutator.change(changed);
    await slugOf(fileOf(changed));  // asserts the kind of error
  }
});
