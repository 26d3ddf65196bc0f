// Taps of a convolution that meet zeros around the image only, whatever the output: as of a large
// dilation on a small image (the pyramid of DeepLab), or of a kernel larger than its image. Their
// weights go, with the padding that only they read:
//   conv2d(x: [n,c,4,4], w: [o,c,3,3]) {dilations=[12,12], pads=[12,12,12,12]} → w: [o,c,1,1].
#include <map>
#include <string>

#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/graph/rewrite_util.h"
#include "deploy/support/dim_interval.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

using Ints = std::vector<int64_t>;

// Not less than what the expression is at any sizes of these ranges.
int64_t Largest(const op::Dim& dim, const std::map<std::string, SizeRange>& ranges) {
  constexpr int64_t kAny = int64_t{1} << 40;  // above every size
  const support::SizeInterval all = support::IntervalOf(dim, [&](const std::string& name) {
    const auto range = ranges.find(name);
    if (range == ranges.end()) return support::SizeInterval{1, kAny, true};
    return support::SizeInterval{range->second.min, range->second.max, true};
  });
  return all.known ? all.high : kAny;
}

// One direction of a window, and which of its taps are left.
struct Taps {
  int64_t kernel, dilation, pad_begin, pad_end;
  int64_t first = 0;  // among those of the weights

  // `size`: that of the image, or more.
  void Crop(int64_t size) {
    while (kernel > 1 && pad_begin >= dilation &&
           size - 1 + pad_end - (kernel - 1) * dilation < 0) {
      ++first;
      --kernel;
      pad_begin -= dilation;
    }
    while (kernel > 1 && pad_end >= dilation && (kernel - 1) * dilation - pad_begin >= size) {
      --kernel;
      pad_end -= dilation;
    }
    if (kernel == 1) dilation = 1;
  }
};

class KernelCropper : public ForwardRewriter {
 public:
  KernelCropper(Graph g, const GraphPassContext& ctx)
      : ForwardRewriter(std::move(g), ctx.fold_max_bytes) {}

 private:
  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (node.op != "conv2d" || !LiesPlain(node) || op::GetInt(node.attrs, "pad_value", 0) != 0) {
      return false;
    }
    const ValueId w = node.inputs[1];
    const std::vector<op::Dim>& image = TypeOf(node.inputs[0]).shape;
    if (!IsConstant(g_, w)) return false;
    const Ints sizes = TypeOf(w).sizes();
    const Ints pads = op::GetInts(node.attrs, "pads", {0, 0, 0, 0});
    const Ints dilations = op::GetInts(node.attrs, "dilations", {1, 1});
    Taps rows{sizes[2], dilations[0], pads[0], pads[2]};
    Taps columns{sizes[3], dilations[1], pads[1], pads[3]};
    rows.Crop(Largest(image[2], g_.size_ranges));
    columns.Crop(Largest(image[3], g_.size_ranges));
    if (rows.kernel == sizes[2] && columns.kernel == sizes[3]) return false;
    op::Attrs attrs = node.attrs;
    attrs["pads"] = Ints{rows.pad_begin, columns.pad_begin, rows.pad_end, columns.pad_end};
    attrs["dilations"] = Ints{rows.dilation, columns.dilation};
    std::vector<ValueId> inputs = node.inputs;
    inputs[1] = Cropped(w, rows, columns);
    Define(node, "conv2d", std::move(inputs), std::move(attrs));
    return true;
  }

  ValueId Cropped(ValueId w, const Taps& rows, const Taps& columns) {
    const Value weight = g_.values[w];
    Ints sizes = weight.type.sizes();
    const auto element = static_cast<size_t>(weight.type.dtype.bytes());
    const auto run = static_cast<size_t>(columns.kernel) * element;
    const std::string_view bytes = weight.constant->view();
    std::string cropped;
    for (int64_t kernel = 0; kernel < sizes[0] * sizes[1]; ++kernel) {
      for (int64_t row = rows.first; row < rows.first + rows.kernel; ++row) {
        const int64_t at = (kernel * sizes[2] + row) * sizes[3] + columns.first;
        cropped += bytes.substr(static_cast<size_t>(at) * element, run);
      }
    }
    sizes[2] = rows.kernel;
    sizes[3] = columns.kernel;
    return AddConstant(&g_, weight.name + "_cropped", {weight.type.dtype, sizes},
                       std::move(cropped));
  }
};

}  // namespace

absl::StatusOr<Graph> CropKernels(Graph g, const GraphPassContext& ctx) {
  return KernelCropper(std::move(g), ctx).Run();
}

}  // namespace tilewright::graph
