// Windows as tables: which elements of an image each window has (MaxPool's indices), or which
// windows each element is in (Col2Im). The tables are constants of the module.
#include <algorithm>
#include <cmath>

#include "compiler/onnx/onnx_run_time_choice.h"
#include "compiler/onnx/onnx_volume_ops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;
using Ints = std::vector<int64_t>;

constexpr int64_t kMaxTable = int64_t{1} << 22;  // entries

// The product of these sizes, or -1 beyond `limit`. REQUIRES: sizes >= 1.
int64_t Bounded(const Ints& sizes, int64_t limit) {
  int64_t product = 1;
  for (const int64_t size : sizes) {
    if (size > limit / product) return -1;
    product *= size;
  }
  return product;
}

// Calls visit(index) for every index of a row-major tensor of this shape.
template <typename Visit>
void ForEachIndex(const Ints& shape, const Visit& visit) {
  Ints index(shape.size(), 0);
  for (;;) {
    visit(index);
    size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

// Position of an index, the last or the first dimension running fastest.
int64_t Position(const Ints& index, const Ints& shape, bool column_major) {
  int64_t at = 0;
  for (size_t k = 0; k < index.size(); ++k) {
    const size_t d = column_major ? index.size() - 1 - k : k;
    at = at * shape[d] + index[d];
  }
  return at;
}

// A table i64[1, rows, taps]; entries of -1 stand for nothing.
struct Table {
  int64_t rows = 0, taps = 0;
  Ints entries;

  ValueId Entries(Composer& c, bool clamped) const {
    std::vector<double> values;
    for (const int64_t e : entries) values.push_back(static_cast<double>(clamped && e < 0 ? 0 : e));
    return c.Constant(ir::kI64, {1, rows, taps}, std::move(values));
  }
  ValueId Inside(Composer& c) const {
    std::vector<double> values;
    for (const int64_t e : entries) values.push_back(e >= 0);
    return c.Constant(ir::kBool, {1, rows, taps}, std::move(values));
  }
  bool full() const {
    return std::none_of(entries.begin(), entries.end(), [](int64_t e) { return e < 0; });
  }
};

// Elements of x [images, elements] by the table, `outside` where it has none.
ValueId Gathered(Composer& c, ValueId x, const Table& table, double outside) {
  if (!c.ok()) return kNone;
  const int64_t images = c.Shape(x)[0];
  const ValueId at = c.Reshape(table.Entries(c, true), {table.rows * table.taps});
  const ValueId values =
      c.Reshape(c.Op("gather", {x, at}, {{"axis", int64_t{1}}}), {images, table.rows, table.taps});
  if (table.full()) return values;
  return c.Op("where", {table.Inside(c), values, c.Scalar(outside, c.TypeOf(x).dtype)});
}

}  // namespace

double Lowest(ir::DType type) {
  if (type.is_float()) return -HUGE_VAL;
  return type.code == ir::TypeCode::kUInt ? 0 : -std::ldexp(1, type.bits - 1);
}

ValueId PlacesOfMax(Composer& c, ValueId x, const WindowAttrs& w, bool column_major) {
  const Ints shape = c.Shape(x), spatial(shape.begin() + 2, shape.end());
  if (!c.ok()) return kNone;
  Ints outputs;
  for (size_t d = 0; d < spatial.size(); ++d) {
    const int64_t room = spatial[d] + w.pads[d] + w.pads[d + spatial.size()] -
                         w.dilations[d] * (w.kernel[d] - 1) - 1;
    if (room < 0) return c.Fail("shape", "expected a window that fits into the padded input");
    outputs.push_back(room / w.strides[d] + 1);
  }
  Table row_major{Bounded(outputs, kMaxTable), Bounded(w.kernel, kMaxTable), {}};
  if (row_major.rows < 0 || row_major.taps < 0 || row_major.rows > kMaxTable / row_major.taps) {
    return c.Fail("too_large", StrCat("expected at most ", kMaxTable,
                                      " elements in all windows of an image, found more"));
  }
  Table wanted = row_major;
  ForEachIndex(outputs, [&](const Ints& output) {
    ForEachIndex(w.kernel, [&](const Ints& tap) {
      Ints at = output;
      bool inside = true;
      for (size_t d = 0; d < at.size(); ++d) {
        at[d] = output[d] * w.strides[d] + tap[d] * w.dilations[d] - w.pads[d];
        inside = inside && at[d] >= 0 && at[d] < spatial[d];
      }
      row_major.entries.push_back(inside ? Position(at, spatial, false) : -1);
      wanted.entries.push_back(inside ? Position(at, spatial, column_major) : -1);
    });
  });
  const int64_t images = shape[0] * shape[1], elements = c.TypeOf(x).elements() / images;
  const ValueId flat = c.Reshape(x, {images, elements});
  const ValueId values = Gathered(c, flat, row_major, Lowest(c.TypeOf(x).dtype));
  const ValueId best = c.Op("arg_reduce", {values}, {{"axis", int64_t{2}}});
  const ValueId hit = c.Op("equal", {c.Counting(ir::kI64, wanted.taps, 2, 3), best});
  const ValueId place =
      c.Reduce("sum", c.Op("where", {hit, wanted.Entries(c, true), c.Number(0)}), {2}, false);
  const ValueId first = c.Mul(c.Counting(ir::kI64, images, 0, 2), c.Number(elements));
  Ints result = {shape[0], shape[1]};
  result.insert(result.end(), outputs.begin(), outputs.end());
  return c.Reshape(c.Add(place, first), result);
}

// Zeros, with each element at the place that MaxPool says it came from. A place in another image
// than the element's counts for none.
Result ImportMaxUnpool(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0), places = c.Cast(c.Input(1), ir::kI64);
  TW_TRY(c.status());
  const Ints shape = c.Shape(x);
  if (shape.size() < 3 || c.Shape(places) != shape) {
    return n.Error("shape", StrCat("expected images and a place for each element, found ",
                                   op::ToText(c.TypeOf(x)), " and ", op::ToText(c.TypeOf(places))));
  }
  const Ints spatial(shape.begin() + 2, shape.end());
  TW_ASSIGN(const WindowAttrs w, ReadWindow(n, spatial, {}));
  Ints natural = {shape[0], shape[1]};
  for (size_t d = 0; d < spatial.size(); ++d) {
    if (spatial[d] > op::kMaxTensorBytes / w.strides[d]) {
      return n.Error("too_large", "expected smaller images or strides");
    }
    natural.push_back((spatial[d] - 1) * w.strides[d] + w.kernel[d] - w.pads[d] -
                      w.pads[d + spatial.size()]);
    if (natural.back() < 1) return n.Error("shape", "expected pads smaller than the result");
  }
  Ints wanted = natural;
  if (n.IsDynamic(2)) {
    const std::optional<Ints> stated = n.StatedShape();
    if (!stated) return n.Error("dynamic", "expected a constant output_shape, or a stated one");
    wanted = *stated;
    c.ExpectSizes(c.Input(2), wanted);
    TW_TRY(c.status());
  } else if (n.HasInput(2)) {
    TW_ASSIGN(wanted, n.InputInts(2, "output_shape"));
  }
  TW_TRY(op::CheckType({c.TypeOf(x).dtype, natural}));
  const int64_t images = shape[0] * shape[1];
  const int64_t from = c.TypeOf(x).elements() / images;
  const int64_t to = op::TensorType{ir::kF32, natural}.elements() / images;
  if (from > (int64_t{1} << 34) / to || images * to > int64_t{1} << 28) {
    return n.Error("too_large",
                   "expected smaller images: every element of the result is compared "
                   "with every place");
  }
  const ValueId first = c.Mul(c.Counting(ir::kI64, images, 0, 2), c.Number(to));
  const ValueId local = c.Sub(c.Reshape(places, {images, from}), first);
  const ValueId zeros = c.Broadcast(c.Scalar(0, c.TypeOf(x).dtype), {images, to, 1});
  ValueId y = c.Reshape(
      ScatterLast(c, zeros, c.Reshape(local, {images, from, 1}), c.Reshape(x, {images, from, 1})),
      natural);
  TW_TRY(c.status());
  if (wanted == natural) return c.Done(y);
  Ints pads(2 * shape.size(), 0);  // a larger result has zeros at its ends
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t more = wanted.size() == shape.size() ? wanted[d] - natural[d] : -1;
    if (more < 0 || more > int64_t{1} << 24) {
      return n.Error("shape",
                     StrCat("expected an output_shape of at least [", support::Join(natural, ","),
                            "], found [", support::Join(wanted, ","), "]"));
    }
    pads[shape.size() + d] = more;
  }
  return c.Done(c.Op("pad", {y}, {{"pads", pads}, {"value", 0.0}}));
}

namespace {

// The columns of images, and where the windows of a block are in one.
struct Columns {
  ValueId x = kNone;  // [n, channels * block, windows]
  Ints image, block, windows;
  WindowAttrs window = {};
};

absl::StatusOr<Columns> ReadColumns(Composer& c, ValueId x, Ints image, Ints block) {
  NodeReader& n = c.node();
  const Ints shape = c.Shape(x);
  TW_TRY(c.status());
  const auto positive = [](int64_t v) { return v >= 1; };
  if (shape.size() != 3 || image.empty() || image.size() > 8 || image.size() != block.size() ||
      !std::ranges::all_of(image, positive) || !std::ranges::all_of(block, positive)) {
    return n.Error("shape", StrCat("expected columns [n, channels * block, windows] and positive "
                                   "sizes of the image and the block, found ",
                                   op::ToText(c.TypeOf(x))));
  }
  const int64_t rows = Bounded(image, kMaxTable), taps = Bounded(block, kMaxTable);
  if (rows < 0 || taps < 0 || rows > kMaxTable / taps) {
    return n.Error("too_large", StrCat("expected at most ", kMaxTable,
                                       " elements in all windows of an image, found more"));
  }
  Columns columns{x, std::move(image), std::move(block), {}};
  TW_ASSIGN(columns.window, ReadWindow(n, columns.image, columns.block));
  const WindowAttrs& w = columns.window;
  for (size_t d = 0; d < columns.image.size(); ++d) {
    const int64_t covered = w.dilations[d] * (columns.block[d] - 1) + 1;
    const int64_t room = columns.image[d] + w.pads[d] + w.pads[d + columns.image.size()] - covered;
    if (room < 0) return n.Error("shape", "expected a block that fits into the padded image");
    columns.windows.push_back(room / w.strides[d] + 1);
  }
  const int64_t count = Bounded(columns.windows, kMaxTable);
  if (count == shape[2] && shape[1] % taps == 0) return columns;
  return n.Error("shape", StrCat("expected ", count, " windows of ", taps,
                                 " elements per channel, found ", op::ToText(c.TypeOf(x))));
}

// The images: each element is the sum of those of its columns.
ValueId ImagesOf(Composer& c, const Columns& columns) {
  const auto& [x, image, block, windows, w] = columns;
  const Ints shape = c.Shape(x);
  Table table{Bounded(image, kMaxTable), Bounded(block, kMaxTable), {}};
  const int64_t count = Bounded(windows, kMaxTable);
  ForEachIndex(image, [&](const Ints& at) {
    ForEachIndex(block, [&](const Ints& tap) {
      Ints window = at;
      bool inside = true;
      for (size_t d = 0; d < at.size(); ++d) {
        const int64_t start = at[d] + w.pads[d] - tap[d] * w.dilations[d];
        window[d] = start / w.strides[d];
        inside = inside && start >= 0 && start % w.strides[d] == 0 && window[d] < windows[d];
      }
      table.entries.push_back(
          inside ? Position(tap, block, false) * count + Position(window, windows, false) : -1);
    });
  });
  const int64_t channels = shape[1] / table.taps;
  const ValueId lists = c.Reshape(x, {shape[0] * channels, table.taps * count});
  if (!c.ok()) return kNone;
  const ValueId sums = c.Reduce("sum", Gathered(c, lists, table, 0), {2}, false);
  Ints result = {shape[0], channels};
  result.insert(result.end(), image.begin(), image.end());
  return c.Reshape(sums, result);
}

constexpr size_t kMostBlocks = 16;  // that a run chooses from
constexpr size_t kMostTried = 1024;

// Shapes of so many elements in this many dimensions, added to `all`: kMostTried at most.
void AddBlocks(int64_t elements, size_t rank, Ints begin, std::vector<Ints>* all) {
  if (all->size() == kMostTried) return;
  if (begin.size() + 1 == rank) {
    begin.push_back(elements);
    all->push_back(std::move(begin));
    return;
  }
  for (int64_t size = 1; size <= elements; ++size) {
    if (elements % size != 0) continue;
    Ints more = begin;
    more.push_back(size);
    AddBlocks(elements / size, rank, std::move(more), all);
  }
}

// Shapes that are inputs of the model: the image is that of the stated result; the module computes
// the result for each shape of a block that gives it, and chooses.
Result Col2ImAtRunTime(Composer& c, ValueId x) {
  NodeReader& n = c.node();
  const std::optional<Ints> stated = n.StatedShape();
  const Ints shape = c.Shape(x);
  TW_TRY(c.status());
  if (!stated || stated->size() < 3 || stated->size() > 10 || shape.size() != 3 ||
      (*stated)[1] < 1 || shape[1] % (*stated)[1] != 0) {
    return n.Error("dynamic", "expected constant shapes, or a stated shape of the result");
  }
  const Ints image(stated->begin() + 2, stated->end());
  std::vector<Ints> blocks;
  if (n.IsDynamic(2)) {
    const int64_t taps = shape[1] / (*stated)[1];
    if (taps <= kMaxTable) AddBlocks(taps, image.size(), {}, &blocks);
  } else {
    TW_ASSIGN(Ints block, n.InputInts(2, "block_shape"));
    blocks.push_back(std::move(block));
  }
  std::vector<Columns> fitting;
  for (Ints& block : blocks) {
    absl::StatusOr<Columns> columns = ReadColumns(c, x, image, std::move(block));
    if (columns.ok() && fitting.size() <= kMostBlocks) fitting.push_back(*std::move(columns));
  }
  if (blocks.size() == kMostTried || fitting.empty() || fitting.size() > kMostBlocks) {
    return n.Error("dynamic", StrCat("expected constant shapes, or a stated shape of the result "
                                     "that 1 to ",
                                     kMostBlocks, " blocks give, found ", fitting.size()));
  }
  c.ExpectSizes(c.Input(1), image);
  const ValueId given = c.Cast(c.Input(2), ir::kI64);
  RunTimeChoice choice(c);
  for (const Columns& columns : fitting) {
    const auto rank = static_cast<int64_t>(image.size());
    const ValueId same = c.Op("equal", {given, c.Integers({rank}, columns.block)});
    const ValueId all =
        c.Op("equal", {c.Reduce("sum", c.Cast(same, ir::kI64), {0}, false), c.Number(rank)});
    choice.Add(all, ImagesOf(c, columns));
  }
  return choice.Done(StrCat("block shapes of ", n.label(), " that give the stated shape"));
}

}  // namespace

// Columns of windows back to an image: each element is the sum of what its windows say of it.
Result ImportCol2Im(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  if (n.IsDynamic(1) || n.IsDynamic(2)) return Col2ImAtRunTime(c, x);
  TW_ASSIGN(Ints image, n.InputInts(1, "image_shape"));
  TW_ASSIGN(Ints block, n.InputInts(2, "block_shape"));
  TW_ASSIGN(const Columns columns, ReadColumns(c, x, std::move(image), std::move(block)));
  return c.Done(ImagesOf(c, columns));
}

}  // namespace tilewright::graph::onnx
