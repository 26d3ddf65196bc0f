// TRANSFORMATIONS of split_host_device
//   alloc T global { for b blockIdx.x {…T…}; for b blockIdx.x {…} }
//     → the host allocates T and launches two kernels, whose parameters are the buffers they use.
//   A buffer that a kernel writes is an output of that kernel, also where it is an input of the
//   next. A kernel's outputs come after what it only reads.
#include "compiler/codegen/host_device.h"

#include <algorithm>
#include <string>

#include "compiler/codegen/fragments.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Stmt;
using ir::StmtKind;

class Splitter {
 public:
  explicit Splitter(const ir::Function& f) : function_(f) {
    plan_.name = f.name;
    plan_.size_params = f.size_params;
    plan_.buffers = f.params;
    plan_.num_params = f.params.size();
  }

  absl::Status Walk(const Stmt& s) {
    if (s->kind == StmtKind::kSeq) {
      for (const Stmt& child : s->stmts) TW_TRY(Walk(child));
      return absl::OkStatus();
    }
    if (s->kind == StmtKind::kAlloc &&
        StorageRankOf(s->buffer->scope) == ir::StorageRank::kDevice) {
      plan_.buffers.push_back(s->buffer);
      return Walk(s->body);
    }
    return AddLaunch(s);
  }
  HostPlan Take() { return std::move(plan_); }

 private:
  absl::Status AddLaunch(const Stmt& s);
  absl::Status AddAxes(const Stmt& s, Launch* launch);

  const ir::Function& function_;
  HostPlan plan_;
};

absl::Status Splitter::AddAxes(const Stmt& s, Launch* launch) {
  launch->grid = {ir::Int(1), ir::Int(1), ir::Int(1)};
  launch->group = launch->grid;
  absl::Status status = absl::OkStatus();
  ir::VisitStmts(s, [&](const Stmt& part) {
    if (part->kind == StmtKind::kAlloc && part->buffer->scope == ir::Scope::kShared) {
      const int64_t bytes = ElementsOf(*part->buffer) * part->buffer->dtype.bytes();
      if (bytes == 0) {
        status = support::Unimplemented(
            "codegen.split_host_device.shared_size",
            "expected shared buffers of constant size, found " + part->buffer->name);
      }
      launch->shared_bytes += bytes;
    }
    if (part->kind == StmtKind::kAlloc &&
        StorageRankOf(part->buffer->scope) == ir::StorageRank::kDevice) {
      status = support::FailedPrecondition(
          "codegen.split_host_device.global_alloc",
          "expected global buffers outside of launches, found " + part->buffer->name);
    }
    if (part->kind != StmtKind::kFor || !ir::IsBound(part->for_kind)) return true;
    auto& axes = ir::IsBlockAxis(part->for_kind) ? launch->grid : launch->group;
    Expr& extent = axes[static_cast<size_t>(ir::AxisOf(part->for_kind))];
    if (!ir::IsInt(extent, 1)) {
      status = support::FailedPrecondition("codegen.split_host_device.axes",
                                           "expected each axis once in a launch, found " +
                                               part->var->name + " as another one in:\n" +
                                               ir::Print(s).substr(0, 2000));
    }
    extent = part->range.extent;
    return true;
  });
  return status;
}

absl::Status Splitter::AddLaunch(const Stmt& s) {
  Launch launch;
  TW_TRY(AddAxes(s, &launch));
  std::vector<Buffer> read, written;
  auto add = [](const Buffer& b, std::vector<Buffer>* list) {
    if (std::find(list->begin(), list->end(), b) == list->end()) list->push_back(b);
  };
  ir::VisitStmts(s, [&](const Stmt& part) {
    if (part->kind == StmtKind::kStore) add(part->buffer, &written);
    return true;
  });
  ir::VisitExprsIn(s, [&](const Expr& e) {
    if (e->kind == ir::ExprKind::kLoad) add(e->buffer, &read);
    return true;
  });
  ir::Function& kernel = launch.kernel;
  kernel.name = function_.name + "_k" + std::to_string(plan_.launches.size());
  kernel.stage = function_.stage;
  kernel.size_params = function_.size_params;
  ir::BufferMap renamed;
  auto contains = [](const std::vector<Buffer>& list, const Buffer& b) {
    return std::find(list.begin(), list.end(), b) != list.end();
  };
  for (const bool writes : {false, true}) {
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      const Buffer& b = plan_.buffers[i];
      if (contains(written, b) != writes || (!writes && !contains(read, b))) continue;
      auto param = std::make_shared<ir::BufferNode>(*b);
      param->role = writes ? ir::Role::kOutput : ir::Role::kInput;
      renamed[b.get()] = param;
      kernel.params.push_back(param);
      launch.arguments.push_back(static_cast<int>(i));
      launch.num_outputs += writes ? 1 : 0;
    }
  }
  kernel.body = ir::ReplaceBuffers(s, renamed);
  plan_.launches.push_back(std::move(launch));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HostPlan> SplitHostDevice(const ir::Function& f) {
  if (f.stage == ir::Stage::kScheduled) {
    return support::FailedPrecondition("codegen.split_host_device.stage",
                                       "expected a lowered function, found one of stage scheduled");
  }
  Splitter splitter(f);
  TW_TRY(splitter.Walk(f.body));
  return splitter.Take();
}

absl::Status CheckLaunchLimits(const HostPlan& plan, const target::LaunchLimits& limits) {
  for (const Launch& launch : plan.launches) {
    int64_t threads = 1;
    for (const Expr& e : launch.group) threads *= ir::AsInt(e) == nullptr ? 1 : *ir::AsInt(e);
    if (threads > limits.group_threads) {
      return support::FailedPrecondition(
          "codegen.launch_limits.threads",
          support::StrCat(launch.kernel.name, ": expected at most ", limits.group_threads,
                          " threads in a group, found ", threads));
    }
    for (size_t axis = 1; axis < launch.grid.size() && limits.groups_yz > 0; ++axis) {
      const int64_t* groups = ir::AsInt(launch.grid[axis]);
      if (groups == nullptr || *groups <= limits.groups_yz) continue;
      return support::FailedPrecondition(
          "codegen.launch_limits.groups",
          support::StrCat(launch.kernel.name, ": expected at most ", limits.groups_yz,
                          " groups along y and z, found ", *groups));
    }
    if (launch.shared_bytes > limits.most_shared_bytes()) {
      return support::FailedPrecondition(
          "codegen.launch_limits.shared_bytes",
          support::StrCat(launch.kernel.name, ": expected at most ", limits.most_shared_bytes(),
                          " bytes of shared memory, found ", launch.shared_bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace tilewright::codegen
