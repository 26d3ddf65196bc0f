#include "tests/support/equivalence.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/ir/numeric.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {
namespace {

using ir::DType;
using support::StrCat;

constexpr uint8_t kPoison = 0xA5;

int64_t Elements(const ir::Function& f, const ir::Buffer& buffer,
                 const std::vector<int64_t>& sizes) {
  auto count = ir::BufferElements(f, buffer, sizes);
  TW_CHECK(count.ok()) << count.status();
  return *count;
}

// Multiples of 1/4 in [-2, 2]: sums of products of two are exact in f32, so that reassociation
// alone rarely changes anything.
void Fill(DType type, support::Rng* rng, std::vector<uint8_t>* bytes) {
  size_t step = static_cast<size_t>(type.bytes());
  for (size_t at = 0; at + step <= bytes->size(); at += step) {
    int64_t number = rng->UniformInt(-8, 8);
    if (type == ir::kF32) {
      float v = static_cast<float>(number) / 4;
      std::memcpy(bytes->data() + at, &v, sizeof v);
    } else if (type == ir::kF64) {
      double v = static_cast<double>(number) / 4;
      std::memcpy(bytes->data() + at, &v, sizeof v);
    } else if (type.is_bool()) {
      (*bytes)[at] = number > 0 ? 1 : 0;
    } else if (type.is_int()) {
      if (type.code == ir::TypeCode::kUInt) number = std::abs(number);
      std::memcpy(bytes->data() + at, &number, step);
    } else {
      // Multiples of 1/4 up to 2 are exact in both 16-bit formats.
      double v = static_cast<double>(number) / 4;
      uint16_t bits =
          type.code == ir::TypeCode::kBFloat ? ir::FloatToBfloat(v) : ir::FloatToHalf(v);
      std::memcpy(bytes->data() + at, &bits, sizeof bits);
    }
  }
}

double FloatAt(DType type, const std::vector<uint8_t>& bytes, size_t i) {
  if (type.bits == 16) {
    uint16_t bits;
    std::memcpy(&bits, bytes.data() + i * sizeof bits, sizeof bits);
    return type.code == ir::TypeCode::kBFloat ? ir::BfloatToFloat(bits) : ir::HalfToFloat(bits);
  }
  if (type == ir::kF64) {
    double v;
    std::memcpy(&v, bytes.data() + i * sizeof v, sizeof v);
    return v;
  }
  float v;
  std::memcpy(&v, bytes.data() + i * sizeof v, sizeof v);
  return v;
}

// The first element that differs, or "".
std::string Difference(const ir::BufferNode& buffer, const std::vector<uint8_t>& expected,
                       const std::vector<uint8_t>& found, double tolerance) {
  if (expected.size() != found.size()) {
    return StrCat(buffer.name, ": expected ", expected.size(), " bytes, found ", found.size());
  }
  size_t step = static_cast<size_t>(buffer.dtype.bytes());
  bool floating = buffer.dtype.is_float();
  // A sum in another order may round to the neighbour.
  if (buffer.dtype.bits == 16) tolerance = std::max(tolerance, 1.0 / 64);
  double largest = 0;
  for (size_t i = 0; floating && i < expected.size() / step; ++i) {
    double v = std::abs(FloatAt(buffer.dtype, expected, i));
    if (std::isfinite(v)) largest = std::max(largest, v);
  }
  for (size_t i = 0; i < expected.size() / step; ++i) {
    if (std::memcmp(expected.data() + i * step, found.data() + i * step, step) == 0) continue;
    if (!floating) return StrCat(buffer.name, ": expected the same, found element ", i, " differs");
    double e = FloatAt(buffer.dtype, expected, i), v = FloatAt(buffer.dtype, found, i);
    if (std::isnan(e) && std::isnan(v)) continue;
    if (std::abs(e - v) <= tolerance * largest + 1e-6) continue;
    return StrCat(buffer.name, "[", i, "]: expected ", e, ", found ", v);
  }
  return "";
}

}  // namespace

std::vector<ir::TensorData> SeededArguments(const ir::Function& f,
                                            const std::vector<int64_t>& sizes, uint64_t seed) {
  std::vector<ir::TensorData> args(f.params.size());
  support::Rng rng(seed);
  for (size_t i = 0; i < f.params.size(); ++i) {
    const ir::Buffer& b = f.params[i];
    args[i].bytes.assign(static_cast<size_t>(Elements(f, b, sizes) * b->dtype.bytes()), kPoison);
    if (b->role != ir::Role::kOutput) Fill(b->dtype, &rng, &args[i].bytes);
  }
  return args;
}

absl::Status SameResults(const ir::Function& base, const ir::Function& other,
                         const EquivalenceOptions& options) {
  std::vector<ir::TensorData> expected = SeededArguments(base, options.sizes, options.seed);
  std::vector<ir::TensorData> found = expected;
  auto pointers = [](std::vector<ir::TensorData>& data) {
    std::vector<ir::TensorData*> p;
    for (ir::TensorData& d : data) p.push_back(&d);
    return p;
  };
  ir::InterpOptions interp;
  interp.max_steps = options.max_steps;
  absl::Status ran = ir::Interpret(base, options.sizes, pointers(expected), interp);
  if (!ran.ok()) {
    return support::FailedPrecondition("test.equivalence.base", support::StatusText(ran));
  }
  interp.max_steps *= 16;  // schedules may recompute
  interp.check_regions = true;
  ran = options.run_other ? options.run_other(other, options.sizes, pointers(found))
                          : ir::Interpret(other, options.sizes, pointers(found), interp);
  if (!ran.ok()) {
    return support::FailedPrecondition("test.equivalence.run", support::StatusText(ran));
  }
  for (size_t i = 0; i < base.params.size(); ++i) {
    std::string difference =
        Difference(*base.params[i], expected[i].bytes, found[i].bytes, options.tolerance);
    if (!difference.empty()) {
      return support::FailedPrecondition("test.equivalence.differs", difference);
    }
  }
  return absl::OkStatus();
}

}  // namespace tilewright::tests
