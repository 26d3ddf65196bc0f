// The manifest of a module as plain objects, from JSON that may be hostile. A member that is
// missing, unknown or of another type is an error. deploy/module/manifest.h says what they mean;
// dimensions are Dim.

import { Dim } from "./dim.js";
import { DTYPES } from "./dtype.js";
import { fail, quote } from "./error.js";
import { checkManifest } from "./manifest_check.js";

const NEWEST_VERSION = 9;
const MOST_JSON = 16 * 2 ** 20;
const KINDS = new Set(["input", "output", "constant", "intermediate", "prepared", "state"]);

// Throws module.manifest.* if the text is not a valid manifest.
export function readManifest(text) {
  if (text.length > MOST_JSON) fail("module.manifest.size", `${text.length} characters of JSON`);
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    fail("module.manifest.json", "text is not JSON");
  }
  if (Number.isSafeInteger(json?.format_version) && json.format_version > NEWEST_VERSION) {
    fail("module.manifest.version",
      `expected at most ${NEWEST_VERSION}, found ${json.format_version}: the module was made by a ` +
      "later version");
  }
  const manifest = new Fields(json, "manifest").object({
    format_version: integer,
    name: string,
    producer: texts,
    target: string,
    cpu_features: list(string),
    tensors: list(tensor),
    size_vars: list(sizeVar),
    arena_bytes: integer,
    workspace_bytes: integer,
    constants_bytes: integer,
    constants_digest: string,
    functions: list(functionOf),
    code: list(codeObject),
    provenance: texts,
  }, {
    alignment: integer,
    equal_sizes: list(sizeEquality),
    state,
    measurement,
  });
  manifest.equal_sizes ??= [];
  manifest.alignment ??= 64;
  checkManifest(manifest);
  return manifest;
}

class Fields {
  constructor(json, where) {
    if (typeof json !== "object" || json === null || Array.isArray(json)) {
      fail("module.manifest.type", `${where}: expected an object`);
    }
    this.json = json;
    this.where = where;
  }

  // All members of `needed`, those of `optional` that are there, and no others.
  object(needed, optional = {}) {
    const result = {};
    for (const [name, read] of Object.entries(needed)) {
      if (!Object.hasOwn(this.json, name)) {
        fail("module.manifest.type", `${this.where}: expected the member '${name}'`);
      }
      result[name] = read(this.json[name], `${this.where}.${name}`);
    }
    for (const name of Object.keys(this.json)) {
      if (Object.hasOwn(needed, name)) continue;
      if (!Object.hasOwn(optional, name)) {
        fail("module.manifest.type", `${this.where}: unknown member ${quote(name)}`);
      }
      result[name] = optional[name](this.json[name], `${this.where}.${name}`);
    }
    return result;
  }
}

function integer(json, where) {
  if (!Number.isSafeInteger(json)) fail("module.manifest.type", `${where}: expected an integer`);
  return json;
}

// A bound of a size, which may be too large for a safe integer.
function bound(json, where) {
  if (!Number.isInteger(json)) fail("module.manifest.type", `${where}: expected an integer`);
  return json;
}

function number(json, where) {
  if (typeof json !== "number") fail("module.manifest.type", `${where}: expected a number`);
  return json;
}

function string(json, where) {
  if (typeof json !== "string") fail("module.manifest.type", `${where}: expected a string`);
  return json;
}

function boolean(json, where) {
  if (typeof json !== "boolean") fail("module.manifest.type", `${where}: expected true or false`);
  return json;
}

function dim(json, where) {
  return new Dim(json, where);
}

// Operations of a launch: a number, which may be no integer, or an expression.
function operations(json, where) {
  return typeof json === "number" ? json : dim(json, where);
}

function list(read) {
  return (json, where) => {
    if (!Array.isArray(json)) fail("module.manifest.type", `${where}: expected an array`);
    return json.map((item, i) => read(item, `${where}[${i}]`));
  };
}

// An object with values that `read` takes, as a Map.
function mapOf(read) {
  return (json, where) => {
    const { json: members } = new Fields(json, where);
    return new Map(Object.entries(members).map(
      ([name, item]) => [name, read(item, `${where}.${name}`)]));
  };
}

const texts = mapOf(string);

function extents(json, where) {
  const numbers = list(integer)(json, where);
  if (numbers.length !== 3) fail("module.manifest.type", `${where}: expected three integers`);
  return numbers;
}

function tensor(json, where) {
  const result = new Fields(json, where).object({
    id: integer,
    name: string,
    dtype: string,
    shape: list(dim),
    kind: string,
    offset: integer,
    bytes: integer,
  }, { after: list(integer), entries_of: integer, same_list: integer });
  if (!DTYPES.has(result.dtype)) {
    fail("module.manifest.dtype", `${where}: unknown ${quote(result.dtype)}`);
  }
  if (!KINDS.has(result.kind)) {
    fail("module.manifest.type", `${where}: unknown word ${quote(result.kind)}`);
  }
  return { after: [], entries_of: null, same_list: null, ...result };
}

function launch(json, where) {
  return new Fields(json, where).object({
    symbol: string,
    code: integer,
    args: list(integer),
    num_outputs: integer,
    sizes: list(dim),
    workspace_bytes: dim,
    name: string,
    task: string,
    steps: string,
    program_hash: string,
    flops: operations,
  }, { grid: extents, group: extents });
}

function sizeCheck(json, where) {
  return new Fields(json, where).object(
    { tensor: integer, expected: list(dim), what: string });
}

function carried(json, where) {
  return new Fields(json, where).object({ init: integer, value: integer, next: integer });
}

function stacked(json, where) {
  return new Fields(json, where).object({ part: integer, whole: integer });
}

function loop(json, where) {
  return new Fields(json, where).object(
    { first: integer, end: integer, carried: list(carried), stacked: list(stacked) });
}

function functionOf(json, where) {
  const result = new Fields(json, where).object({
    name: string,
    inputs: list(integer),
    outputs: list(integer),
    prepare: list(launch),
    launches: list(launch),
  }, { checks: list(sizeCheck), loops: list(loop), at: mapOf(integer) });
  return { checks: [], loops: [], at: new Map(), ...result };
}

function codeObject(json, where) {
  const result = new Fields(json, where).object({
    format: string,
    abi_version: integer,
    size: integer,
    digest: string,
  }, { device: string, features: list(string) });
  return { device: "", features: [], ...result };
}

function sizeVar(json, where) {
  return new Fields(json, where).object({ name: string, min: bound, max: bound });
}

function sizeEquality(json, where) {
  return new Fields(json, where).object({ left: dim, right: dim, what: string });
}

// A seed of more than 53 bits is rounded: such inputs are good for timing only.
function inputSpec(json, where) {
  const result = new Fields(json, where).object(
    { tensor: integer, seed: number, distribution: string, a: number, b: number },
    { far: boolean });
  return { far: false, ...result };
}

function tolerance(json, where) {
  return new Fields(json, where).object({ abs: number, rel: number });
}

function measurement(json, where) {
  return new Fields(json, where).object(
    { inputs: list(inputSpec), expected_digest: string, tolerance, flops: number });
}

function state(json, where) {
  return new Fields(json, where).object({ length: string, next: dim });
}
