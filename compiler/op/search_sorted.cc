// Places in a sorted list, each by a binary search of its own: one kernel, whose steps are a serial
// loop of fixed length.
#include <string>

#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr std::string_view kOp = "search_sorted";
constexpr int64_t kMostSteps = 48;
constexpr int64_t kBlock = 16;  // values

// list [n], values [m] of one type → i64[m]: how many elements of the list are not above the value,
// where the list does not fall. `steps`: halvings until one place is left, 2^steps > n.
absl::StatusOr<TensorTypes> InferSearchSorted(std::span<const TensorType> inputs,
                                              const Attrs& attrs, DimEqualities*) {
  const TensorType &list = inputs[0], &values = inputs[1];
  if (list.rank() != 1 || values.rank() != 1 || list.dtype != values.dtype) {
    return OpError(
        kOp, "shape",
        StrCat("expected two lists of one type, found ", ToText(list), " and ", ToText(values)));
  }
  const int64_t steps = GetInt(attrs, "steps", 0);
  const int64_t longest = list.shape[0].constant().value_or(0);
  if (steps < 1 || steps > kMostSteps || longest >> steps > 0) {
    return OpError(kOp, "attribute",
                   StrCat("expected steps from 1 to ", kMostSteps,
                          ", of which 2^steps is more than the list has "
                          "elements, found ",
                          steps, " for ", ToText(list)));
  }
  return TensorTypes{{ir::kI64, values.shape}};
}

// The place is in [low, high]; each step compares with the element in the middle. Blocks of values
// go the same way at once: the loads of one wait for the loads of none of the others.
absl::StatusOr<std::vector<ir::Buffer>> BuildSearchSorted(const ComputeArgs& a) {
  using Vars = std::vector<ir::Var>;  // of the block, the step and the value in the block
  ir::FunctionBuilder& b = a.b;
  const ir::Buffer &list = a.inputs[0], &values = a.inputs[1];
  const ir::Expr length = list->shape[0], count = values->shape[0], one = ir::Int(1);
  const ir::Expr block = ir::Int(kBlock), blocks = ir::FloorDiv(count + ir::Int(kBlock - 1), block);
  b.BeginNest({"b"}, {blocks});
  const ir::Buffer low =
      b.Carried(a.name + "_low", ir::kI64, {block}, {"s"}, [](const Vars&) { return ir::Int(0); });
  const ir::Buffer high =
      b.Carried(a.name + "_high", ir::kI64, {block}, {"s"}, [&](const Vars&) { return length; });
  b.BeginScan("t", ir::Int(GetInt(a.attrs, "steps", 0)));
  const ir::Buffer middle =
      b.Compute(a.name + "_middle", ir::kI64, {block}, {"s"}, [&](const Vars& v) {
        return ir::FloorDiv(ir::Load(low, {v[0], v[2]}) + ir::Load(high, {v[0], v[2]}), ir::Int(2));
      });
  const ir::Buffer right =
      b.Compute(a.name + "_right", ir::kI64, {block}, {"s"}, [&](const Vars& v) {
        const ir::Expr at = ir::Load(middle, {v[0], v[1], v[2]});
        const ir::Expr element = ir::Load(list, {ir::Min(at, length - one)});
        const ir::Expr value = ir::Load(values, {ir::Min(v[0] * block + v[2], count - one)});
        const ir::Expr open = at < ir::Load(high, {v[0], v[2]});
        return ir::Select(open && element <= value, one, ir::Int(0));
      });
  const auto moved = [&](const ir::Buffer& end, bool is_low) {
    b.Carry(end, {"s"}, [&, is_low](const Vars& v) {
      const ir::Expr goes_right = ir::Eq(ir::Load(right, {v[0], v[1], v[2]}), one);
      const ir::Expr at = ir::Load(middle, {v[0], v[1], v[2]});
      const ir::Expr old = ir::Load(end, {v[0], v[2]});
      return is_low ? ir::Select(goes_right, at + one, old) : ir::Select(goes_right, old, at);
    });
  };
  moved(low, true);
  moved(high, false);
  b.EndScan();
  b.EndNest();
  const auto place = [&](const Vars& v) {
    return ir::Load(low, {ir::FloorDiv(v[0], block), ir::FloorMod(v[0], block)});
  };
  return std::vector<ir::Buffer>{b.Compute(a.name, ir::kI64, {count}, {"j"}, place)};
}

absl::StatusOr<std::vector<RefTensor>> PlainSearchSorted(std::span<const RefTensor> inputs,
                                                         std::span<const TensorType> outputs,
                                                         const Attrs& attrs) {
  const RefTensor &list = inputs[0], &values = inputs[1];
  const ir::DType type = list.type.dtype;
  const bool whole = !type.is_float();
  const std::vector<int64_t> exact = whole ? IntegersOf(list) : std::vector<int64_t>{};
  const std::vector<int64_t> wanted = whole ? IntegersOf(values) : std::vector<int64_t>{};
  const auto above = [&](int64_t at, size_t j) {
    const auto i = static_cast<size_t>(at);
    return whole ? Below(wanted[j], exact[i], type) : !(list.values[i] <= values.values[j]);
  };
  const int64_t length = list.type.elements();
  std::vector<int64_t> places;
  for (size_t j = 0; j < values.values.size(); ++j) {
    int64_t low = 0, high = length;
    for (int64_t step = GetInt(attrs, "steps", 0); step > 0; --step) {
      const int64_t middle = (low + high) / 2;
      if (middle < high && !above(middle, j)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    places.push_back(low);
  }
  return std::vector<RefTensor>{FromIntegers(outputs[0], places)};
}

}  // namespace

std::vector<OpSpec> SearchSortedRows() {
  OpSpec row;
  row.name = kOp;
  row.min_inputs = row.max_inputs = 2;
  row.types = kNumbers;
  row.reads_wide = true;
  row.infer = InferSearchSorted;
  row.compute = BuildSearchSorted;
  row.flops = [](std::span<const TensorType> inputs, std::span<const TensorType>,
                 const Attrs& attrs) {
    return static_cast<double>(inputs[1].elements() * GetInt(attrs, "steps", 0));
  };
  row.reference = PlainSearchSorted;
  return {row};
}

}  // namespace tilewright::op
