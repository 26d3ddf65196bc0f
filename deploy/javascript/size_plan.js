// What the shapes of a run's inputs decide: the values of the size variables, the function for
// them, and its plan: shapes, places in the arena, scratch, sizes of launches. As
// deploy/module/size_plan.h and deploy/runtime/size_binding.h. Modules of fixed sizes have no
// variables, and the same code.

import { DTYPES } from "./dtype.js";
import { fail } from "./error.js";
import { namesIn } from "./found_sizes.js";
import { loopTensors } from "./loops.js";
import { placementOrder } from "./manifest_check.js";

export function alignUp(bytes, alignment = 64) {
  return Math.ceil(bytes / alignment) * alignment;
}

export function shapeText(shape) {
  return shape.length === 0 ? "scalar" : shape.map((dim) => dim.text ?? dim).join("x");
}

// Returns a Map of all variables. `shapes` are those of the function's inputs, in its order;
// `entries` how many the state has. Those in `found` (foundVariables) have their maxima.
export function bindSizes(manifest, fn, shapes, entries, found) {
  const sizes = new Map();
  for (const { name, max } of manifest.size_vars) {
    if (found.has(name)) sizes.set(name, max);
  }
  if (manifest.state !== undefined) sizes.set(manifest.state.length, entries);
  fn.inputs.forEach((id, i) => {
    const tensor = manifest.tensors[id];
    const shape = shapes[i];
    const fits = shape.length === tensor.shape.length && shape.every(
      (extent, d) => Number.isSafeInteger(extent) && extent >= 0 &&
        (tensor.shape[d].constant ?? extent) === extent);
    if (!fits) {
      fail("runtime.c_api.shape",
        `input '${tensor.name}': expected ${shapeText(tensor.shape)}, found ${shapeText(shape)}`);
    }
    tensor.shape.forEach((dim, d) => {
      if (dim.variable !== null) bindVariable(manifest, sizes, tensor, d, shape[d]);
    });
  });
  checkExpressions(manifest, fn, shapes, sizes);
  checkEqualSizes(manifest, sizes, found);
  return sizes;
}

function mismatch(tensor, d, expected, found) {
  fail("runtime.session.size",
    `input '${tensor.name}': dimension ${d} (${tensor.shape[d].text}): expected ${expected}, ` +
    `found ${found}`);
}

function bindVariable(manifest, sizes, tensor, d, extent) {
  const { name, min, max } = manifest.size_vars.find(
    (variable) => variable.name === tensor.shape[d].variable);
  if (extent < min || extent > max) mismatch(tensor, d, `${min} to ${max}`, extent);
  if (!sizes.has(name)) sizes.set(name, extent);
  if (sizes.get(name) !== extent) mismatch(tensor, d, `${sizes.get(name)} as elsewhere`, extent);
}

function checkExpressions(manifest, fn, shapes, sizes) {
  fn.inputs.forEach((id, i) => {
    const tensor = manifest.tensors[id];
    tensor.shape.forEach((dim, d) => {
      if (dim.constant !== null || dim.variable !== null) return;
      const expected = dim.evaluate(sizes);
      if (expected !== shapes[i][d]) mismatch(tensor, d, expected, shapes[i][d]);
    });
  });
}

// Throws module.sizes.unequal for sizes that are none of the module, but for what depends on the
// variables in `missing`.
export function checkEqualSizes(manifest, sizes, missing) {
  for (const { left, right, what } of manifest.equal_sizes) {
    if (namesIn([left, right], missing).size > 0) continue;
    const found = [left.evaluate(sizes), right.evaluate(sizes)];
    if (found[0] === found[1]) continue;
    fail("module.sizes.unequal",
      `${what}: expected sizes where ${left.text} = ${right.text}, found ${found[0]} and ` +
      `${found[1]}`);
  }
}

// The function that fixes most of these sizes; of equals, the first.
export function functionFor(manifest, sizes) {
  let best = manifest.functions.find((fn) => fn.name === "main");
  for (const fn of manifest.functions) {
    const fits = [...fn.at].every(([name, size]) => sizes.get(name) === size);
    if (fits && fn.at.size > best.at.size) best = fn;
  }
  return best;
}

// The number that a dimension is; if it depends on variables in `missing`, the largest that it may
// be. Throws module.sizes.dimension if it is below 0.
export function valueAt(manifest, dim, sizes, missing) {
  if (dim.constant !== null) return dim.constant;
  if (namesIn([dim], missing).size === 0) {
    const value = dim.evaluate(sizes);
    if (value >= 0) return value;
    fail("module.sizes.dimension", `expected ${dim.text} to be at least 0, found ${value}`);
  }
  const most = dim.most((name) => {
    const { min, max } = missing.has(name)
      ? manifest.size_vars.find((variable) => variable.name === name)
      : { min: sizes.get(name), max: sizes.get(name) };
    return [min, max];
  });
  return Math.max(0, most);
}

// { shape, bytes, offset }; `value` gives the number that a dimension is.
export function placeOf(tensor, value, offset) {
  const shape = tensor.shape.map(value);
  const bytes = shape.reduce((product, n) => product * n, DTYPES.get(tensor.dtype).bytes);
  return { shape, bytes, offset };
}

// Returns { places: by id of a tensor { shape, bytes, offset }, prepare, launches: by launch
// { sizes, workspaceBytes }, arenaBytes, workspaceBytes }. Places are for all values that the
// variables in `found` may have.
export function planSizes(manifest, fn, sizes, found) {
  const evaluate = (dim) => valueAt(manifest, dim, sizes, found);
  const places = [];
  const place = (tensor) => {
    const offset = tensor.after.reduce(
      (most, id) => Math.max(most, alignUp(places[id].offset + places[id].bytes, manifest.alignment)),
      tensor.offset);
    places[tensor.id] = placeOf(tensor, evaluate, offset);
  };
  const used = usedTensors(manifest, fn);
  const order = placementOrder(manifest).filter((id) => used.has(id));
  for (const id of order) place(manifest.tensors[id]);
  for (const tensor of manifest.tensors) {
    if (tensor.kind !== "intermediate" && used.has(tensor.id)) place(tensor);
  }
  const call = (launch) => ({
    sizes: launch.sizes.map(evaluate),
    workspaceBytes: evaluate(launch.workspace_bytes),
  });
  const prepare = fn.prepare.map(call);
  const launches = fn.launches.map(call);
  const open = manifest.size_vars.length > 0;
  const arenaEnd = order.reduce((end, id) => Math.max(end, places[id].offset + places[id].bytes), 0);
  return {
    places,
    prepare,
    launches,
    arenaBytes: open ? arenaEnd : manifest.arena_bytes,
    workspaceBytes: [...prepare, ...launches].reduce(
      (most, { workspaceBytes }) => Math.max(most, workspaceBytes), 0),
  };
}

// The ends and operands of the function, and what their places depend on.
function usedTensors(manifest, fn) {
  const used = new Set();
  let open = [
    fn.inputs, fn.outputs, fn.checks.map((check) => check.tensor), loopTensors(fn),
    ...[...fn.prepare, ...fn.launches].map((launch) => launch.args),
  ].flat();
  while (open.length > 0) {
    const fresh = new Set(open.filter((id) => !used.has(id)));
    for (const id of fresh) used.add(id);
    open = [...fresh].flatMap((id) => manifest.tensors[id].after);
  }
  return used;
}
