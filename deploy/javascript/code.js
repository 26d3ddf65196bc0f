// Code objects: what the engine must have, and the kernels of an instance.

import { fail } from "./error.js";

const FORMAT = "wasm";
const ABI_VERSION = 1;  // TW_ABI_VERSION of deploy/runtime/c_abi.h
// What the linker says of the memory that code imports (compiler/targets/wasm/link_wasm.cc).
const LEAST_PAGES = 32;
const PAGE_BYTES = 65536;
const MOST_PAGES = 65536;

// The smallest modules that use an instruction of each feature: a function whose body it is.
function usesInstruction(...instruction) {
  const body = [0, ...instruction, 0x1a, 0x0b];  // no locals … drop, end
  return WebAssembly.validate(new Uint8Array([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,             // magic, version
    1, 4, 1, 0x60, 0, 0,                         // a type: no parameters, no results
    3, 2, 1, 0,                                  // a function of it
    10, body.length + 2, 1, body.length, ...body,
  ]));
}

const ZERO = [0x41, 0, 0xfd, 0x0f];              // i32.const 0, i8x16.splat
const FEATURES = new Map([
  ["simd128", () => usesInstruction(...ZERO)],
  // f32x4.relaxed_madd, which is the "fma" of modules with relaxed instructions.
  ["relaxed_simd", () => usesInstruction(...ZERO, ...ZERO, ...ZERO, 0xfd, 0x85, 2)],
  ["fma", () => true],
]);

// What this engine has, sorted.
export function engineFeatures() {
  const found = [...FEATURES].filter(([, has]) => has()).map(([feature]) => feature);
  return (found.includes("relaxed_simd") ? found : found.filter((f) => f !== "fma")).sort();
}

// Throws runtime.* if this engine cannot run the module.
export function checkEngine(manifest) {
  for (const [i, code] of manifest.code.entries()) {
    if (code.format === "library") {
      fail("runtime.load.library", `code[${i}]: the module calls functions of a shared library`);
    }
    if (code.format !== FORMAT || code.device !== "") {
      fail("runtime.code.format",
        `expected ${FORMAT}, found ${code.format.slice(0, 64)}: the module was compiled for ` +
        `'${manifest.target}'; compile it with --target wasm`);
    }
    if (code.abi_version > ABI_VERSION) {
      fail("runtime.load.abi_version",
        `expected at most ${ABI_VERSION}, found ${code.abi_version}: the module needs a newer ` +
        "runtime");
    }
  }
  if (manifest.code.length > 1) {
    fail("runtime.load.code", `expected one code object, found ${manifest.code.length}`);
  }
  const has = new Set(engineFeatures());
  const missing = manifest.cpu_features.filter((feature) => !has.has(feature));
  if (missing.length > 0) {
    fail("runtime.load.cpu_features",
      `the module was compiled for '${manifest.target}'; this engine lacks ${missing.join(", ")}; ` +
      "compile it with --target wasm");
  }
}

// The compiled code of a module; null if the module has none.
export async function compileCode(image) {
  if (image === undefined) return null;
  let compiled;
  try {
    compiled = await WebAssembly.compile(image);
  } catch (error) {
    fail("runtime.code.load", error.message);
  }
  const imports = WebAssembly.Module.imports(compiled);
  const [memory] = imports;
  const fits = imports.length === 1 && memory.module === "env" && memory.name === "memory" &&
    memory.kind === "memory";
  if (fits) return compiled;
  return fail("runtime.code.load", "expected code that imports env.memory and nothing else");
}

// One instance of the code with its memory, which grows up to a limit: the code cannot grow it
// further either.
export class Instance {
  static async create(compiled, limitBytes = MOST_PAGES * PAGE_BYTES) {
    const maximum = Math.min(MOST_PAGES, Math.max(LEAST_PAGES, Math.floor(limitBytes / PAGE_BYTES)));
    const memory = new WebAssembly.Memory({ initial: LEAST_PAGES, maximum });
    if (compiled === null) return new Instance(memory, {}, 0, maximum);
    let instance;
    try {
      instance = await WebAssembly.instantiate(compiled, { env: { memory } });
    } catch (error) {
      fail("runtime.code.load", error.message);
    }
    const base = instance.exports.__heap_base?.value;
    if (Number.isSafeInteger(base) && base >= 0) {
      return new Instance(memory, instance.exports, base, maximum);
    }
    return fail("runtime.code.load", "expected the global __heap_base");
  }

  constructor(memory, exports, base, maximum) {
    this.memory = memory;
    this.exports = exports;
    this.base = base;  // what lies below is the code's own
    this.maximum = maximum;  // pages
  }

  kernel(symbol) {
    const kernel = Object.hasOwn(this.exports, symbol) ? this.exports[symbol] : undefined;
    if (typeof kernel === "function") return kernel;
    return fail("runtime.code.symbol", `the code object has no '${symbol}'`);
  }

  // Afterwards addresses below `bytes` are there. Views of the memory are void.
  reserve(bytes) {
    const pages = Math.ceil(bytes / PAGE_BYTES);
    const now = this.memory.buffer.byteLength / PAGE_BYTES;
    if (!(pages <= MOST_PAGES)) {
      fail("runtime.session.too_large",
        `expected at most 4 GiB of memory for constants, tensors and scratch, found ${bytes} bytes`);
    }
    if (pages <= now) return;
    if (pages > this.maximum) {
      fail("runtime.session.memory_limit",
        `expected at most ${this.maximum * PAGE_BYTES} bytes, found a need of ${bytes}`);
    }
    try {
      this.memory.grow(pages - now);
    } catch {
      fail("runtime.session.memory", `${bytes} bytes are not available`);
    }
  }

  bytesAt(address, bytes) {
    return new Uint8Array(this.memory.buffer, address, bytes);
  }

  int64sAt(address, count) {
    return new BigInt64Array(this.memory.buffer, address, count);
  }

  writeInt64s(address, numbers) {
    this.int64sAt(address, numbers.length).set(numbers.map(BigInt));
  }
}
