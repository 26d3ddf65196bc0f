// Builds the value of one ONNX operator from several rows. Keeps the first error: every later step
// does nothing and gives kNone, so that a composition reads like its formula. Part of the import.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/onnx/onnx_conversions.h"

namespace tilewright::graph::onnx {

inline constexpr ValueId kNone = -1;  // no value: an input that is left out, or after an error

class Composer {
 public:
  explicit Composer(NodeReader& n) : n_(n) {}

  NodeReader& node() { return n_; }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  // The value, or the first error.
  Result Done(ValueId id) const {
    if (!status_.ok()) return status_;
    return id;
  }
  // Notes an error of the node (graph.onnx.<reason>).
  ValueId Fail(std::string_view reason, std::string_view detail);

  ValueId Input(int i);
  // kNone if the node leaves this input out.
  ValueId OptionalInput(int i) { return n_.HasInput(i) ? Input(i) : kNone; }
  ValueId Op(std::string_view row, std::vector<ValueId> inputs, op::Attrs attrs = {});
  // After an error: f32 of sixteen dimensions, each 1.
  const op::TensorType& TypeOf(ValueId id) const;
  // Notes an error where a dimension is open; what is indexed by the rank found asks ok() first.
  std::vector<int64_t> Shape(ValueId id);
  // The size along an axis that the operand has. Notes an error where it is open; 1 then.
  int64_t FixedSize(ValueId id, int64_t axis);
  // How many elements it has. Notes an error where that is open; 1 then.
  int64_t Count(ValueId id);
  // The dimensions, of which some may be open. After an error as TypeOf.
  std::vector<op::Dim> Dims(ValueId id) const { return TypeOf(id).shape; }
  int64_t Rank(ValueId id) const { return TypeOf(id).rank(); }

  ValueId Constant(ir::DType type, std::vector<int64_t> shape, std::vector<double> values);
  // i64, of a list as long as `shape` has elements.
  ValueId Integers(std::vector<int64_t> shape, const std::vector<int64_t>& values);
  // 0, 1, ... along dimension `axis` of a tensor of this rank.
  ValueId Counting(ir::DType type, const op::Dim& count, int64_t axis, int64_t rank);
  // A size as a number of the graph, a scalar.
  ValueId SizeOf(const op::Dim& size, ir::DType type);
  // Several of them, i64 in one dimension.
  ValueId SizesOf(const std::vector<op::Dim>& sizes);
  ValueId Scalar(double value, ir::DType type) { return Constant(type, {}, {value}); }
  ValueId Number(int64_t value) { return Scalar(static_cast<double>(value), ir::kI64); }
  // A constant without elements.
  ValueId Empty(ir::DType type, std::vector<int64_t> shape) {
    return Constant(type, std::move(shape), {});
  }

  ValueId Add(ValueId a, ValueId b) { return Op("add", {a, b}); }
  ValueId Sub(ValueId a, ValueId b) { return Op("sub", {a, b}); }
  ValueId Mul(ValueId a, ValueId b) { return Op("mul", {a, b}); }
  ValueId Div(ValueId a, ValueId b) { return Op("div", {a, b}); }
  // The number of elements. Notes an error where it has too many terms.
  op::Dim Elements(ValueId x);
  // As a list of its elements.
  ValueId Flat(ValueId x) { return ReshapeTo(x, {Elements(x)}); }
  // x itself where it has this form.
  ValueId Reshape(ValueId x, std::vector<int64_t> shape);
  ValueId ReshapeTo(ValueId x, const std::vector<op::Dim>& shape);
  ValueId Transpose(ValueId x, std::vector<int64_t> perm);
  // The dimension `from` put at `to`, the others in their order.
  ValueId MoveAxis(ValueId x, int64_t from, int64_t to);
  ValueId Cast(ValueId x, ir::DType type);
  // `x` repeated along dimensions of 1, up to `shape`.
  ValueId Broadcast(ValueId x, std::vector<int64_t> shape);
  ValueId BroadcastTo(ValueId x, const std::vector<op::Dim>& shape);
  ValueId Reduce(std::string_view kind, ValueId x, std::vector<int64_t> axes, bool keepdims = true);
  ValueId Slice(ValueId x, int64_t axis, const op::Dim& start, const op::Dim& count,
                int64_t step = 1);
  // start, start + 1, ... (count of them) as i64: a part of a constant as long as the largest need.
  ValueId CountingFrom(const op::Dim& start, const op::Dim& count);
  ValueId Concat(std::vector<ValueId> parts, int64_t axis);
  // A product of matrices as NumPy's matmul has it.
  ValueId MatMul(ValueId a, ValueId b);

  // Refuses runs in which the integers `found` are not `expected`, the sizes that the model states
  // for this node's result.
  void ExpectSizes(ValueId found, std::vector<int64_t> expected) {
    ExpectSizes(found, std::move(expected), n_.label());
  }
  // The same of other numbers; `what` says for people what they are.
  void ExpectSizes(ValueId found, const std::vector<int64_t>& expected, const std::string& what) {
    ExpectDims(found, {expected.begin(), expected.end()}, what);
  }
  void ExpectDims(ValueId found, std::vector<op::Dim> expected, const std::string& what);

  // The size of the node's result along `axis`, which `size`, an integer of the graph, has when the
  // module runs: at most `most`, where the operator bounds it (Importer::FoundSize).
  op::Dim FoundSize(ValueId size, int64_t axis, std::optional<int64_t> most, int output = 0);
  // The same of all axes, whose sizes are the elements of `sizes`, from the first on.
  struct SizeBound {
    std::optional<op::Dim> known = {};  // what the size certainly is
    std::optional<int64_t> most = {};
  };
  std::vector<op::Dim> FoundShape(ValueId sizes, const std::vector<SizeBound>& bounds,
                                  int output = 0);
  // The size along `axis` of what becomes output `output` in one trip of a loop: `size`, an integer
  // of its body. `presumed`: the largest, unless --shape says another.
  op::Dim SizeInTrip(ValueId size, int64_t axis, int output, std::optional<int64_t> presumed);
  // The largest number that a dimension may be; nullopt where none is known.
  std::optional<int64_t> Most(const op::Dim& size) const;

 private:
  op::Dim SizeFound(int64_t axis, const SizeBound& bound, int output);

  NodeReader& n_;
  absl::Status status_;
};

// `x`, and then along an axis `more` entries that are `fill`, a scalar.
ValueId Continued(Composer& c, ValueId x, int64_t axis, int64_t more, ValueId fill);
// The tensor with `size` entries along an axis: the first of its own, then zeros.
ValueId Widened(Composer& c, ValueId x, int64_t axis, int64_t size);
// Sums ("sum") or products ("prod") of the elements up to each one, along an axis; from the end if
// `reverse`; without the element itself if `exclusive`.
ValueId Cumulative(Composer& c, std::string_view kind, ValueId x, int64_t axis, bool exclusive,
                   bool reverse);

}  // namespace tilewright::graph::onnx
