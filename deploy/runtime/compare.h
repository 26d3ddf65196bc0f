// Elementwise comparison of an actual tensor with an expected one, for `run --expect`, the agent's
// result check and tests. Pure functions; thread-safe.
#ifndef DEPLOY_RUNTIME_COMPARE_H_
#define DEPLOY_RUNTIME_COMPARE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/module/dtype.h"
#include "deploy/module/manifest.h"

namespace tilewright::runtime {

struct CompareResult {
  int64_t count = 0;
  int64_t mismatches = 0;       // elements outside the tolerance
  int64_t first_mismatch = -1;  // flat index, -1 when there is none
  double first_actual = 0;
  double first_expected = 0;
  double max_abs_diff = 0;  // max |a−e| over the elements where both are finite
  double max_abs_expected = 0;
  double relative_norm = 0;  // ‖a−e‖ / ‖e‖ over the same elements (0/0 is 0)
  bool ok() const { return mismatches == 0; }
};

// Checks |a−e| ≤ abs + rel·|e| for each of `count` elements of `dtype`, in double (64-bit integers
// exactly if the tolerance is zero). NaN matches only NaN, an infinity only itself.
CompareResult CompareTensors(module::DType dtype, const void* actual, const void* expected,
                             int64_t count, const module::Tolerance& tolerance);

// Returns "12 of 4096 elements differ: first at [7]: 0.5, expected 0.25; max |a-e| 0.25, ...".
std::string CompareText(const CompareResult& result);

// Reads element `index` as double (64-bit integers lose what double cannot hold).
double ElementAsDouble(module::DType dtype, const void* data, int64_t index);
// Writes `value` rounded to the element type (ties to even; integers truncate and saturate).
void StoreDouble(module::DType dtype, double value, void* data, int64_t index);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_COMPARE_H_
