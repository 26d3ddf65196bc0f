// A session: the memory of one user of a module, and its runs. Memory holds, from the bottom: the
// code's own part, the context, constants, prepared tensors, lists of the state; then what the
// sizes of a run decide: arena, scratch, inputs and outputs, the arguments of the launches.

import { Instance } from "./code.js";
import { DTYPES } from "./dtype.js";
import { fail } from "./error.js";
import { foundVariables } from "./found_sizes.js";
import { Run } from "./run.js";
import { alignUp, bindSizes, functionFor, planSizes, shapeText } from "./size_plan.js";

const CONTEXT_BYTES = 16;  // TwContext with pointers of 32 bits
const ABI_VERSION = 1;
const POINTER_BYTES = 4;
const SIZE_BYTES = 8;

export class Session {
  #module;
  #instance;
  #found;             // names of the size variables that runs find
  #context;
  #constants;
  #prepared = 0;      // of a module of open sizes: the region of prepared tensors
  #lists = new Map(); // of the state: addresses by id
  #dynamic;           // where the part that sizes decide begins
  #bound = new Map(); // by function: the sizes it was bound to last, and what follows from them
  #layout = null;     // the bound function that the memory is laid out for
  #made = new Set();  // prepared tensors that are there
  #entries = 0;
  #kept = null;       // sizes of the run that made the last entries
  #current = null;    // the bound function of the last inputs
  #busy = false;

  // Use Module.createSession.
  static async create(module, { memoryLimitBytes } = {}) {
    return new Session(module, await Instance.create(module.compiled, memoryLimitBytes));
  }

  constructor(module, instance) {
    const { manifest } = module;
    this.#module = module;
    this.#instance = instance;
    this.#found = foundVariables(manifest);
    let end = alignUp(instance.base);
    const take = (bytes) => {
      const start = end;
      end = alignUp(start + bytes);
      return start;
    };
    this.#context = take(CONTEXT_BYTES);
    this.#constants = take(module.constants.length);
    if (manifest.size_vars.length > 0) {
      this.#prepared = take(manifest.tensors.reduce((most, { kind, offset, bytes }) =>
        (kind === "prepared" ? Math.max(most, offset + bytes) : most), 0));
    }
    for (const list of manifest.tensors.filter(isOwnList)) {
      this.#lists.set(list.id, take(stateBytes(manifest, list)));
    }
    this.#dynamic = end;
    instance.reserve(end);
    new Uint32Array(instance.memory.buffer, this.#context, 4).set([ABI_VERSION, 1, 0, 0]);
    instance.bytesAt(this.#constants, module.constants.length).set(module.constants);
    for (const fn of manifest.functions) {
      for (const launch of [...fn.prepare, ...fn.launches]) instance.kernel(launch.symbol);
    }
  }

  // How many entries the state has.
  get stateLength() {
    return this.#entries;
  }

  // Forgets the entries of the state from `length` on.
  resetState(length = 0) {
    if (!Number.isSafeInteger(length) || length < 0 || length > this.#entries) {
      fail("runtime.session.state_length",
        `expected 0 to ${this.#entries} entries, found ${length}`);
    }
    this.#entries = length;
  }

  // Runs the module once. `inputs`: by name a typed array, or { data, shape } where a dimension is
  // open. Returns the outputs by name, { data, shape }, which are copies.
  run(inputs) {
    return this.#run(inputs, (i, call) => call(i));
  }

  // The same, and how long each launch took: { outputs, launches: [{ name, symbol, ms }] }. What
  // loops run several times counts each time. Times are as exact as performance.now(): browsers
  // round it.
  runProfiled(inputs) {
    const ms = [];
    const outputs = this.#run(inputs, (i, call) => {
      const start = performance.now();
      call(i);
      ms[i] = (ms[i] ?? 0) + performance.now() - start;
    });
    const launches = this.#current.fn.launches.map(
      ({ name, symbol }, i) => ({ name, symbol, ms: ms[i] ?? 0 }));
    return { outputs, launches };
  }

  // For measurements, a run in three parts: bind takes the inputs, repeat does so many runs on them,
  // outputs copies what the last one made. Modules with state are bound again for each run.
  bind(inputs) {
    const given = this.#checkInputs(inputs);
    const bound = this.#bind(given.map(({ shape }) => shape));
    given.forEach(({ data }, i) => this.#write(bound, bound.fn.inputs[i], data));
    this.#prepare(bound);
    this.#current = bound;
  }

  // REQUIRES: bind.
  repeat(runs) {
    const call = this.#caller(this.#current);
    for (let i = 0; i < runs; ++i) this.#current.run.execute(call);
  }

  // REQUIRES: bind.
  outputs() {
    return this.#outputs(this.#current);
  }

  // Fills the outputs with NaN, so that what they hold later is the work of a later run.
  // REQUIRES: bind.
  poison() {
    const { fn, addresses, plan } = this.#current;
    for (const id of fn.outputs) {
      this.#instance.bytesAt(addresses[id], plan.places[id].bytes).fill(0xff);
    }
  }

  #run(inputs, around) {
    if (this.#busy) fail("runtime.session.busy", "expected a run to end before the next one");
    this.#busy = true;
    try {
      this.bind(inputs);
      const bound = this.#current;
      const call = this.#caller(bound);
      bound.run.execute((i) => around(i, call));
      this.#endRun(bound);
      return this.#outputs(bound);
    } finally {
      this.#busy = false;
    }
  }

  // By the order of main's inputs.
  #checkInputs(inputs) {
    const known = this.#module.inputs;
    for (const name of Object.keys(inputs)) {
      if (known.some((input) => input.name === name)) continue;
      fail("runtime.session.input_name",
        `expected inputs ${known.map((input) => input.name).join(", ")}, found '${name}'`);
    }
    return known.map(({ name, dtype, shape }) => {
      if (!Object.hasOwn(inputs, name)) {
        fail("runtime.session.call_tensors", `expected input '${name}', found none`);
      }
      const value = inputs[name];
      const data = ArrayBuffer.isView(value) ? value : value?.data;
      const { array, bytes } = DTYPES.get(dtype);
      if (!(data instanceof array)) {
        fail("runtime.c_api.dtype",
          `input '${name}': expected ${array.name} for ${dtype}, found ` +
          `${data?.constructor?.name ?? typeof data}`);
      }
      const open = shape.some((extent) => typeof extent !== "number");
      const of = ArrayBuffer.isView(value) ? undefined : value.shape;
      if (of === undefined && open) {
        fail("runtime.c_api.shape",
          `input '${name}': expected { data, shape } of ${shapeText(shape)}, found no shape`);
      }
      const extents = of === undefined ? shape : Array.from(of);
      const count = extents.reduce((product, extent) => product * extent, 1);
      if (count !== data.length) {
        fail("runtime.session.input_bytes",
          `input '${name}': expected ${count * bytes} bytes for ${shapeText(extents)}, found ` +
          `${data.byteLength}`);
      }
      return { data, shape: extents };
    });
  }

  #bind(shapes) {
    const { manifest } = this.#module;
    const main = manifest.functions.find((fn) => fn.name === "main");
    const sizes = bindSizes(manifest, main, shapes, this.#entries, this.#found);
    this.#checkState(sizes);
    const fn = functionFor(manifest, sizes);
    const key = [...sizes].join(";");
    let bound = this.#bound.get(fn.name);
    if (bound?.key !== key) {
      bound = { fn, key, sizes, plan: planSizes(manifest, fn, sizes, this.#found) };
      bound.run = new Run(manifest, this.#instance, bound, this.#found);
      this.#bound.set(fn.name, bound);
      this.#layout = null;
    }
    if (this.#layout !== bound) this.#place(bound);
    return bound;
  }

  // The new entries must fit, and entries keep their sizes.
  #checkState(sizes) {
    const { state, size_vars: variables, tensors } = this.#module.manifest;
    if (state === undefined) return;
    const next = state.next.evaluate(sizes);
    const { max } = variables.find((variable) => variable.name === state.length);
    if (next < this.#entries || next > max) {
      fail("runtime.session.state_full",
        `expected at most ${max} entries in the state, found ${next}; reset the state`);
    }
    if (this.#entries === 0) return;
    for (const list of tensors.filter(isOwnList)) {
      for (const dim of list.shape.slice(1)) {
        if (dim.evaluate(sizes) === dim.evaluate(this.#kept)) continue;
        fail("runtime.session.state_sizes",
          `expected ${dim.text} as in the runs before; reset the state`);
      }
    }
  }

  // Lays the memory out for a bound function, and writes the arguments of its launches.
  #place(bound) {
    const { manifest } = this.#module;
    const { fn, plan } = bound;
    let end = this.#dynamic;
    const take = (bytes) => {
      const start = end;
      end = alignUp(start + bytes);
      return start;
    };
    const arena = take(plan.arenaBytes);
    const workspace = take(plan.workspaceBytes);
    bound.addresses = [];
    for (const id of [...fn.inputs, ...fn.outputs, ...fn.checks.map((check) => check.tensor)]) {
      bound.addresses[id] = take(plan.places[id].bytes);
    }
    const prepared = manifest.size_vars.length > 0 ? this.#prepared : arena;
    plan.places.forEach(({ offset }, id) => {
      const tensor = manifest.tensors[id];
      if (tensor.kind === "constant") bound.addresses[id] = this.#constants + offset;
      if (tensor.kind === "intermediate") bound.addresses[id] = arena + offset;
      if (tensor.kind === "prepared") bound.addresses[id] = prepared + offset;
      if (tensor.kind === "state") bound.addresses[id] = this.#stateAddress(tensor, plan);
    });
    const argumentsOf = (launch, { sizes, workspaceBytes }) => ({
      kernel: this.#instance.kernel(launch.symbol),
      buffers: take(POINTER_BYTES * launch.args.length),
      sizes: take(SIZE_BYTES * sizes.length),
      workspace: workspaceBytes > 0 ? workspace : 0,
    });
    bound.prepare = fn.prepare.map((launch, i) => argumentsOf(launch, plan.prepare[i]));
    bound.launches = fn.launches.map((launch, i) => argumentsOf(launch, plan.launches[i]));
    this.#instance.reserve(end);
    fn.prepare.forEach((l, i) => this.#writeArguments(bound, l, bound.prepare[i], plan.prepare[i]));
    fn.launches.forEach(
      (l, i) => this.#writeArguments(bound, l, bound.launches[i], plan.launches[i]));
    this.#layout = bound;
  }

  #stateAddress(tensor, plan) {
    const { tensors } = this.#module.manifest;
    const list = tensors[tensor.entries_of ?? tensor.id];
    const address = this.#lists.get(list.same_list ?? list.id);
    if (tensor.entries_of === null) return address;
    const entryBytes = plan.places[tensor.id].shape.slice(1).reduce(
      (product, extent) => product * extent, DTYPES.get(tensor.dtype).bytes);
    return address + this.#entries * entryBytes;
  }

  #writeArguments(bound, launch, to, { sizes }) {
    new Uint32Array(this.#instance.memory.buffer, to.buffers, launch.args.length).set(
      launch.args.map((id) => bound.addresses[id]));
    this.#instance.writeInt64s(to.sizes, sizes);
  }

  #write(bound, id, data) {
    this.#instance.bytesAt(bound.addresses[id], data.byteLength).set(
      new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  }

  // Where functions share prepared tensors, those that are there are left as they are. Those that
  // depend on inputs are made again.
  #prepare(bound) {
    const { tensors } = this.#module.manifest;
    const needed = new Set();
    const wanted = new Set();  // what a needed launch uses
    for (let i = bound.fn.prepare.length - 1; i >= 0; --i) {
      const { args, num_outputs: outputs } = bound.fn.prepare[i];
      const usesInput = args.some((id) => tensors[id].kind === "input");
      const need = usesInput || args.slice(-outputs).some((id) =>
        (tensors[id].kind === "prepared" && !this.#made.has(id)) || wanted.has(id));
      if (!need) continue;
      needed.add(i);
      for (const id of args) wanted.add(id);
    }
    bound.fn.prepare.forEach((launch, i) => {
      if (needed.has(i)) this.#call(launch, bound.prepare[i]);
    });
    for (const { args } of bound.fn.prepare) {
      for (const id of args) {
        if (tensors[id].kind === "prepared") this.#made.add(id);
      }
    }
  }

  // Runs a launch of a bound function, by its position.
  #caller({ fn, launches }) {
    return (i) => this.#call(fn.launches[i], launches[i]);
  }

  #call(launch, { kernel, buffers, sizes, workspace }) {
    let code;
    try {
      code = kernel(this.#context, buffers, sizes, workspace);
    } catch (error) {
      fail("runtime.run.kernel_failed", `${launch.symbol}: ${error.message}`);
    }
    if (code !== 0) fail("runtime.run.kernel_failed", `${launch.symbol} returned ${code}`);
  }

  #endRun({ sizes }) {
    const { state } = this.#module.manifest;
    if (state === undefined) return;
    this.#entries = state.next.evaluate(sizes);
    this.#kept = sizes;
  }

  #outputs({ fn, run, addresses }) {
    const outputs = {};
    for (const id of fn.outputs) {
      const { name, dtype } = this.#module.manifest.tensors[id];
      const { shape, bytes } = run.placeOf(id);
      const copy = this.#instance.bytesAt(addresses[id], bytes).slice();
      outputs[name] = { data: new (DTYPES.get(dtype).array)(copy.buffer), shape };
    }
    return outputs;
  }
}

function isOwnList(tensor) {
  return tensor.kind === "state" && tensor.entries_of === null && tensor.same_list === null;
}

// Of a list with as many entries as fit, at the maxima of the other variables.
function stateBytes(manifest, list) {
  const most = new Map(manifest.size_vars.map(({ name, max }) => [name, max]));
  return list.shape.slice(1).reduce((product, dim) => product * dim.evaluate(most),
    most.get(manifest.state.length) * DTYPES.get(list.dtype).bytes);
}
