#include "compiler/op/fixed_point_dense.h"

#include <limits>
#include <string>

#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using ir::Expr;
using ir::Int;
using ir::Load;
using support::StrCat;
using Vars = std::vector<ir::Var>;

constexpr int64_t kLimbs = 3, kByteBits = 8;
// The largest number of a group. Its limbs, and those of all smaller ones, are in -128..127.
constexpr double kMostPlaces = 127 * 65536.0;
// Makes each limb the byte of its place, minus 128.
constexpr int64_t kLimbBias = 0x808080, kByteBias = 0x80;
// Numbers of smaller groups lose places, so that no step is subnormal: 2^-100.
constexpr double kLeastPeak = 7.888609052210118e-31;

// Builds the stages; `rows` are the dimensions of the result but its last.
class Stages {
 public:
  Stages(const ComputeArgs& args, int64_t bits, int64_t group)
      : a_(args),
        bits_(bits),
        group_(group),
        parts_(kByteBits / bits),
        rows_(ShapeExprs(args.b, args.outputs[0].shape)),
        groups_(args.inputs[2]->shape[1]) {
    rows_.pop_back();
    for (size_t d = 0; d < rows_.size(); ++d) {
      row_names_.push_back(rows_.size() == 1 ? "m" : StrCat("m", d));
    }
    words_ = group * bits / 32;
  }

  ir::Buffer Peaks() const {
    const ir::Axis k = a_.b.ReduceAxis("k", Int(group_));
    return a_.b.Reduce(
        Name("_peaks"), ir::kF32, Shape({groups_}), Axes({"g"}), {k}, ir::Combiner::kMax,
        [&](const Vars& v) {
          const Expr place = Own(v, 0) * Int(group_) + k.var;
          const Expr size = ir::Call(ir::Intrinsic::kAbs, {Load(a_.inputs[0], At(v, {place}))});
          // A maximum may drop a NaN, which is to be seen in the result: as infinity.
          return ir::Min(size, ir::Float(std::numeric_limits<double>::infinity(), ir::kF32));
        });
  }

  // The last place of each group, or its inverse.
  ir::Buffer Steps(const ir::Buffer& peaks, bool inverse) const {
    return a_.b.Compute(Name(inverse ? "_places" : "_steps"), ir::kF32, Shape({groups_}),
                        Axes({"g"}), [&](const Vars& v) {
                          const Expr peak =
                              ir::Max(Load(peaks, VarExprs(v)), ir::Float(kLeastPeak, ir::kF32));
                          return inverse ? ir::Float(kMostPlaces, ir::kF32) / peak
                                         : peak * ir::Float(1 / kMostPlaces, ir::kF32);
                        });
  }

  ir::Buffer Numbers(const ir::Buffer& places) const {
    return a_.b.Compute(
        Name("_numbers"), ir::kI32, Shape({groups_, Int(parts_), Int(group_ / parts_)}),
        Axes({"g", "p", "t"}), [&](const Vars& v) {
          const Expr g = Own(v, 0), p = Own(v, 1), t = Own(v, 2);
          const Expr x = Load(a_.inputs[0], At(v, {g * Int(group_) + t * Int(parts_) + p}));
          return ir::Cast(ir::kI32,
                          ir::Call(ir::Intrinsic::kRoundEven, {x * Load(places, At(v, {g}))}));
        });
  }

  ir::Buffer Totals(const ir::Buffer& numbers) const {
    const ir::Axis p = a_.b.ReduceAxis("p", Int(parts_));
    const ir::Axis t = a_.b.ReduceAxis("t", Int(group_ / parts_));
    return a_.b.Reduce(
        Name("_totals"), ir::kI32, Shape({groups_}), Axes({"g"}), {p, t}, ir::Combiner::kSum,
        [&](const Vars& v) { return Load(numbers, At(v, {Own(v, 0), p.var, t.var})); });
  }

  // Times `zero` where there is no operand of zero points.
  ir::Buffer Offsets(const ir::Buffer& steps, const ir::Buffer& totals, double zero) const {
    return a_.b.Compute(Name("_offsets"), ir::kF32, Shape({groups_}), Axes({"g"}),
                        [&](const Vars& v) {
                          const Expr total = ir::Cast(ir::kF32, Load(totals, VarExprs(v)));
                          const Expr sum = Load(steps, VarExprs(v)) * total;
                          return has_zeros() ? sum : sum * ir::Float(zero, ir::kF32);
                        });
  }

  ir::Buffer Limbs(const ir::Buffer& numbers) const {
    return a_.b.Compute(
        Name("_limbs"), ir::kI8, Shape({groups_, Int(kLimbs), Int(parts_), Int(group_ / parts_)}),
        Axes({"g", "i", "p", "t"}), [&](const Vars& v) {
          const Expr number = Load(numbers, At(v, {Own(v, 0), Own(v, 2), Own(v, 3)}));
          const Expr place = ir::Cast(ir::kI32, Own(v, 1) * Int(kByteBits));
          const Expr shifted =
              ir::Call(ir::Intrinsic::kShiftRight, {number + Int(kLimbBias, ir::kI32), place});
          return ir::Cast(ir::kI8, shifted - Int(kByteBias, ir::kI32));
        });
  }

  ir::Buffer Sums(const ir::Buffer& limbs) const {
    const ir::Axis w = a_.b.ReduceAxis("w", Int(words_));
    const ir::Axis p = a_.b.ReduceAxis("p", Int(parts_));
    const ir::Axis k = a_.b.ReduceAxis("k", Int(kDot));
    std::vector<ir::Axis> axes = {w, p, k};
    if (parts_ == 1) axes = {w, k};
    return a_.b.Reduce(
        Name("_sums"), ir::kI32,
        Shape({a_.inputs[1]->shape[0], groups_, Int(kLimbs), Int(kWeightBlock)}),
        Axes({"o", "g", "i", "l"}), axes, ir::Combiner::kSum, [&](const Vars& v) {
          const Expr block = Own(v, 0), g = Own(v, 1), limb = Own(v, 2), lane = Own(v, 3);
          const Expr part = parts_ == 1 ? Int(0) : Expr(p.var);
          const Expr number = Load(limbs, At(v, {g, limb, part, w.var * Int(kDot) + k.var}));
          Expr word = Load(a_.inputs[1], {block, g * Int(words_) + w.var, lane});
          if (parts_ > 1) word = Shifted(word, p.var * Int(bits_));
          const int64_t mask = (int64_t{1} << bits_) - 1;
          return ir::Cast(ir::kI32, number) *
                 ir::Call(ir::Intrinsic::kBitAnd,
                          {Shifted(word, k.var * Int(kByteBits)), Int(mask, ir::kI32)});
        });
  }

  ir::Buffer Result(const ir::Buffer& steps, const ir::Buffer& offsets,
                    const ir::Buffer& sums) const {
    const ir::Axis g = a_.b.ReduceAxis("g", groups_);
    std::vector<Expr> shape = rows_;
    shape.push_back(SizeExpr(a_.b, a_.outputs[0].shape.back()));
    return a_.b.Reduce(
        a_.name, ir::kF32, shape, Axes({"n"}), {g}, ir::Combiner::kSum, [&](const Vars& v) {
          const Expr block = ir::FloorDiv(Own(v, 0), Int(kWeightBlock));
          const Expr lane = ir::FloorMod(Own(v, 0), Int(kWeightBlock));
          Expr sum;
          for (int64_t i = kLimbs; i-- > 0;) {
            const Expr part = ir::Cast(ir::kF32, Load(sums, At(v, {block, g.var, Int(i), lane})));
            sum = sum == nullptr ? part : sum * ir::Float(256, ir::kF32) + part;
          }
          Expr offset = Load(offsets, At(v, {g.var}));
          if (has_zeros()) offset = Load(a_.inputs[3], {block, g.var, lane}) * offset;
          return Load(a_.inputs[2], {block, g.var, lane}) *
                 (sum * Load(steps, At(v, {g.var})) - offset);
        });
  }

 private:
  std::string Name(std::string_view suffix) const { return StrCat(a_.name, suffix); }
  bool has_zeros() const { return a_.inputs.size() > 3; }
  static Expr Shifted(const Expr& word, const Expr& places) {
    return ir::Call(ir::Intrinsic::kShiftRight, {word, ir::Cast(ir::kI32, places)});
  }
  // The axis `i` of a stage behind its rows.
  Expr Own(const Vars& v, size_t i) const { return v[rows_.size() + i]; }
  // The rows of `v`, then `own`.
  std::vector<Expr> At(const Vars& v, std::vector<Expr> own) const {
    std::vector<Expr> at(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(rows_.size()));
    at.insert(at.end(), own.begin(), own.end());
    return at;
  }
  std::vector<Expr> Shape(const std::vector<Expr>& own) const {
    std::vector<Expr> shape = rows_;
    shape.insert(shape.end(), own.begin(), own.end());
    return shape;
  }
  std::vector<std::string> Axes(const std::vector<std::string>& own) const {
    std::vector<std::string> names = row_names_;
    names.insert(names.end(), own.begin(), own.end());
    return names;
  }

  const ComputeArgs& a_;
  int64_t bits_, group_;
  int64_t parts_;      // fields of a byte
  int64_t words_ = 0;  // of a group
  std::vector<Expr> rows_;
  std::vector<std::string> row_names_;
  Expr groups_;
};

}  // namespace

std::vector<ir::Buffer> ComputeFixedPointDense(const ComputeArgs& args, int64_t bits, int64_t group,
                                               double zero) {
  const Stages stages(args, bits, group);
  const ir::Buffer peaks = stages.Peaks();
  const ir::Buffer steps = stages.Steps(peaks, /*inverse=*/false);
  const ir::Buffer numbers = stages.Numbers(stages.Steps(peaks, /*inverse=*/true));
  const ir::Buffer offsets = stages.Offsets(steps, stages.Totals(numbers), zero);
  return {stages.Result(steps, offsets, stages.Sums(stages.Limbs(numbers)))};
}

}  // namespace tilewright::op
