// Generated inputs: the same bytes as deploy/runtime/input_gen.h, whose header is the contract.
// Expected outputs are computed on another machine.

import { DTYPES } from "../dtype.js";
import { fail } from "../error.js";
import { doubleToHalf, halfToDouble } from "./half_float.js";

// Element i is made from mix(seed + (i + 1) * 0x9E3779B97F4A7C15), of 64 bits: in two halves, which
// is a hundred times quicker than BigInt.
const STEP = [0x9e3779b9, 0x7f4a7c15];
const FIRST = [0xbf58476d, 0x1ce4e5b9];
const SECOND = [0x94d049bb, 0x133111eb];

class Words {
  constructor(seed) {
    this.seedHigh = Number(BigInt.asUintN(64, seed) >> 32n) | 0;
    this.seedLow = Number(BigInt.asUintN(32, seed)) | 0;
    this.high = 0;
    this.low = 0;
  }

  // this = a * (bHigh, bLow), modulo 2^64.
  multiply(aHigh, aLow, [bHigh, bLow]) {
    const a0 = aLow & 0xffff, a1 = aLow >>> 16, b0 = bLow & 0xffff, b1 = bLow >>> 16;
    const low = a0 * b0;
    const middle = a1 * b0 + (low >>> 16);
    const other = a0 * b1 + (middle % 65536);
    const carry = a1 * b1 + Math.floor(middle / 65536) + Math.floor(other / 65536);
    this.low = ((other % 65536) * 65536 + (low & 0xffff)) | 0;
    this.high = (carry + Math.imul(aHigh, bLow) + Math.imul(aLow, bHigh)) | 0;
  }

  // Leaves word `index` in high and low.
  draw(index) {
    // index + 1 is below 2^32.
    this.multiply(0, (index + 1) | 0, STEP);
    const low = (this.low >>> 0) + (this.seedLow >>> 0);
    this.high = (this.high + this.seedHigh + (low > 0xffffffff ? 1 : 0)) | 0;
    this.low = low | 0;
    this.scramble(30, FIRST);
    this.scramble(27, SECOND);
    this.low ^= (this.low >>> 31) | (this.high << 1);
    this.high ^= this.high >>> 31;
  }

  scramble(shift, factor) {
    const low = this.low ^ ((this.low >>> shift) | (this.high << (32 - shift)));
    this.multiply(this.high ^ (this.high >>> shift), low, factor);
  }

  uniform(index) {
    this.draw(index);
    return ((this.high >>> 0) * 2 ** 21 + (this.low >>> 11)) * 2 ** -53;
  }

  // The sum of twelve numbers of 16 bits.
  sixteens(index) {
    let sum = 0;
    for (let k = 0; k < 3; ++k) {
      this.draw(3 * index + k);
      sum += (this.low & 0xffff) + (this.low >>> 16) + (this.high & 0xffff) + (this.high >>> 16);
    }
    return sum;
  }

  modulo(index, span) {
    this.draw(index);
    const high = this.high >>> 0, low = this.low >>> 0;
    if (span <= 2 ** 20) return ((high % span) * (2 ** 32 % span) + (low % span)) % span;
    return Number(((BigInt(high) << 32n) | BigInt(low)) % BigInt(span));
  }
}

const IS_FLOAT = new Set(["float16", "bfloat16", "float32", "float64"]);

// `law`: { uniform: {low, high} }, { normal: {mean, standard_deviation} } or { integers: {low, high} }.
// Returns the typed array of `count` elements. REQUIRES: the values fit the type.
export function generateInput(dtype, count, law, seed) {
  const words = new Words(seed);
  const [draw, isTrue] = drawOf(law, words);
  const data = new (DTYPES.get(dtype).array)(count);
  const store = storeOf(dtype);
  const high = IS_FLOAT.has(dtype) ? law.uniform?.high : undefined;
  const below = high === undefined ? 0 : largestBelow(dtype, high);
  for (let i = 0; i < count; ++i) {
    const value = draw(i);
    store(data, i, dtype === "bool" ? Number(isTrue(value)) : value);
    if (high !== undefined && elementAt(dtype, data, i) >= high) store(data, i, below);
  }
  return data;
}

// How a value is drawn, and whether a bool is true for it.
function drawOf(law, words) {
  if (law.uniform !== undefined) {
    const { low = 0, high = 0 } = law.uniform;
    const width = high - low;
    return [(i) => low + width * words.uniform(i), (value) => value > (low + high) / 2];
  }
  if (law.normal !== undefined) {
    const { mean = 0, standard_deviation: deviation = 0 } = law.normal;
    return [(i) => mean + deviation * (words.sixteens(i) * 2 ** -16 - 6), (value) => value > mean];
  }
  if (law.integers !== undefined) {
    const { low = 0, high = 0 } = law.integers;
    return [(i) => low + words.modulo(i, high - low + 1), (value) => value % 2 !== 0];
  }
  return fail("measure.inputs.distribution", "expected uniform, normal or integers, found none");
}

function storeOf(dtype) {
  if (dtype === "float16" || dtype === "bfloat16") {
    return (data, i, value) => { data[i] = doubleToHalf(value, dtype === "bfloat16"); };
  }
  if (dtype === "int64" || dtype === "uint64") {
    return (data, i, value) => { data[i] = BigInt(Math.trunc(value)); };
  }
  if (IS_FLOAT.has(dtype)) return (data, i, value) => { data[i] = value; };
  return (data, i, value) => { data[i] = Math.trunc(value); };
}

export function elementAt(dtype, data, i) {
  if (dtype === "float16" || dtype === "bfloat16") return halfToDouble(data[i], dtype === "bfloat16");
  return Number(data[i]);
}

// The largest number of the type below `bound`.
function largestBelow(dtype, bound) {
  if (dtype === "float16" || dtype === "bfloat16") {
    const brain = dtype === "bfloat16";
    const bits = doubleToHalf(bound, brain);
    if (halfToDouble(bits, brain) < bound) return halfToDouble(bits, brain);
    if ((bits & 0x7fff) === 0) return halfToDouble(0x8001, brain);
    return halfToDouble((bits & 0x8000) !== 0 ? bits + 1 : bits - 1, brain);
  }
  const single = dtype === "float32";
  const floats = single ? new Float32Array([bound]) : new Float64Array([bound]);
  if (floats[0] < bound) return floats[0];
  const bits = single ? new Int32Array(floats.buffer) : new BigInt64Array(floats.buffer);
  const one = single ? 1 : 1n;
  if (floats[0] === 0) return single ? -(2 ** -149) : -Number.MIN_VALUE;
  bits[0] += floats[0] > 0 ? -one : one;
  return floats[0];
}
