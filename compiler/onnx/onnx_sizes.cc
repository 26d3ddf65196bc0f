#include "compiler/onnx/onnx_sizes.h"

namespace tilewright::graph::onnx {

ValueId NamedDimensions(Composer& c, int i, int64_t rank) {
  ValueId axes = c.Cast(c.Input(i), ir::kI64);
  if (!c.ok()) return kNone;
  axes = c.Reshape(axes, {c.TypeOf(axes).elements(), 1});
  const ValueId from_end = c.Add(axes, c.Number(rank));
  axes = c.Op("where", {c.Op("less", {axes, c.Number(0)}), from_end, axes});
  const ValueId hits = c.Op("equal", {axes, c.Counting(ir::kI64, rank, 1, 2)});
  return c.Reduce("max", c.Cast(hits, ir::kI64), {0}, false);
}

// Each size that is kept moves to the place that as many kept ones come before.
void ExpectKept(Composer& c, ValueId removed, const std::vector<int64_t>& shape,
                const std::vector<int64_t>& stated) {
  const auto rank = static_cast<int64_t>(shape.size()), left = static_cast<int64_t>(stated.size());
  if (left > 0) {
    const ValueId kept = c.Sub(c.Number(1), removed);
    const ValueId place = Cumulative(c, "sum", kept, 0, true, false);
    const ValueId here =
        c.Op("equal", {c.Reshape(place, {1, rank}), c.Counting(ir::kI64, left, 0, 2)});
    const ValueId sizes = c.Mul(kept, c.SizesOf({shape.begin(), shape.end()}));
    c.ExpectSizes(c.Reduce("sum", c.Op("where", {here, sizes, c.Number(0)}), {1}, false), stated);
  }
  c.ExpectSizes(c.Reduce("sum", removed, {0}), {rank - left});
}

ValueId StepsBetween(Composer& c, ValueId start, ValueId end, ValueId step) {
  const ValueId span = c.Sub(end, start);
  ValueId count = kNone;
  if (!c.ok()) return kNone;
  if (!c.TypeOf(step).dtype.is_float() && c.node().importer().ConstantScalar(step) == 1) {
    count = c.Cast(span, ir::kI64);
  } else if (c.TypeOf(step).dtype.is_float()) {
    count = c.Cast(c.Op("ceil", {c.Div(span, step)}), ir::kI64);
  } else {
    // Integers divide towards 0: a rest in the direction of the step makes one more.
    const ValueId whole = c.Div(span, step), zero = c.Scalar(0, c.TypeOf(step).dtype);
    const ValueId rest = c.Sub(span, c.Mul(whole, step));
    const ValueId one_more = c.Op("less", {zero, c.Mul(rest, step)});
    count = c.Add(c.Cast(whole, ir::kI64), c.Cast(one_more, ir::kI64));
  }
  return c.Op("max", {count, c.Number(0)});
}

}  // namespace tilewright::graph::onnx
