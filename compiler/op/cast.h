// Attributes of `cast`.
#ifndef COMPILER_OP_CAST_H_
#define COMPILER_OP_CAST_H_

#include <string_view>

namespace tilewright::op {

// 1: no cast of the model, but the rounding that its operator of 16-bit floats makes of a result
// that it computed in f32.
inline constexpr std::string_view kImplied = "implied";

}  // namespace tilewright::op

#endif  // COMPILER_OP_CAST_H_
