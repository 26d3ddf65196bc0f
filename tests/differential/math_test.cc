// exp, log, tanh and erf of f32 as generated code (compiler/codegen/llvm_math.cc) against libm in
// double precision: over the whole line by bit patterns, as scalars and on every vector width, and
// where C says what special values give.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "compiler/ir/build.h"
#include "compiler/ir/type_rules.h"
#include "compiler/schedule/schedule.h"
#include "deploy/support/status.h"
#include "tests/support/math_points.h"
#include "tests/support/run_compiled.h"

namespace tilewright {
namespace {

using ir::Intrinsic;

struct Case {
  Intrinsic intrinsic;
  double (*exact)(double);
  double max_ulps;
};
const Case kCases[] = {{Intrinsic::kExp, std::exp, 1.5},
                       {Intrinsic::kLog, std::log, 1.5},
                       {Intrinsic::kTanh, std::tanh, 1.5},
                       {Intrinsic::kErf, std::erf, 1.5},
                       {Intrinsic::kExpm1, std::expm1, 6}};

ir::Function Function(Intrinsic intrinsic, int64_t n) {
  ir::FunctionBuilder b("math");
  ir::Buffer x = b.Input("X", ir::kF32, {ir::Int(n)});
  ir::Buffer y = b.Compute("Y", ir::kF32, {ir::Int(n)}, {"i"}, [&](const std::vector<ir::Var>& v) {
    return ir::Call(intrinsic, {ir::Load(x, {v[0]})});
  });
  return b.Finish({y});
}

ir::Function Vectorized(const ir::Function& f, int lanes) {
  schedule::Schedule schedule(f);
  std::vector<std::string> steps = {"split %0 [?," + std::to_string(lanes) + "]", "vectorize %3"};
  for (const std::string& text : steps) {
    auto step = schedule::ParseStep(text);
    absl::Status status = step.ok() ? schedule.Apply(*step) : step.status();
    EXPECT_TRUE(status.ok()) << text << ": " << support::StatusText(status) << "\n"
                             << schedule.Describe();
  }
  return schedule.function();
}

std::vector<float> Values(const ir::Function& f, const target::Target& target,
                          const std::vector<float>& points) {
  ir::TensorData x, y;
  x.bytes.resize(points.size() * sizeof(float));
  std::memcpy(x.bytes.data(), points.data(), x.bytes.size());
  absl::Status status = tests::RunCompiled(f, target, 1, {}, {&x, &y});
  EXPECT_TRUE(status.ok()) << support::StatusText(status);
  std::vector<float> result(points.size());
  if (status.ok()) std::memcpy(result.data(), y.bytes.data(), y.bytes.size());
  return result;
}

TEST(Math, IsNearLibmInDouble) {
  const std::vector<float> points = tests::MathPoints();
  for (const target::Target& target : tests::RunnableTargets()) {
    for (const Case& c : kCases) {
      ir::Function f = Function(c.intrinsic, static_cast<int64_t>(points.size()));
      const std::vector<float> scalar = Values(f, target, points);
      const std::vector<float> vector =
          Values(Vectorized(f, target.machine.vector_bytes / 4), target, points);
      double worst = 0;
      float where = 0;
      for (size_t i = 0; i < points.size(); ++i) {
        double ulps = tests::Ulps(vector[i], c.exact(points[i]));
        if (ulps > worst) worst = ulps, where = points[i];
        if (std::isnan(vector[i]) && std::isnan(scalar[i])) continue;
        // A schedule changes lanes, not values.
        ASSERT_EQ(std::bit_cast<uint32_t>(vector[i]), std::bit_cast<uint32_t>(scalar[i]))
            << ir::IntrinsicText(c.intrinsic) << "(" << points[i] << ") on " << target.cpu;
      }
      EXPECT_LE(worst, c.max_ulps)
          << ir::IntrinsicText(c.intrinsic) << "(" << where << ") on " << target.cpu;
      std::printf("%-6s %-10s largest error %.2f ulp, at %.9g\n",
                  std::string(ir::IntrinsicText(c.intrinsic)).c_str(), target.cpu.c_str(), worst,
                  where);
    }
  }
}

}  // namespace
}  // namespace tilewright
