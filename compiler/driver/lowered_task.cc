#include "compiler/driver/lowered_task.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "compiler/ir/bind_sizes.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/visit.h"
#include "compiler/targets/backend.h"
#include "compiler/transform/clone.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/split_prepare.h"
#include "deploy/support/status.h"

namespace tilewright::driver {
namespace {

absl::StatusOr<ir::Function> Lower(const ir::Function& scheduled, const target::Target& target,
                                   const std::string& dump_dir, const std::string& miscompile) {
  transform::PassContext context;
  context.target = target;
  context.dump_dir = dump_dir;
  context.test_miscompile = miscompile;
  return transform::RunPipeline(scheduled, targets::BackendOf(target).pipeline(), context);
}

// Adds what the version prepares to what the task does: one function writes all of it.
void AddPrepared(const LoweredTask& version, LoweredTask* task) {
  if (!task->prepare.has_value()) {
    task->prepare = version.prepare;
    task->prepared = version.prepared;
    return;
  }
  const ir::Function& other = *version.prepare;
  const PreparedKernel& its = version.prepared;
  ir::Function& both = *task->prepare;
  PreparedKernel& all = task->prepared;
  ir::BufferMap buffers;
  for (size_t i = 0; i < its.reads.size(); ++i) {
    const auto at = std::ranges::lower_bound(all.reads, its.reads[i]);
    const auto position = at - all.reads.begin();
    if (at == all.reads.end() || *at != its.reads[i]) {
      all.reads.insert(at, its.reads[i]);
      both.params.insert(both.params.begin() + position, other.params[i]);
    }
    buffers[other.params[i].get()] = both.params[static_cast<size_t>(position)];
  }
  transform::Cloner names(both);
  for (size_t i = its.reads.size(); i < other.params.size(); ++i) {
    auto output = std::make_shared<ir::BufferNode>(*other.params[i]);
    output->name = names.UnusedName(output->name);
    buffers[other.params[i].get()] = output;
    both.params.push_back(std::move(output));
  }
  const ir::Stmt body = names.Clone(ir::ReplaceBuffers(other.body, buffers));
  both.body = ir::MakeSeq({both.body, body});
  all.tensors.insert(all.tensors.end(), its.tensors.begin(), its.tensors.end());
}

}  // namespace

absl::StatusOr<LoweredTask> LowerTask(const ir::Function& scheduled, const target::Target& target,
                                      const std::string& dump_dir, const std::string& miscompile) {
  TW_ASSIGN(transform::PreparedFunction split, transform::SplitPrepare(scheduled));
  LoweredTask task;
  TW_ASSIGN(task.main, Lower(split.main, target, dump_dir, miscompile));
  if (!split.prepare.has_value()) return task;
  TW_ASSIGN(task.prepare, Lower(*split.prepare, target, "", ""));
  for (const ir::Buffer& p : split.prepare->params) {
    auto at = std::find(scheduled.params.begin(), scheduled.params.end(), p);
    if (at == scheduled.params.end()) continue;  // what it writes
    task.prepared.reads.push_back(static_cast<size_t>(at - scheduled.params.begin()));
  }
  for (const ir::Buffer& b : split.prepared) {
    op::TensorType type{b->dtype, {}};
    for (const ir::Expr& e : b->shape) type.shape.push_back(*ir::AsInt(e));
    task.prepared.tensors.push_back(std::move(type));
  }
  return task;
}

bool OnMatrixUnit(const LoweredTask& task) {
  bool on_unit = !task.prepare.has_value();
  ir::VisitStmts(task.main.body, [&](const ir::Stmt& s) {
    if (!ir::TensorNameOf(*s).empty()) return false;
    on_unit = on_unit && s->kind != ir::StmtKind::kStore;
    return on_unit;
  });
  return on_unit;
}

void AddVersion(const ir::Expr& condition, const LoweredTask& version, LoweredTask* task) {
  ir::Function both = task->main;
  const size_t fresh = version.prepared.tensors.size(), known = task->prepared.tensors.size();
  // Both have the task's operands, then their own prepared ones, then the outputs.
  const auto first_output = std::ranges::find_if(
      both.params, [](const ir::Buffer& p) { return p->role == ir::Role::kOutput; });
  const auto operands = static_cast<size_t>(first_output - both.params.begin()) - known;
  const ir::Function other = ir::WithSizeParams(version.main, both.size_params);
  transform::Cloner names(both);
  for (size_t i = 0; i < fresh; ++i) {
    auto buffer = std::make_shared<ir::BufferNode>(*other.params[operands + i]);
    buffer->name = names.UnusedName(buffer->name);
    const auto at = static_cast<ptrdiff_t>(operands + known + i);
    both.params.insert(both.params.begin() + at, std::move(buffer));
  }
  ir::BufferMap buffers;
  for (size_t i = 0; i < other.params.size(); ++i) {
    const size_t own = i < operands ? i : i + known;
    buffers[other.params[i].get()] = both.params[own];
  }
  const ir::Stmt body = names.Clone(ir::ReplaceBuffers(other.body, buffers));
  both.body = ir::MakeIf(condition, body, both.body);
  task->main = std::move(both);
  if (fresh > 0) AddPrepared(version, task);
}

}  // namespace tilewright::driver
