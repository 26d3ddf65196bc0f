// Compiled casts of floats of 16 bits, of one lane and of vectors, against the scalar arithmetic of
// the tensor IR: all 65536 numbers one way; the other way all numbers, the middles between two of
// them, and what lies next to the middles.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "compiler/ir/build.h"
#include "compiler/ir/numeric.h"
#include "compiler/schedule/schedule.h"
#include "deploy/support/status.h"
#include "tests/support/run_compiled.h"
#include "tests/support/run_emulated.h"

namespace tilewright {
namespace {

using ir::DType;

ir::Function CastFunction(DType from, DType to, int64_t n) {
  ir::FunctionBuilder b("cast");
  ir::Buffer x = b.Input("X", from, {ir::Int(n)});
  ir::Buffer y = b.Compute("Y", to, {ir::Int(n)}, {"i"}, [&](const std::vector<ir::Var>& v) {
    return ir::Cast(to, ir::Load(x, {v[0]}));
  });
  return b.Finish({y});
}

ir::Function Vectorized(const ir::Function& f, int lanes) {
  schedule::Schedule schedule(f);
  for (const std::string& text :
       {"split %0 [?," + std::to_string(lanes) + "]", std::string("vectorize %3")}) {
    auto step = schedule::ParseStep(text);
    EXPECT_TRUE(step.ok() && schedule.Apply(*step).ok()) << text;
  }
  return schedule.function();
}

// A processor, here or emulated.
using Runner = std::function<absl::Status(const ir::Function&, std::vector<ir::TensorData*>)>;

Runner On(const target::Target& target) {
  return [target](const ir::Function& f, std::vector<ir::TensorData*> args) {
    return tests::RunCompiled(f, target, 1, {}, std::move(args));
  };
}

template <typename To, typename From>
std::vector<To> Converted(DType from, DType to, const std::vector<From>& values, int lanes,
                          const Runner& run) {
  ir::Function f = CastFunction(from, to, static_cast<int64_t>(values.size()));
  if (lanes > 1) f = Vectorized(f, lanes);
  ir::TensorData x, y;
  x.bytes.resize(values.size() * sizeof(From));
  std::memcpy(x.bytes.data(), values.data(), x.bytes.size());
  const absl::Status status = run(f, {&x, &y});
  EXPECT_TRUE(status.ok()) << support::StatusText(status);
  std::vector<To> result(values.size());
  if (status.ok()) std::memcpy(result.data(), y.bytes.data(), y.bytes.size());
  return result;
}

double Widened(DType half, uint32_t bits) {
  const auto pattern = static_cast<uint16_t>(bits);
  return half == ir::kF16 ? ir::HalfToFloat(pattern) : ir::BfloatToFloat(pattern);
}
uint16_t Narrowed(DType half, double value) {
  return half == ir::kF16 ? ir::FloatToHalf(value) : ir::FloatToBfloat(value);
}

// Exact numbers, middles and their neighbours, as T.
template <typename T>
std::vector<T> Around(DType half) {
  std::vector<T> points;
  // From this number on, infinity.
  const T end = static_cast<T>(half == ir::kF16 ? std::ldexp(2 - std::ldexp(1, -11), 15)
                                                : std::ldexp(2 - std::ldexp(1, -8), 127));
  for (const T sign : {T{1}, T{-1}}) {
    points.insert(points.end(), {sign * end, sign * std::nextafter(end, T{0}),
                                 sign * std::nextafter(end, static_cast<T>(HUGE_VAL)), sign});
  }
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double value = Widened(half, bits), next = Widened(half, bits + 1);
    points.push_back(static_cast<T>(value));
    const T middle = static_cast<T>((value + next) / 2);
    points.push_back(middle);
    points.push_back(std::nextafter(middle, static_cast<T>(HUGE_VAL)));
    points.push_back(std::nextafter(middle, static_cast<T>(-HUGE_VAL)));
  }
  while (points.size() % 16 != 0) points.push_back(0);
  return points;
}

template <typename T>
void ExpectNarrows(DType from, DType half, const std::vector<T>& points, int lanes,
                   const Runner& run) {
  const auto result = Converted<uint16_t>(from, half, points, lanes, run);
  for (size_t i = 0; i < points.size(); ++i) {
    const double value = static_cast<double>(points[i]);
    const uint16_t expected = Narrowed(
        half,
        from.is_float() ? value : ir::CastIntToFloat(static_cast<int64_t>(points[i]), from, half));
    ASSERT_EQ(result[i], expected)
        << ir::TypeName(half) << " of " << value << " as " << ir::TypeName(from) << " x" << lanes;
  }
}

void ExpectWidens(DType half, int lanes, const Runner& run) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const auto wide = Converted<float>(half, ir::kF32, all, lanes, run);
  for (size_t i = 0; i < all.size(); ++i) {
    const double expected = Widened(half, static_cast<uint32_t>(i));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide[i])) << i;
    } else {
      ASSERT_EQ(static_cast<double>(wide[i]), expected) << ir::TypeName(half) << " " << i;
      ASSERT_EQ(std::signbit(wide[i]), std::signbit(expected)) << i;
    }
  }
}

TEST(HalfCasts, AreThoseOfTheTensorIr) {
  for (const target::Target& target : tests::RunnableTargets()) {
    const Runner run = On(target);
    for (const DType half : {ir::kF16, ir::kBF16}) {
      for (const int lanes : {1, 8, 16}) {
        ExpectWidens(half, lanes, run);
        ExpectNarrows(ir::kF32, half, Around<float>(half), lanes, run);
        ExpectNarrows(ir::kF64, half, Around<double>(half), lanes, run);
        std::vector<int64_t> whole;
        for (int shift = 0; shift < 63; ++shift) {
          for (const int64_t more : {0, 1, -1, 3, 127}) {
            const int64_t power = int64_t{1} << shift;
            whole.insert(whole.end(), {power + more, -power - more, power + (power >> 8) + more,
                                       power + (power >> 11) + more});
          }
        }
        while (whole.size() % 16 != 0) whole.push_back(0);
        ExpectNarrows(ir::kI64, half, whole, lanes, run);
      }
    }
  }
}

// Its instructions, which the processors here lack.
TEST(HalfCasts, OfAarch64) {
  const std::vector<target::Target> targets = tests::EmulatedTargets();
  if (targets.empty()) GTEST_SKIP() << "no emulator of AArch64 here";
  bool computes = false;
  for (const target::Target& target : targets) {
    if (computes && target.machine.computes_f16) continue;  // one that does is enough
    computes = target.machine.computes_f16;
    const Runner run = [&](const ir::Function& f, std::vector<ir::TensorData*> args) {
      return tests::RunEmulated(f, target, {}, std::move(args));
    };
    for (const int lanes : {1, 8}) {
      ExpectWidens(ir::kF16, lanes, run);
      ExpectNarrows(ir::kF32, ir::kF16, Around<float>(ir::kF16), lanes, run);
      ExpectNarrows(ir::kF64, ir::kF16, Around<double>(ir::kF16), lanes, run);
    }
  }
  EXPECT_TRUE(computes);
}

}  // namespace
}  // namespace tilewright
