// What tests of operators share: one operator as a function of the tensor IR on random values, run
// by the interpreter, against its plain reference. Failures are gtest expectations.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/op/op.h"
#include "deploy/support/rng.h"

namespace tilewright::op {

// Of this run of the program, printed once.
uint64_t Seed();

struct Case {
  std::string op;
  std::vector<std::vector<int64_t>> shapes;
  Attrs attrs;
  double low = -2, high = 2;
  ir::DType dtype = ir::kF32;
  std::vector<ir::DType> dtypes = {};  // of single operands, where they differ
};

// Values between low and high, rounded to the type.
RefTensor RandomTensor(const TensorType& type, double low, double high, support::Rng* rng);

// The operator alone as a function of the tensor IR.
absl::StatusOr<ir::Function> AsFunction(const OpSpec& spec, const std::vector<TensorType>& inputs,
                                        const std::vector<TensorType>& outputs, const Attrs& attrs,
                                        std::string_view variant = "direct");

// The function's result on `inputs`, run by the interpreter, which checks the regions that it
// names.
absl::StatusOr<RefTensor> Interpreted(const ir::Function& f, const std::vector<RefTensor>& inputs,
                                      const TensorType& result);

// Equal for integers, else within a few roundings.
void ExpectComputeMatchesReference(const Case& c, support::Rng* rng);

}  // namespace tilewright::op
