// Conversions of operators that decode, cut, pad or cut up images: ImageDecoder, CenterCropPad,
// DepthToSpace, SpaceToDepth.
#include <algorithm>
#include <numeric>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

constexpr int64_t kMaxCount = int64_t{1} << 28;  // of elements along an axis

absl::Status NeedsShape(NodeReader& n, std::string_view what) {
  return n.Error("dynamic", StrCat("expected constant ", what,
                                   ", or a result of a shape that the model states, found others"));
}

// The sizes of the axes that CenterCropPad names; the others stay.
void ExpectCropped(Composer& c, ValueId x, const std::vector<int64_t>& axes,
                   const std::vector<int64_t>& stated) {
  std::vector<int64_t> expected;
  for (int64_t axis : axes) {
    if (axis < 0) axis += c.Rank(x);
    if (axis >= 0 && axis < c.Rank(x)) expected.push_back(stated[static_cast<size_t>(axis)]);
  }
  c.ExpectSizes(c.Input(1), std::move(expected));
}

}  // namespace

namespace {

// What DepthToSpace and SpaceToDepth have in common: images, the side of a block, and whether the
// position in the block comes before the channel.
struct ImageBlocks {
  ValueId x = kNone;
  std::vector<op::Dim> shape;
  int64_t side = 0;
  bool position_first = true;
};

absl::StatusOr<ImageBlocks> ReadImageBlocks(Composer& c) {
  NodeReader& n = c.node();
  ImageBlocks b;
  b.x = c.Input(0);
  TW_TRY(c.status());
  b.shape = c.Dims(b.x);
  TW_ASSIGN(b.side, n.Int("blocksize", 0));
  TW_ASSIGN(const std::string mode, n.String("mode", "DCR"));
  b.position_first = mode == "DCR";
  if (b.shape.size() == 4 && b.side >= 1 && b.side <= 4096 && (mode == "DCR" || mode == "CRD")) {
    return b;
  }
  return n.Error("attribute", StrCat("expected images [n,c,h,w], a blocksize of 1 to 4096 and mode "
                                     "DCR or CRD, found ",
                                     op::ToText(c.TypeOf(b.x)), ", ", b.side, " and ", mode));
}

}  // namespace

Result ImportDepthToSpace(NodeReader& n) {
  Composer c(n);
  TW_ASSIGN(const ImageBlocks b, ReadImageBlocks(c));
  const std::vector<op::Dim>& s = b.shape;
  const op::Dim side = b.side;
  const std::optional<op::Dim> depth = s[1].DivideExactly(side * side);
  if (!depth) {
    return n.Error("shape", StrCat("expected channels that blocksize ", b.side,
                                   " divides twice, found ", op::ToText(c.TypeOf(b.x))));
  }
  const ValueId apart = b.position_first ? c.ReshapeTo(b.x, {s[0], side, side, *depth, s[2], s[3]})
                                         : c.ReshapeTo(b.x, {s[0], *depth, side, side, s[2], s[3]});
  const ValueId moved = b.position_first ? c.Transpose(apart, {0, 3, 4, 1, 5, 2})
                                         : c.Transpose(apart, {0, 1, 4, 2, 5, 3});
  return c.Done(c.ReshapeTo(moved, {s[0], *depth, s[2] * side, s[3] * side}));
}

Result ImportSpaceToDepth(NodeReader& n) {
  Composer c(n);
  TW_ASSIGN(const ImageBlocks b, ReadImageBlocks(c));
  const std::vector<op::Dim>& s = b.shape;
  const op::Dim side = b.side;
  if (s[2].constant().value_or(0) % b.side != 0 || s[3].constant().value_or(0) % b.side != 0) {
    return n.Error("shape", StrCat("expected a height and a width that blocksize ", b.side,
                                   " divides, found ", op::ToText(c.TypeOf(b.x))));
  }
  const op::Dim rows = s[2].FloorDiv(b.side), columns = s[3].FloorDiv(b.side);
  const ValueId apart = c.ReshapeTo(b.x, {s[0], s[1], rows, side, columns, side});
  const ValueId moved = b.position_first ? c.Transpose(apart, {0, 3, 5, 1, 2, 4})
                                         : c.Transpose(apart, {0, 1, 3, 5, 2, 4});
  return c.Done(c.ReshapeTo(moved, {s[0], s[1] * side * side, rows, columns}));
}

// The middle of the operand along each axis, or the operand in the middle of zeros.
Result ImportCenterCropPad(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0);
  TW_TRY(c.status());
  const int64_t rank = c.Rank(x);
  std::vector<int64_t> all(static_cast<size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  TW_ASSIGN(std::vector<int64_t> axes, n.Ints("axes", all));
  std::vector<op::Dim> sizes;
  if (n.IsDynamic(1)) {
    const std::optional<std::vector<int64_t>> stated = n.StatedShape();
    if (!stated || static_cast<int64_t>(stated->size()) != rank) return NeedsShape(n, "shape");
    ExpectCropped(c, x, axes, *stated);
    TW_TRY(c.status());
    axes = all;
    sizes.assign(stated->begin(), stated->end());
  } else {
    TW_ASSIGN(sizes, n.InputDims(1, "shape"));
  }
  bool fine = sizes.size() == axes.size();
  for (size_t i = 0; fine && i < axes.size(); ++i) {
    if (axes[i] < 0) axes[i] += rank;
    const int64_t size = sizes[i].constant().value_or(1);
    fine = axes[i] >= 0 && axes[i] < rank && size >= 1 && size <= kMaxCount &&
           std::count(axes.begin(), axes.begin() + static_cast<int64_t>(i), axes[i]) == 0;
  }
  if (!fine) return n.Error("attribute", "expected a positive size for each of different axes");
  std::vector<op::Dim> pads(2 * static_cast<size_t>(rank), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    // An odd difference: one element more is cut, or added, at the end.
    const op::Dim size = c.Dims(x)[axes[i]], more = sizes[i] - size;
    const std::optional<int64_t> least = n.importer().Bound(more, false);
    const std::optional<int64_t> most = n.importer().Bound(more, true);
    if (least && *least >= 0) {
      pads[axes[i]] = more.FloorDiv(2);
      pads[axes[i] + rank] = more - more.FloorDiv(2);
    } else if (most && *most <= 0) {
      x = c.Slice(x, axes[i], (size - sizes[i]).FloorDiv(2), sizes[i]);
      TW_TRY(c.status());
    } else {
      return n.Error("open_size", StrCat("expected one of a size and its operand's to be larger at "
                                         "all sizes, found ",
                                         sizes[i].ToText(), " and ", size.ToText(), kGiveNumbers));
    }
  }
  return c.Done(c.Op("pad", {x}, {{"pads", op::ShapeAttr(pads)}, {"value", 0.0}}));
}

// Functions of deploy/images give the size of an image and its elements. The second learns from the
// shapes of lists how much it is to write.
Result ImportImageDecoder(NodeReader& n) {
  Composer c(n);
  const ValueId bytes = c.Input(0);
  TW_TRY(c.status());
  TW_ASSIGN(const std::string format, n.String("pixel_format", "RGB"));
  const bool gray = format == "Grayscale";
  if (!gray && format != "RGB" && format != "BGR") {
    return n.Error("attribute", StrCat("expected pixel_format RGB, BGR or Grayscale, found ",
                                       support::Quote(format, 60)));
  }
  if (c.TypeOf(bytes).dtype != ir::kU8 || c.Rank(bytes) != 1) {
    return n.Error("type", StrCat("expected the bytes of an image, u8 in one dimension, found ",
                                  op::ToText(c.TypeOf(bytes))));
  }
  const auto function = [](std::string_view types, std::string_view name) {
    return StrCat("operator tilewright::", types, " library \"libtilewright_images.so\" function ",
                  name, ";");
  };
  const ValueId size = c.Op("external", {bytes},
                            {{"definition", function("ImageSize(bytes: u8[n]) -> (size: i64[2])",
                                                     "tilewright_image_size")},
                             {"attributes", ""}});
  const std::vector<op::Dim> found = c.FoundShape(size, {{}, {}});
  TW_TRY(c.status());
  const auto list = [&](const op::Dim& count) { return c.Counting(ir::kI64, count, 0, 1); };
  const std::string types = StrCat(
      "Image(bytes: u8[n], height: i64[h], width: i64[w]) -> (pixels: "
      "u8[h, w, ",
      gray ? 1 : 3, "])");
  return c.Done(c.Op("external", {bytes, list(found[0]), list(found[1])},
                     {{"definition", function(types, "tilewright_decode_image")},
                      {"attributes", StrCat("pixel_format = \"", format, "\"\n")}}));
}

}  // namespace tilewright::graph::onnx
