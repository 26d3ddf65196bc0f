// Loops of a function (Loop of deploy/module/manifest.h): their tensors, the order of the launches
// with them, and the part of the manifest's check that is about them.

import { failManifest } from "./error.js";
import { Polynomial } from "./polynomial.js";

const MOST_LOOPS = 4096;
// A run calls itself for a loop in a loop.
const MOST_DEPTH = 64;

// Tensors that loops write between launches.
export function writtenByLoops(fn) {
  return fn.loops.flatMap(({ carried, stacked }) =>
    [...carried.map(({ value }) => value), ...stacked.map(({ whole }) => whole)]);
}

// Those that they read or write.
export function loopTensors(fn) {
  return fn.loops.flatMap(({ carried, stacked }) => [
    ...carried.flatMap(({ init, value, next }) => [init, value, next]),
    ...stacked.flatMap(({ part, whole }) => [part, whole]),
  ]);
}

// The loops that are in no other one, in their order: { loop, index, depth, inside: those in it }.
// Throws module.manifest.loop if they do not nest. `where` is the function.
export function nestLoops(fn, where) {
  if (fn.loops.length > MOST_LOOPS) {
    failManifest("loop", where, `expected at most ${MOST_LOOPS} loops`);
  }
  const outer = [];  // of the loops so far, which are listed by their ends
  fn.loops.forEach((loop, index) => {
    const at = `${where}.loops[${index}]`;
    if (loop.first < 0 || loop.first >= loop.end || loop.end > fn.launches.length) {
      failManifest("loop", at, `expected a range of the ${fn.launches.length} launches`);
    }
    const inside = [];
    while (outer.length > 0 && outer.at(-1).loop.first >= loop.first) inside.push(outer.pop());
    inside.reverse();
    if (outer.at(-1)?.loop.end > loop.first || inside.at(-1)?.loop.end > loop.end) {
      failManifest("loop", at, "crosses another loop, or comes too late");
    }
    const depth = 1 + inside.reduce((most, one) => Math.max(most, one.depth), 0);
    if (depth > MOST_DEPTH) failManifest("loop", at, `expected at most ${MOST_DEPTH} in each other`);
    outer.push({ loop, index, depth, inside });
  });
  return outer;
}

// What a run of the function does: positions of launches, and { loop, index, steps: of a trip }.
// REQUIRES: a valid manifest.
export function stepsOf(fn) {
  return stepsBetween(0, fn.launches.length, nestLoops(fn, fn.name));
}

function stepsBetween(begin, end, loops) {
  const steps = [];
  let at = begin;
  for (const { loop, index, inside } of loops) {
    while (at < loop.first) steps.push(at++);
    steps.push({ loop, index, steps: stepsBetween(loop.first, loop.end, inside) });
    at = loop.end;
  }
  while (at < end) steps.push(at++);
  return steps;
}

// The innermost loop that holds the launch; -1 without one.
export function loopAround(fn, launch) {
  return fn.loops.findIndex(({ first, end }) => first <= launch && launch < end);
}

// Throws module.manifest.loop. REQUIRES: the function's ends and launches are checked.
export function checkLoops(manifest, fn, where) {
  nestLoops(fn, where);
  const sizes = new SizesOfShapes();
  const ends = new Set(
    [...fn.inputs, ...fn.outputs, ...fn.checks.map((check) => check.tensor)]);
  fn.loops.forEach((loop, i) => {
    const at = `${where}.loops[${i}]`;
    // A tensor that a loop may read, or write.
    const find = (id, writes) => {
      const tensor = manifest.tensors[id];
      const isEnd = tensor?.kind === "input" || tensor?.kind === "output";
      const known = tensor !== undefined && tensor.kind !== "state" && (!isEnd || ends.has(id));
      const fits = known && (!writes || tensor.kind === "intermediate" || tensor.kind === "output");
      return fits ? tensor
        : failManifest("loop", at, "expected tensors of the function, and one to write");
    };
    checkCarried(loop, find, sizes, at);
    checkStacked(loop, find, sizes, at);
  });
}

function checkCarried({ carried }, find, sizes, at) {
  if (carried.length === 0) failManifest("loop", at, "expected a condition, found nothing carried");
  for (const ids of carried) {
    const value = find(ids.value, true);
    for (const other of [find(ids.init, false), find(ids.next, false)]) {
      if (other.dtype === value.dtype && sizes.same(other.shape, value.shape)) continue;
      failManifest("loop", at,
        `expected one type and size, found tensors ${value.id} and ${other.id}`);
    }
  }
  const going = find(carried[0].value, true);
  if (going.dtype !== "bool" || going.shape.some((dim) => dim.constant !== 1)) {
    failManifest("loop", at, "expected one bool as the first value");
  }
}

function checkStacked({ stacked }, find, sizes, at) {
  for (const ids of stacked) {
    const part = find(ids.part, false);
    const whole = find(ids.whole, true);
    const fits = part !== whole && part.dtype === whole.dtype &&
      sizes.isStack(whole.shape, part.shape);
    if (!fits) failManifest("loop", at, `expected a stack of tensors ${part.id}, found ${whole.id}`);
  }
}

// How many elements shapes have. Views may have given one of two tensors another shape.
class SizesOfShapes {
  #products = new Map();

  same(a, b) {
    return this.#of(a).equals(this.#of(b));
  }

  // Whether tensors of shape `part` fill `whole`.
  isStack(whole, part) {
    if (whole.length === 0) return false;
    return this.same(whole.slice(1), part) || this.#of(whole).isMultipleOf(this.#of(part));
  }

  #of(shape) {
    const key = shape.map((dim) => dim.text).join();
    if (!this.#products.has(key)) this.#products.set(key, Polynomial.product(shape));
    return this.#products.get(key);
  }
}
