// NumPy's files of one array (.npy, version 1), in row-major order and little-endian.

const TYPES = new Map([
  ["|b1", Uint8Array], ["|i1", Int8Array], ["|u1", Uint8Array],
  ["<i2", Int16Array], ["<i4", Int32Array], ["<i8", BigInt64Array],
  ["<u2", Uint16Array], ["<u4", Uint32Array], ["<u8", BigUint64Array],
  ["<f2", Uint16Array], ["<f4", Float32Array], ["<f8", Float64Array],
]);
const HEADER_ALIGNMENT = 64;

// Returns { data, shape } of the bytes of a file.
export function readNpy(bytes) {
  const header = new DataView(bytes.buffer, bytes.byteOffset).getUint16(8, true);
  const text = String.fromCharCode(...bytes.subarray(10, 10 + header));
  const type = /'descr': '([^']*)'/.exec(text)?.[1];
  if (!TYPES.has(type) || !text.includes("'fortran_order': False")) {
    throw new Error(`expected a row-major array of numbers, found ${text}`);
  }
  const shape = /'shape': \(([^)]*)\)/.exec(text)[1].split(",").filter((n) => n.trim()).map(Number);
  const data = bytes.slice(10 + header);  // a copy, so that it is aligned
  const copy = new Uint8Array(data).buffer;
  return { data: new (TYPES.get(type))(copy), shape };
}

// Returns the bytes of a file. Bytes are written as numbers, floats of 16 bits as their bits.
export function writeNpy({ data, shape }) {
  const [type] = [...TYPES].find(([name, array]) => name !== "|b1" && data instanceof array);
  const extents = shape.map((extent) => `${extent},`).join(" ");
  let text = `{'descr': '${type}', 'fortran_order': False, 'shape': (${extents}), }`;
  text = text.padEnd(Math.ceil((10 + text.length + 1) / HEADER_ALIGNMENT) * HEADER_ALIGNMENT - 11);
  const bytes = new Uint8Array(10 + text.length + 1 + data.byteLength);
  bytes.set([0x93, ...[..."NUMPY"].map((c) => c.charCodeAt(0)), 1, 0]);
  new DataView(bytes.buffer).setUint16(8, text.length + 1, true);
  bytes.set([...`${text}\n`].map((c) => c.charCodeAt(0)), 10);
  bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), 11 + text.length);
  return bytes;
}
