// Winograd's form of a convolution on channel blocks: every transform is along whole vectors of
// channels, tiles keep their row and column, so that schedules can work on a few rows of tiles.
#include "compiler/op/winograd.h"
#include "compiler/op/winograd_form.h"

namespace tilewright::op {
namespace {

using ir::Expr;
using ir::Int;
using ir::Load;
using Vars = std::vector<ir::Var>;

}  // namespace

std::vector<ir::Buffer> ComputeWinogradBlocked(ir::FunctionBuilder& b, const std::string& name,
                                               const WinogradForm& form, const ir::Buffer& x,
                                               const ir::Buffer& w, const BlockedImage& image,
                                               const TensorType& output) {
  const ir::DType type = x->dtype;
  const int64_t points = form.points, tile = form.tile;
  const int64_t batch = output.size(0), out_blocks = output.size(1), lanes = output.size(4);
  const int64_t in_blocks = *ir::AsInt(x->shape[1]);
  const int64_t rows = form.Tiles(output.size(2)), columns = form.Tiles(output.size(3));
  const int64_t overlap = kWinogradTaps - 1;
  // Tiles stick out at the far side even where nothing is padded.
  const Padded high = PadTo(image.pad_top, rows * tile + overlap, *ir::AsInt(x->shape[2])),
               wide = PadTo(image.pad_left, columns * tile + overlap, *ir::AsInt(x->shape[3]));
  const ir::Buffer padded = PadImage(b, name, x, high, wide);

  const ir::Buffer filter_rows =
      b.Compute(name + "_filter_rows", type,
                ShapeExprs(b, {points, kWinogradTaps, out_blocks, in_blocks, lanes, lanes}),
                {"a", "s", "oc", "ic", "ib", "ob"}, [&](const Vars& v) {
                  return WinogradTransform(form.filter, v[0], [&](int r) {
                    return Load(w, {v[2], v[3], Int(r), v[1], v[4], v[5]});
                  });
                });
  const ir::Buffer filter = b.Compute(
      name + "_filter", type, ShapeExprs(b, {points, points, out_blocks, in_blocks, lanes, lanes}),
      {"a", "b", "oc", "ic", "ib", "ob"}, [&](const Vars& v) {
        return WinogradTransform(form.filter, v[1], [&](int s) {
          return Load(filter_rows, {v[0], Int(s), v[2], v[3], v[4], v[5]});
        });
      });

  const ir::Buffer tile_rows = b.Compute(
      name + "_tile_rows", type,
      ShapeExprs(b, {batch, rows, columns, in_blocks, points, points, lanes}),
      {"n", "th", "tw", "ic", "a", "s", "ib"}, [&](const Vars& v) {
        return WinogradTransform(form.input, v[4], [&](int r) {
          return Load(padded,
                      {v[0], v[3], v[1] * Int(tile) + Int(r), v[2] * Int(tile) + v[5], v[6]});
        });
      });
  const ir::Buffer tiles = b.Compute(
      name + "_tile", type, ShapeExprs(b, {points, points, batch, rows, columns, in_blocks, lanes}),
      {"a", "b", "n", "th", "tw", "ic", "ib"}, [&](const Vars& v) {
        return WinogradTransform(form.input, v[1], [&](int s) {
          return Load(tile_rows, {v[2], v[3], v[4], v[5], v[0], Int(s), v[6]});
        });
      });

  const ir::Axis ic = b.ReduceAxis("ic", Int(in_blocks)), ib = b.ReduceAxis("ib", Int(lanes));
  const ir::Buffer products = b.Reduce(
      name + "_products", type,
      ShapeExprs(b, {points, points, batch, rows, columns, out_blocks, lanes}),
      {"a", "b", "n", "th", "tw", "oc", "ob"}, {ic, ib}, ir::Combiner::kSum, [&](const Vars& v) {
        return Load(tiles, {v[0], v[1], v[2], v[3], v[4], ic.var, ib.var}) *
               Load(filter, {v[0], v[1], v[5], ic.var, ib.var, v[6]});
      });

  const ir::Buffer out_rows =
      b.Compute(name + "_out_rows", type,
                ShapeExprs(b, {batch, out_blocks, rows, columns, tile, points, lanes}),
                {"n", "oc", "th", "tw", "i", "b", "ob"}, [&](const Vars& v) {
                  return WinogradTransform(form.output, v[4], [&](int a) {
                    return Load(products, {Int(a), v[5], v[0], v[2], v[3], v[1], v[6]});
                  });
                });
  return {b.Compute(
      name, type, ShapeExprs(b, output.shape), {"n", "oc", "oh", "ow", "ob"}, [&](const Vars& v) {
        return WinogradTransform(form.output, ir::FloorMod(v[3], Int(tile)), [&](int s) {
          return Load(out_rows,
                      {v[0], v[1], ir::FloorDiv(v[2], Int(tile)), ir::FloorDiv(v[3], Int(tile)),
                       ir::FloorMod(v[2], Int(tile)), Int(s), v[4]});
        });
      })};
}

}  // namespace tilewright::op
