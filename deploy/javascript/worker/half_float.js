// Floats of 16 bits: IEEE's (5 bits of exponent) and bfloat16 (8 bits), as deploy/runtime/half_float.

// The bits of the nearest number, ties to even. NaN becomes the quiet NaN.
export function doubleToHalf(value, brain) {
  const mantissa = brain ? 7 : 10;
  const bias = brain ? 127 : 15;
  const infinity = brain ? 0x7f80 : 0x7c00;
  if (Number.isNaN(value)) return infinity | (1 << (mantissa - 1));
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (size === Infinity) return sign | infinity;
  if (size === 0) return sign;
  // The place of the last bit, of numbers below the normal ones at the smallest place.
  let exponent = Math.floor(Math.log2(size));
  if (2 ** exponent > size) --exponent;
  if (2 ** (exponent + 1) <= size) ++exponent;
  exponent = Math.max(exponent, 1 - bias);
  const units = size / 2 ** (exponent - mantissa);  // exact
  let rounded = Math.floor(units);
  const rest = units - rounded;
  if (rest > 0.5 || (rest === 0.5 && rounded % 2 === 1)) ++rounded;
  // A carry goes on into the exponent.
  return sign | Math.min(infinity, (exponent + bias - 1) * 2 ** mantissa + rounded);
}

export function halfToDouble(bits, brain) {
  const mantissa = brain ? 7 : 10;
  const bias = brain ? 127 : 15;
  const exponent = (bits & 0x7fff) >> mantissa;
  const fraction = bits & (2 ** mantissa - 1);
  const sign = (bits & 0x8000) !== 0 ? -1 : 1;
  if (exponent === 2 * bias + 1) return fraction === 0 ? sign * Infinity : NaN;
  const digits = exponent === 0 ? fraction : fraction + 2 ** mantissa;
  return sign * digits * 2 ** (Math.max(exponent, 1) - bias - mantissa);
}
