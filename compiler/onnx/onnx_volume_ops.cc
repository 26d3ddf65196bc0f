#include "compiler/onnx/onnx_volume_ops.h"

#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

ValueId Padded(Composer& c, ValueId x, std::vector<int64_t> pads) {
  if (pads == std::vector<int64_t>(pads.size(), 0)) return x;
  return c.Op("pad", {x}, {{"pads", std::move(pads)}, {"value", 0.0}});
}

// Entries `first` and first + 1 of the attributes.
op::Attrs TwoOf(const WindowAttrs& w, size_t first) {
  const size_t rank = w.strides.size();
  auto two = [&](const std::vector<int64_t>& v) {
    return std::vector<int64_t>{v[first], v[first + 1]};
  };
  return {{"strides", two(w.strides)},
          {"dilations", two(w.dilations)},
          {"pads", std::vector<int64_t>{w.pads[first], w.pads[first + 1], w.pads[first + rank],
                                        w.pads[first + rank + 1]}}};
}

ValueId PoolTwo(Composer& c, ValueId x, const std::string& kind, bool include_pad,
                const WindowAttrs& window, size_t first) {
  op::Attrs attrs = TwoOf(window, first);
  attrs["kind"] = kind;
  attrs["kernel"] = std::vector<int64_t>{window.kernel[first], window.kernel[first + 1]};
  if (kind == "avg") attrs["count_include_pad"] = static_cast<int64_t>(include_pad);
  return c.Op("pool2d", {x}, std::move(attrs));
}

// A dimension of 1 in front of the spatial ones.
WindowAttrs Widened(WindowAttrs w) {
  const size_t rank = w.strides.size();
  w.kernel.insert(w.kernel.begin(), 1);
  w.strides.insert(w.strides.begin(), 1);
  w.dilations.insert(w.dilations.begin(), 1);
  w.pads.insert(w.pads.begin() + rank, 0);
  w.pads.insert(w.pads.begin(), 0);
  return w;
}

}  // namespace

ValueId Conv3d(Composer& c, ValueId x, ValueId w, ValueId bias, const WindowAttrs& window,
               int64_t groups) {
  if (!c.ok()) return kNone;
  const std::vector<int64_t> s = c.Shape(x), k = c.Shape(w);
  const int64_t reach = (k[2] - 1) * window.dilations[0] + 1;
  const int64_t room = s[2] + window.pads[0] + window.pads[3] - reach;
  if (room < 0 || groups < 1 || s[1] % groups != 0 || k[1] != s[1] / groups) {
    return c.Fail("shape", "expected a window that fits and channels that the groups divide");
  }
  const int64_t depth = room / window.strides[0] + 1;
  x = Padded(c, c.Transpose(x, {0, 2, 1, 3, 4}),
             {0, window.pads[0], 0, 0, 0, 0, window.pads[3], 0, 0, 0});
  std::vector<ValueId> taps;
  for (int64_t t = 0; t < k[2]; ++t) {
    const ValueId tap = c.Slice(x, 1, t * window.dilations[0], depth, window.strides[0]);
    taps.push_back(c.Reshape(tap, {s[0] * depth, groups, 1, k[1], s[3], s[4]}));
  }
  x = c.Reshape(c.Concat(taps, 2), {s[0] * depth, s[1] * k[2], s[3], s[4]});
  w = c.Reshape(c.Transpose(w, {0, 2, 1, 3, 4}), {k[0], k[2] * k[1], k[3], k[4]});
  op::Attrs attrs = TwoOf(window, 1);
  attrs["groups"] = groups;
  attrs["weight_layout"] = std::string("OIHW");
  std::vector<ValueId> operands = {x, w};
  if (bias != kNone) operands.push_back(bias);
  const ValueId y = c.Op("conv2d", operands, std::move(attrs));
  if (!c.ok()) return kNone;
  const std::vector<int64_t> image = c.Shape(y);
  return c.Transpose(c.Reshape(y, {s[0], depth, k[0], image[2], image[3]}), {0, 2, 1, 3, 4});
}

ValueId ConvTranspose3d(Composer& c, ValueId x, ValueId w, ValueId bias, const WindowAttrs& window,
                        const std::vector<int64_t>& output_padding, int64_t groups) {
  if (!c.ok()) return kNone;
  const std::vector<int64_t> s = c.Shape(x), k = c.Shape(w);
  if (groups < 1 || k[0] != s[1] || s[1] % groups != 0) {
    return c.Fail("shape", "expected a weight of the input's channels, which the groups divide");
  }
  std::vector<int64_t> apart = {s[0], s[1]}, between(16, 0), wide = {s[0], s[1]}, around(10, 0);
  for (size_t d = 0; d < 3; ++d) {
    const int64_t stride = window.strides[d], reach = window.dilations[d] * (k[2 + d] - 1);
    apart.insert(apart.end(), {s[2 + d], 1});
    between[8 + 3 + 2 * d] = stride - 1;
    wide.push_back(s[2 + d] * stride);
    around[2 + d] = reach - window.pads[d];
    around[7 + d] = reach - window.pads[3 + d] + output_padding[d] - (stride - 1);
    w = c.Slice(w, static_cast<int64_t>(2 + d), k[2 + d] - 1, k[2 + d], -1);
  }
  x = Padded(c, c.Reshape(Padded(c, c.Reshape(x, apart), between), wide), around);
  w = c.Reshape(w, {groups, k[0] / groups, k[1], k[2], k[3], k[4]});
  w = c.Reshape(c.Transpose(w, {0, 2, 1, 3, 4, 5}),
                {groups * k[1], k[0] / groups, k[2], k[3], k[4]});
  const WindowAttrs plain = {window.kernel, {1, 1, 1}, {0, 0, 0, 0, 0, 0}, window.dilations};
  return Conv3d(c, x, w, bias, plain, groups);
}

ValueId PoolNd(Composer& c, ValueId x, const std::string& kind, bool include_pad,
               const WindowAttrs& window) {
  if (!c.ok()) return kNone;
  if (c.Rank(x) == 4) return PoolTwo(c, x, kind, include_pad, window, 0);
  if (c.Rank(x) == 3) {
    const std::vector<op::Dim> s = c.TypeOf(x).shape;
    const ValueId image = c.ReshapeTo(x, {s[0], s[1], op::Dim(1), s[2]});
    const ValueId y = PoolTwo(c, image, kind, include_pad, Widened(window), 0);
    return c.ok() ? c.ReshapeTo(y, {s[0], s[1], c.TypeOf(y).shape[3]}) : kNone;
  }
  const std::vector<int64_t> s = c.Shape(x);
  const ValueId images = c.Reshape(x, {s[0], s[1] * s[2], s[3], s[4]});
  ValueId y = PoolTwo(c, images, kind, include_pad, window, 1);
  if (!c.ok()) return kNone;
  const int64_t height = c.Shape(y)[2], width = c.Shape(y)[3];
  // The depth, as the height of an image whose rows are whole images.
  WindowAttrs deep = {{window.kernel[0], 1},
                      {window.strides[0], 1},
                      {window.pads[0], 0, window.pads[3], 0},
                      {window.dilations[0], 1}};
  y = PoolTwo(c, c.Reshape(y, {s[0], s[1], s[2], height * width}), kind, include_pad, deep, 0);
  return c.ok() ? c.Reshape(y, {s[0], s[1], c.Shape(y)[2], height, width}) : kNone;
}

}  // namespace tilewright::graph::onnx
