#include "tuner_server/search/code_size.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"

namespace tilewright::search {
namespace {

// exp, tanh, erf: a polynomial, its range reduction and the ends of the range.
constexpr double kCall = 30;
// A lane of a register whose lanes lie apart in memory: its address, and its move into place.
constexpr double kGatheredLane = 2;

// Whether neighbouring values of `lane` are neighbours in memory, or one element (a scalar has no
// index).
bool LanesAreTogether(const std::vector<ir::Expr>& indices, const ir::Var& lane) {
  if (indices.empty()) return true;
  return std::none_of(indices.begin(), indices.end() - 1,
                      [&](const ir::Expr& index) { return ir::UsesVar(index, lane); });
}

class Counter {
 public:
  explicit Counter(const target::Target& target) : register_bytes_(target.machine.vector_bytes) {}

  double Count(const ir::Stmt& s) {
    if (s == nullptr) return 0;
    switch (s->kind) {
      case ir::StmtKind::kFor:
        return CountLoop(*s);
      case ir::StmtKind::kSeq: {
        double sum = 0;
        for (const ir::Stmt& child : s->stmts) sum += Count(child);
        return sum;
      }
      case ir::StmtKind::kIf:
        return 1 + Count(s->body) + Count(s->else_body);
      case ir::StmtKind::kStore:
        return Access(s->indices, s->buffer->dtype.bytes()) + Compute(s->value);
      case ir::StmtKind::kEvaluate:
        return Compute(s->value);
      default:
        return Count(s->body);
    }
  }

 private:
  double CountLoop(const ir::StmtNode& s) {
    const int64_t* extent = ir::AsInt(s.range.extent);
    const double copies = s.annotations.count("tail") > 0 ? 2 : 1;
    if (extent != nullptr && s.for_kind == ir::ForKind::kUnrolled) {
      return copies * static_cast<double>(*extent) * Count(s.body);
    }
    if (extent == nullptr || s.for_kind != ir::ForKind::kVectorized) {
      return copies * Count(s.body);
    }
    const ir::Var outer = std::exchange(lane_, s.var);
    const int64_t outer_lanes = std::exchange(lanes_, *extent);
    const double body = Count(s.body);
    lane_ = outer;
    lanes_ = outer_lanes;
    return copies * body;
  }

  // Registers that hold the lanes of a type.
  double Registers(double bytes) const {
    return std::max(1.0, static_cast<double>(lanes_) * bytes / register_bytes_);
  }

  double Access(const std::vector<ir::Expr>& indices, double bytes) const {
    if (lanes_ == 1 || LanesAreTogether(indices, lane_)) return Registers(bytes);
    return kGatheredLane * static_cast<double>(lanes_);
  }

  double Compute(const ir::Expr& value) const {
    double count = 0;
    ir::VisitExprs(value, [&](const ir::Expr& e) {
      const double registers = Registers(e->dtype.bytes());
      if (e->kind == ir::ExprKind::kLoad) {
        count += Access(e->args, e->dtype.bytes());
        return false;  // addresses are folded
      }
      const bool call = ir::IsMathCall(*e) && e->intrinsic != ir::Intrinsic::kFma;
      if (!e->args.empty()) count += registers * (call ? kCall : 1);
      return true;
    });
    return count;
  }

  double register_bytes_;
  ir::Var lane_;
  int64_t lanes_ = 1;
};

}  // namespace

double CodeSize(const ir::Function& loops, const target::Target& target) {
  return Counter(target).Count(loops.body);
}

}  // namespace tilewright::search
