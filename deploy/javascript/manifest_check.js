// What the rest of this package relies on: ids, places and references of a manifest are in their
// ranges. deploy/module/manifest.cc checks more, for machines where a wrong place is not a trap.

import { DTYPES } from "./dtype.js";
import { failManifest as bad } from "./error.js";
import { checkFoundSizes, foundVariables, namesIn } from "./found_sizes.js";
import { checkLoops, writtenByLoops } from "./loops.js";

const ALIGNMENTS = [16, 32, 64];
const MOST_BYTES = 2 ** 46;
const MOST_RANK = 32;
const MOST_FUNCTIONS = 64;
const MOST_VARIABLES = 64;
const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]{0,1023}$/;

// Throws module.manifest.REASON for the first thing that is wrong.
export function checkManifest(manifest) {
  const version = neededVersion(manifest);
  if (manifest.format_version !== version) {
    bad("version", "format_version", `expected ${version}, found ${manifest.format_version}`);
  }
  for (const name of ["arena_bytes", "workspace_bytes", "constants_bytes"]) {
    const bytes = manifest[name];
    if (bytes < 0 || bytes > MOST_BYTES) bad("size", name, `expected 0 to ${MOST_BYTES}`);
  }
  if (!ALIGNMENTS.includes(manifest.alignment)) {
    bad("alignment", "alignment", `expected 16, 32 or 64, found ${manifest.alignment}`);
  }
  checkVariables(manifest);
  manifest.tensors.forEach((tensor, i) => checkTensor(manifest, tensor, i));
  checkPlaces(manifest);
  manifest.code.forEach((code, i) => {
    if (code.abi_version < 1) bad("code", `code[${i}]`, "expected abi_version >= 1");
  });
  checkFunctions(manifest);
  checkState(manifest);
}

// The oldest format that has all of this (deploy/module/manifest.h).
function neededVersion({ alignment, functions, state, equal_sizes: equal, size_vars: variables }) {
  if (alignment !== 64) return 9;
  const loops = functions.filter((fn) => fn.loops.length > 0);
  if (loops.some((fn) => fn.checks.length > 0)) return 8;
  if (loops.length > 0) return 7;
  if (functions.some((fn) => fn.checks.some(({ expected }) => isOpen(expected)))) return 6;
  if (state !== undefined && functions.length > 1) return 5;
  if (equal.length > 0) return 4;
  if (state !== undefined) return 3;
  return variables.length > 0 ? 2 : 1;
}

function isOpen(dims) {
  return dims.some((dim) => dim.constant === null);
}

function checkVariables(manifest) {
  const names = new Set();
  manifest.size_vars.forEach((variable, i) => {
    const where = `size_vars[${i}]`;
    if (!IDENTIFIER.test(variable.name) || names.has(variable.name)) {
      bad("size_var", where, "expected a new identifier as name");
    }
    if (!(variable.min >= 0 && variable.min <= variable.max)) {
      bad("size_var", where, "expected 0 <= min <= max");
    }
    names.add(variable.name);
  });
  if (names.size > MOST_VARIABLES) bad("size_var", "size_vars", "more than 64");
  manifest.equal_sizes.forEach((equal, i) => {
    checkDims(manifest, [equal.left, equal.right], `equal_sizes[${i}]`);
  });
}

// Expressions have variables of the manifest only.
function checkDims(manifest, dims, where) {
  for (const dim of dims) {
    if (dim.constant !== null && dim.constant < 0) bad("shape", where, "expected dimensions >= 0");
  }
  checkNames(manifest, dims, where);
}

function checkNames(manifest, dims, where) {
  for (const dim of dims) {
    for (const name of dim.variables) {
      if (manifest.size_vars.some((variable) => variable.name === name)) continue;
      bad("expression", where, `unknown variable '${name}'`);
    }
  }
}

function checkTensor(manifest, tensor, i) {
  const where = `tensors[${i}]`;
  if (tensor.id !== i) bad("tensor_id", where, `expected id ${i}, found ${tensor.id}`);
  const end = tensor.kind === "input" || tensor.kind === "output";
  if (end && tensor.name === "") bad("tensor_name", where, "inputs and outputs need a name");
  if (tensor.shape.length > MOST_RANK) bad("shape", where, "rank above 32");
  checkDims(manifest, tensor.shape, where);
  if (tensor.bytes < 0 || tensor.bytes > MOST_BYTES) {
    bad("size", where, `expected 0 to ${MOST_BYTES} bytes`);
  }
  const open = isOpen(tensor.shape);
  const fixedKind = tensor.kind === "constant" || tensor.kind === "prepared";
  if (open && fixedKind) bad("shape", where, "expected fixed sizes of this kind");
  if (!open) {
    const bytes = tensor.shape.reduce(
      (product, dim) => product * dim.constant, DTYPES.get(tensor.dtype).bytes);
    if (bytes !== tensor.bytes) bad("tensor_bytes", where, `the shape has ${bytes} bytes`);
  }
  if (tensor.offset < 0 || tensor.offset % manifest.alignment !== 0 || tensor.offset > MOST_BYTES) {
    bad("tensor_offset", where,
      `expected a multiple of ${manifest.alignment}, found ${tensor.offset}`);
  }
  const region = regionOf(manifest, tensor);
  if (region !== null && tensor.offset + tensor.bytes > region) {
    bad("tensor_offset", where, `expected a place inside ${region} bytes`);
  }
}

// The bytes of what a tensor is in; null if it has memory of its own.
function regionOf(manifest, tensor) {
  if (tensor.kind === "constant") return manifest.constants_bytes;
  const fixed = manifest.size_vars.length === 0;
  const inArena = tensor.kind === "intermediate" || (tensor.kind === "prepared" && fixed);
  return inArena ? manifest.arena_bytes : null;
}

// `after` names intermediates, in an order without a cycle.
function checkPlaces(manifest) {
  for (const { id, kind, after } of manifest.tensors) {
    const where = `tensors[${id}]`;
    if (after.length === 0) continue;
    if (manifest.size_vars.length === 0 || kind !== "intermediate") {
      bad("after", where, "expected an intermediate of a module with size_vars");
    }
    for (const earlier of after) {
      if (manifest.tensors[earlier]?.kind === "intermediate") continue;
      bad("after", where, `expected intermediates, found ${earlier}`);
    }
  }
  if (placementOrder(manifest) === null) bad("after", "tensors", "a tensor begins after itself");
}

// The ids of all intermediates, those that `after` names before those that name them; null if there
// is a cycle.
export function placementOrder(manifest) {
  const missing = manifest.tensors.map((tensor) => tensor.after.length);
  const users = manifest.tensors.map(() => []);
  for (const { id, after } of manifest.tensors) {
    for (const earlier of after) users[earlier].push(id);
  }
  const intermediates = manifest.tensors.filter((tensor) => tensor.kind === "intermediate");
  const order = intermediates.filter((tensor) => tensor.after.length === 0).map(({ id }) => id);
  for (let next = 0; next < order.length; ++next) {
    for (const user of users[order[next]]) {
      if (--missing[user] === 0) order.push(user);
    }
  }
  return order.length === intermediates.length ? order : null;
}

function checkFunctions(manifest) {
  const names = new Set();
  if (manifest.functions.length > MOST_FUNCTIONS) bad("functions", "functions", "more than 64");
  manifest.functions.forEach((fn, i) => {
    const where = `functions[${i}]`;
    if (!IDENTIFIER.test(fn.name) || names.has(fn.name)) {
      bad("functions", where, "expected a new identifier as name");
    }
    names.add(fn.name);
    checkEnds(manifest, fn.inputs, "input", `${where}.inputs`);
    checkEnds(manifest, [...fn.outputs, ...fn.checks.map((check) => check.tensor)], "output",
      `${where}.outputs`);
    const ends = new Set([...fn.inputs, ...fn.outputs, ...fn.checks.map((check) => check.tensor)]);
    for (const list of ["prepare", "launches"]) {
      fn[list].forEach(
        (launch, l) => checkLaunch(manifest, ends, launch, list, `${where}.${list}[${l}]`));
    }
    fn.checks.forEach((check, c) => checkSizeCheck(manifest, check, `${where}.checks[${c}]`));
  });
  const main = manifest.functions.find((fn) => fn.name === "main");
  if (main === undefined || main.at.size > 0) {
    bad("functions", "functions", "expected main, for all sizes");
  }
  manifest.functions.forEach((fn, i) => {
    const where = `functions[${i}]`;
    if (fn.at.size > 0) checkTwins(manifest, fn, main, where);
    checkBinding(manifest, fn, where);
    checkLoops(manifest, fn, where);
    checkWritten(manifest, fn, where);
    checkFoundSizes(manifest, fn, where);
  });
}

// A specialisation takes main's inputs and gives main's outputs.
function checkTwins(manifest, fn, main, where) {
  for (const list of ["inputs", "outputs"]) {
    const same = fn[list].length === main[list].length && fn[list].every((id, i) => {
      const own = manifest.tensors[id];
      const ofMain = manifest.tensors[main[list][i]];
      return own.name === ofMain.name && own.dtype === ofMain.dtype;
    });
    if (!same) bad("at", `${where}.${list}`, "expected main's tensors at these sizes");
  }
}

function checkEnds(manifest, ids, kind, where) {
  const names = ids.map((id) => {
    if (manifest.tensors[id]?.kind !== kind) {
      bad("function_ends", where, `expected tensors of kind ${kind}, found ${id}`);
    }
    return manifest.tensors[id].name;
  });
  if (new Set(ids).size !== ids.length || new Set(names).size !== names.length) {
    bad("function_ends", where, "expected distinct tensors with distinct names");
  }
}

function checkLaunch(manifest, ends, launch, list, where) {
  if (!launch.symbol.startsWith("tw_kernel_")) {
    bad("symbol", where, "expected tw_kernel_<name>");
  }
  if (manifest.code[launch.code] === undefined) {
    bad("code_index", where, `no code object ${launch.code}`);
  }
  checkDims(manifest, [...launch.sizes, launch.workspace_bytes], where);
  if (launch.workspace_bytes.constant > manifest.workspace_bytes) {
    bad("workspace", where, "workspace_bytes exceeds the module's");
  }
  if (launch.num_outputs < 1 || launch.num_outputs > launch.args.length) {
    bad("num_outputs", where, `expected 1 to ${launch.args.length}`);
  }
  launch.args.forEach((id, a) => {
    const tensor = manifest.tensors[id];
    if (tensor === undefined) bad("arg", `${where}.args[${a}]`, `no tensor ${id}`);
    const end = tensor.kind === "input" || tensor.kind === "output";
    if (end && !ends.has(id)) {
      bad("arg", `${where}.args[${a}]`, "an input or output of another function");
    }
    const own = list === "prepare" ? tensor.kind === "prepared"
      : tensor.kind === "output" || tensor.entries_of !== null;
    if (a < launch.args.length - launch.num_outputs || own || tensor.kind === "intermediate") return;
    bad("arg", `${where}.args[${a}]`, `a launch may not write a tensor of kind ${tensor.kind}`);
  });
}

// Launches or loops write what the function gives and what its checks look at.
function checkWritten(manifest, fn, where) {
  const written = new Set([...fn.prepare, ...fn.launches].flatMap(
    ({ args, num_outputs: outputs }) => args.slice(-outputs)));
  for (const id of writtenByLoops(fn)) written.add(id);
  for (const id of [...fn.outputs, ...fn.checks.map((check) => check.tensor)]) {
    if (written.has(id) || manifest.tensors[id].bytes === 0) continue;
    bad("unwritten_output", where, `no launch writes tensor ${id}`);
  }
}

function checkSizeCheck(manifest, check, where) {
  const tensor = manifest.tensors[check.tensor];
  const fits = tensor.dtype === "int64" && tensor.shape.length === 1 &&
    tensor.shape[0].constant === check.expected.length && check.expected.length > 0;
  if (!fits) bad("check", where, "expected an int64 with an element for each number expected");
  checkNames(manifest, check.expected, where);
}

// A run binds each variable from a dimension that is the variable itself, unless it finds it.
function checkBinding(manifest, fn, where) {
  const known = new Set(manifest.size_vars.map((variable) => variable.name));
  for (const name of fn.at.keys()) {
    if (!known.delete(name)) bad("at", where, "unknown variables");
  }
  for (const id of fn.inputs) {
    for (const dim of manifest.tensors[id].shape) known.delete(dim.variable);
  }
  known.delete(manifest.state?.length);
  for (const name of foundVariables(manifest)) known.delete(name);
  for (const name of known) {
    bad("size_var", where, `expected ${name} alone as a dimension of an input`);
  }
}

function checkState(manifest) {
  const { state } = manifest;
  if (state !== undefined) {
    const length = manifest.size_vars.find((variable) => variable.name === state.length);
    if (length === undefined || length.min !== 0) {
      bad("state", "state.length", "expected a size variable from 0 on");
    }
    checkDims(manifest, [state.next], "state.next");
    if (namesIn([state.next], foundVariables(manifest)).size > 0) {
      bad("found_size", "state.next", "needs a size that a run finds before the run");
    }
  }
  for (const tensor of manifest.tensors) {
    const where = `tensors[${tensor.id}]`;
    if (tensor.kind !== "state") {
      if (tensor.entries_of !== null || tensor.same_list !== null) {
        bad("state", where, "expected lists and entries of kind state");
      }
      continue;
    }
    if (state === undefined) bad("state", where, "the module has no state");
    if (tensor.shape.length === 0) bad("state", where, "expected a list");
    const list = manifest.tensors[tensor.entries_of ?? tensor.id];
    const own = manifest.tensors[list?.same_list ?? list?.id];
    const fits = list?.kind === "state" && list.entries_of === null && own?.kind === "state" &&
      own.entries_of === null && own.same_list === null;
    if (!fits) bad("state", where, "expected a list of main, or entries of one");
  }
}
