#include "tests/bench/layers.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::bench {
namespace {

using support::StrCat;

// Weights of products, and of convolutions in NCHW, are packed by this many columns.
constexpr int64_t kPanel = 16;
constexpr int64_t kSampled = 4000;

Layer Conv(const char* name, int64_t size, int64_t in, int64_t out, int64_t kernel,
           int64_t stride) {
  Layer l;
  l.name = name;
  l.size = size, l.in = in, l.out = out, l.kernel = kernel, l.stride = stride;
  return l;
}

Layer Depthwise(const char* name, int64_t size, int64_t channels, int64_t stride) {
  Layer l = Conv(name, size, channels, channels, 3, stride);
  l.depthwise = true;
  return l;
}

Layer InBytes(Layer l) {
  l.name += "i8";
  l.bytes_only = true;
  return l;
}

Layer Gemm(int64_t m, int64_t n, int64_t k) {
  Layer l;
  l.name = StrCat("G", m, "x", n, "x", k);
  l.kind = Layer::Kind::kGemm;
  l.m = m, l.n = n, l.k = k;
  return l;
}

bool InBlocks(const Layer& l, int64_t block) {
  return l.kind == Layer::Kind::kConv && block > 0 && l.in % block == 0 && l.out % block == 0;
}

// As the graph pass weight_layouts has it: the last panel may have columns that nobody reads.
bool InPanels(const Layer& l) { return l.n % kPanel == 0 || l.n >= 4 * kPanel; }

constexpr int64_t kDot = 4;  // input channels side by side in weights of bytes

// The attributes of a convolution on blocks of channels, as the graph pass block_layouts has them.
std::string BlockedLayouts(const Layer& l, int64_t block, const std::string& weights) {
  return StrCat("data_layout=\"NCHW", block, "c\", ",
                l.depthwise ? StrCat("groups=", l.in, ", weight_layout=\"OHW", block, "o")
                            : StrCat("weight_layout=\"", weights),
                "\"");
}

// As models in bytes have it: sums in i32, requantised at once.
std::string ByteConvText(const Layer& l, int64_t b) {
  const int64_t pad = l.kernel / 2, size = l.out_size();
  const std::string image = StrCat("[1,", l.out / b, ",", size, ",", size, ",", b, "]");
  const std::string channels = StrCat("[", l.out / b, ",1,1,", b, "]");
  const std::string w = l.depthwise
                            ? StrCat("i8[", l.out / b, ",", l.kernel, ",", l.kernel, ",", b, "]")
                            : StrCat("i8[", l.out / b, ",", l.in / b, ",", l.kernel, ",", l.kernel,
                                     ",", b / kDot, ",", b, ",", kDot, "]");
  const std::string weights = StrCat("OIHW", b / kDot, "i", b, "o", kDot, "i");
  return StrCat("graph {\n  input %0: u8[1,", l.in / b, ",", l.size, ",", l.size, ",", b,
                "]\n  weight %1: ", w, "\n  weight %2: i32", channels, "\n  weight %3: f32",
                channels, "\n  %4: i32", image, " = conv2d(%0, %1) {",
                BlockedLayouts(l, b, weights), ", pads=[", pad, ",", pad, ",", pad, ",", pad,
                "], strides=[", l.stride, ",", l.stride, "]}\n  %5: i32", image,
                " = add(%4, %2)\n  %6: f32", image, " = cast(%5) {dtype=\"f32\"}\n  %7: f32", image,
                " = mul(%6, %3)\n  %8: f32", image, " = round(%7)\n  %9: u8", image,
                " = cast(%8) {dtype=\"u8\"}\n  output %9\n}\n");
}

std::string ConvText(const Layer& l, int64_t b) {
  const int64_t pad = l.kernel / 2, size = l.out_size(), groups = l.depthwise ? l.in : 1;
  std::string x, w, bias, y;
  std::string attrs = StrCat("pads=[", pad, ",", pad, ",", pad, ",", pad, "], strides=[", l.stride,
                             ",", l.stride, "]");
  if (InBlocks(l, b)) {
    attrs += StrCat(", ", BlockedLayouts(l, b, StrCat("OIHW", b, "i", b, "o")));
    x = StrCat("f32[1,", l.in / b, ",", l.size, ",", l.size, ",", b, "]");
    w = l.depthwise ? StrCat("f32[", l.out / b, ",", l.kernel, ",", l.kernel, ",", b, "]")
                    : StrCat("f32[", l.out / b, ",", l.in / b, ",", l.kernel, ",", l.kernel, ",", b,
                             ",", b, "]");
    bias = StrCat("f32[", l.out / b, ",1,1,", b, "]");
    y = StrCat("f32[1,", l.out / b, ",", size, ",", size, ",", b, "]");
  } else {
    x = StrCat("f32[1,", l.in, ",", l.size, ",", l.size, "]");
    w = l.depthwise ? StrCat("f32[1,", l.kernel, ",", l.kernel, ",", l.out, "]")
                    : StrCat("f32[", l.out / kPanel, ",", l.in, ",", l.kernel, ",", l.kernel, ",",
                             kPanel, "]");
    attrs += StrCat(", groups=", groups, ", weight_layout=\"",
                    l.depthwise ? "IHWO" : StrCat("OIHW", kPanel, "o"), "\"");
    bias = StrCat("f32[", l.out, ",1,1]");
    y = StrCat("f32[1,", l.out, ",", size, ",", size, "]");
  }
  return StrCat("graph {\n  input %0: ", x, "\n  weight %1: ", w, "\n  weight %2: ", bias,
                "\n  %3: ", y, " = conv2d(%0, %1) {", attrs, "}\n  %4: ", y,
                " = add(%3, %2)\n  %5: ", y, " = relu(%4)\n  output %5\n}\n");
}

std::string GemmText(const Layer& l) {
  std::string w = StrCat(l.k, ",", l.n), attrs = "weight_layout=\"KN\"";
  if (InPanels(l)) {
    w = StrCat((l.n + kPanel - 1) / kPanel, ",", l.k, ",", kPanel);
    attrs = StrCat(l.n % kPanel == 0 ? "" : StrCat("units=", l.n, ", "), "weight_layout=\"NK",
                   kPanel, "n\"");
  }
  return StrCat("graph {\n  input %0: f32[", l.m, ",", l.k, "]\n  weight %1: f32[", w,
                "]\n  weight %2: f32[", l.n, "]\n  %3: f32[", l.m, ",", l.n, "] = dense(%0, %1) {",
                attrs, "}\n  %4: f32[", l.m, ",", l.n, "] = add(%3, %2)\n  output %4\n}\n");
}

// Images in blocks of channels to NCHW.
std::vector<float> PlainImage(const std::vector<float>& from, int64_t channels, int64_t size,
                              int64_t block) {
  std::vector<float> to(static_cast<size_t>(channels * size * size));
  const int64_t area = size * size;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t at = 0; at < area; ++at) {
      to[c * area + at] =
          block > 0 ? from[((c / block) * area + at) * block + c % block] : from[c * area + at];
    }
  }
  return to;
}

// Where weight (o, i, tap) of a convolution lies in our layout.
int64_t WeightAt(const Layer& l, int64_t block, int64_t o, int64_t i, int64_t tap) {
  const int64_t taps = l.kernel * l.kernel;
  if (InBlocks(l, block)) {
    if (l.depthwise) return ((o / block) * taps + tap) * block + o % block;
    if (l.bytes_only) {
      const int64_t at = ((o / block) * (l.in / block) + i / block) * taps + tap;
      return ((at * (block / kDot) + i % block / kDot) * block + o % block) * kDot + i % kDot;
    }
    return ((((o / block) * (l.in / block) + i / block) * taps + tap) * block + i % block) * block +
           o % block;
  }
  if (l.depthwise) return tap * l.out + o;
  return (((o / kPanel) * l.in + i) * taps + tap) * kPanel + o % kPanel;
}

double ExactConv(const Layer& l, const Operands& v, int64_t o, int64_t row, int64_t col) {
  const int64_t pad = l.kernel / 2, inner = l.depthwise ? 1 : l.in;
  double sum = v.bias[o];
  for (int64_t i = 0; i < inner; ++i) {
    const int64_t channel = l.depthwise ? o : i;
    for (int64_t kh = 0; kh < l.kernel; ++kh) {
      const int64_t h = row * l.stride + kh - pad;
      if (h < 0 || h >= l.size) continue;
      for (int64_t kw = 0; kw < l.kernel; ++kw) {
        const int64_t w = col * l.stride + kw - pad;
        if (w < 0 || w >= l.size) continue;
        sum += static_cast<double>(v.x[(channel * l.size + h) * l.size + w]) *
               v.weights[((o * inner + i) * l.kernel + kh) * l.kernel + kw];
      }
    }
  }
  if (l.bytes_only) {
    const float scaled = static_cast<float>(sum) * v.scale[o];  // as it is defined: in f32
    return std::clamp(std::nearbyint(static_cast<double>(scaled)), 0.0, 255.0);
  }
  return std::max(0.0, sum);
}

double ExactGemm(const Layer& l, const Operands& v, int64_t row, int64_t col) {
  double sum = v.bias[col];
  for (int64_t i = 0; i < l.k; ++i) {
    sum += static_cast<double>(v.x[row * l.k + i]) * v.weights[i * l.n + col];
  }
  return sum;
}

double Exact(const Layer& l, const Operands& v, int64_t at) {
  if (l.kind == Layer::Kind::kGemm) return ExactGemm(l, v, at / l.n, at % l.n);
  const int64_t size = l.out_size();
  return ExactConv(l, v, at / (size * size), at / size % size, at % size);
}

}  // namespace

double Layer::flops() const {
  if (kind == Kind::kGemm) return 2.0 * static_cast<double>(m * n * k);
  const int64_t inner = depthwise ? 1 : in;
  return 2.0 * static_cast<double>(out * out_size() * out_size() * inner * kernel * kernel);
}

double Layer::bytes() const {
  if (kind == Kind::kGemm) return 4.0 * static_cast<double>(m * k + k * n + n + m * n);
  const int64_t weights = out * (depthwise ? 1 : in) * kernel * kernel;
  if (bytes_only) {
    return static_cast<double>(in * size * size + weights + 8 * out +
                               out * out_size() * out_size());
  }
  return 4.0 *
         static_cast<double>(in * size * size + weights + out + out * out_size() * out_size());
}

const std::vector<Layer>& FloatLayers() {
  static const std::vector<Layer> kLayers = {
      Conv("C1", 224, 3, 64, 7, 2),
      Conv("C2", 56, 64, 64, 3, 1),
      Conv("C3", 56, 64, 64, 1, 1),
      Conv("C4", 56, 64, 128, 3, 2),
      Conv("C5", 56, 64, 128, 1, 2),
      Conv("C6", 28, 128, 128, 3, 1),
      Conv("C7", 28, 128, 256, 3, 2),
      Conv("C8", 28, 128, 256, 1, 2),
      Conv("C9", 14, 256, 256, 3, 1),
      Conv("C10", 14, 256, 512, 3, 2),
      Conv("C11", 14, 256, 512, 1, 2),
      Conv("C12", 7, 512, 512, 3, 1),
      Depthwise("D1", 112, 32, 1),
      Depthwise("D2", 112, 64, 2),
      Depthwise("D3", 56, 128, 1),
      Depthwise("D4", 56, 128, 2),
      Depthwise("D5", 28, 256, 1),
      Depthwise("D6", 28, 256, 2),
      Depthwise("D7", 14, 512, 1),
      Depthwise("D8", 14, 512, 2),
      Depthwise("D9", 7, 1024, 1),
      Gemm(512, 512, 512),
      Gemm(1024, 1024, 1024),
      Gemm(2048, 2048, 2048),
      Gemm(128, 768, 768),
      Gemm(128, 3072, 768),
      Gemm(128, 768, 3072),
      Gemm(128, 128, 64),
      Gemm(3136, 64, 576),
      Gemm(784, 128, 1152),
      Gemm(196, 256, 2304),
      Gemm(49, 512, 4608),
      Gemm(1, 1000, 1024),
      Gemm(1, 1000, 2048),
      Gemm(1000, 1, 1024),
  };
  return kLayers;
}

const std::vector<Layer>& Layers() {
  static const std::vector<Layer> kLayers = [] {
    std::vector<Layer> all = FloatLayers();
    for (const Layer& l : FloatLayers()) {
      if (l.kind == Layer::Kind::kConv && l.in % kPanel == 0) all.push_back(InBytes(l));
    }
    return all;
  }();
  return kLayers;
}

absl::StatusOr<Layer> FindLayer(const std::string& name) {
  for (const Layer& layer : Layers()) {
    if (layer.name == name) return layer;
  }
  long m = 0, n = 0, k = 0;
  if (sscanf(name.c_str(), "G%ldx%ldx%ld", &m, &n, &k) == 3 && m > 0 && n > 0 && k > 0) {
    return Gemm(m, n, k);
  }
  long size = 0, in = 0, out = 0, kernel = 0, stride = 1;
  const bool is_dense =
      sscanf(name.c_str(), "K%ldx%ldx%ldk%lds%ld", &size, &in, &out, &kernel, &stride) >= 4;
  const bool is_depthwise =
      !is_dense && sscanf(name.c_str(), "D%ldx%ldk%lds%ld", &size, &in, &kernel, &stride) >= 3;
  if ((is_dense || is_depthwise) && size > 0 && in > 0 && kernel % 2 == 1 && stride > 0) {
    Layer layer = Conv(name.c_str(), size, in, is_depthwise ? in : out, kernel, stride);
    layer.depthwise = is_depthwise;
    if (layer.out > 0) return layer;
  }
  return support::NotFound("bench.layer",
                           StrCat("no layer '", name,
                                  "': expected C1..C12, D1..D9, one of these in bytes (C2i8), "
                                  "G<m>x<n>x<k>, K<size>x<in>x<out>k<kernel>[s<stride>] or "
                                  "D<size>x<channels>k<kernel>[s<stride>]"));
}

std::string GraphText(const Layer& layer, int64_t block) {
  if (layer.kind == Layer::Kind::kGemm) return GemmText(layer);
  // Bytes have no other layout than blocks.
  if (layer.bytes_only) return ByteConvText(layer, block > 0 ? block : kPanel);
  return ConvText(layer, block);
}

Operands PlainOperands(const Layer& l, int64_t block,
                       const std::vector<std::vector<float>>& inputs) {
  const std::vector<float>&x = inputs[0], &weights = inputs[1];
  Operands v;
  v.bias = inputs[2];
  if (l.bytes_only) v.scale = inputs[3];
  if (l.kind == Layer::Kind::kGemm) {
    v.x = x;
    v.weights.resize(static_cast<size_t>(l.k * l.n));
    for (int64_t i = 0; i < l.k; ++i) {
      for (int64_t j = 0; j < l.n; ++j) {
        v.weights[i * l.n + j] = InPanels(l)
                                     ? weights[((j / kPanel) * l.k + i) * kPanel + j % kPanel]
                                     : weights[i * l.n + j];
      }
    }
    return v;
  }
  const int64_t inner = l.depthwise ? 1 : l.in, taps = l.kernel * l.kernel;
  v.x = PlainImage(x, l.in, l.size, InBlocks(l, block) ? block : 0);
  v.weights.resize(static_cast<size_t>(l.out * inner * taps));
  for (int64_t o = 0; o < l.out; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        v.weights[(o * inner + i) * taps + tap] = weights[WeightAt(l, block, o, i, tap)];
      }
    }
  }
  return v;
}

std::vector<float> PlainResult(const Layer& l, int64_t block, const std::vector<float>& y) {
  if (l.kind == Layer::Kind::kGemm) return y;
  return PlainImage(y, l.out, l.out_size(), InBlocks(l, block) ? block : 0);
}

double DistanceFromExact(const Layer& l, const Operands& operands,
                         const std::vector<float>& result) {
  const auto elements = static_cast<int64_t>(result.size());
  // A stride that shares no factor with the extents visits borders and blocks alike.
  const int64_t step = std::max<int64_t>(1, elements / kSampled) | 1;
  double difference = 0, norm = 0;
  for (int64_t at = 0; at < elements; at += step) {
    const double exact = Exact(l, operands, at);
    difference += (result[at] - exact) * (result[at] - exact);
    norm += exact * exact;
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

}  // namespace tilewright::bench
