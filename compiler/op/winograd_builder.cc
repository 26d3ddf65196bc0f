#include "compiler/op/winograd_builder.h"

#include <functional>
#include <map>
#include <string>

#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using ir::Expr;
using ir::Int;
using ir::Load;
using ir::Var;

// By the name of an axis: a loop's variable, a place, or the axis's extent.
using Axes = std::map<std::string, Expr, std::less<>>;

Axes With(Axes axes, const Axes& other) {
  for (const auto& [name, value] : other) axes[name] = value;
  return axes;
}

struct Stage {
  ir::Buffer buffer;
  std::vector<std::string> axes;

  Expr At(const Axes& place) const {
    std::vector<Expr> index;
    for (const std::string& axis : axes) index.push_back(place.at(axis));
    return Load(buffer, std::move(index));
  }
};

class Builder {
 public:
  Builder(const ComputeArgs& args, const ConvShape& c, const WinogradForm& form)
      : b_(args.b),
        name_(args.name),
        c_(c),
        form_(form),
        layout_(c.in_blocks() ? kGridOfTiles : kNumberedTiles),
        x_(args.inputs[0]),
        w_(args.inputs[1]),
        bias_(args.inputs.size() > 2 ? args.inputs[2] : nullptr),
        type_(x_->dtype),
        rows_(form.Tiles(c.out_height)),
        columns_(form.Tiles(c.out_width)) {
    const Expr points = Int(form.points);
    extents_ = {{"a", points},
                {"b", points},
                {"s", points},
                {"i", Int(form.tile)},
                {"n", SizeExpr(b_, c.batch)},
                {"oh", SizeExpr(b_, c.out_height)},
                {"ow", SizeExpr(b_, c.out_width)},
                {"ic", Int(c.in_channels / c.in_block())},
                {"oc", Int(c.out_channels / c.out_block())},
                {"ib", Int(c.in_block())},
                {"ob", Int(c.out_block())}};
    if (grid()) {
      extents_.insert({{"th", SizeExpr(b_, rows_)}, {"tw", SizeExpr(b_, columns_)}});
    } else {
      extents_["p"] = Int(c.batch.value() * rows_.value() * columns_.value());
    }
  }

  ir::Buffer Run() {
    if (grid()) Pad();
    const Stage filter = Filter(), input = Input(), products = Products(filter, input);
    const Stage rows = Make("_out_rows", layout_.out_rows, {}, [&](const Axes& at) {
      return WinogradTransform(form_.output, at.at("i"),
                               [&](int a) { return products.At(With(at, {{"a", Int(a)}})); });
    });
    return Make("", layout_.result, {}, [&](const Axes& at) { return Result(rows, at); }).buffer;
  }

 private:
  bool grid() const { return c_.in_blocks(); }

  Stage Make(std::string_view suffix, std::string_view order, const Axes& extents,
             const std::function<Expr(const Axes&)>& value) {
    const std::vector<std::string> axes = support::Split(order, ' ');
    const Axes all = With(extents_, extents);
    std::vector<Expr> shape;
    for (const std::string& axis : axes) shape.push_back(all.at(axis));
    return {b_.Compute(name_ + std::string(suffix), type_, shape, axes,
                       [&](const std::vector<Var>& v) { return value(Named(axes, v)); }),
            axes};
  }

  static Axes Named(const std::vector<std::string>& axes, const std::vector<Var>& v) {
    Axes named;
    for (size_t i = 0; i < axes.size(); ++i) named[axes[i]] = v[i];
    return named;
  }

  // The digits of a channel: its number, or its block and its place in it.
  Place Channel(const Axes& at, std::string_view whole, std::string_view inner,
                int64_t block) const {
    Place place = {{at.find(whole)->second}};
    if (grid()) place.push_back({at.find(inner)->second, block});
    return place;
  }

  Stage Filter() {
    const Stage half =
        Make("_filter_rows", layout_.filter_rows, {{"s", Int(kWinogradTaps)}}, [&](const Axes& at) {
          const Place out = Channel(at, "oc", "ob", c_.out_block());
          const Place in = Channel(at, "ic", "ib", c_.in_block());
          return WinogradTransform(form_.filter, at.at("a"), [&](int r) {
            const Place places[] = {out, in, {{Int(r)}}, {{at.at("s")}}};
            return Load(w_, c_.weights.Index(places));
          });
        });
    return Make("_filter", layout_.filter, {}, [&](const Axes& at) {
      return WinogradTransform(form_.filter, at.at("b"),
                               [&](int s) { return half.At(With(at, {{"s", Int(s)}})); });
    });
  }

  Stage Input() {
    const Stage half = Make("_tile_rows", layout_.tile_rows, {}, [&](const Axes& at) {
      return WinogradTransform(form_.input, at.at("a"), [&](int r) { return Pixel(at, r); });
    });
    return Make("_tile", layout_.tile, {}, [&](const Axes& at) {
      return WinogradTransform(form_.input, at.at("b"),
                               [&](int s) { return half.At(With(at, {{"s", Int(s)}})); });
    });
  }

  Stage Products(const Stage& filter, const Stage& input) {
    const std::vector<std::string> axes = support::Split(layout_.products, ' ');
    std::vector<Expr> shape;
    for (const std::string& axis : axes) shape.push_back(extents_.at(axis));
    std::vector<ir::Axis> sums = {b_.ReduceAxis("ic", extents_.at("ic"))};
    if (grid()) sums.push_back(b_.ReduceAxis("ib", extents_.at("ib")));
    return {b_.Reduce(name_ + "_products", type_, shape, axes, sums, ir::Combiner::kSum,
                      [&](const std::vector<Var>& v) {
                        Axes at = Named(axes, v);
                        at["ic"] = sums[0].var;
                        if (grid()) at["ib"] = sums[1].var;
                        return input.At(at) * filter.At(at);
                      }),
            axes};
  }

  // Tiles stick out at the far side even where nothing is padded.
  void Pad() {
    const Dim tile = form_.tile, overlap = kWinogradTaps - 1;
    x_ = PadImage(b_, name_, x_, PadTo(c_.h.pad_begin, rows_ * tile + overlap, c_.height),
                  PadTo(c_.w.pad_begin, columns_ * tile + overlap, c_.width));
  }

  // Row `r` and column `s` of a tile.
  Expr Pixel(const Axes& at, int r) const {
    const Expr tile = Int(form_.tile);
    if (grid()) {
      return Load(x_, {at.at("n"), at.at("ic"), at.at("th") * tile + Int(r),
                       at.at("tw") * tile + at.at("s"), at.at("ib")});
    }
    const Expr &p = at.at("p"), rows = Int(rows_.value()), columns = Int(columns_.value());
    const Expr in_column = ir::FloorMod(p, columns) * tile + at.at("s");
    const Expr in_row = ir::FloorMod(ir::FloorDiv(p, columns), rows) * tile;
    const Expr image = ir::FloorDiv(p, Int(rows_.value() * columns_.value()));
    const Expr row = in_row + Int(r - c_.h.pad_begin), column = in_column - Int(c_.w.pad_begin);
    const Expr inside = row >= Int(0) && row < Int(c_.height.value()) && column >= Int(0) &&
                        column < Int(c_.width.value());
    return ir::Select(inside, Load(x_, {image, at.at("ic"), row, column}), ir::Zero(type_));
  }

  Expr Result(const Stage& rows, const Axes& at) const {
    const Expr tile = Int(form_.tile);
    const Expr &oh = at.at("oh"), &ow = at.at("ow");
    const Expr th = ir::FloorDiv(oh, tile), tw = ir::FloorDiv(ow, tile);
    Axes place = With(at, {{"th", th}, {"tw", tw}, {"i", ir::FloorMod(oh, tile)}});
    if (!grid()) {
      place["p"] = (at.at("n") * Int(rows_.value()) + th) * Int(columns_.value()) + tw;
    }
    const Expr sum = WinogradTransform(form_.output, ir::FloorMod(ow, tile), [&](int s) {
      return rows.At(With(place, {{"b", Int(s)}}));
    });
    return bias_ == nullptr ? sum : sum + Load(bias_, {at.at("oc")});
  }

  ir::FunctionBuilder& b_;
  const std::string& name_;
  const ConvShape& c_;
  const WinogradForm& form_;
  const WinogradLayout& layout_;
  ir::Buffer x_;
  const ir::Buffer w_, bias_;
  const ir::DType type_;
  const Dim rows_, columns_;  // of tiles
  Axes extents_;
};

}  // namespace

std::vector<ir::Buffer> ComputeWinogradStages(const ComputeArgs& args, const ConvShape& c,
                                              const WinogradForm& form) {
  return {Builder(args, c, form).Run()};
}

}  // namespace tilewright::op
