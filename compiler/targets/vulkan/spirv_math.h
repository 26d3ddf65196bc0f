// Functions of floats that a SPIR-V module brings with it. Vulkan promises little of its own
// (exp within 3 + 2|x| units of the last place, sin within 2^-11, erf not at all), so these are
// polynomials, as accurate as those of processors (compiler/codegen/math_tables.h). Each is a
// function of the module, made when it is first called. One owner; borrows the module.
#pragma once

#include <map>
#include <utility>

#include "compiler/ir/ir.h"
#include "compiler/targets/vulkan/spirv_code.h"

namespace tilewright::vulkan {

class SpirvMath {
 public:
  explicit SpirvMath(SpirvModule* module) : module_(*module) {}

  // Returns whether Call knows the function
  // of floats of so many bits.
  static bool Has(ir::Intrinsic intrinsic, int bits);
  // A call of the function. Angles of sin, cos and tan keep their accuracy up to 8192; results that
  // are no normal numbers may be zeros. REQUIRES: Has(intrinsic, bits).
  Id Call(SpirvCode* code, ir::Intrinsic intrinsic, int bits, const Words& operands);

 private:
  Id FunctionOf(ir::Intrinsic intrinsic, int bits, size_t operands);

  SpirvModule& module_;
  std::map<std::pair<ir::Intrinsic, int>, Id> functions_;  // by bits
};

}  // namespace tilewright::vulkan
