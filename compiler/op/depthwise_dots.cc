#include "compiler/op/depthwise_dots.h"

#include <algorithm>

namespace tilewright::op {
namespace {

using ir::Expr;
using ir::Int;
using ir::Load;
using Vars = std::vector<ir::Var>;

}  // namespace

bool DepthwiseDotsApply(ir::DType image, const Window& columns) {
  return image == ir::kU8 && columns.dilation == 1 && columns.kernel >= 2 && columns.kernel <= kDot;
}

std::vector<ir::Buffer> ComputeDepthwiseDots(ir::FunctionBuilder& b, const std::string& name,
                                             const ir::Buffer& x, const ir::Buffer& w, Window rows,
                                             Window columns, int64_t pad_value,
                                             const TensorType& output) {
  const int64_t batch = output.size(0), blocks = output.size(1), lanes = output.size(4);
  const int64_t height = output.size(2), width = output.size(3);
  const int64_t places = 1 + (kDot - columns.kernel) / columns.stride;
  const int64_t windows = (width + places - 1) / places, step = places * columns.stride;
  // Windows begin at an even pixel where there is room: fewer of them cross a line of the cache.
  const int64_t room = kDot - columns.kernel - (places - 1) * columns.stride;
  const int64_t lead = std::min(room, columns.pad_begin % 2);
  const Padded high = TakePadding(&rows, *ir::AsInt(x->shape[2]), height);
  // The last window may stick out at the far side even where nothing is padded.
  const Padded wide =
      PadTo(columns.pad_begin + lead, (windows - 1) * step + kDot, *ir::AsInt(x->shape[3]));
  const ir::Buffer padded = PadImage(b, name, x, high, wide, pad_value);

  const ir::Buffer side_by_side =
      b.Compute(name + "_windows", x->dtype,
                ShapeExprs(b, {batch, blocks, high.extent, windows, lanes, kDot}),
                {"n", "c", "ih", "g", "b", "k"}, [&](const Vars& v) {
                  return Load(padded, {v[0], v[1], v[2], v[3] * Int(step) + v[5], v[4]});
                });
  // Tap k - lead - place · stride, or 0.
  const ir::Buffer taps =
      b.Compute(name + "_taps", w->dtype, ShapeExprs(b, {blocks, rows.kernel, places, lanes, kDot}),
                {"c", "kh", "p", "b", "k"}, [&](const Vars& v) {
                  const Expr tap = v[4] - (v[2] * Int(columns.stride) + Int(lead));
                  const Expr inside = tap >= Int(0) && tap < Int(columns.kernel);
                  return ir::Select(inside, Load(w, {v[0], v[1], tap, v[3]}), ir::Zero(w->dtype));
                });
  const ir::Axis kh = b.ReduceAxis("kh", Int(rows.kernel)), k = b.ReduceAxis("k", Int(kDot));
  const ir::Buffer sums = b.Reduce(
      name + "_sums", output.dtype, ShapeExprs(b, {batch, blocks, height, windows, places, lanes}),
      {"n", "c", "oh", "g", "p", "b"}, {kh, k}, ir::Combiner::kSum, [&](const Vars& v) {
        const Expr pixel =
            Load(side_by_side, {v[0], v[1], rows.Position(v[2], kh.var), v[3], v[5], k.var});
        const Expr weight = Load(taps, {v[1], kh.var, v[4], v[5], k.var});
        return ir::Cast(output.dtype, pixel) * ir::Cast(output.dtype, weight);
      });
  return {b.Compute(name, output.dtype, ShapeExprs(b, output.shape), {"n", "oc", "oh", "ow", "ob"},
                    [&](const Vars& v) {
                      return Load(sums, {v[0], v[1], v[2], ir::FloorDiv(v[3], Int(places)),
                                         ir::FloorMod(v[3], Int(places)), v[4]});
                    })};
}

}  // namespace tilewright::op
