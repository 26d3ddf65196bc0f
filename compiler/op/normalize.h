// The row `normalize` (normalize.cc), for the pass that makes it. Constants.
#pragma once

#include <string_view>

namespace tilewright::op {

inline constexpr std::string_view kNormalizeOp = "normalize";
// Its attribute `kind`: what a row is divided by is its deviation from its mean, which is taken off
// first; or the root of the mean of its squares.
inline constexpr std::string_view kLayerNorm = "layer";
inline constexpr std::string_view kRmsNorm = "rms";

}  // namespace tilewright::op
