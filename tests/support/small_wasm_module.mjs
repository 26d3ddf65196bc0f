// Modules of WebAssembly made by hand, for tests of deploy/javascript.
import { createHash } from "node:crypto";

// A module with two kernels (param i32 i32 i32 i32) (result i32):
//   (import "env" "memory" (memory 32)) (global (export "__heap_base") i32 (i32.const 1048576))
//   tw_kernel_double writes twice what it reads, one f32
//   tw_kernel_count of [n, less, more] writes less = n - 1 (i64) and more = less > 0 (bool)
const leb = (number) => (number < 128 ? [number] : [(number & 127) | 128, number >> 7]);
const name = (text) => [text.length, ...Buffer.from(text)];
const section = (id, ...bytes) => [id, ...leb(bytes.length), ...bytes];
const address = (position) => [0x20, 1, 0x28, 2, 4 * position];  // i32.load of the buffers
export const BODY = [
  0,                                 // no locals
  ...address(1), ...address(0), 0x2a, 2, 0,  // f32.load of the input
  0x43, 0, 0, 0, 0x40, 0x94,         // f32.const 2, f32.mul
  0x38, 2, 0, 0x41, 0, 0x0b,         // f32.store; 0; end
];
const COUNT = [
  0,
  ...address(1), ...address(0), 0x29, 3, 0, 0x42, 1, 0x7d,  // i64.load, i64.const 1, i64.sub
  0x37, 3, 0,                                               // i64.store
  ...address(2), ...address(1), 0x29, 3, 0, 0x42, 0, 0x55,  // i64.load, i64.const 0, i64.gt_s
  0x3a, 0, 0, 0x41, 0, 0x0b,                                // i32.store8; 0; end
];
// Traps where the global 1 is 0, else takes 1 from it.
const BURN = [0x23, 1, 0x45, 0x04, 0x40, 0, 0x0b, 0x23, 1, 0x41, 1, 0x6b, 0x24, 1];
const burning = (body) => [0, ...BURN, ...body.slice(1)];
export const codeOf = (double, count = COUNT) => Uint8Array.from([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
  ...section(1, 1, 0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f),
  ...section(2, 1, ...name("env"), ...name("memory"), 2, 0, 32),
  ...section(3, 2, 0, 0),
  ...section(6, 2, 0x7f, 0, 0x41, 0x80, 0x80, 0xc0, 0, 0x0b, 0x7f, 1, 0x41, 0xe8, 7, 0x0b),
  ...section(7, 3, ...name("tw_kernel_double"), 0, 0, ...name("tw_kernel_count"), 0, 1,
    ...name("__heap_base"), 3, 0),
  ...section(10, 2, double.length, ...double, count.length, ...count),
]);
export const CODE = codeOf(BODY);
// The same, whose kernels fail after 1000 calls: no loop of a session is endless.
export const FINITE_CODE = codeOf(burning(BODY), burning(COUNT));

export const digest = (bytes) => createHash("sha256").update(bytes).digest();

function tensor(id, kind, more = {}) {
  return { id, name: `t${id}`, dtype: "float32", shape: [1], kind, offset: 0, bytes: 4, ...more };
}

function launch(args, more = {}) {
  return {
    symbol: "tw_kernel_double", code: 0, args, num_outputs: 1, sizes: [], workspace_bytes: 0,
    name: "double", task: "", steps: "", program_hash: "", flops: 1, ...more,
  };
}

// Doubles twice, by way of the arena.
export function manifest(code = CODE) {
  return {
    format_version: 1, name: "small", producer: {}, target: "cpu,arch=wasm,cpu=simd128,threads=1",
    cpu_features: ["simd128"],
    tensors: [tensor(0, "input"), tensor(1, "intermediate"), tensor(2, "output")],
    size_vars: [], arena_bytes: 64, workspace_bytes: 0, constants_bytes: 0, constants_digest: "",
    functions: [{
      name: "main", inputs: [0], outputs: [2], prepare: [],
      launches: [launch([0, 1]), launch([1, 2])],
    }],
    code: [{
      format: "wasm", abi_version: 1, size: code.length, digest: digest(code).toString("hex"),
    }],
    provenance: {},
  };
}

// Doubles `x` as often as `n` says if `going` holds: all powers in `rows`, of 8 at most, twice the last
// one in `last`.
export function loopManifest(code = FINITE_CODE) {
  const json = manifest(code);
  const bool = { dtype: "bool", shape: [], bytes: 1 };
  const count = { dtype: "int64", bytes: 8 };
  const at = (place, more = {}) => ({ offset: 64 * place, ...more });
  json.format_version = 7;
  json.arena_bytes = 6 * 64;
  json.tensors = [
    tensor(0, "input", { name: "x" }), tensor(1, "input", { name: "n", ...count }),
    tensor(2, "input", { name: "going", ...bool }),
    tensor(3, "intermediate", at(0, bool)), tensor(4, "intermediate", at(1, bool)),
    tensor(5, "intermediate", at(2)), tensor(6, "intermediate", at(3)),
    tensor(7, "intermediate", at(4, count)), tensor(8, "intermediate", at(5, count)),
    tensor(9, "output", { name: "rows", shape: [8, 1], bytes: 32 }),
    tensor(10, "output", { name: "last" }),
  ];
  const counting = { symbol: "tw_kernel_count", num_outputs: 2 };
  json.functions = [{
    name: "main", inputs: [0, 1, 2], outputs: [9, 10], prepare: [],
    launches: [launch([5, 6]), launch([7, 8, 4], counting), launch([5, 10])],
    loops: [{
      first: 0, end: 2,
      carried: [{ init: 2, value: 3, next: 4 }, { init: 0, value: 5, next: 6 },
        { init: 1, value: 7, next: 8 }],
      stacked: [{ part: 6, whole: 9 }],
    }],
  }];
  return json;
}

// The same; a run finds how many rows there are, which is `n`: what counts them gets one more.
export function findingManifest(code = FINITE_CODE) {
  const json = loopManifest(code);
  json.format_version = 8;
  json.size_vars = [{ name: "steps", min: 0, max: 8 }];
  json.tensors[9].shape = ["steps", 1];
  json.tensors.push(
    tensor(11, "input", { name: "n_and_1", dtype: "int64", bytes: 8 }),
    tensor(12, "output", { name: "found", dtype: "int64", bytes: 8 }),
  );
  const [main] = json.functions;
  main.inputs.push(11);
  main.launches.push(
    launch([11, 12, 4], { symbol: "tw_kernel_count", num_outputs: 2 }),
    launch([5, 10], { sizes: ["steps"] }));
  main.checks = [{ tensor: 12, expected: ["steps"], what: "rows" }];
  return json;
}

// The same; each trip finds how many are left, 5 at most.
export function findingInTripsManifest(code = FINITE_CODE) {
  const json = findingManifest(code);
  json.size_vars.push({ name: "left", min: 0, max: 5 });
  json.tensors.push({ ...json.tensors[12], id: 13, name: "left" },
    { ...json.tensors[6], id: 14, name: "t14", shape: ["left"], bytes: 20, offset: 6 * 64 });
  json.arena_bytes += 64;
  const [main] = json.functions;
  main.launches[1].args = [7, 13, 4];
  main.loops[0].carried[2].next = 13;
  main.checks.push({ tensor: 13, expected: ["left"], what: "count" });
  main.launches.splice(2, 0, { ...main.launches[0], args: [5, 14], sizes: ["left"] });
  main.loops[0].end = 3;
  return json;
}

// The file of a manifest (text or object) and the code.
export function fileOf(json, code = CODE) {
  const text = Buffer.from(typeof json === "string" ? json : JSON.stringify(json));
  const up = (n, to) => Math.ceil(n / to) * to;
  const at = 64 + 2 * 64;
  const codeAt = up(at + text.length, 4096);
  const bytes = Buffer.alloc(codeAt + code.length);
  const entry = (i, kind, offset, contents) => {
    const from = 64 + 64 * i;
    bytes.writeUInt32LE(kind, from);
    bytes.writeBigUInt64LE(BigInt(offset), from + 8);
    bytes.writeBigUInt64LE(BigInt(contents.length), from + 16);
    digest(contents).copy(bytes, from + 24);
    Buffer.from(contents).copy(bytes, offset);
  };
  entry(0, 1, at, text);
  entry(1, 2, codeAt, code);
  bytes.write("TWMODULE");
  bytes.writeUInt32LE(1, 8);
  bytes.writeUInt32LE(2, 12);
  bytes.writeBigUInt64LE(BigInt(bytes.length), 16);
  digest(bytes.subarray(64, at)).copy(bytes, 24);
  return new Uint8Array(bytes);
}
