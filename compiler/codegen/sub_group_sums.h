// Sums that the threads of a sub-group share out. A schedule marks loops (`sub_group=1`); whether
// the mark can be followed shows in the kernel: all threads of a group run such a loop alike, so
// each of them may take some of the terms if they add up what each has. The same for minima and
// maxima. Pure function; thread-safe.
#pragma once

#include <map>

#include "compiler/ir/ir.h"

namespace tilewright::codegen {

// B[c] = B[c] op value, or B[c] = value op B[c]: the body of a loop, for which c stays.
struct SubGroupSum {
  ir::Stmt store;
  bool accumulator_first = true;

  const ir::Expr& accumulator() const { return store->value->args[accumulator_first ? 0 : 1]; }
  const ir::Expr& value() const { return store->value->args[accumulator_first ? 1 : 0]; }
  ir::ExprKind op() const { return store->value->kind; }
};
using SubGroupSums = std::map<const ir::StmtNode*, SubGroupSum>;  // by loop

// Returns the marked loops of a kernel (host_device.h) whose terms are the same for all threads of
// a group, that all of them come to together, and whose type sub-groups can add up: floats, and
// integers of at least 32 bits. All other loops stay with each thread.
SubGroupSums FindSubGroupSums(const ir::Function& kernel);

}  // namespace tilewright::codegen
