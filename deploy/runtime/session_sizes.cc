// The sizes of a session: which program runs at them, what is planned and bound when they change.
#include <algorithm>
#include <memory>

#include "deploy/module/found_vars.h"
#include "deploy/module/size_plan.h"
#include "deploy/runtime/session_impl.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {

using module::Function;
using module::Manifest;
using module::Tensor;

// "main" and its specialisations, or the one function that was asked for.
std::vector<const Function*> Session::Impl::FunctionsOf(const Function& function) const {
  std::vector<const Function*> functions = {&function};
  if (function.name != "main") return functions;
  for (const Function& f : module->manifest().functions) {
    if (!f.at.empty()) functions.push_back(&f);
  }
  return functions;
}

absl::Status Session::Impl::AddPrograms(const Function& function, bool guard) {
  for (const Function* f : FunctionsOf(function)) {
    TW_ASSIGN(std::unique_ptr<SessionProgram> program,
              SessionProgram::Create(*module, *f, part.get(), guard));
    programs.push_back(std::move(program));
  }
  return absl::OkStatus();
}

// The smallest sizes, so that inputs and outputs have memory from the start.
absl::Status Session::Impl::BindFirst() {
  const Manifest& manifest = module->manifest();
  SessionProgram& first = *programs.front();
  const Function& function = first.function();
  std::vector<int64_t> least = module::MinimaOf(manifest, function.at);
  for (const module::FoundSize& find : module::FoundSizes(manifest, function)) {
    least[find.variable] = manifest.size_vars[find.variable].max;
  }
  TW_TRY(first.Plan(least));
  for (const int64_t id : function.inputs) {
    SessionEnd& input = memory.inputs.emplace_back();
    input.tensor = &TensorOf(id);
    TW_TRY(memory.Reshape(&input, first.PlaceOf(id).shape, first.PlaceOf(id).bytes));
  }
  for (const int64_t id : function.outputs) memory.outputs.emplace_back().tensor = &TensorOf(id);
  if (manifest.open_sizes()) TW_TRY(memory.AllocatePrepared(module::PreparedBytes(manifest)));
  TW_TRY(AllocateState());
  TW_TRY(Activate(first.values()));
  // The smallest sizes may be none that the module runs at: then the first run looks at them.
  reshaped =
      !module::CheckEqualSizes(manifest, first.values(), module::FoundVariables(manifest)).ok();
  return absl::OkStatus();
}

// The one that fixes most variables of those that fit; the first of equals.
SessionProgram* Session::Impl::ProgramFor(const std::vector<int64_t>& sizes) const {
  SessionProgram* best = programs.front().get();
  for (const auto& program : programs) {
    if (program->num_fixed() > best->num_fixed() && program->Fits(sizes)) best = program.get();
  }
  return best;
}

absl::Status Session::Impl::Activate(const std::vector<int64_t>& sizes) {
  SessionProgram* program = ProgramFor(sizes);
  if (program->BoundTo(sizes, memory)) {
    // Another program may have left the outputs with other shapes in the same memory.
    TW_TRY(program->ShapeOutputs(&memory));
  } else {
    TW_TRY(program->Plan(sizes));
    TW_TRY(program->Bind(&memory));
  }
  active = program;
  values = sizes;
  reshaped = false;
  return absl::OkStatus();
}

absl::Status Session::Impl::BindSizes() {
  if (!reshaped && active->BoundTo(values, memory)) return absl::OkStatus();
  std::vector<Shape> shapes;
  for (const SessionEnd& input : memory.inputs) shapes.push_back(input.shape);
  TW_ASSIGN(const std::vector<int64_t> sizes, BindValues(shapes));
  return Activate(sizes);
}

// Whole lists from the start: pages that no entry has touched cost nothing.
absl::Status Session::Impl::AllocateState() {
  for (const Tensor& tensor : module->manifest().tensors) {
    if (!tensor.is_own_list()) continue;
    TW_TRY(memory.AllocateState(tensor.id, module::StateBytes(module->manifest(), tensor)));
  }
  return absl::OkStatus();
}

// The values of the size variables for a run behind the entries that are there.
absl::StatusOr<std::vector<int64_t>> Session::Impl::BindValues(
    std::span<const Shape> shapes) const {
  TW_ASSIGN(std::vector<int64_t> sizes, binding.Bind(shapes, entries));
  const Manifest& manifest = module->manifest();
  if (!manifest.state) return sizes;
  const module::SizeVar& length = manifest.size_vars[static_cast<size_t>(manifest.StateVariable())];
  TW_ASSIGN(const int64_t next, manifest.state->next.Evaluate(module::SizesOf(manifest, sizes)));
  if (next < entries || next > length.max) {
    return support::ResourceExhausted(
        "runtime.session.state_full",
        support::StrCat("expected at most ", length.max, " entries in the state, found ", entries,
                        " and ", next - entries, " new ones; reset the state"));
  }
  if (entries == 0) return sizes;
  for (const Tensor& tensor : manifest.tensors) {
    if (!tensor.is_own_list()) continue;
    for (size_t d = 1; d < tensor.shape.size(); ++d) {
      for (size_t v = 0; v < sizes.size(); ++v) {
        const std::string& name = manifest.size_vars[v].name;
        if (sizes[v] == kept[v] || !tensor.shape[d].variables().contains(name)) continue;
        return support::InvalidArgument(
            "runtime.session.state_sizes",
            support::StrCat("expected ", name, "=", kept[v], " as in the state, found ", sizes[v],
                            "; reset the state"));
      }
    }
  }
  return sizes;
}

// REQUIRES: the binding accepts the shape.
absl::Status Session::Impl::ReshapeInput(size_t index, std::span<const int64_t> shape) {
  SessionEnd& input = memory.inputs[index];
  if (std::ranges::equal(input.shape, shape)) return absl::OkStatus();
  int64_t bytes = module::DTypeBytes(input.tensor->dtype);
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return support::ResourceExhausted("runtime.session.too_large",
                                        "input '" + input.tensor->name + "'");
    }
  }
  (void)WritableInput(index);
  TW_TRY(memory.Reshape(&input, shape, bytes));
  reshaped = true;
  return absl::OkStatus();
}

}  // namespace tilewright::runtime
