// Random programs and expressions of the tensor IR for tests: the same seed and options give the
// same program. Values are small integers (also in float programs), so that every order of a
// reduction gives bit-identical results. Stateless.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/interp.h"
#include "compiler/ir/ir.h"
#include "deploy/support/rng.h"

namespace tilewright::tests {

struct RandomIrOptions {
  int max_stages = 3;
  int64_t max_extent = 17;      // of one axis; extents are ragged: primes, powers of two and 1
  int64_t max_elements = 1200;  // of one buffer
  int64_t max_work = 40'000;    // innermost iterations of one stage
  bool symbolic = true;         // sometimes a size parameter instead of a constant extent
};

struct RandomProgram {
  ir::Function function;  // stage kScheduled, verified
  std::vector<int64_t> sizes;
  std::string Describe() const;  // for failure messages: sizes and text
};

// Naive programs as operators make them: 1 to max_stages blocks, each elementwise, broadcast,
// reduction (of a scalar or a tuple, of an ordered combiner, causal), scan along an axis, stencil
// with padding, rows of Winograd's transforms, strided window, matrix product, convolution,
// concatenation, reshape, upsampling, gather or choices in choices, of i32 or f32.
RandomProgram RandomTe(uint64_t seed, const RandomIrOptions& options = {});

// Lowered-looking programs (kFlat): vectors, masks, let, if, alloc, prefetch, several integer
// types. Runs without errors.
ir::Function RandomFlat(uint64_t seed);

// A well-typed scalar integer (or bool) expression over variables. Divisors are non-zero constants.
ir::Expr RandomIndexExpr(support::Rng* rng, const std::vector<ir::Var>& vars, int depth);
ir::Expr RandomCondition(support::Rng* rng, const std::vector<ir::Var>& vars, int depth);

// The arguments of a program in parameter order: inputs and constants filled, outputs empty.
class Arguments {
 public:
  Arguments(const ir::Function& f, const std::vector<int64_t>& sizes, uint64_t seed);
  std::vector<ir::TensorData*> pointers();
  const std::vector<ir::TensorData>& tensors() const { return tensors_; }
  std::vector<std::vector<uint8_t>> Outputs(const ir::Function& f) const;

 private:
  std::vector<ir::TensorData> tensors_;
};

// Runs the interpreter; the outputs' bytes, or the error.
absl::StatusOr<std::vector<std::vector<uint8_t>>> RunProgram(const ir::Function& f,
                                                             const std::vector<int64_t>& sizes,
                                                             uint64_t input_seed,
                                                             const ir::InterpOptions& options = {});

// The smallest program of the same seed (fewer stages, smaller extents, no symbols) that still
// fails.
RandomProgram Shrink(uint64_t seed, const RandomIrOptions& options,
                     const std::function<bool(const RandomProgram&)>& fails);

}  // namespace tilewright::tests
