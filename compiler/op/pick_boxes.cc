// Boxes of the best scores that do not overlap each other much (non-maximum suppression), one
// kernel with a serial loop over the picks.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using ir::Expr;
using support::StrCat;
using Exprs = std::vector<Expr>;
using Vars = std::vector<ir::Var>;

constexpr std::string_view kOp = "pick_boxes";
constexpr int64_t kSides = 5;  // rows of `boxes`: low and high of both axes, the area

constexpr int64_t kLanes = 16;  // of f32 in the widest vectors

enum Side { kLow0, kLow1, kHigh0, kHigh1, kArea };

// boxes [b,5,n], scores [b,c,n], and single numbers of f32: by how much of their union two boxes
// may overlap, and what a score has to be above → i64[b,c,picks]: each pick is the best box that no
// earlier one overlaps by more, -1 where there is none left. Of equal scores the first counts.
absl::StatusOr<TensorTypes> InferPickBoxes(std::span<const TensorType> inputs, const Attrs& attrs,
                                           DimEqualities* equal) {
  const TensorType &boxes = inputs[0], &scores = inputs[1];
  const int64_t picks = GetInt(attrs, "picks", 0);
  if (picks < 1) return OpError(kOp, "attribute", StrCat("expected picks >= 1, found ", picks));
  const bool ranks = boxes.rank() == 3 && scores.rank() == 3;
  const bool fine =
      ranks && boxes.shape[1] == Dim(kSides) && inputs[2].rank() == 0 && inputs[3].rank() == 0 &&
      MayEqual(boxes.shape, {scores.shape[0], kSides, scores.shape[2]}, equal) &&
      std::ranges::all_of(inputs, [](const TensorType& in) { return in.dtype == ir::kF32; });
  if (!fine) {
    return OpError(kOp, "shape",
                   StrCat("expected boxes [b,5,n], scores [b,c,n] and two numbers of "
                          "f32, found ",
                          ToText(boxes), " and ", ToText(scores)));
  }
  return TensorTypes{{ir::kI64, {scores.shape[0], scores.shape[1], picks}}};
}

Expr F32(double value) { return ir::Float(value, ir::kF32); }

// Whether box `n` and the pick overlap by more than the limit. Nothing overlaps a box without area.
Expr Overlaps(const ir::Buffer& boxes, const Expr& batch, const Expr& n, const Expr& pick,
              const Expr& limit) {
  const auto side = [&](Side s, const Expr& at) {
    return ir::Load(boxes, {batch, ir::Int(s), at});
  };
  const auto length = [&](Side low, Side high) {
    return ir::Max(
        ir::Min(side(high, n), side(high, pick)) - ir::Max(side(low, n), side(low, pick)), F32(0));
  };
  const Expr common = length(kLow0, kHigh0) * length(kLow1, kHigh1);
  const Expr all = side(kArea, n) + side(kArea, pick) - common;
  return limit < common / all && F32(0) < common;
}

// The scores that are left are carried from pick to pick, minus infinity where there is none. Each
// lane finds its best one and the first place of the best of all; those behind the last score look
// at it again. A pair of score and place would be compared one after the other.
absl::StatusOr<std::vector<ir::Buffer>> BuildPickBoxes(const ComputeArgs& a) {
  ir::FunctionBuilder& b = a.b;
  const ir::Buffer &boxes = a.inputs[0], &scores = a.inputs[1];
  const Expr one = ir::Int(1), lanes = ir::Int(kLanes), none = F32(-INFINITY);
  const Expr limit = ir::Load(a.inputs[2], Exprs{}), least = ir::Load(a.inputs[3], Exprs{});
  const Expr count = scores->shape[2], rows = ir::FloorDiv(count + ir::Int(kLanes - 1), lanes);
  const auto inside = [&](const Expr& n) { return ir::Min(n, count - one); };
  b.BeginNest({"b", "c"}, {scores->shape[0], scores->shape[1]});
  const ir::Buffer left = b.Carried(a.name + "_left", ir::kF32, {count}, {"n"}, [&](const Vars& v) {
    const Expr score = ir::Load(scores, {v[0], v[1], v[2]});
    return ir::Select(least < score, score, none);
  });
  b.BeginScan("t", ir::Int(GetInt(a.attrs, "picks", 0)));
  const auto reduce = [&](const std::string& name, ir::DType type, ir::Combiner combiner,
                          const auto& element) {  // (of a place): in each lane, then of all
    const ir::Axis row = b.ReduceAxis("r", rows), lane = b.ReduceAxis("k", lanes);
    const ir::Buffer each =
        b.Reduce(name + "_lanes", type, {lanes}, {"l"}, {row}, combiner,
                 [&](const Vars& v) { return element(v, inside(row.var * lanes + v[3])); });
    return b.Reduce(name, type, {one}, {"s"}, {lane}, combiner,
                    [&](const Vars& v) { return ir::Load(each, {v[0], v[1], v[2], lane.var}); });
  };
  const auto score = [&](const Vars& v, const Expr& n) { return ir::Load(left, {v[0], v[1], n}); };
  const ir::Buffer best = reduce(a.name + "_score", ir::kF32, ir::Combiner::kMax, score);
  const Expr beyond = ir::Int(std::numeric_limits<int32_t>::max(), ir::kI32);
  const ir::Buffer first =
      reduce(a.name + "_at", ir::kI32, ir::Combiner::kMin, [&](const Vars& v, const Expr& n) {
        const Expr top = ir::Load(best, {v[0], v[1], v[2], ir::Int(0)});
        return ir::Select(ir::Eq(score(v, n), top), ir::Cast(ir::kI32, n), beyond);
      });
  const ir::Buffer pick = b.Compute(a.name + "_pick", ir::kI64, {one}, {"s"}, [&](const Vars& v) {
    const Exprs at = {v[0], v[1], v[2], v[3]};
    return ir::Select(none < ir::Load(best, at), ir::Cast(ir::kI64, ir::Load(first, at)),
                      ir::Int(-1));
  });
  b.Carry(left, {"n"}, [&](const Vars& v) {
    const Expr at = ir::Load(pick, {v[0], v[1], v[2], ir::Int(0)});
    const Expr gone = ir::Binary(ir::ExprKind::kOr, ir::Eq(v[3], at),
                                 Overlaps(boxes, v[0], v[3], ir::Max(at, ir::Int(0)), limit));
    return ir::Select(gone, none, score(v, v[3]));
  });
  b.EndScan();
  b.EndNest();
  return std::vector<ir::Buffer>{
      b.Compute(a.name, ir::kI64, ShapeExprs(b, a.outputs[0].shape), {},
                [&](const Vars& v) { return ir::Load(pick, {v[0], v[1], v[2], ir::Int(0)}); })};
}

// The boxes of one batch and the picks of one class, in f32 after each operation.
class Picker {
 public:
  Picker(const double* boxes, const double* scores, int64_t count, double limit, double least)
      : boxes_(boxes), scores_(scores), count_(count), limit_(limit) {
    for (int64_t n = 0; n < count; ++n) open_.push_back(least < scores[n]);
  }

  // -1: there is none left.
  int64_t Next() {
    int64_t best = -1;
    for (int64_t n = 0; n < count_; ++n) {
      if (open_[n] && (best < 0 || scores_[n] > scores_[best])) best = n;
    }
    for (int64_t n = 0; best >= 0 && n < count_; ++n) {
      if (n == best || Overlap(n, best)) open_[n] = false;
    }
    return best;
  }

 private:
  static double R(double value) { return RoundToType(value, ir::kF32); }
  double SideOf(Side s, int64_t n) const { return boxes_[s * count_ + n]; }
  double Length(Side low, Side high, int64_t a, int64_t b) const {
    return std::max(0.0, R(std::min(SideOf(high, a), SideOf(high, b)) -
                           std::max(SideOf(low, a), SideOf(low, b))));
  }
  bool Overlap(int64_t a, int64_t b) const {
    const double common = R(Length(kLow0, kHigh0, a, b) * Length(kLow1, kHigh1, a, b));
    const double all = R(R(SideOf(kArea, a) + SideOf(kArea, b)) - common);
    return limit_ < R(common / all) && common > 0;
  }

  const double* boxes_;
  const double* scores_;
  const int64_t count_;
  const double limit_;
  std::vector<bool> open_;
};

absl::StatusOr<std::vector<RefTensor>> PlainPickBoxes(std::span<const RefTensor> inputs,
                                                      std::span<const TensorType> outputs,
                                                      const Attrs&) {
  const RefTensor &boxes = inputs[0], &scores = inputs[1];
  const int64_t batches = scores.type.size(0), classes = scores.type.size(1),
                count = scores.type.size(2), picks = outputs[0].size(2);
  RefTensor out{outputs[0], {}};
  for (int64_t row = 0; row < batches * classes; ++row) {
    Picker picker(&boxes.values[row / classes * kSides * count], &scores.values[row * count], count,
                  inputs[2].values[0], inputs[3].values[0]);
    for (int64_t p = 0; p < picks; ++p) out.values.push_back(static_cast<double>(picker.Next()));
  }
  return std::vector<RefTensor>{std::move(out)};
}

}  // namespace

std::vector<OpSpec> PickBoxesRows() {
  OpSpec row;
  row.name = kOp;
  row.onnx = {"NonMaxSuppression"};
  row.min_inputs = row.max_inputs = 4;
  row.types = kFloats;
  row.serial = true;
  row.infer = InferPickBoxes;
  row.compute = BuildPickBoxes;
  row.flops = [](std::span<const TensorType> inputs, std::span<const TensorType>,
                 const Attrs& attrs) {
    constexpr double kPerBox = 14;
    return kPerBox * static_cast<double>(inputs[1].elements() * GetInt(attrs, "picks", 0));
  };
  row.reference = PlainPickBoxes;
  return {row};
}

}  // namespace tilewright::op
