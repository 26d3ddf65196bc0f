// The module with which agents test this worker before they measure on it (device_agent/self_test.h):
// of x, 4096 floats, it makes y[i] = sum over j < 16 of (j + 1) / 8 * x[(i + j) mod n].

import { readManifest } from "../manifest.js";
import { moduleOfParts } from "../module.js";

export const SELF_TEST_SLOT = "self-test";
const ELEMENTS = 4096;

const name = (text) => [text.length, ...new TextEncoder().encode(text)];
const section = (id, ...bytes) => [id, bytes.length & 0x7f | 0x80, bytes.length >> 7, ...bytes];
// Locals: 1 buffers, 2 sizes, 4 x, 5 y, 6 n, 7 i, 8 j, 9 sum.
const BODY = [
  2, 5, 0x7f, 1, 0x7d,                                     // five i32, one f32
  0x20, 1, 0x28, 2, 0, 0x21, 4,                            // x = buffers[0]
  0x20, 1, 0x28, 2, 4, 0x21, 5,                            // y = buffers[1]
  0x20, 2, 0x29, 3, 0, 0xa7, 0x21, 6,                      // n = sizes[0]
  0x03, 0x40,                                              // for i
  0x43, 0, 0, 0, 0, 0x21, 9, 0x41, 0, 0x21, 8,             // sum = 0, j = 0
  0x03, 0x40,                                              // for j
  0x20, 9,
  0x20, 8, 0x41, 1, 0x6a, 0xb2, 0x43, 0, 0, 0, 0x3e, 0x94, // (j + 1) * 0.125
  0x20, 4, 0x20, 7, 0x20, 8, 0x6a, 0x20, 6, 0x70,          // (i + j) mod n
  0x41, 2, 0x74, 0x6a, 0x2a, 2, 0, 0x94, 0x92, 0x21, 9,    // sum += … * x[…]
  0x20, 8, 0x41, 1, 0x6a, 0x22, 8, 0x41, 16, 0x48, 0x0d, 0, 0x0b,
  0x20, 5, 0x20, 7, 0x41, 2, 0x74, 0x6a, 0x20, 9, 0x38, 2, 0,  // y[i] = sum
  0x20, 7, 0x41, 1, 0x6a, 0x22, 7, 0x20, 6, 0x48, 0x0d, 0, 0x0b,
  0x41, 0, 0x0b,                                           // 0: no error
];
const CODE = Uint8Array.from([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
  ...section(1, 1, 0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f),
  ...section(2, 1, ...name("env"), ...name("memory"), 2, 0, 32),
  ...section(3, 1, 0),
  ...section(6, 1, 0x7f, 0, 0x41, 0, 0x0b),
  ...section(7, 2, ...name("tw_kernel_self_test"), 0, 0, ...name("__heap_base"), 3, 0),
  ...section(10, 1, BODY.length & 0x7f | 0x80, BODY.length >> 7, ...BODY),
]);

const tensor = (id, label, kind) => ({
  id, name: label, dtype: "float32", shape: [ELEMENTS], kind, offset: 0, bytes: 4 * ELEMENTS,
});
const MANIFEST = JSON.stringify({
  format_version: 1, name: "self_test", producer: {}, target: "cpu,arch=wasm,cpu=simd128,threads=1",
  cpu_features: [], tensors: [tensor(0, "x", "input"), tensor(1, "y", "output")], size_vars: [],
  arena_bytes: 0, workspace_bytes: 0, constants_bytes: 0, constants_digest: "",
  functions: [{
    name: "main", inputs: [0], outputs: [1], prepare: [],
    launches: [{
      symbol: "tw_kernel_self_test", code: 0, args: [0, 1], num_outputs: 1, sizes: [ELEMENTS],
      workspace_bytes: 0, name: "self_test", task: "", steps: "", program_hash: "", flops: 0,
    }],
  }],
  code: [{ format: "wasm", abi_version: 1, size: CODE.length, digest: "" }],
  provenance: {},
  measurement: {
    inputs: [{ tensor: 0, seed: 1, distribution: "uniform", a: 1, b: 2 }], expected_digest: "",
    tolerance: { abs: 0, rel: 0 }, flops: 0,
  },
});

export function selfTestModule() {
  return moduleOfParts(readManifest(MANIFEST), CODE, new Uint8Array(0));
}
