// Functions of floats as SPIR-V (compiler/targets/vulkan/spirv_math.cc) against libm in double
// precision, on a Vulkan device: over the whole line by bit patterns, and where C says what special
// values give. Skips without a device.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/type_rules.h"
#include "compiler/targets/vulkan/vulkan_codegen.h"
#include "deploy/support/status.h"
#include "tests/support/math_points.h"
#include "tests/support/run_plan.h"
#include "tests/support/spirv_check.h"

namespace tilewright {
namespace {

using ir::Intrinsic;

constexpr double kAll = std::numeric_limits<double>::infinity();

struct Case {
  Intrinsic intrinsic;
  double (*exact)(double);
  double max_ulps;
  double most = kAll;  // larger arguments are left out
  // Results near 0 of larger arguments: their distance counts, in units of 2^-24.
  double absolute = 0;
};
const Case kCases[] = {
    {Intrinsic::kExp, std::exp, 1.5},        {Intrinsic::kLog, std::log, 1.5},
    {Intrinsic::kTanh, std::tanh, 1.5},      {Intrinsic::kErf, std::erf, 1.5},
    {Intrinsic::kExpm1, std::expm1, 6},      {Intrinsic::kSin, std::sin, 2, 8192, 2},
    {Intrinsic::kCos, std::cos, 2, 8192, 2}, {Intrinsic::kTan, std::tan, 4, 100, 4},
    {Intrinsic::kAsin, std::asin, 3},        {Intrinsic::kAcos, std::acos, 3},
    {Intrinsic::kAtan, std::atan, 3},        {Intrinsic::kSinh, std::sinh, 8},
    {Intrinsic::kCosh, std::cosh, 4},        {Intrinsic::kAsinh, std::asinh, 5},
    {Intrinsic::kAcosh, std::acosh, 5},      {Intrinsic::kAtanh, std::atanh, 6},
    {Intrinsic::kSqrt, std::sqrt, 2.5},      {Intrinsic::kFloor, std::floor, 0},
    {Intrinsic::kCeil, std::ceil, 0},        {Intrinsic::kRoundEven, std::nearbyint, 0},
    {Intrinsic::kAbs, std::fabs, 0},
};
struct PairCase {
  Intrinsic intrinsic;
  double (*exact)(double, double);
  double max_ulps;
};
const PairCase kPairs[] = {{Intrinsic::kPow, std::pow, 200}, {Intrinsic::kFmod, std::fmod, 0}};

// y[i] = function(x[i]), or of x[i] and z[i], a thread for each.
ir::Function KernelOf(Intrinsic intrinsic, bool pair, int64_t n, ir::DType type) {
  constexpr int64_t kThreads = 64;
  ir::Function f;
  f.name = "math";
  f.stage = ir::Stage::kFlat;
  const auto x = ir::MakeBuffer("X", type, {ir::Int(n)}, ir::Role::kInput);
  const auto z = ir::MakeBuffer("Z", type, {ir::Int(n)}, ir::Role::kInput);
  const auto y = ir::MakeBuffer("Y", type, {ir::Int(n)}, ir::Role::kOutput);
  f.params = {x, z, y};
  const ir::Var group = ir::MakeVar("g"), thread = ir::MakeVar("t");
  const ir::Expr i = group * ir::Int(kThreads) + thread;
  std::vector<ir::Expr> operands = {ir::Load(x, {i})};
  // A function of one value has another output, so that each kernel has all buffers.
  if (pair) operands.push_back(ir::Load(z, {i}));
  const ir::Expr value = ir::Call(intrinsic, operands);
  const ir::Stmt store =
      ir::MakeStore(y, {i}, pair ? value : ir::Select(i < ir::Int(0), ir::Load(z, {i}), value));
  f.body =
      ir::MakeFor(group, ir::Int(0), ir::Int(n / kThreads),
                  ir::MakeFor(thread, ir::Int(0), ir::Int(kThreads), store, ir::ForKind::kThreadX),
                  ir::ForKind::kBlockX);
  return f;
}

class VulkanMath : public testing::Test {
 protected:
  void SetUp() override {
    auto device = tests::PlanDevice::Open(TILEWRIGHT_DEVICE_VULKAN);
    if (!device.ok())
      GTEST_SKIP() << "[SKIP] no Vulkan device: " << support::StatusText(device.status());
    device_ = *std::move(device);
  }

  template <typename T>
  std::vector<T> Values(Intrinsic intrinsic, const std::vector<T>& x, const std::vector<T>* z) {
    const ir::DType type = sizeof(T) == 8 ? ir::kF64 : ir::kF32;
    const ir::Function f = KernelOf(intrinsic, z != nullptr, static_cast<int64_t>(x.size()), type);
    const auto plan = codegen::SplitHostDevice(f);
    EXPECT_TRUE(plan.ok()) << plan.status();
    const auto code = vulkan::EmitSpirv({plan->launches[0].kernel});
    EXPECT_TRUE(code.ok()) << code.status();
    const absl::Status valid = tests::ValidateSpirv(code->bytes);
    EXPECT_TRUE(valid.ok()) << valid;
    ir::TensorData in, other, out;
    in.bytes.resize(x.size() * sizeof(T));
    std::memcpy(in.bytes.data(), x.data(), in.bytes.size());
    other = in;
    if (z != nullptr) std::memcpy(other.bytes.data(), z->data(), other.bytes.size());
    const absl::Status ran = device_->Run(*plan, code->bytes, {}, {&in, &other, &out});
    EXPECT_TRUE(ran.ok()) << support::StatusText(ran);
    std::vector<T> y(x.size());
    if (ran.ok()) std::memcpy(y.data(), out.bytes.data(), out.bytes.size());
    return y;
  }

  std::unique_ptr<tests::PlanDevice> device_;
};

// Drivers may flush what is no normal number to zero, of arguments and results.
bool IsFlushed(float actual, double exact) {
  return actual == 0 && std::fabs(exact) < std::numeric_limits<float>::min();
}
bool IsTiny(float x) { return x != 0 && std::fabs(x) < std::numeric_limits<float>::min(); }

// 64 threads of a group.
std::vector<float> Points() {
  std::vector<float> points = tests::MathPoints();
  while (points.size() % 64 != 0) points.push_back(0.25f);
  return points;
}

TEST_F(VulkanMath, IsNearLibmInDouble) {
  const std::vector<float> x = Points();
  for (const Case& c : kCases) {
    const std::vector<float> y = Values<float>(c.intrinsic, x, nullptr);
    double worst = 0;
    float where = 0, found = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (IsTiny(x[i]) || (std::fabs(x[i]) > c.most && !std::isinf(x[i]))) continue;
      const double exact = c.exact(x[i]);
      double ulps = tests::Ulps(y[i], exact);
      if (IsFlushed(y[i], exact)) ulps = 0;
      if (c.absolute > 0 && std::fabs(y[i] - exact) <= c.absolute * 0x1p-24) ulps = 0;
      if (ulps > worst) worst = ulps, where = x[i], found = y[i];
    }
    const std::string name(ir::IntrinsicText(c.intrinsic));
    EXPECT_LE(worst, c.max_ulps) << name << "(" << where << ") is " << found;
    std::printf("%-10s largest error %.2f ulp, at %.9g\n", name.c_str(), worst, where);
  }
}

// Each argument with its neighbours far away in the list: all kinds of pairs.
TEST_F(VulkanMath, FunctionsOfTwoValuesAreNearLibm) {
  std::vector<float> x = Points(), z(x.size());
  for (size_t i = 0; i < x.size(); ++i) z[i] = x[(i * 7919 + 13) % x.size()];
  // Powers of whole numbers, and of what networks have.
  for (size_t i = 0; i < x.size() / 2; ++i) {
    x[i] = static_cast<float>(static_cast<int>(i % 2001) - 1000) * 0.125f;
    z[i] = static_cast<float>(static_cast<int>(i % 37) - 18) * (i % 3 == 0 ? 0.5f : 1.0f);
  }
  for (const PairCase& c : kPairs) {
    const std::vector<float> y = Values(c.intrinsic, x, &z);
    double worst = 0;
    size_t where = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (IsTiny(x[i]) || IsTiny(z[i])) continue;
      const double exact = c.exact(x[i], z[i]);
      const double ulps = IsFlushed(y[i], exact) ? 0 : tests::Ulps(y[i], exact);
      if (ulps > worst) worst = ulps, where = i;
    }
    const std::string name(ir::IntrinsicText(c.intrinsic));
    EXPECT_LE(worst, c.max_ulps) << name << "(" << x[where] << ", " << z[where] << ") is "
                                 << y[where];
    std::printf("%-10s largest error %.2f ulp, at %.9g, %.9g\n", name.c_str(), worst, x[where],
                z[where]);
  }
}

// In units of the last place of the exact value.
double WideUlps(double actual, long double exact) {
  const auto rounded = static_cast<double>(exact);
  if (std::isnan(rounded) || std::isnan(actual))
    return std::isnan(rounded) == std::isnan(actual) ? 0 : kAll;
  if (actual == rounded) return 0;
  if (std::isinf(rounded) || std::isinf(actual)) return kAll;
  if (actual == 0 && std::fabs(rounded) < std::numeric_limits<double>::min()) return 0;
  const double ulp = std::nextafter(std::fabs(rounded), kAll) - std::fabs(rounded);
  return static_cast<double>(std::fabs(static_cast<long double>(actual) - exact)) / ulp;
}

TEST_F(VulkanMath, WideFloatsAreNearLibm) {
  std::vector<double> x, z;
  for (float point : Points()) {
    x.push_back(point);
    // Digits that no float has, and exponents beyond a float's.
    x.push_back(point * (1 + 0x1p-40));
    x.push_back(std::ldexp(static_cast<double>(point), point > 1 ? 700 : -700));
  }
  while (x.size() % 64 != 0) x.push_back(0.25);
  for (size_t i = 0; i < x.size(); ++i)
    z.push_back(static_cast<double>(static_cast<int>(i % 37) - 18) * (i % 3 == 0 ? 0.5 : 1));
  struct Wide {
    Intrinsic intrinsic;
    long double (*exact)(long double, long double);
    double max_ulps;
  };
  const Wide cases[] = {
      {Intrinsic::kExp, [](long double a, long double) { return std::exp(a); }, 3},
      {Intrinsic::kLog, [](long double a, long double) { return std::log(a); }, 3},
      {Intrinsic::kTanh, [](long double a, long double) { return std::tanh(a); }, 3},
      {Intrinsic::kPow, [](long double a, long double b) { return std::pow(a, b); }, 1200}};
  for (const Wide& c : cases) {
    const bool pair = c.intrinsic == Intrinsic::kPow;
    const std::vector<double> y = Values<double>(c.intrinsic, x, pair ? &z : nullptr);
    double worst = 0;
    size_t where = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] != 0 && std::fabs(x[i]) < std::numeric_limits<double>::min()) continue;
      const double ulps = WideUlps(y[i], c.exact(x[i], z[i]));
      if (ulps > worst) worst = ulps, where = i;
    }
    const std::string name(ir::IntrinsicText(c.intrinsic));
    EXPECT_LE(worst, c.max_ulps) << name << "(" << x[where] << ", " << z[where] << ") is "
                                 << y[where];
    std::printf("%-10s f64, largest error %.2f ulp, at %.17g\n", name.c_str(), worst, x[where]);
  }
}

}  // namespace
}  // namespace tilewright
