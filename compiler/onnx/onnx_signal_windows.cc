// HannWindow, HammingWindow and BlackmanWindow: weights of the elements of a frame of a signal.
#include <cmath>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

constexpr int64_t kMaxCount = int64_t{1} << 28;  // elements

absl::StatusOr<op::Dim> WindowSize(Composer& c) {
  NodeReader& n = c.node();
  const ValueId given = c.Input(0);
  TW_TRY(c.status());
  if (!c.TypeOf(given).fixed() || c.TypeOf(given).elements() != 1) {
    return n.Error("shape", StrCat("expected one size, found ", op::ToText(c.TypeOf(given))));
  }
  if (!n.IsDynamic(0)) {
    TW_ASSIGN(const std::vector<op::Dim> size, n.InputDims(0, "size"));
    return size[0];
  }
  const op::Dim found = c.FoundSize(c.Reshape(given, {}), 0, {});
  TW_TRY(c.status());
  return found;
}

// The same formula as of a known size, in floats of 32 bits or more. With one element and no
// period it has the top.
struct WindowTerms {
  double mean, once, twice;
};
Result WindowOfOpenSize(Composer& c, const op::Dim& size, bool periodic, const WindowTerms& w,
                        ir::DType type) {
  const ir::DType wide = type == ir::kF64 ? type : ir::kF32;
  const auto real = [&](double value) { return c.Scalar(value, wide); };
  const ValueId length = c.SizeOf(periodic ? size : size - op::Dim(1), wide);
  const ValueId none = c.Op("less", {length, real(0.5)});
  const ValueId turn =
      c.Op("where", {none, real(0.5), c.Div(c.Counting(wide, size, 0, 1), length)});
  const auto wave = [&](double factor, double turns) {
    return c.Mul(c.Op("cos", {c.Mul(turn, real(2 * M_PI * turns))}), real(factor));
  };
  const ValueId once = c.Sub(real(w.mean), wave(w.once, 1));
  return c.Done(c.Cast(w.twice == 0 ? once : c.Add(once, wave(w.twice, 2)), type));
}

}  // namespace

// HannWindow, HammingWindow and BlackmanWindow: sums of cosines.
Result ImportWindowFunction(NodeReader& n) {
  Composer c(n);
  TW_ASSIGN(const int64_t periodic, n.Int("periodic", 1));
  TW_ASSIGN(const ir::DType type, ReadType(n, "output_datatype", ir::kF32));
  const bool hann = n.op_type() == "HannWindow", hamming = n.op_type() == "HammingWindow";
  const double mean = hann ? 0.5 : hamming ? 25.0 / 46 : 0.42;
  const double once = hann ? 0.5 : hamming ? 21.0 / 46 : 0.5, twice = hann || hamming ? 0 : 0.08;
  TW_ASSIGN(const op::Dim count, WindowSize(c));
  if (!count.is_constant()) {
    return WindowOfOpenSize(c, count, periodic != 0, {mean, once, twice}, type);
  }
  const int64_t size = count.value();
  if (size < 0 || size > kMaxCount) {
    return n.Error("shape", StrCat("expected a size in 0 to ", kMaxCount, ", found ", size));
  }
  const double length = static_cast<double>(periodic != 0 ? size : size - 1);
  std::vector<double> values;
  for (int64_t i = 0; i < size; ++i) {
    const double turn =
        length == 0 ? 0.5 : static_cast<double>(i) / length;  // one element: the top
    values.push_back(mean - once * std::cos(2 * M_PI * turn) + twice * std::cos(4 * M_PI * turn));
  }
  return c.Done(c.Constant(type, {size}, std::move(values)));
}

}  // namespace tilewright::graph::onnx
