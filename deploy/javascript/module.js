// A module: what it takes and gives, its compiled code, sessions of it.

import { checkEngine, compileCode } from "./code.js";
import { fail } from "./error.js";
import { foundVariables } from "./found_sizes.js";
import { readManifest } from "./manifest.js";
import { readModuleFile } from "./module_file.js";
import { Session } from "./session.js";

export class Module {
  constructor(manifest, compiled, constants) {
    this.manifest = manifest;
    this.compiled = compiled;
    this.constants = constants;
  }

  get name() {
    return this.manifest.name;
  }

  // What a run takes and gives: { name, dtype, shape }. Open dimensions are texts.
  get inputs() {
    return this.#ends("inputs");
  }

  get outputs() {
    return this.#ends("outputs");
  }

  // The variables of open dimensions: { name, min, max, found: whether a run finds it }.
  get sizeVars() {
    const found = foundVariables(this.manifest);
    return this.manifest.size_vars.map(
      ({ name, min, max }) => ({ name, min, max, found: found.has(name) }));
  }

  // Sessions have memory of their own: two of them run independently. options.memoryLimitBytes: what
  // one may hold at most (2 MiB or more).
  createSession(options) {
    return Session.create(this, options);
  }

  #ends(list) {
    const main = this.manifest.functions.find((fn) => fn.name === "main");
    return main[list].map((id) => {
      const { name, dtype, shape } = this.manifest.tensors[id];
      return { name, dtype, shape: shape.map((dim) => dim.constant ?? dim.text) };
    });
  }
}

// Reads and checks the bytes of a module (ArrayBuffer or Uint8Array), and compiles its code.
// options.digest: refuses every module but the one of this SHA-256. Throws TilewrightError.
export async function loadModule(bytes, options = {}) {
  const view = bytes instanceof ArrayBuffer ? new Uint8Array(bytes) : bytes;
  if (!(view instanceof Uint8Array)) {
    fail("runtime.load.bytes", "expected the module as ArrayBuffer or Uint8Array");
  }
  const file = await readModuleFile(view, options);
  const manifest = readManifest(file.manifest);
  checkAgainstManifest(manifest, file);
  return moduleOfParts(manifest, file.code[0], file.constants);
}

// The module of a valid manifest, its code (bytes, undefined: none) and constants.
export async function moduleOfParts(manifest, code, constants) {
  checkEngine(manifest);
  return new Module(manifest, await compileCode(code), constants);
}

// The manifest repeats sizes and digests, so that it alone pins the module's contents.
function checkAgainstManifest(manifest, file) {
  const same = manifest.code.length === file.code.length &&
    manifest.code.every((code, i) =>
      code.size === file.code[i].length && code.digest === file.digests.code[i]) &&
    manifest.constants_bytes === file.constants.length &&
    manifest.constants_digest === file.digests.constants;
  if (!same) fail("module.file.mismatch", "the manifest does not match the sections");
}
