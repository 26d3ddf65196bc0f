// Mel bands: what each bin of a spectrum adds to each band. Triangles between neighbouring
// frequencies that are evenly spaced on the mel scale; frequencies fall on the bin below them.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

constexpr double kMostWeights = 1 << 24;
// 2595 log10(1 + hertz / 700)
constexpr double kMels = 2595, kHertz = 700;

// Operands that are inputs of the model: the stated shape says how many bins and bands there are,
// and the module computes the same formula.
Result AtRunTime(Composer& c, ir::DType type) {
  NodeReader& n = c.node();
  const std::optional<std::vector<int64_t>> stated = n.StatedShape();
  if (!stated || stated->size() != 2 ||
      static_cast<double>((*stated)[0]) * static_cast<double>((*stated)[1]) > kMostWeights) {
    return n.Error("dynamic", StrCat("expected constant operands, or a stated shape of at most ",
                                     kMostWeights, " weights"));
  }
  const int64_t bins = (*stated)[0], bands = (*stated)[1];
  const auto number = [&](int i, ir::DType as) { return c.Reshape(c.Cast(c.Input(i), as), {}); };
  const auto real = [&](double value) { return c.Scalar(value, ir::kF64); };
  const ValueId bins_found = c.Add(c.Div(number(1, ir::kI64), c.Number(2)), c.Number(1));
  c.ExpectSizes(c.Concat({c.Reshape(bins_found, {1}), c.Reshape(number(0, ir::kI64), {1})}, 0),
                *stated);

  const auto mel = [&](ValueId hertz) {
    const ValueId log = c.Op("log", {c.Add(c.Div(hertz, real(kHertz)), real(1))});
    return c.Mul(log, real(kMels / std::numbers::ln10));
  };
  const ValueId lowest = mel(number(3, ir::kF64));
  const ValueId step =
      c.Div(c.Sub(mel(number(4, ir::kF64)), lowest), real(static_cast<double>(bands + 2)));
  const ValueId at = c.Add(c.Mul(c.Counting(ir::kF64, bands + 2, 0, 1), step), lowest);
  const ValueId power = c.Op("exp", {c.Mul(at, real(std::numbers::ln10 / kMels))});
  const ValueId hertz = c.Mul(c.Sub(power, real(1)), real(kHertz));
  const ValueId per_hertz = c.Div(c.Add(number(1, ir::kF64), real(1)), number(2, ir::kF64));
  const ValueId bin = c.Op("floor", {c.Mul(hertz, per_hertz)});

  const auto edge = [&](int64_t first) { return c.Slice(bin, 0, first, bands); };
  const ValueId low = edge(0), middle = edge(1), high = edge(2);
  const ValueId j = c.Counting(ir::kF64, bins, 0, 2);
  const ValueId rises = c.Op("less_equal", {j, middle});
  const ValueId side = c.Op("where", {rises, c.Sub(middle, low), c.Sub(high, middle)});
  const ValueId from_edge = c.Op("where", {rises, c.Sub(j, low), c.Sub(high, j)});
  const ValueId share = c.Div(from_edge, c.Op("max", {side, real(1)}));
  const ValueId inside =
      c.Op("and", {c.Op("greater_equal", {j, low}),
                   c.Op("less", {j, c.Op("max", {high, c.Add(middle, real(1))})})});
  const ValueId weight = c.Op("where", {c.Op("equal", {side, real(0)}), real(1), share});
  return c.Done(c.Cast(c.Op("where", {inside, weight, real(0)}), type));
}

}  // namespace

Result ImportMelWeightMatrix(NodeReader& n) {
  Composer c(n);
  TW_ASSIGN(const ir::DType type, ReadType(n, "output_datatype", ir::kF32));
  double number[5];
  for (int i = 0; i < 5; ++i) {
    TW_ASSIGN(const ValueId id, n.Input(i));
    const std::optional<double> known = n.importer().ConstantScalar(id);
    if (!known) return AtRunTime(c, type);
    number[i] = *known;
  }
  const auto [bands_given, length, rate, lowest, highest] = std::to_array(number);
  const bool sizes_good = bands_given >= 1 && length >= 1 && rate >= 1 && lowest >= 0 &&
                          highest >= lowest && 2 * highest <= rate &&
                          bands_given * (length / 2 + 1) <= kMostWeights;
  if (!sizes_good) {
    return n.Error("shape", StrCat("expected bands, a length, a rate and frequencies up to half of "
                                   "it, at most ",
                                   kMostWeights, " weights, found others"));
  }
  const auto bands = static_cast<int64_t>(bands_given);
  const int64_t bins = static_cast<int64_t>(length) / 2 + 1;
  const auto mel = [](double hertz) { return kMels * std::log10(1 + hertz / kHertz); };
  const double step = (mel(highest) - mel(lowest)) / static_cast<double>(bands + 2);
  const auto bin = [&](int64_t edge) {
    const double at = mel(lowest) + static_cast<double>(edge) * step;
    const double hertz = kHertz * (std::pow(10, at / kMels) - 1);
    return static_cast<int64_t>(std::floor((length + 1) * hertz / rate));
  };
  std::vector<double> weights(static_cast<size_t>(bins * bands), 0);
  for (int64_t band = 0; band < bands; ++band) {
    const int64_t low = bin(band), middle = bin(band + 1), high = bin(band + 2);
    for (int64_t j = low; j < std::min(bins, std::max(high, middle + 1)); ++j) {
      const int64_t side = j <= middle ? middle - low : high - middle;
      const int64_t from_edge = j <= middle ? j - low : high - j;
      weights[j * bands + band] =
          side == 0 ? 1 : static_cast<double>(from_edge) / static_cast<double>(side);
    }
  }
  return c.Done(c.Constant(type, {bins, bands}, std::move(weights)));
}

}  // namespace tilewright::graph::onnx
