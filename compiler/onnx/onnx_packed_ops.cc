// ONNX Runtime's product with weights that are packed integers (MatMulNBits): they are unpacked at
// the import to a byte each; the pass pack_weights packs them again, as its kernels read them.
#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

// y = A * dequantised(B)^T + bias, with B [columns, groups, block * bits / 8]. A scale and a zero
// point belong to a group of a column, `block` neighbours along K; the last one may hang over the
// end. With g_idx an element of K says itself which group is its own.
class PackedProduct {
 public:
  explicit PackedProduct(NodeReader& n) : n_(n), c_(n) {}

  Result Run() {
    TW_TRY(ReadAttributes());
    ValueId x = c_.Input(0);
    const ValueId packed = c_.Input(1);
    TW_TRY(c_.status());
    const op::TensorType type = c_.TypeOf(x);
    if (!type.dtype.is_float()) {
      return n_.Error("type", StrCat("expected floats, found ", op::ToText(type)));
    }
    TW_ASSIGN(ValueId weights,
              Unpacked(packed, groups_ * block_, {columns_, groups_, block_}, "_b"));
    TW_ASSIGN(ValueId scale, Scales());
    TW_ASSIGN(ValueId zero, Zeros());
    if (n_.HasInput(4)) {
      weights = c_.Slice(c_.Reshape(weights, {columns_, groups_ * block_}), 1, 0, k_);
      TW_ASSIGN(const ValueId own, OwnGroups());
      scale = OfElements(scale, own);
      if (c_.Rank(zero) > 0) zero = OfElements(zero, own);
    }
    // Zero points that are floats lie between the integers.
    weights = c_.TypeOf(zero).dtype.is_float()
                  ? c_.Mul(c_.Sub(c_.Cast(weights, ir::kF32), zero), scale)
                  : c_.Op("dequantize", {weights, scale, zero});
    const int64_t whole = n_.HasInput(4) ? k_ : groups_ * block_;
    weights = c_.Reshape(weights, {columns_, whole});
    x = c_.Cast(x, ir::kF32);
    if (whole > k_) x = Padded(x, whole - k_);
    ValueId y = c_.Op("dense", {x, weights}, {{"weight_layout", std::string("NK")}});
    if (n_.HasInput(5)) y = c_.Add(y, c_.Cast(c_.Input(5), ir::kF32));
    return c_.Done(c_.Cast(y, type.dtype));
  }

 private:
  absl::Status ReadAttributes() {
    TW_ASSIGN(k_, n_.Int("K", 0));
    TW_ASSIGN(columns_, n_.Int("N", 0));
    TW_ASSIGN(bits_, n_.Int("bits", 4));
    TW_ASSIGN(block_, n_.Int("block_size", 0));
    constexpr int64_t kMost = int64_t{1} << 30;
    const bool sizes = std::min({k_, columns_, block_}) >= 1 &&
                       std::max({k_, columns_, block_}) <= kMost && block_ * bits_ % 8 == 0;
    if (!sizes || (bits_ != 2 && bits_ != 4 && bits_ != 8)) {
      return n_.Error("attribute",
                      StrCat("expected bits 2, 4 or 8, K and N above 0, and a "
                             "block_size of whole bytes, found bits ",
                             bits_, ", K ", k_, ", N ", columns_, ", block_size ", block_));
    }
    groups_ = (k_ + block_ - 1) / block_;
    return absl::OkStatus();
  }

  // The integers of a constant that has `count` of them for each column, in whole bytes.
  Result Unpacked(ValueId id, int64_t count, std::vector<int64_t> shape, const char* suffix) {
    const Value& value = n_.importer().ValueOf(id);
    const int64_t row = (count * bits_ + 7) / 8, fields = 8 / bits_;
    if (value.constant == nullptr || value.type.dtype != ir::kU8 ||
        value.type.bytes() != columns_ * row) {
      return n_.Error("weights", StrCat("expected ", columns_ * row,
                                        " constant bytes of u8, found ", op::ToText(value.type)));
    }
    const std::string_view bytes = value.constant->view();
    std::string out;
    out.reserve(static_cast<size_t>(columns_ * count));
    for (int64_t column = 0; column < columns_; ++column) {
      for (int64_t i = 0; i < count; ++i) {
        const auto byte =
            static_cast<uint8_t>(bytes[static_cast<size_t>(column * row + i / fields)]);
        out.push_back(static_cast<char>(byte >> i % fields * bits_ & ((1 << bits_) - 1)));
      }
    }
    return n_.importer().Constant(PartName(n_, suffix), {ir::kU8, std::move(shape)}, out);
  }

  // A float of each group, f32 [columns, groups, 1].
  Result PerGroup(ValueId id) {
    const op::TensorType type = c_.TypeOf(id);
    TW_TRY(c_.status());
    if (!type.dtype.is_float() || !type.fixed() || type.elements() != columns_ * groups_) {
      return n_.Error("scales",
                      StrCat("expected ", columns_ * groups_, " floats, found ", op::ToText(type)));
    }
    // The bytes of a constant stay where they are.
    const Value& value = n_.importer().ValueOf(id);
    const std::vector<int64_t> shape = {columns_, groups_, 1};
    if (value.constant != nullptr) {
      id = n_.importer().Constant(PartName(n_, "_groups"), {type.dtype, shape}, value.constant);
    }
    return c_.Done(c_.Cast(c_.Reshape(id, shape), ir::kF32));
  }
  Result Scales() { return PerGroup(c_.Input(2)); }

  Result Zeros() {
    if (!n_.HasInput(3)) return c_.Done(c_.Scalar(1 << (bits_ - 1), ir::kU8));
    const ValueId given = c_.Input(3);
    TW_TRY(c_.status());
    if (c_.TypeOf(given).dtype.is_float()) return PerGroup(given);
    return Unpacked(given, groups_, {columns_, groups_, 1}, "_zeros");
  }

  // The group of each element of K.
  Result OwnGroups() {
    TW_ASSIGN(std::vector<int64_t> own, n_.InputInts(4, "g_idx"));
    bool fine = static_cast<int64_t>(own.size()) >= k_;
    own.resize(static_cast<size_t>(k_));
    for (const int64_t group : own) fine = fine && group >= 0 && group < groups_;
    if (!fine) {
      return n_.Error("inputs", StrCat("expected a number below ", groups_, " for each of ", k_,
                                       " elements as g_idx, found others"));
    }
    return c_.Done(c_.Integers({k_}, own));
  }
  ValueId OfElements(ValueId groups, ValueId own) {
    return c_.Op("gather", {c_.Reshape(groups, {columns_, groups_}), own}, {{"axis", int64_t{1}}});
  }

  // What the last group has beyond K is multiplied by zeros.
  ValueId Padded(ValueId x, int64_t more) {
    std::vector<int64_t> pads(2 * static_cast<size_t>(c_.Rank(x)), 0);
    pads.back() = more;
    return c_.Op("pad", {x}, {{"pads", pads}, {"value", 0.0}});
  }

  NodeReader& n_;
  Composer c_;
  int64_t k_ = 0, columns_ = 0, bits_ = 4, block_ = 0, groups_ = 0;
};

}  // namespace

Result ImportMatMulNBits(NodeReader& n) { return PackedProduct(n).Run(); }

}  // namespace tilewright::graph::onnx
