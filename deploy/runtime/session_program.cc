#include "deploy/runtime/session_program.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "deploy/runtime/dl_tensor.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {
namespace {

using module::Function;
using module::Launch;
using module::Manifest;
using module::SizePlan;
using module::Tensor;
using module::TensorKind;

bool InArena(const Tensor& tensor) {
  return tensor.kind == TensorKind::kIntermediate || tensor.kind == TensorKind::kPrepared;
}

}  // namespace

SessionProgram::SessionProgram(const LoadedModule& module, const Function& function,
                               const DevicePart* part)
    : module_(module),
      function_(function),
      part_(part),
      planner_(module.manifest(), function),
      steps_(PlanExecution(
          module.manifest(), function,
          [part](const Launch& launch) { return part != nullptr && part->Runs(launch); })),
      uses_host_arena_(UsesHostArena()),
      loop_of_check_(module::LoopsOfChecks(function)),
      finds_(module::FoundSizes(module.manifest(), function)) {
  for (const Launch& launch : function.prepare) {
    prepare_uses_.insert(launch.args.begin(), launch.args.end());
  }
}

absl::StatusOr<std::unique_ptr<SessionProgram>> SessionProgram::Create(const LoadedModule& module,
                                                                       const Function& function,
                                                                       const DevicePart* part,
                                                                       bool guard) {
  std::unique_ptr<SessionProgram> program(new SessionProgram(module, function, part));
  for (const module::SizeCheck& check : function.checks) {
    const auto bytes = static_cast<size_t>(program->TensorOf(check.tensor).bytes);
    TW_ASSIGN(Buffer buffer, guard ? Buffer::AllocateGuarded(bytes) : Buffer::Allocate(bytes));
    program->checks_.push_back(std::move(buffer));
  }
  return program;
}

// Whether a launch on the processor touches the arena or its workspace: a device has its own.
bool SessionProgram::UsesHostArena() const {
  const auto uses = [this](const Launch& launch) {
    if (part_ != nullptr && part_->Runs(launch)) return false;
    return launch.workspace_bytes != module::Dim(0) ||
           std::any_of(launch.args.begin(), launch.args.end(),
                       [this](int64_t id) { return InArena(TensorOf(id)); });
  };
  return !function_.loops.empty() ||
         std::any_of(function_.prepare.begin(), function_.prepare.end(), uses) ||
         std::any_of(function_.launches.begin(), function_.launches.end(), uses);
}

bool SessionProgram::Fits(const std::vector<int64_t>& values) const {
  const std::vector<module::SizeVar>& variables = module_.manifest().size_vars;
  for (size_t v = 0; v < values.size(); ++v) {
    const auto fixed = function_.at.find(variables[v].name);
    if (fixed != function_.at.end() && fixed->second != values[v]) return false;
  }
  return true;
}

absl::Status SessionProgram::Plan(const std::vector<int64_t>& values) {
  if (planned_ && values == values_) return absl::OkStatus();
  planned_ = false;
  bound_version_ = 0;
  TW_TRY(planner_.Plan(values, &plan_));
  int64_t largest = std::max(plan_.arena_bytes, plan_.workspace_bytes);
  for (const SizePlan::Place& place : plan_.tensors) largest = std::max(largest, place.bytes);
  if (largest >= module::kMaxBytes) {
    return support::ResourceExhausted(
        "runtime.session.too_large",
        support::StrCat("expected tensors and an arena of less than ", module::kMaxBytes,
                        " bytes, found larger ones for these sizes"));
  }
  values_ = values;
  ForgetFound();
  planned_ = true;
  return absl::OkStatus();
}

absl::Status SessionProgram::Bind(SessionMemory* memory) {
  bound_version_ = 0;
  const Manifest& manifest = module_.manifest();
  if (uses_host_arena_) {
    const bool open = manifest.open_sizes();
    TW_TRY(
        memory->GrowArena(open ? plan_.arena_bytes : manifest.arena_bytes, manifest.arena_bytes));
    TW_TRY(memory->GrowWorkspace(open ? plan_.workspace_bytes : manifest.workspace_bytes,
                                 manifest.workspace_bytes));
  }
  TW_TRY(ShapeOutputs(memory));
  PlaceTensors(*memory);
  BindLaunches(function_.prepare, plan_.prepare, memory->workspace(), &prepare_);
  BindLaunches(function_.launches, plan_.launches, memory->workspace(), &launches_);
  bound_version_ = memory->version();
  return absl::OkStatus();
}

absl::Status SessionProgram::ShapeOutputs(SessionMemory* memory) {
  if (finds_sizes()) TW_TRY(planner_.Plan(values_, &plan_));  // the last run may have found less
  for (size_t i = 0; i < memory->outputs.size(); ++i) {
    const SizePlan::Place& place = PlaceOf(function_.outputs[i]);
    TW_TRY(memory->Reshape(&memory->outputs[i], place.shape, place.bytes));
  }
  return absl::OkStatus();
}

void SessionProgram::PlaceTensors(const SessionMemory& memory) {
  const Manifest& manifest = module_.manifest();
  addresses_.assign(manifest.tensors.size(), nullptr);
  const auto place = [this](int64_t id, void* address) {
    addresses_[static_cast<size_t>(id)] = address;
  };
  for (size_t i = 0; i < memory.inputs.size(); ++i) {
    place(function_.inputs[i], memory.inputs[i].buffer.data());
  }
  for (size_t i = 0; i < memory.outputs.size(); ++i) {
    place(function_.outputs[i], memory.outputs[i].buffer.data());
  }
  for (size_t i = 0; i < checks_.size(); ++i) {
    place(function_.checks[i].tensor, checks_[i].data());
  }
  // Kernels get one pointer type; the manifest's checks and the read-only mapping keep constants
  // constant.
  char* constants = const_cast<char*>(module_.file().constants().data());
  char* arena = static_cast<char*>(memory.arena());
  char* prepared = manifest.open_sizes() ? static_cast<char*>(memory.prepared()) : arena;
  for (const Tensor& tensor : manifest.tensors) {
    const int64_t offset = PlaceOf(tensor.id).offset;
    if (tensor.kind == TensorKind::kConstant) place(tensor.id, constants + tensor.offset);
    if (tensor.kind == TensorKind::kState) place(tensor.id, StateAddress(tensor, memory));
    if (!uses_host_arena_) continue;
    if (tensor.kind == TensorKind::kIntermediate) place(tensor.id, arena + offset);
    if (tensor.kind == TensorKind::kPrepared) place(tensor.id, prepared + tensor.offset);
  }
}

// New entries begin behind those that the list has.
void* SessionProgram::StateAddress(const Tensor& tensor, const SessionMemory& memory) const {
  char* list = static_cast<char*>(memory.state(module_.manifest().ListOf(tensor)));
  const SizePlan::Place& place = PlaceOf(tensor.id);
  if (!tensor.entries_of || place.bytes == 0) return list;
  const auto length = static_cast<size_t>(module_.manifest().StateVariable());
  return list + values_[length] * (place.bytes / place.shape[0]);
}

// Its shape belongs to the plan: launches are bound again when that changes.
DLTensor SessionProgram::DescribeTensor(int64_t id) const {
  const std::vector<int64_t>& shape = PlaceOf(id).shape;
  DLTensor tensor{};
  tensor.data = addresses_[static_cast<size_t>(id)];
  tensor.device = {kDLCPU, 0};
  tensor.ndim = static_cast<int32_t>(shape.size());
  tensor.dtype = ToDlType(TensorOf(id).dtype);
  tensor.shape = const_cast<int64_t*>(shape.data());
  return tensor;
}

void SessionProgram::BindLaunches(const std::vector<Launch>& list,
                                  const std::vector<SizePlan::Call>& calls, void* workspace,
                                  std::vector<BoundLaunch>* bound) const {
  bound->resize(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    BoundLaunch& entry = (*bound)[i];
    entry.launch = &list[i];
    if (part_ != nullptr && part_->Runs(list[i])) continue;
    if (entry.kernel == nullptr) entry.kernel = module_.Kernel(list[i]);
    entry.external = module_.External(list[i]);
    entry.sizes = calls[i].sizes.empty() ? nullptr : calls[i].sizes.data();
    entry.workspace = calls[i].workspace_bytes > 0 ? workspace : nullptr;
    entry.buffers.clear();
    for (const int64_t id : list[i].args) {
      entry.buffers.push_back(addresses_[static_cast<size_t>(id)]);
    }
    entry.tensors.clear();
    if (entry.external.function == nullptr) continue;
    for (const int64_t id : list[i].args) entry.tensors.push_back(DescribeTensor(id));
  }
}

std::set<size_t> SessionProgram::PrepareLaunchesFor(const std::set<int64_t>& made) const {
  std::set<size_t> needed;
  std::set<int64_t> wanted;  // intermediates that a needed launch uses
  for (size_t i = function_.prepare.size(); i-- > 0;) {
    const Launch& launch = function_.prepare[i];
    const auto first = launch.args.end() - launch.num_outputs;
    const bool need = std::any_of(first, launch.args.end(), [&](int64_t id) {
      return TensorOf(id).kind == TensorKind::kPrepared ? !made.contains(id) : wanted.contains(id);
    });
    if (!need) continue;
    needed.insert(i);
    wanted.insert(launch.args.begin(), launch.args.end());
  }
  return needed;
}

bool SessionProgram::FindsShapeOf(int64_t tensor) const {
  if (finds_.empty()) return false;
  return module::DependsOn(TensorOf(tensor).shape, module::FoundVariables(module_.manifest()));
}

void SessionProgram::ShrinkOutputs(SessionMemory* memory) const {
  for (size_t i = 0; i < memory->outputs.size(); ++i) {
    const SizePlan::Place& place = PlaceOf(function_.outputs[i]);
    memory->outputs[i].shape = place.shape;
    memory->outputs[i].bytes = static_cast<size_t>(place.bytes);
  }
}

std::vector<int64_t> SessionProgram::NumbersOf(size_t check) const {
  std::vector<int64_t> numbers(function_.checks[check].expected.size());
  std::memcpy(numbers.data(), checks_[check].data(), numbers.size() * sizeof(int64_t));
  return numbers;
}

void SessionProgram::Forget(const module::FoundSize& find) {
  found_[find.variable] = values_[find.variable];
  missing_.insert(module_.manifest().size_vars[find.variable].name);
}

void SessionProgram::ForgetFound() {
  found_ = values_;
  for (const module::FoundSize& find : finds_) Forget(find);
}

void SessionProgram::BeginTrip(size_t loop) {
  const module::Loop& of = function_.loops[loop];
  for (const module::FoundSize& find : finds_) {
    const auto launch = static_cast<int64_t>(find.launch);
    if (of.first <= launch && launch < of.end) Forget(find);
  }
}

absl::Status SessionProgram::FindBehind(size_t launch) {
  bool any = false;
  for (const module::FoundSize& find : finds_) {
    if (find.launch != launch) continue;
    any = true;
    const module::SizeVar& var = module_.manifest().size_vars[find.variable];
    const int64_t size = NumbersOf(find.check)[find.element];
    if (size < var.min || size > var.max) {
      return support::InvalidArgument(
          "runtime.session.found_size",
          support::StrCat(function_.checks[find.check].what, ": expected a size of ", var.min,
                          " to ", var.max, " for ", var.name, ", found ", size,
                          "; there is no result for these inputs"));
    }
    found_[find.variable] = size;
    missing_.erase(var.name);
  }
  if (!any) return absl::OkStatus();
  TW_TRY(module::CheckEqualSizes(module_.manifest(), found_, missing_));
  return planner_.Resize(found_, &plan_, missing_);
}

absl::Status SessionProgram::CheckThoseOf(int loop) const {
  const module::Sizes sizes = module::SizesOf(module_.manifest(), found());
  for (size_t i = 0; i < checks_.size(); ++i) {
    if (loop_of_check_[i] != loop) continue;
    const module::SizeCheck& check = function_.checks[i];
    const std::vector<int64_t> numbers = NumbersOf(i);
    std::vector<int64_t> expected;
    for (const module::Dim& dim : check.expected) {
      TW_ASSIGN(const int64_t number, dim.Evaluate(sizes));
      expected.push_back(number);
    }
    if (numbers == expected) continue;
    return support::InvalidArgument(
        "runtime.session.stated_shape",
        support::StrCat(check.what, ": the model states the sizes [", support::Join(expected, ","),
                        "], the inputs make [", support::Join(numbers, ","),
                        "]; there is no result for these inputs"));
  }
  return absl::OkStatus();
}

}  // namespace tilewright::runtime
