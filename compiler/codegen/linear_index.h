// Integer index expressions as `Σ coefficient · atom + constant`, and the structural numbering of
// atoms behind it. The generator shares address arithmetic between accesses by these numbers. One
// table per generated function; not thread-safe. Numbers depend on the order of calls only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/ir/ir.h"

namespace tilewright::codegen {

struct LinearTerm {
  ir::Expr atom;  // not a sum, a constant, or a product with a constant
  int id = 0;     // equal for structurally equal atoms
  int64_t coefficient = 0;
};
struct LinearIndex {
  std::vector<LinearTerm> terms;  // by increasing id, no zero coefficients
  int64_t constant = 0;
};

class IndexTable {
 public:
  // Loads of this buffer always give the same value.
  void MarkImmutable(const ir::Buffer& buffer) { immutable_.insert(buffer.get()); }
  // Structural number. Expressions that read mutable memory are only equal to themselves.
  int Number(const ir::Expr& e);
  // Whether two evaluations at different times may differ.
  bool IsVolatile(const ir::Expr& e) const;
  // REQUIRES: a scalar of type i64 (only there does the arithmetic of the IR not wrap in practice).
  LinearIndex Decompose(const ir::Expr& e);

 private:
  std::unordered_set<const ir::BufferNode*> immutable_;
  std::unordered_map<const ir::ExprNode*, int> by_node_;
  std::map<std::vector<int64_t>, int> by_structure_;
  std::vector<ir::Expr> kept_;  // numbers are per node address: the nodes must outlive the table
};

// Lanes base, base + stride, …; nothing when the index vector has no such form. Scalars have lanes
// 1 and stride 0.
struct RampForm {
  ir::Expr base;
  int64_t stride = 0;
};
bool AsRampForm(const ir::Expr& index, RampForm* form);

// The same with a stride over open sizes, which is no constant.
struct OpenRamp {
  ir::Expr base, stride;
  ir::Expr At(int64_t lane) const {
    return lane == 0 ? base : base + stride * ir::Int(lane, stride->dtype);
  }
};
std::optional<OpenRamp> AsOpenRamp(const ir::Expr& index);

// Elements that an access with constant indices touches, one per lane; false when an index is not
// constant.
bool ConstantElements(const ir::Expr& index, std::vector<int64_t>* elements);

}  // namespace tilewright::codegen
