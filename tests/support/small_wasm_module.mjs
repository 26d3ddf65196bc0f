// Modules of WebAssembly made by hand, for tests of deploy/javascript.
import { createHash } from "node:crypto";

// A module whose kernel writes twice what it reads, one element:
//   (import "env" "memory" (memory 32)) (global (export "__heap_base") i32 (i32.const 1048576))
//   (func (export "tw_kernel_double") (param i32 i32 i32 i32) (result i32) …)
const name = (text) => [text.length, ...Buffer.from(text)];
const section = (id, ...bytes) => [id, bytes.length, ...bytes];
export const BODY = [
  0,                                 // no locals
  0x20, 1, 0x28, 2, 4,               // the output's address: i32.load offset=4 of the buffers
  0x20, 1, 0x28, 2, 0, 0x2a, 2, 0,   // f32.load of the input
  0x43, 0, 0, 0, 0x40, 0x94,         // f32.const 2, f32.mul
  0x38, 2, 0, 0x41, 0, 0x0b,         // f32.store; 0; end
];
export const codeOf = (body) => Uint8Array.from([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
  ...section(1, 1, 0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f),
  ...section(2, 1, ...name("env"), ...name("memory"), 2, 0, 32),
  ...section(3, 1, 0),
  ...section(6, 1, 0x7f, 0, 0x41, 0x80, 0x80, 0xc0, 0, 0x0b),
  ...section(7, 2, ...name("tw_kernel_double"), 0, 0, ...name("__heap_base"), 3, 0),
  ...section(10, 1, body.length, ...body),
]);
export const CODE = codeOf(BODY);

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
