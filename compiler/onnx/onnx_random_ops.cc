// Operators that draw numbers. They are drawn when the model is imported, by the attribute `seed`
// or by the name of the result: a module has the same ones in each run, and another runtime others.
#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::Rng;
using support::StrCat;

constexpr int64_t kMaxDrawn = int64_t{1} << 24;  // numbers of one operator

absl::StatusOr<Rng> GeneratorOf(NodeReader& n) {
  if (n.Find("seed") == nullptr) return Rng(0).Split(n.output_name());
  TW_ASSIGN(const double seed, n.Float("seed", 0));
  return Rng(std::bit_cast<uint64_t>(seed));
}

// Numbers of this shape, each of them what `draw` gives; of open sizes the first ones of those that
// the largest need, so that any size has what a fixed one has.
template <typename Draw>
ValueId Drawn(Composer& c, ir::DType type, const std::vector<op::Dim>& shape, Draw draw) {
  if (!c.ok()) return kNone;
  std::vector<int64_t> sizes;
  int64_t count = 1;
  for (const op::Dim& dim : shape) {
    const int64_t size = c.Most(dim).value_or(-1);
    if (size < 0 || (size > 0 && count > kMaxDrawn / size)) {
      return c.Fail("too_large",
                    StrCat("expected a shape of at most ", kMaxDrawn, " numbers, found ",
                           op::DimsText(shape), "; give smaller ranges: --shape NAME=0..N"));
    }
    sizes.push_back(size);
    count *= size;
  }
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = draw();
  if (std::ranges::all_of(shape, &op::Dim::is_constant)) {
    return c.Constant(type, sizes, std::move(values));
  }
  const std::optional<op::Dim> elements = op::Dim::Product(shape);
  if (!elements) return c.Fail("open_size", StrCat("expected fewer open sizes", kGiveNumbers));
  const ValueId all = c.Constant(type, {count}, std::move(values));
  return c.ReshapeTo(c.Slice(all, 0, 0, *elements), shape);
}

// Uniform in (0, 1) on steps that f32 has, so that no bound is reached.
double Inside(Rng& rng) { return (std::floor(rng.UniformDouble() * 0x1p23) + 0.5) * 0x1p-23; }

}  // namespace

// RandomNormal, RandomUniform, and both with the shape and the type of an input (…Like).
Result ImportRandom(NodeReader& n) {
  Composer c(n);
  TW_ASSIGN(Rng rng, GeneratorOf(n));
  std::vector<op::Dim> shape;
  ir::DType type = ir::kF32;
  if (n.op_type().ends_with("Like")) {
    const ValueId like = c.Input(0);
    shape = c.Dims(like);
    TW_TRY(c.status());
    if (c.TypeOf(like).dtype.is_float()) type = c.TypeOf(like).dtype;
  } else {
    TW_ASSIGN(const std::vector<int64_t> sizes, n.Ints("shape", {}));
    shape.assign(sizes.begin(), sizes.end());
  }
  TW_ASSIGN(type, ReadType(n, "dtype", type));
  if (!type.is_float()) {
    return n.Error("attribute", StrCat("expected a dtype of floats, found ", ir::TypeName(type)));
  }
  if (n.op_type().starts_with("RandomNormal")) {
    TW_ASSIGN(const double mean, n.Float("mean", 0));
    TW_ASSIGN(const double scale, n.Float("scale", 1));
    return c.Done(Drawn(c, type, shape, [&] { return mean + scale * rng.Normal(); }));
  }
  TW_ASSIGN(const double low, n.Float("low", 0));
  TW_ASSIGN(const double high, n.Float("high", 1));
  return c.Done(Drawn(c, type, shape, [&] { return low + (high - low) * Inside(rng); }));
}

// 1 where a number that was drawn is below the probability.
Result ImportBernoulli(NodeReader& n) {
  Composer c(n);
  TW_ASSIGN(Rng rng, GeneratorOf(n));
  const ValueId p = c.Input(0);
  TW_TRY(c.status());
  TW_ASSIGN(const ir::DType type, ReadType(n, "dtype", c.TypeOf(p).dtype));
  const ValueId drawn = Drawn(c, ir::kF32, c.Dims(p), [&] { return Inside(rng); });
  return c.Done(c.Cast(c.Op("less", {drawn, c.Cast(p, ir::kF32)}), type));
}

// Gumbel's trick: of logarithms of probabilities plus -log(-log(u)) the largest is at each place
// as often as its probability says.
Result ImportMultinomial(NodeReader& n) {
  Composer c(n);
  TW_ASSIGN(Rng rng, GeneratorOf(n));
  const ValueId x = c.Input(0);
  const std::vector<op::Dim> shape = c.Dims(x);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t count, n.Int("sample_size", 1));
  TW_ASSIGN(const ir::DType type, ReadType(n, "dtype", ir::kI32));
  if (c.Rank(x) != 2 || count < 1 || !type.is_int()) {
    return n.Error("shape",
                   StrCat("expected [batch,classes], samples and a type of integers, found ",
                          op::ToText(c.TypeOf(x)), ", ", count, " and ", ir::TypeName(type)));
  }
  const ValueId noise = Drawn(c, c.TypeOf(x).dtype, {shape[0], count, shape[1]},
                              [&] { return -std::log(-std::log(Inside(rng))); });
  const ValueId each = c.Add(c.ReshapeTo(x, {shape[0], 1, shape[1]}), noise);
  const ValueId most = c.Op("arg_reduce", {each},
                            {{"axis", int64_t{2}},
                             {"keepdims", int64_t{0}},
                             {"kind", std::string("max")},
                             {"last", int64_t{0}}});
  return c.Done(c.Cast(most, type));
}

}  // namespace tilewright::graph::onnx
