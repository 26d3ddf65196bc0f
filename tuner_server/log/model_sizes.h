// The sizes at which a model is imported, and what its module keeps from run to run: what a job
// asks for and what a module version is for. Plain values and pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/module/size_points.h"
#include "deploy/support/status.h"

namespace tilewright::log {

struct ModelSizes {
  std::map<std::string, std::vector<int64_t>> shapes = {};  // by input, or [n] by dimension
  std::map<std::string, module::SizeRange> open = {};       // dimensions that stay open
  std::vector<module::SizePoint> points = {};               // of them, with their own functions
  std::map<std::string, std::string> states = {};           // inputs that stay, and their outputs
  bool known_states = false;  // keeps those that have the names of a cache, too

  bool empty() const { return *this == ModelSizes{}; }
  // JSON that is equal for equal sizes; points keep their order. Empty text if there are none.
  std::string ToText() const;
  // "x=1x64, batch=1..32, specialised at batch=1; batch=8, state known"
  std::string Words() const;

  bool operator==(const ModelSizes&) const = default;
};

// Parses what ToText returns. DATA_LOSS log.sizes.bad.
absl::StatusOr<ModelSizes> ParseSizesText(std::string_view text);

// Whether the sizes make sense for any model. INVALID_ARGUMENT: job.shape.bad (an extent, a range),
// driver.specialise.* of module::CheckSizePoints.
absl::Status CheckJobSizes(const ModelSizes& sizes);

// How a module takes the sizes that somebody wants.
enum class SizeFit {
  kTuned,  // its kernels for these sizes are tuned
  kOpen,   // these sizes run its kernels of all sizes, which are not tuned
  kNone,   // it does not take them
};
// Compares by names: sizes that `wanted` does not name may be anything. A range must be within the
// module's, and a point must be one of the module's. States must be equal if any are wanted.
SizeFit FitOf(const ModelSizes& has, const ModelSizes& wanted);

}  // namespace tilewright::log
