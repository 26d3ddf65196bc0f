// Whether outputs are the expected ones: |a - e| <= abs + rel |e| for every element, or for all but
// a share of them. Infinities must be equal, NaN must be NaN. As deploy/runtime/compare.h.

import { DTYPES } from "../dtype.js";
import { elementAt } from "./input_gen.js";

// `outputs`: { dtype, data } in order; `expected`: their bytes, one behind the other. Returns
// { mismatch: null or a text, maxAbsError }.
export function compareOutputs(outputs, expected, { abs = 0, rel = 0, max_mismatch_fraction: share = 0 } = {}) {
  const bytes = outputs.reduce((sum, { data }) => sum + data.byteLength, 0);
  if (bytes !== expected.length) {
    return { mismatch: `expected ${expected.length} bytes of outputs, found ${bytes}`, maxAbsError: 0 };
  }
  let at = 0, count = 0, differ = 0, first = null, maxAbsError = 0;
  for (const { dtype, data } of outputs) {
    const copy = expected.slice(at, at + data.byteLength).buffer;  // aligned
    const wanted = new (DTYPES.get(dtype).array)(copy);
    at += data.byteLength;
    for (let i = 0; i < data.length; ++i) {
      const a = elementAt(dtype, data, i), e = elementAt(dtype, wanted, i);
      if (Number.isFinite(a) && Number.isFinite(e)) maxAbsError = Math.max(maxAbsError, Math.abs(a - e));
      const exact = abs === 0 && rel === 0 && typeof data[i] === "bigint";
      if (exact ? data[i] === wanted[i] : within(a, e, abs, rel)) continue;
      ++differ;
      first ??= `element ${i}: expected ${e}, found ${a}`;
    }
    count += data.length;
  }
  const mismatch = differ > share * count ? `${differ} of ${count} elements differ, first ${first}` : null;
  return { mismatch, maxAbsError };
}

function within(a, e, abs, rel) {
  if (Number.isNaN(a) || Number.isNaN(e)) return Number.isNaN(a) && Number.isNaN(e);
  if (!Number.isFinite(a) || !Number.isFinite(e)) return a === e;
  return Math.abs(a - e) <= abs + rel * Math.abs(e);
}
