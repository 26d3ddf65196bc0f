// Element types: their bytes, and the typed array that holds them. Floats of 16 bits are their bits.

export const DTYPES = new Map([
  ["bool", { bytes: 1, array: Uint8Array }],
  ["int8", { bytes: 1, array: Int8Array }],
  ["int16", { bytes: 2, array: Int16Array }],
  ["int32", { bytes: 4, array: Int32Array }],
  ["int64", { bytes: 8, array: BigInt64Array }],
  ["uint8", { bytes: 1, array: Uint8Array }],
  ["uint16", { bytes: 2, array: Uint16Array }],
  ["uint32", { bytes: 4, array: Uint32Array }],
  ["uint64", { bytes: 8, array: BigUint64Array }],
  ["float16", { bytes: 2, array: Uint16Array }],
  ["bfloat16", { bytes: 2, array: Uint16Array }],
  ["float32", { bytes: 4, array: Float32Array }],
  ["float64", { bytes: 8, array: Float64Array }],
]);
