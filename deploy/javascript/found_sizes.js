// Sizes that a run finds: size variables that no input binds, such as how many elements a condition
// holds for. A check of the function that expects the variable itself finds it, and launches that
// need it follow the one that makes what the check looks at. In a loop each trip finds it anew, for
// that trip alone. As deploy/module/found_vars.h.

import { failManifest } from "./error.js";
import { loopAround, writtenByLoops } from "./loops.js";

// The names of the variables that no input of main is, and that the state does not bind.
export function foundVariables(manifest) {
  const names = new Set(manifest.size_vars.map(({ name }) => name));
  const main = manifest.functions.find((fn) => fn.name === "main");
  for (const id of main.inputs) {
    for (const dim of manifest.tensors[id].shape) names.delete(dim.variable);
  }
  names.delete(manifest.state?.length);
  return names;
}

// Those of the names that a dimension has.
export function namesIn(dims, names) {
  return new Set(dims.flatMap((dim) => [...dim.variables].filter((name) => names.has(name))));
}

// The last launch that writes the tensor; -1 without one.
function writerOf(fn, tensor) {
  return fn.launches.findLastIndex(
    ({ args, num_outputs: outputs }) => args.slice(-outputs).includes(tensor));
}

// Where the function finds each of the names, { name, check, element, launch: behind which the size
// is known }; of several places the first.
export function foundSizes(fn, names) {
  const found = [];
  for (const name of names) {
    for (const [check, { tensor, expected }] of fn.checks.entries()) {
      const element = expected.findIndex((dim) => dim.variable === name);
      const launch = element < 0 ? -1 : writerOf(fn, tensor);
      if (launch < 0) continue;
      found.push({ name, check, element, launch });
      break;
    }
  }
  return found;
}

// By check the innermost loop whose launches write what it looks at, each trip anew; -1 elsewhere.
export function loopsOfChecks(fn) {
  if (fn.loops.length === 0) return fn.checks.map(() => -1);
  return fn.checks.map(({ tensor }) => loopAround(fn, writerOf(fn, tensor)));
}

// Throws module.manifest.size_var if the function does not find all of them,
// module.manifest.found_size if something needs one too early, or behind the loop that finds it.
// REQUIRES: the function's ends, launches, checks and loops are checked.
export function checkFoundSizes(manifest, fn, where) {
  const names = foundVariables(manifest);
  if (names.size === 0) return;
  const known = new Map(foundSizes(fn, names).map(({ name, launch }) => [name, launch]));
  for (const name of names) {
    if (known.has(name) && !fn.at.has(name)) continue;
    failManifest("size_var", where,
      `expected ${name} alone as a dimension of an input, or a check that finds it`);
  }
  const shapesOf = (ids) => ids.flatMap((id) => manifest.tensors[id].shape);
  const needs = ({ sizes, workspace_bytes: workspace, args }) =>
    namesIn([...sizes, workspace, ...shapesOf(args)], names);
  if (namesIn(shapesOf(fn.inputs), names).size > 0) {
    failManifest("found_size", where, "an input has a size that a run finds");
  }
  if (fn.prepare.some((launch) => needs(launch).size > 0)) {
    failManifest("at", `${where}.prepare`, "expected fixed sizes");
  }
  const needed = fn.launches.map(needs);
  needed.forEach((of, i) => {
    for (const name of of) {
      if (known.get(name) < i) continue;
      failManifest("found_size", `${where}.launches[${i}]`, `needs ${name} before it is found`);
    }
  });
  checkFoundInLoops(fn, known, needed, shapesOf, where);
}

// Nothing behind a loop, and nothing that it carries or stacks, has a size that its trips find.
function checkFoundInLoops(fn, known, needed, shapesOf, where) {
  const ofTrips = new Set();
  for (const [name, launch] of known) {
    const loop = fn.loops[loopAround(fn, launch)];
    if (loop === undefined) continue;
    ofTrips.add(name);
    const late = needed.findIndex((of, i) => i >= loop.end && of.has(name));
    if (late < 0) continue;
    failManifest("found_size", `${where}.launches[${late}]`,
      `needs ${name} behind the loop that finds it`);
  }
  for (const id of [...fn.outputs, ...writtenByLoops(fn)]) {
    if (namesIn(shapesOf([id]), ofTrips).size === 0) continue;
    failManifest("found_size", where,
      `tensor ${id} leaves a loop and has a size that a trip finds`);
  }
}
