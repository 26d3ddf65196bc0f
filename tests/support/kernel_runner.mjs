// Loads one kernel of WebAssembly and calls it: the far side of run_wasm.h.
//   kernel_runner.mjs MODULE SYMBOL WORKSPACE_BYTES CALLS [SIZE...]
// Standard input: for each buffer two 64-bit numbers (bytes, 1 for an output) and its contents.
// Standard output: the kernel's result as 32 bits, then the contents of the outputs. A kernel that
// changes an input or the bytes around a buffer is exit code 3. With CALLS, the nanoseconds of the
// quickest of so many calls, after as many that do not count, go to standard error.
import { readFileSync, writeSync } from "node:fs";

const CANARY = 0xa5;
const ALIGNMENT = 64;
const PAGE = 65536;
const LEAST_PAGES = 32;
const OVERRUN = 3;

const [, , path, symbol, workspaceText, callsText, ...sizes] = process.argv;
const input = readFileSync(0);
const alignUp = (bytes) => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

function fail(code, what) {
  console.error(what);
  process.exit(code);
}

function write(bytes) {
  for (let done = 0; done < bytes.length;) done += writeSync(1, bytes.subarray(done));
}

const buffers = [];
for (let at = 0; at < input.length;) {
  const bytes = Number(input.readBigInt64LE(at));
  const output = input.readBigInt64LE(at + 8) === 1n;
  buffers.push({ bytes, output, contents: input.subarray(at + 16, at + 16 + bytes) });
  at += 16 + bytes;
}

const memory = new WebAssembly.Memory({ initial: LEAST_PAGES });
const module = new WebAssembly.Module(readFileSync(path));
const { exports } = new WebAssembly.Instance(module, { env: { memory } });

// Two lines of canaries around each buffer.
let end = alignUp(exports.__heap_base.value);
const take = (bytes) => {
  const start = end + ALIGNMENT;
  end = alignUp(start + bytes) + ALIGNMENT;
  return start;
};
const context = take(16);
const table = take(4 * buffers.length);
const sizeTable = take(8 * sizes.length);
const guarded = end;
for (const buffer of buffers) buffer.at = take(buffer.bytes);
const workspaceBytes = Number(workspaceText);
const workspace = workspaceBytes > 0 ? take(workspaceBytes) : 0;
memory.grow(Math.max(0, Math.ceil(end / PAGE) - LEAST_PAGES));

const all = new Uint8Array(memory.buffer);
all.fill(CANARY, guarded, end);
for (const { at, contents, output } of buffers) if (!output) all.set(contents, at);
new Uint32Array(memory.buffer, context, 4).set([1, 1, 0, 0]);
new Uint32Array(memory.buffer, table, buffers.length).set(buffers.map(({ at }) => at));
new BigInt64Array(memory.buffer, sizeTable, sizes.length).set(sizes.map(BigInt));

const call = () => exports[symbol](context, table, sizeTable, workspace);
const result = call();
const calls = Number(callsText);
let best = Infinity;
for (let i = 0; i < 2 * calls; ++i) {
  const start = performance.now();
  call();
  if (i >= calls) best = Math.min(best, performance.now() - start);
}

// Guards: everything that is in no buffer.
let from = guarded;
const isCanary = (byte) => byte === CANARY;
for (const { at, bytes, contents, output } of buffers) {
  if (!all.subarray(from, at).every(isCanary)) fail(OVERRUN, "bytes around a buffer changed");
  const unchanged = output || Buffer.compare(contents, all.subarray(at, at + bytes)) === 0;
  if (!unchanged) fail(OVERRUN, "bytes of an input changed");
  from = at + bytes;
}
const last = workspace > 0 ? workspace : end;
if (!all.subarray(from, last).every(isCanary)) fail(OVERRUN, "bytes around a buffer changed");

const code = Buffer.alloc(4);
code.writeInt32LE(result);
write(code);
for (const { at, bytes, output } of buffers) if (output) write(all.subarray(at, at + bytes));
if (calls > 0) console.error(String(best * 1e6));
