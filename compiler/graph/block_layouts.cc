// Activations in channel blocks, [n, c/b, h, w, b]. Convolutions with constant weights whose
// channels divide by the block ask for it, and make it of images of a few channels (bytes: of any
// that fit into one block); so do transposed ones of whole blocks. Elementwise operators, pools,
// means over the image and what moves whole blocks follow where their operands are blocked already.
// Convolutions of bytes ask for it with other channels, too: channels that nobody reads fill the
// last block. Where the machine has dot products of pairs of bf16, convolutions of such that were
// cast to f32 read them as they are,
//   conv2d(cast<f32>(x: bf16), w) → conv2d(x, w: bf16): f32,
// unless fewer multiplications of f32 (Winograd's) are as fast. Transforms stand only where
// a producer and a consumer disagree: a value is packed or unpacked at most once, when somebody
// first asks for that form.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compiler/graph/blocked_forms.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/graph/rewrite_util.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::StrCat;
using Dims = std::vector<op::Dim>;
using Ints = std::vector<int64_t>;

class Blocker : BlockedForms {
 public:
  // A matrix unit with `block` lanes computes what it can.
  Blocker(Graph g, int64_t block, const GraphPassContext& ctx)
      : BlockedForms(std::move(g), block),
        pairs_(Contains(ctx.half_pairs, ir::kBF16)),
        cold_bytes_(ctx.cold_weights_bytes),
        whole_block_(ctx.whole_block),
        filled_part_(ctx.filled_part) {
    if (ctx.matrix_block == block) FindRequantized();
  }

  absl::StatusOr<Graph> Run() {
    for (const Node& node : g_.nodes) {
      for (ValueId id : node.inputs) users_[id].insert(node.op);
    }
    std::vector<Node> nodes = std::move(g_.nodes);
    g_.nodes.clear();
    for (const Node& node : nodes) {
      NoteWidened(node);
      TW_ASSIGN(const bool blocked, Blocked(node));
      if (blocked) continue;
      for (ValueId id : node.inputs) TW_TRY(Plain(id));
      g_.nodes.push_back(node);
    }
    for (ValueId id : g_.outputs) TW_TRY(Plain(id));
    return Compact(g_);
  }

 private:
  bool InBlocks(const Dims& image) const {
    return image.size() == 4 && image[1].is_constant() && Divides(image[1].value());
  }
  // Whether so many channels are worth it to fill their last block: those that do cost as much.
  bool Fills(int64_t channels) const {
    return block_ % op::kDot == 0 && (Filled(channels) - channels) * filled_part_ <= channels;
  }

  absl::StatusOr<bool> Blocked(const Node& node) {
    if (node.outputs.size() != 1) return false;
    if (node.op == "conv2d") return Convolution(node);
    if (node.op == "conv2d_transpose") return TransposedConvolution(node);
    const bool image = !node.inputs.empty() && HasBlocked(node.inputs[0]);
    if (node.op == "pool2d" && (image || InBlocks(ShapeOf(node.inputs[0])))) return Pool(node);
    if (node.op == "reduce" && image) return Reduce(node);
    if (node.op == "concat") return Concat(node);
    if (node.op == "slice" && image) return Slice(node);
    if (node.op == "pad" && image) return Pad(node);
    if (node.op == "gather" && image) return Gather(node);
    const op::OpSpec* spec = op::FindOp(node.op);
    return spec != nullptr && spec->elementwise() ? Elementwise(node) : false;
  }

  void NoteWidened(const Node& node) {
    if (node.op == "cast" && g_.values[node.inputs[0]].type.dtype == ir::kBF16 &&
        g_.values[node.outputs[0]].type.dtype == ir::kF32) {
      widened_[node.outputs[0]] = node.inputs[0];
    }
  }

  // Whether f32 is as fast as pairs of bf16: in Winograd's form, unless each run reads its weights
  // from memory.
  bool HasFastForm(const Node& node) const {
    constexpr int64_t kWinogradGrowth = 4;  // 6 x 6 points for 3 x 3 weights
    const std::vector<op::TensorType> types = {g_.values[node.inputs[0]].type,
                                               g_.values[node.inputs[1]].type};
    if (cold_bytes_ > 0 && kWinogradGrowth * types[1].bytes() > cold_bytes_) return false;
    const std::vector<std::string> forms = op::VariantsOf(*op::FindOp(node.op), types, node.attrs);
    return std::ranges::any_of(
        forms, [](const std::string& name) { return name.starts_with("winograd"); });
  }

  // The data and the weights of a convolution as bf16 where dot products of pairs compute it.
  struct Pairs {
    ValueId x, w;
  };
  absl::StatusOr<std::optional<Pairs>> PairsOf(const Node& node) {
    const auto from = widened_.find(node.inputs[0]);
    if (!pairs_ || from == widened_.end() || block_ % op::kPair != 0 ||
        !Divides(ShapeOf(node.inputs[0])[1].value()) || op::GetInt(node.attrs, "groups", 1) != 1) {
      return std::nullopt;
    }
    if (HasFastForm(node)) return std::nullopt;
    TW_ASSIGN(const ValueId weights, AddHalf(&g_, node.inputs[1], ir::kBF16));
    if (weights < 0) return std::nullopt;
    return Pairs{from->second, weights};
  }

  absl::StatusOr<bool> Convolution(const Node& node) {
    ValueId x = node.inputs[0], w = node.inputs[1];
    const ValueId y = node.outputs[0];
    if (g_.values[x].type.dtype == ir::kI32) return false;  // has no blocked form
    if (node.inputs.size() != 2 || !IsConstant(g_, w) || !LiesPlain(node) ||
        !ShapeOf(x)[1].is_constant()) {
      return false;
    }
    const Ints s = g_.values[w].type.sizes();
    const int64_t groups = op::GetInt(node.attrs, "groups", 1);
    const bool depthwise = groups > 1 && groups == s[0] && s[1] == 1;
    if (groups > 1 && !depthwise) return false;
    const int64_t channels = ShapeOf(x)[1].value();
    const bool bytes = g_.values[w].type.dtype == ir::kI8;
    if (!Divides(s[0]) && !Fills(s[0])) return false;
    TW_ASSIGN(const std::optional<Pairs> pairs, PairsOf(node));
    if (pairs) {
      x = pairs->x;
      w = pairs->w;
    }
    const bool unit = Divides(channels) && Divides(s[0]) && requantized_.count(y) > 0 &&
                      (!depthwise || channels == groups);
    const int64_t in_block = unit ? block_ : InputBlock(x, bytes, depthwise);
    if (bytes && !depthwise && !unit && in_block % op::kDot != 0) return false;
    if (depthwise && in_block == 1) return false;
    ValueId image = x;
    if (in_block > 1 && in_block != block_) {
      TW_ASSIGN(image, PackWhole(x));
    } else {
      TW_ASSIGN(image, in_block > 1 ? Pack(x) : AsSingleChannels(x));
    }
    // Loops over input channels follow the weights' blocks: dot products and matrix units have own
    // orders.
    const std::string layout =
        unit        ? StrCat("OIHW", block_, "o", block_, "i")
        : depthwise ? StrCat("OHW", block_, "o")
        : bytes     ? StrCat("OIHW", in_block / op::kDot, "i", block_, "o", op::kDot, "i")
        : pairs     ? StrCat("OIHW", in_block / op::kPair, "i", block_, "o", op::kPair, "i")
                    : StrCat("OIHW", in_block, "i", block_, "o");
    TW_ASSIGN(const ValueId packed, Packed(unit && depthwise ? InGroups(w) : w, "OIHW", layout));
    op::Attrs attrs = node.attrs;
    if (depthwise) attrs["groups"] = unit ? groups / block_ : Filled(groups);
    if (op::GetInt(attrs, "groups", 1) == 1) attrs.erase("groups");
    attrs["data_layout"] = StrCat("NCHW", in_block, "c");
    attrs["weight_layout"] = layout;
    return Follow(node, {image, packed}, std::move(attrs));
  }

  // Of whole blocks only.
  absl::StatusOr<bool> TransposedConvolution(const Node& node) {
    const ValueId x = node.inputs[0], w = node.inputs[1];
    if (node.inputs.size() != 2 || !IsConstant(g_, w) || !LiesPlain(node) ||
        !InBlocks(ShapeOf(x)) || !InBlocks(ShapeOf(node.outputs[0])) ||
        op::GetInt(node.attrs, "groups", 1) != 1) {
      return false;
    }
    TW_ASSIGN(const ValueId image, Pack(x));
    // A phase of the result reads some of the taps only, each of them as one stream.
    const std::string layout = StrCat("OHWI", block_, "i", block_, "o");
    TW_ASSIGN(const ValueId packed, Packed(w, "IOHW", layout));
    op::Attrs attrs = node.attrs;
    attrs["data_layout"] = StrCat("NCHW", block_, "c");
    attrs["weight_layout"] = layout;
    return Follow(node, {image, packed}, std::move(attrs));
  }

  // How many channels of the image a convolution reads as one block.
  int64_t InputBlock(ValueId x, bool bytes, bool depthwise) const {
    const int64_t channels = ShapeOf(x)[1].value();
    if (Divides(channels) && (!bytes || depthwise || block_ % op::kDot == 0)) return block_;
    if (!bytes) return HasBlocked(x) || Fills(channels) ? block_ : 1;
    if (HasBlocked(x) && block_ % op::kDot == 0) return block_;
    const int64_t all = (channels + op::kDot - 1) / op::kDot * op::kDot;
    // Sums are of four input channels at a time. Few channels, or others than blocks, are one block
    // of them all, with zeros up to a multiple of four.
    if (!depthwise && all <= whole_block_) return all;
    return Fills(channels) ? block_ : 1;
  }

  // Weights of channels that are convolved alone, as those of groups of a block of channels: zeros
  // but for the channel's own.
  ValueId InGroups(ValueId w) {
    const Value weight = g_.values[w];
    Ints sizes = weight.type.sizes();
    const std::string_view bytes = weight.constant->view();
    const auto taps = static_cast<size_t>(sizes[2] * sizes[3]), block = static_cast<size_t>(block_);
    std::string spread(bytes.size() * block, '\0');
    for (size_t c = 0; c * taps < bytes.size(); ++c)
      bytes.copy(spread.data() + (c * block + c % block) * taps, taps, c * taps);
    sizes[1] = block_;
    return AddConstant(&g_, weight.name + "_groups", {weight.type.dtype, sizes}, std::move(spread));
  }

  absl::StatusOr<ValueId> Packed(ValueId w, std::string_view from, const std::string& layout) {
    const Value weight = g_.values[w];
    const op::Layout plain(from);
    TW_ASSIGN(const op::Layout to, op::Layout::Parse(layout, from));
    const Ints sizes = weight.type.sizes();
    return AddConstant(&g_, weight.name + "_packed", {weight.type.dtype, to.Stored(sizes)},
                       [weight, plain, to, sizes] {
                         return op::Repack(weight.constant->view(), plain, to, sizes,
                                           weight.type.dtype.bytes());
                       });
  }

  // Sums of signed bytes that become bytes without floats (requantize_sums): a matrix unit computes
  // them.
  void FindRequantized() {
    const std::vector<int> producers = Producers(g_);
    for (const Node& node : g_.nodes) {
      if (node.op != "requantize") continue;
      ValueId sums = node.inputs[0];
      for (int at = producers[sums]; at >= 0; at = producers[sums]) {
        const Node& from = g_.nodes[at];
        if (from.op == "conv2d" && g_.values[from.inputs[0]].type.dtype == ir::kI8)
          requantized_.insert(sums);
        if (from.op != "relu" && from.op != "add") break;
        sums = from.inputs[0];
      }
    }
  }

  // Windows of whole vectors are worth a transform of the operand.
  absl::StatusOr<bool> Pool(const Node& node) {
    TW_ASSIGN(const ValueId image, Pack(node.inputs[0]));
    return Follow(node, {image}, node.attrs);
  }

  // Over the whole image: the channels that are left lie in order.
  absl::StatusOr<bool> Reduce(const Node& node) {
    Ints axes = op::GetInts(node.attrs, "axes", {});
    for (int64_t& axis : axes) axis = axis < 0 ? axis + 4 : axis;
    std::sort(axes.begin(), axes.end());
    if (axes != Ints{2, 3}) return false;
    op::Attrs attrs = node.attrs;
    attrs["axes"] = axes;
    TW_ASSIGN(const ValueId out,
              Emit(node.name + "_b", node.op, {blocked_.at(node.inputs[0])}, attrs));
    TW_TRY(WithoutFilled(node.outputs[0], out));
    return true;
  }

  // A constant that broadcasts over an image, in blocked form: one value, or one per channel. The
  // last one fills the last block.
  std::optional<ValueId> BlockedConstant(ValueId id) {
    const Value& value = g_.values[id];
    if (value.type.elements() == 1) {
      if (value.type.shape.size() <= 4) {
        return AddConstant(&g_, value.name + "_b", {value.type.dtype, {}},
                           std::string(value.constant->view()));
      }
      return std::nullopt;
    }
    Ints s = value.type.sizes();
    while (s.size() < 4) s.insert(s.begin(), 1);
    if (s.size() != 4 || s[0] != 1 || s[2] != 1 || s[3] != 1) return std::nullopt;
    const int64_t channels = Filled(s[1]);
    const op::TensorType type{value.type.dtype, {channels / block_, 1, 1, block_}};
    std::string bytes(value.constant->view());
    const std::string last = bytes.substr(bytes.size() - value.type.dtype.bytes());
    for (int64_t more = channels - s[1]; more > 0; --more) bytes += last;
    return AddConstant(&g_, value.name + "_b", type, std::move(bytes));
  }

  // What broadcasts over an image in blocks: an image in blocks, one channel for all, or a number
  // for each channel.
  absl::StatusOr<std::optional<ValueId>> Operand(ValueId id) {
    if (IsConstant(g_, id)) return BlockedConstant(id);
    if (HasBlocked(id)) return std::optional(blocked_.at(id));
    const Dims& s = ShapeOf(id);
    std::optional<ValueId> none;
    if (s.size() != 4) return none;
    if (s[1] == op::Dim(1)) return AsSingleChannels(id);
    if (IsPixel(s) && s[1].is_constant()) return Pack(id);
    return none;
  }

  // Whether a node makes wider elements of narrow ones for others than those that take blocks:
  // moving the narrow ones to their places is less.
  bool WidensForOthers(const Node& node) const {
    const op::TensorType &from = g_.values[node.inputs[0]].type,
                         &to = g_.values[node.outputs[0]].type;
    const auto takes_blocks = [](const std::string& name) {
      static const std::set<std::string> kMoves = {
          "conv2d", "conv2d_transpose", "pool2d", "reduce", "pad", "gather"};
      const op::OpSpec* spec = op::FindOp(name);
      return kMoves.contains(name) || (spec != nullptr && spec->elementwise());
    };
    const auto users = users_.find(node.outputs[0]);
    return to.dtype.bits > from.dtype.bits && from.shape == to.shape && from.dtype.bits <= 8 &&
           (users == users_.end() || std::ranges::none_of(users->second, takes_blocks));
  }

  absl::StatusOr<bool> Elementwise(const Node& node) {
    const Dims shape = ShapeOf(node.outputs[0]);
    const bool follows = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      return HasBlocked(id) && ShapeOf(id) == shape;
    });
    if (!follows || WidensForOthers(node)) return false;
    TW_ASSIGN(const bool finite, FillsFinite(node));
    if (!finite) return false;
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) {
      TW_ASSIGN(const std::optional<ValueId> operand, Operand(id));
      if (!operand) return false;
      inputs.push_back(*operand);
    }
    return Follow(node, std::move(inputs), node.attrs);
  }

  // The node, on blocks.
  absl::StatusOr<bool> Follow(const Node& node, std::vector<ValueId> inputs, op::Attrs attrs) {
    TW_ASSIGN(const ValueId out,
              Emit(node.name + "_b", node.op, std::move(inputs), std::move(attrs)));
    Define(node.outputs[0], out);
    if (!node.op.starts_with("conv2d") && !op::FindOp(node.op)->elementwise()) KeepFill(node);
    return true;
  }

  // Axes keep their places, but that of the channels counts blocks. Operands are packed where most
  // of them are blocked.
  absl::StatusOr<bool> Concat(const Node& node) {
    int64_t blocked = 0, all = 0;
    for (ValueId id : node.inputs) {
      if (!InBlocks(ShapeOf(id))) return false;
      const int64_t channels = ShapeOf(id)[1].value();
      all += channels;
      blocked += HasBlocked(id) ? channels : 0;
    }
    if (2 * blocked <= all) return false;
    std::vector<ValueId> inputs;
    for (ValueId id : node.inputs) {
      TW_ASSIGN(const ValueId packed, Pack(id));
      inputs.push_back(packed);
    }
    op::Attrs attrs = node.attrs;
    const int64_t axis = op::GetInt(attrs, "axis", 0);
    attrs["axis"] = axis < 0 ? axis + 4 : axis;
    return Follow(node, std::move(inputs), std::move(attrs));
  }

  absl::StatusOr<bool> Slice(const Node& node) {
    const Dims& result = ShapeOf(node.outputs[0]);
    Dims starts = op::GetDims(node.attrs, "starts"), sizes = op::GetDims(node.attrs, "sizes");
    Ints steps = op::GetInts(node.attrs, "steps", {});
    if (steps[1] != 1 || !starts[1].is_constant() || !Divides(starts[1].value()) ||
        !InBlocks(result)) {
      return false;
    }
    starts[1] = starts[1].value() / block_;
    sizes[1] = result[1].value() / block_;
    starts.push_back(0);
    sizes.push_back(block_);
    steps.push_back(1);
    return Follow(
        node, {blocked_.at(node.inputs[0])},
        {{"starts", op::ShapeAttr(starts)}, {"sizes", op::ShapeAttr(sizes)}, {"steps", steps}});
  }

  absl::StatusOr<bool> Pad(const Node& node) {
    Dims pads = op::GetDims(node.attrs, "pads");
    if (pads[1] != op::Dim(0) || pads[5] != op::Dim(0)) return false;
    pads.insert(pads.begin() + 4, 0);
    pads.push_back(0);
    op::Attrs attrs = node.attrs;
    attrs["pads"] = op::ShapeAttr(pads);
    return Follow(node, {blocked_.at(node.inputs[0])}, std::move(attrs));
  }

  // Rows or columns: a resize that takes the nearest ones.
  absl::StatusOr<bool> Gather(const Node& node) {
    const int64_t axis = op::GetInt(node.attrs, "axis", 0);
    const ValueId places = node.inputs[1];
    if (!IsConstant(g_, places) || ShapeOf(places).size() != 1 || axis < 2) return false;
    return Follow(node, {blocked_.at(node.inputs[0]), places}, node.attrs);
  }

  const bool pairs_;                                // dot products of pairs of bf16
  const int64_t cold_bytes_;                        // weights that no cache holds; 0: unknown
  const int64_t whole_block_, filled_part_;         // GraphPassContext
  std::map<ValueId, ValueId> widened_;              // f32 → the bf16 that it was cast from
  std::set<ValueId> requantized_;                   // results of convolutions
  std::map<ValueId, std::set<std::string>> users_;  // value → operators that read it
};

}  // namespace

absl::StatusOr<Graph> BlockLayouts(Graph g, const GraphPassContext& ctx) {
  if (ctx.channel_block < 2) return g;
  return Blocker(std::move(g), ctx.channel_block, ctx).Run();
}

}  // namespace tilewright::graph
