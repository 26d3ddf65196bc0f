// Checks of code for processors that this machine is none of: the code runs somewhere else (an
// emulator, Node.js), the interpreter says what is right. Failures are gtest expectations.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::tests {

struct ForeignProcessors {
  std::vector<target::Target> targets;
  // Lowers, compiles and runs on one of them; `args` as of RunCompiled.
  std::function<absl::Status(const ir::Function&, const target::Target&,
                             const std::vector<int64_t>& sizes, std::vector<ir::TensorData*> args)>
      run;
};

// Random programs × random legal schedules, the targets in turn: as many as TestRounds says.
void ExpectRandomSchedules(const ForeignProcessors& processors, uint64_t seed);
// Dot products of bytes at the ends of their types.
void ExpectDotProducts(const ForeignProcessors& processors);
// Floats as bytes: rounded to even, saturated, zero for NaN.
void ExpectRoundedBytes(const ForeignProcessors& processors);

// A function of that text, which must be one.
ir::Function Parsed(const std::string& text);
// One marked nest with that many lanes, 64 of them one after another.
ir::Function Dots(const std::string& intrinsic, const std::string& type, int lanes);
// The same with fields of words, of four or eight bits, as the second factor.
ir::Function FieldDots(int bits, int lanes);
// An argument that holds these.
ir::TensorData Floats(const std::vector<float>& values);

}  // namespace tilewright::tests
