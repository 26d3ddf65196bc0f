// Protocol buffers, as far as the worker's messages need them: reads and writes objects by tables of
// fields. A table: number -> [name, type] or [name, type, "repeated"]. A type is a word of SCALARS or
// the table of a message. Unknown fields are skipped. Numbers of 64 bits are BigInt where the type
// says "big", else they are exact up to 2^53.

const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

const decoder = new TextDecoder();
const encoder = new TextEncoder();

const SCALARS = {
  int: { wire: VARINT, read: (bits) => Number(BigInt.asIntN(64, bits)), write: BigInt },
  big: { wire: VARINT, read: (bits) => bits, write: (value) => value },
  bool: { wire: VARINT, read: (bits) => bits !== 0n, write: (value) => (value ? 1n : 0n) },
  double: { wire: FIXED64 },
  string: { wire: BYTES, read: (bytes) => decoder.decode(bytes), write: (text) => encoder.encode(text) },
  bytes: { wire: BYTES, read: (bytes) => bytes, write: (bytes) => bytes },
};

// Returns an object with the fields that are there, and an array for every repeated field. Throws a
// RangeError where the bytes end early.
export function decode(table, bytes) {
  const reader = new Reader(bytes);
  const message = {};
  for (const [name, , repeated] of Object.values(table)) if (repeated) message[name] = [];
  while (!reader.done()) {
    const tag = Number(reader.varint());
    const field = table[tag >>> 3];
    const wire = tag & 7;
    if (field === undefined) {
      reader.skip(wire);
      continue;
    }
    const [name, type, repeated] = field;
    if (repeated) {
      message[name].push(...readRepeated(reader, type, wire));
    } else {
      message[name] = readOne(reader, type);
    }
  }
  return message;
}

function readOne(reader, type) {
  if (typeof type !== "string") return decode(type, reader.bytes());
  const { wire, read } = SCALARS[type];
  if (wire === FIXED64) return reader.double();
  return read(wire === VARINT ? reader.varint() : reader.bytes());
}

// Numbers come one by one or packed.
function readRepeated(reader, type, wire) {
  const packed = wire === BYTES && typeof type === "string" && SCALARS[type].wire !== BYTES;
  if (!packed) return [readOne(reader, type)];
  const inner = new Reader(reader.bytes());
  const values = [];
  while (!inner.done()) values.push(readOne(inner, type));
  return values;
}

class Reader {
  constructor(bytes) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }

  done() {
    return this.at >= this.view.byteLength;
  }

  varint() {
    let bits = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.view.getUint8(this.at++);
      bits |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asUintN(64, bits);
    }
    throw new RangeError("a number of more than 64 bits");
  }

  double() {
    this.at += 8;
    return this.view.getFloat64(this.at - 8, true);
  }

  bytes() {
    const count = Number(this.varint());
    if (count > this.view.byteLength - this.at) throw new RangeError("a field ends early");
    this.at += count;
    return new Uint8Array(this.view.buffer, this.view.byteOffset + this.at - count, count);
  }

  skip(wire) {
    if (wire === VARINT) this.varint();
    else if (wire === FIXED64) this.double();
    else if (wire === BYTES) this.bytes();
    else if (wire === FIXED32) this.at += 4;
    else throw new RangeError("a field of an unknown kind");
  }
}

// The bytes of a message. Fields that the object lacks are left out.
export function encode(table, message) {
  const pieces = [];
  for (const [number, [name, type, repeated]] of Object.entries(table)) {
    const value = message[name];
    if (value === undefined) continue;
    for (const one of repeated ? value : [value]) pieces.push(...field(Number(number), type, one));
  }
  return concatenated(pieces);
}

function field(number, type, value) {
  if (typeof type !== "string") return withLength(number, encode(type, value));
  const { wire, write } = SCALARS[type];
  if (wire === FIXED64) {
    const bytes = new Uint8Array(8);
    new DataView(bytes.buffer).setFloat64(0, value, true);
    return [varint(BigInt(number << 3 | wire)), bytes];
  }
  if (wire === BYTES) return withLength(number, write(value));
  return [varint(BigInt(number << 3 | wire)), varint(BigInt.asUintN(64, write(value)))];
}

function withLength(number, bytes) {
  return [varint(BigInt(number << 3 | BYTES)), varint(BigInt(bytes.length)), bytes];
}

function varint(bits) {
  const bytes = [];
  for (; bits >= 0x80n; bits >>= 7n) bytes.push(Number(bits & 0x7fn) | 0x80);
  return Uint8Array.from([...bytes, Number(bits)]);
}

function concatenated(pieces) {
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}
