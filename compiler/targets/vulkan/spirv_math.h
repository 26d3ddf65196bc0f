// Functions of 32-bit floats that a SPIR-V module brings with it. Vulkan promises little of its own
// (exp within 3 + 2|x| units of the last place, sin within 2^-11, erf not at all), so these are
// polynomials, as accurate as those of processors (compiler/codegen/math_tables.h). Each is a
// function of the module, made when it is first called. One owner; borrows the module.
#pragma once

#include <map>

#include "compiler/ir/ir.h"
#include "compiler/targets/vulkan/spirv_code.h"

namespace tilewright::vulkan {

class SpirvMath {
 public:
  explicit SpirvMath(SpirvModule* module) : module_(*module) {}

  // Whether Call knows the function.
  static bool Has(ir::Intrinsic intrinsic);
  // A call of the function on values of type f32. Angles of sin, cos and tan keep their accuracy
  // up to 8192; results that are no normal numbers may be zeros. REQUIRES: Has(intrinsic).
  Id Call(SpirvCode* code, ir::Intrinsic intrinsic, const Words& operands);

 private:
  Id FunctionOf(ir::Intrinsic intrinsic, size_t operands);

  SpirvModule& module_;
  std::map<ir::Intrinsic, Id> functions_;
};

}  // namespace tilewright::vulkan
