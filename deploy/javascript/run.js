// A run of one function of a session: its launches in their order, the trips of its loops, the sizes
// that it finds, and what the model states of sizes. As deploy/runtime/session_run.cc.

import { fail } from "./error.js";
import { foundSizes, loopsOfChecks, namesIn } from "./found_sizes.js";
import { stepsOf } from "./loops.js";
import { checkEqualSizes, placeOf, valueAt } from "./size_plan.js";

const NO_LOOP = -1;

export class Run {
  #manifest;
  #instance;
  #bound;
  #steps;
  #loopOfCheck;
  #finds;           // foundSizes, with the variable and what depends on it
  #places;          // of tensors: those of the plan, with the shapes that are known now
  #sizes;           // of all variables, with those that are found
  #missing;         // those that are not found yet
  #bytes = null;    // the instance's memory
  #crowded = null;  // a stack that has no room for all trips

  // `bound`: { fn, sizes, plan }, and when it runs { addresses: of tensors, launches: where their
  // arguments are }. `found`: foundVariables.
  constructor(manifest, instance, bound, found) {
    this.#manifest = manifest;
    this.#instance = instance;
    this.#bound = bound;
    const { fn, plan } = bound;
    this.#steps = stepsOf(fn);
    this.#loopOfCheck = loopsOfChecks(fn);
    this.#places = plan.places;
    this.#finds = foundSizes(fn, found).map((find) => {
      const { name } = find;
      const has = (dims) => namesIn(dims, new Set([name])).size > 0;
      return {
        ...find,
        variable: manifest.size_vars.find((variable) => variable.name === name),
        tensors: [...plan.places.keys()].filter(
          (id) => plan.places[id] !== undefined && has(manifest.tensors[id].shape)),
        launches: [...fn.launches.keys()].filter((i) => has(fn.launches[i].sizes)),
      };
    });
  }

  // { shape, bytes } of a tensor as of now.
  placeOf(tensor) {
    return this.#places[tensor];
  }

  // Runs everything. `call` runs a launch, by its position.
  execute(call) {
    this.#begin();
    this.#visit(this.#steps, call);
    this.#checkStated(NO_LOOP);
    if (this.#crowded === null) return;
    const { name } = this.#manifest.tensors[this.#crowded];
    fail("runtime.session.trips",
      `expected at most ${this.#places[this.#crowded].shape[0]} trips of the loop that makes ` +
      `'${name}', the inputs make more; there is no result for these inputs`);
  }

  #begin() {
    this.#crowded = null;
    this.#sizes = this.#bound.sizes;
    if (this.#finds.length === 0) return;
    this.#sizes = new Map(this.#bound.sizes);
    this.#places = [...this.#bound.plan.places];
    this.#missing = new Set();
    this.#forget(this.#finds);
  }

  #forget(finds) {
    for (const { name, variable } of finds) {
      this.#sizes.set(name, variable.max);
      this.#missing.add(name);
    }
  }

  #visit(steps, call) {
    for (const step of steps) {
      if (typeof step === "number") {
        call(step);
        if (this.#finds.length > 0) this.#findBehind(step);
      } else {
        this.#loop(step, call);
      }
    }
  }

  // All trips of a loop, or one more than there is room for: what counts them is wrong then, which a
  // check of sizes tells with the node's name; else the end of the run does. Kernels write what
  // becomes the next value next to the value, so that all values change together.
  #loop({ loop, index, steps }, call) {
    const { addresses } = this.#bound;
    const { carried, stacked } = loop;
    const bytes = (id) => this.#places[id].bytes;
    const found = this.#finds.filter(({ launch }) => loop.first <= launch && launch < loop.end);
    for (const { init, value } of carried) this.#move(addresses[value], init);
    for (let trip = 0; this.#goesOn(carried[0].value) && this.#crowded === null; ++trip) {
      const crowded = stacked.find(({ part, whole }) => (trip + 1) * bytes(part) > bytes(whole));
      this.#crowded = crowded?.whole ?? null;
      this.#forget(found);
      this.#visit(steps, call);
      if (this.#crowded === null) {
        this.#checkStated(index);
        for (const { part, whole } of stacked) {
          this.#move(addresses[whole] + trip * bytes(part), part);
        }
      }
      for (const { value, next } of carried) this.#move(addresses[value], next);
    }
  }

  #goesOn(condition) {
    return this.#memory()[this.#bound.addresses[condition]] !== 0;
  }

  // Copies a tensor.
  #move(to, from) {
    const start = this.#bound.addresses[from];
    this.#memory().copyWithin(to, start, start + this.#places[from].bytes);
  }

  // The code may have grown its memory, which ends views of it.
  #memory() {
    const { buffer } = this.#instance.memory;
    if (this.#bytes?.buffer !== buffer) this.#bytes = new Uint8Array(buffer);
    return this.#bytes;
  }

  // What a check looks at, as BigInt64Array.
  #numbersOf({ tensor, expected }) {
    return this.#instance.int64sAt(this.#bound.addresses[tensor], expected.length);
  }

  // Takes the sizes that a launch found, for the launches that follow.
  #findBehind(launch) {
    const finds = this.#finds.filter((find) => find.launch === launch);
    if (finds.length === 0) return;
    for (const { name, variable: { min, max }, check, element } of finds) {
      const stated = this.#bound.fn.checks[check];
      const size = Number(this.#numbersOf(stated)[element]);
      if (size < min || size > max) {
        fail("runtime.session.found_size",
          `${stated.what}: expected a size of ${min} to ${max} for ${name}, found ${size}; there ` +
          "is no result for these inputs");
      }
      this.#sizes.set(name, size);
      this.#missing.delete(name);
    }
    checkEqualSizes(this.#manifest, this.#sizes, this.#missing);
    finds.forEach((find) => this.#resize(find));
  }

  // Gives what depends on a size its shape and its numbers; places stay.
  #resize({ tensors, launches }) {
    const { fn, plan, launches: calls } = this.#bound;
    const value = (dim) => valueAt(this.#manifest, dim, this.#sizes, this.#missing);
    for (const id of tensors) {
      this.#places[id] = placeOf(this.#manifest.tensors[id], value, plan.places[id].offset);
    }
    for (const i of launches) {
      this.#instance.writeInt64s(calls[i].sizes, fn.launches[i].sizes.map(value));
    }
  }

  // The checks of what a loop's trip made, or the function outside of loops.
  #checkStated(loop) {
    this.#bound.fn.checks.forEach((check, c) => {
      if (this.#loopOfCheck[c] !== loop) return;
      const expected = check.expected.map((dim) => dim.evaluate(this.#sizes));
      const found = [...this.#numbersOf(check)];
      if (found.every((size, i) => size === BigInt(expected[i]))) return;
      fail("runtime.session.stated_shape",
        `${check.what}: the model states [${expected.join(", ")}], and the run has ` +
        `[${found.join(", ")}]`);
    });
  }
}
