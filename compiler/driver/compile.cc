#include "compiler/driver/compile.h"

#include <algorithm>
#include <optional>

#include "compiler/codegen/codegen.h"
#include "compiler/driver/in_place.h"
#include "compiler/driver/lowered_task.h"
#include "compiler/driver/module_builder.h"
#include "compiler/driver/placement.h"
#include "compiler/driver/specialise.h"
#include "compiler/driver/task_versions.h"
#include "compiler/ir/structural.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/explain.h"
#include "compiler/space/field_sums.h"
#include "compiler/space/matrix_tiles.h"
#include "compiler/targets/backend.h"
#include "deploy/module/module_writer.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/runtime/external_library.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::driver {
namespace {

using support::StrCat;

// Seed of the inputs of a measurement that checks nothing.
constexpr uint64_t kTimingSeed = 1;

// Seconds since construction; for reports only, never for decisions.
class Stopwatch {
 public:
  double Seconds() const { return static_cast<double>(clock_.NowNs() - start_) * 1e-9; }

 private:
  mutable support::SystemClock clock_;
  int64_t start_ = clock_.NowNs();
};

// Into the folder of a kernel: what may be decided about it on `target`, and the default's reasons.
absl::Status DumpReasons(const std::vector<schedule::Variant>& variants,
                         const target::Target& target, const module::Sizes& typical,
                         const std::string& folder) {
  TW_TRY(support::MakeDirs(folder));
  TW_ASSIGN(const std::string why, space::Explain(variants, target, typical));
  return support::WriteFileAtomic(support::PathJoin(folder, "explain.txt"), why);
}

// The scheduled function of a task: the provider's schedule where it replays to the hash it was
// measured with, else the default.
absl::StatusOr<ir::Function> ScheduleTask(const std::vector<schedule::Variant>& variants,
                                          const Task& task, const target::Target& target,
                                          ScheduleProvider* schedules, const module::Sizes& typical,
                                          CompileReport::Kernel* kernel) {
  ScheduleProvider::Found found;
  if (schedules != nullptr) found = schedules->Find(task.hash, target);
  if (!found.steps.empty()) {
    absl::StatusOr<ir::Function> replayed = schedule::Replay(variants, found.steps);
    const std::string hash = replayed.ok() ? ir::ProgramHash(*replayed) : "";
    if (replayed.ok() && hash == found.program_hash) {
      kernel->tuned = !found.predicted;
      kernel->predicted = found.predicted;
      kernel->steps = found.steps;
      kernel->program_hash = hash;
      kernel->measurement_id = found.measurement_id;
      return replayed;
    }
    kernel->stale = true;
    kernel->stale_reason =
        replayed.ok() ? StrCat("replays to program ", hash, ", recorded as ", found.program_hash)
                      : support::StatusText(replayed.status());
  }
  kernel->steps = schedule::ToText(space::DefaultSchedule(variants, target, typical));
  TW_ASSIGN(ir::Function scheduled, schedule::Replay(variants, kernel->steps));
  kernel->program_hash = ir::ProgramHash(scheduled);
  return scheduled;
}

// The memory plan of a graph; kernels whose result shares an operand's storage somewhere are
// marked, so that their code assumes nothing about the two. On a device a task may be several
// launches, of which a later one may still read the operand, so nothing shares there. `in_place`
// and `placed` are by task, `lowered` by the program of a task of the first part.
absl::Status PlanInPlace(const targets::Backend& backend,
                         const std::vector<std::vector<int>>& in_place,
                         const std::vector<PlacedTask>& placed, std::vector<ir::Function>* lowered,
                         ModelFunction* function) {
  const graph::Graph& fused = *function->fused;
  graph::InPlaceOperands may(fused.nodes.size());
  for (size_t n = 0; n < fused.nodes.size(); ++n) {
    const int task = function->of_node[n];
    if (task >= 0 && !backend.on_device) may[n] = in_place[static_cast<size_t>(task)];
  }
  TW_ASSIGN(function->plan,
            graph::PlanMemory(fused, may, backend.alignment, graph::MaximaOf(fused)));
  for (size_t n = 0; n < fused.nodes.size(); ++n) {
    const int operand = function->plan.in_place[n];
    if (operand < 0) continue;
    const PlacedTask& task = placed[static_cast<size_t>(function->of_node[n])];
    ir::Function& kernel = (*lowered)[static_cast<size_t>(task.program)];
    // Parameters keep their order; their names are what the attribute can hold.
    const std::string name = kernel.params[operand]->name;
    ir::AnnotationValue& marked = kernel.attrs[std::string(codegen::kMayAlias)];
    std::string* names = std::get_if<std::string>(&marked);
    if (names == nullptr) {
      marked = name;
    } else if (std::ranges::count(support::Split(*names, ','), name) == 0) {
      *names += "," + name;
    }
  }
  return absl::OkStatus();
}

// The tasks of a model, lowered for the target, or for the processor next to it where the device
// cannot run them.
class ModelLowering {
 public:
  // Schedules of open sizes are judged at those of `span`.
  ModelLowering(const target::Target& target, ScheduleProvider* schedules,
                const CompileOptions& options, space::SizeSpan span)
      : schedules_(schedules), options_(options), span_(std::move(span)) {
    sides_.push_back({.target = target});
  }

  // Tasks come in the model's order.
  absl::StatusOr<CompileReport::Kernel> Add(const Task& task, const Placement& placement) {
    CompileReport::Kernel kernel;
    kernel.task_hash = task.hash;
    kernel.task_name = task.name;
    kernel.task_label = task.label;
    kernel.uses = task.weight;
    kernel.library = task.library;
    kernel.flops = task.flops;
    kernel.bytes = task.bytes;
    kernel.host_reason = placement.host_reason;
    kernel.open_sizes = placement.open_sizes;
    const absl::Status placed = Place(task, &kernel);
    if (!placed.ok()) return support::WithContext(placed, StrCat("task ", task.name));
    return kernel;
  }

  const std::vector<std::vector<int>>& in_place() const { return in_place_; }
  std::vector<ir::Function>* functions_of_target() { return &sides_[0].mains; }
  const std::vector<PlacedTask>& placed() const { return placed_; }

  // Code for all that was added; the functions are gone then. Libraries come last.
  absl::StatusOr<std::vector<CodePart>> Generate() {
    codegen::CodegenOptions codegen_options;
    codegen_options.dump_dir = options_.dump_dir;
    for (PlacedTask& task : placed_) {
      // The functions that prepare follow the others.
      if (task.part < kFirstLibrary && task.prepared.program >= 0)
        task.prepared.program += static_cast<int>(sides_[task.part].mains.size());
    }
    std::vector<CodePart> parts;
    for (Side& side : sides_) {
      CodePart& part = parts.emplace_back(CodePart{.target = side.target});
      std::vector<ir::Function> functions = std::move(side.mains);
      functions.insert(functions.end(), side.prepares.begin(), side.prepares.end());
      if (functions.empty()) continue;
      TW_ASSIGN(
          part.code,
          targets::BackendOf(side.target).generate({functions, side.target, codegen_options}));
    }
    for (PlacedTask& task : placed_) {
      if (task.part >= kFirstLibrary) task.part += parts.size() - kFirstLibrary;
    }
    for (auto& [text, code] : libraries_) parts.push_back(std::move(code));
    return parts;
  }

 private:
  struct Side {
    target::Target target;
    std::vector<ir::Function> mains = {}, prepares = {};
    std::multimap<uint64_t, int> by_hash = {};  // positions in `prepares`

    // Kernels that pack their weights alike share what packs them, and with it the packed weights.
    int PrepareOf(ir::Function prepare) {
      const uint64_t hash = ir::StructuralHash(prepare);
      const auto [begin, end] = by_hash.equal_range(hash);
      for (auto it = begin; it != end; ++it) {
        const ir::Function& known = prepares[static_cast<size_t>(it->second)];
        if (ir::StructuralEqual(known, prepare)) return it->second;
      }
      const int position = static_cast<int>(prepares.size());
      by_hash.emplace(hash, position);
      prepares.push_back(std::move(prepare));
      return position;
    }
  };

  absl::Status Place(const Task& task, CompileReport::Kernel* kernel) {
    TW_ASSIGN(const graph::Graph body, ParseTask(task.text));  // its sizes may be open
    if (const auto call = LibraryCallOf(body)) return PlaceCall(body, *call);
    TW_ASSIGN(std::vector<schedule::Variant> variants, TaskVariants(body));
    const std::string name = StrCat("k", placed_.size(), "_", variants[0].function.name);
    for (schedule::Variant& variant : variants) variant.function.name = name;
    const target::Target& target = sides_[0].target;
    in_place_.emplace_back();
    if (kernel->host_reason.empty()) {
      absl::StatusOr<LoweredTask> lowered = LowerOn(0, body, variants, task, kernel);
      const bool unit = target.machine.has_matrix();
      if (!unit) TW_TRY(lowered.status());
      if (!unit || (lowered.ok() && OnMatrixUnit(*lowered))) return Keep(0, *std::move(lowered));
      kernel->host_reason = space::WhyNotOnUnit(variants[0].function, target.machine.matrix);
    }
    kernel->on_host = true;
    if (sides_.size() < 2) {
      TW_ASSIGN(target::Target host, HostOf(target));
      sides_.push_back({.target = std::move(host)});
    }
    TW_ASSIGN(LoweredTask lowered, LowerOn(1, body, variants, task, kernel));
    in_place_.back().clear();  // a device's module computes nothing in place
    return Keep(1, std::move(lowered));
  }

  // A kernel of the task for a side, by its best schedule.
  absl::StatusOr<LoweredTask> LowerOn(size_t side, const graph::Graph& body,
                                      const std::vector<schedule::Variant>& variants,
                                      const Task& task, CompileReport::Kernel* kernel) {
    const target::Target& target = sides_[side].target;
    const std::string dump = options_.dump_dir.empty()
                                 ? ""
                                 : support::PathJoin(options_.dump_dir, variants[0].function.name);
    // Which of its algorithms runs may be chosen then.
    const module::Sizes typical = HasAlgorithmsByRows(variants) ? module::Sizes() : span_.typical;
    if (!dump.empty()) TW_TRY(DumpReasons(variants, target, typical, dump));
    kernel->tuned = kernel->predicted = kernel->stale = false;
    kernel->measurement_id.clear();
    // Schedules that somebody knows are those of the target's device.
    ScheduleProvider* const schedules = side == 0 ? schedules_ : nullptr;
    TW_ASSIGN(const ir::Function scheduled,
              ScheduleTask(variants, task, target, schedules, typical, kernel));
    in_place_.back() = InPlaceOperands(scheduled, kernel->steps);
    TW_ASSIGN(LoweredTask lowered, LowerTask(scheduled, target, dump, ""));
    const bool given = kernel->tuned || kernel->predicted;
    TW_ASSIGN(const std::vector<TaskVersion> versions,
              TaskVersions(body, variants, target, span_, scheduled, given));
    TW_TRY(AddVersions(target, versions, dump, &lowered));
    return lowered;
  }

  // A call of a library is a code object of text (deploy/runtime/external_library.h).
  absl::Status PlaceCall(const graph::Graph& body, const LibraryCall& call) {
    const std::string text = StrCat(call.library, "\n", call.attributes);
    size_t at = 0;
    while (at < libraries_.size() && libraries_[at].first != text) ++at;
    if (at == libraries_.size()) {
      const target::Target& target = sides_[0].target;
      CodePart part{.target = target};
      if (targets::BackendOf(target).on_device) {
        TW_ASSIGN(part.target, HostOf(target));
      }
      part.code.format = runtime::kLibraryFormat;
      part.code.bytes = text;
      libraries_.emplace_back(text, std::move(part));
    }
    codegen::Call made;
    made.symbol = StrCat(TW_KERNEL_SYMBOL_PREFIX, call.function);
    // An operand that is there twice is one input of the task.
    for (const graph::ValueId operand : body.nodes[0].inputs) {
      const auto input = std::ranges::find(body.inputs, operand);
      made.buffers.push_back(static_cast<int>(input - body.inputs.begin()));
    }
    made.buffers.push_back(static_cast<int>(body.inputs.size()));
    std::vector<codegen::Program>& programs = libraries_[at].second.code.programs;
    placed_.push_back({.part = kFirstLibrary + at, .program = static_cast<int>(programs.size())});
    programs.emplace_back().calls.push_back(std::move(made));
    in_place_.emplace_back();
    return absl::OkStatus();
  }

  // The kernel of a task of open sizes also has other versions of it, if there are any.
  absl::Status AddVersions(const target::Target& target, const std::vector<TaskVersion>& versions,
                           const std::string& dump, LoweredTask* lowered) {
    for (const TaskVersion& version : versions) {
      std::vector<int>& may = in_place_.back();
      const std::vector<int> also = InPlaceOperands(version.scheduled, version.steps);
      std::erase_if(may, [&](int operand) {
        return std::find(also.begin(), also.end(), operand) == also.end();
      });
      const std::string passes = dump.empty() ? "" : StrCat(dump, "_", version.name);
      TW_ASSIGN(const LoweredTask other, LowerTask(version.scheduled, target, passes, ""));
      AddVersion(version.ConditionFor(lowered->main), other, lowered);
    }
    return absl::OkStatus();
  }

  absl::Status Keep(size_t part, LoweredTask lowered) {
    Side& side = sides_[part];
    PlacedTask& placed = placed_.emplace_back(
        PlacedTask{.part = part, .program = static_cast<int>(side.mains.size())});
    side.mains.push_back(std::move(lowered.main));
    placed.prepared = std::move(lowered.prepared);
    if (!lowered.prepare.has_value()) return absl::OkStatus();
    placed.prepared.program = side.PrepareOf(*std::move(lowered.prepare));
    return absl::OkStatus();
  }

  // Until Generate, `part` of a library's call is this and its position.
  static constexpr size_t kFirstLibrary = size_t{1} << 16;

  ScheduleProvider* const schedules_;
  const CompileOptions& options_;
  const space::SizeSpan span_;
  std::vector<std::pair<std::string, CodePart>> libraries_;  // by the text of the code object
  std::vector<Side> sides_;  // the target's; the processor's where it is needed
  std::vector<PlacedTask> placed_;
  std::vector<std::vector<int>> in_place_;  // operands, by task
};

// A module of open sizes says what sizes it is for.
absl::Status CheckOpenSizes(const graph::Graph& fused) {
  for (const std::string& name : graph::SizeVariables(fused)) {
    if (fused.size_ranges.contains(name)) continue;
    return support::InvalidArgument("driver.compile.size_range",
                                    StrCat("expected a range of sizes for ", name, ", found none"));
  }
  return absl::OkStatus();
}

space::SizeSpan SizesOf(const graph::Graph& fused) {
  space::SizeSpan span;
  span.typical = TypicalSizes(fused);
  for (const auto& [name, range] : fused.size_ranges) {
    span.least[name] = range.min;
    span.most[name] = range.max;
  }
  return span;
}

// "main", then the specialisations, each checked.
absl::StatusOr<std::vector<ModelFunction>> FunctionsOf(const graph::Graph& fused,
                                                       std::span<const graph::Graph> specialised) {
  TW_TRY(graph::Verify(fused));
  TW_TRY(CheckOpenSizes(fused));
  std::vector<ModelFunction> functions = {{.fused = &fused}};
  for (const graph::Graph& g : specialised) {
    TW_TRY(graph::Verify(g));
    TW_ASSIGN(module::Sizes at, SpecialisedAt(fused, g));
    functions.push_back({.fused = &g, .at = std::move(at)});
  }
  return functions;
}

}  // namespace

bool RunsOnProcessor(const target::Target& target) {
  return !targets::BackendOf(target).on_device && !target.machine.has_matrix();
}

std::vector<bool> TasksOnHost(std::span<const graph::Graph* const> graphs, const ModelTasks& model,
                              const target::Target& target) {
  std::vector<bool> on_host;
  for (const Placement& placement : PlaceTasks(graphs, model, target))
    on_host.push_back(!placement.host_reason.empty());
  return on_host;
}

absl::StatusOr<module::ModuleParts> CompileParts(const graph::Graph& fused,
                                                 const target::Target& target,
                                                 ScheduleProvider* schedules,
                                                 const CompileOptions& options,
                                                 CompileReport* report) {
  CompileReport local;
  CompileReport& out = report != nullptr ? *report : local;
  out = CompileReport();
  TW_ASSIGN(std::vector<ModelFunction> functions, FunctionsOf(fused, options.specialised));
  std::vector<const graph::Graph*> graphs;
  for (const ModelFunction& of : functions) graphs.push_back(of.fused);
  TW_ASSIGN(ModelTasks model, ExtractModelTasks(graphs));
  ModelLowering lowering(target, schedules, options, SizesOf(fused));
  const Stopwatch lower_time;
  const std::vector<Placement> placements = PlaceTasks(graphs, model, target);
  for (size_t t = 0; t < model.tasks.size(); ++t) {
    TW_ASSIGN(CompileReport::Kernel kernel, lowering.Add(model.tasks[t], placements[t]));
    out.kernels.push_back(std::move(kernel));
  }
  out.seconds_lower = lower_time.Seconds();
  for (size_t f = 0; f < functions.size(); ++f) {
    functions[f].of_node = std::move(model.of_node[f]);
    TW_TRY(PlanInPlace(targets::BackendOf(target), lowering.in_place(), lowering.placed(),
                       lowering.functions_of_target(), &functions[f]));
  }
  TW_ASSIGN(const std::vector<CodePart> parts, lowering.Generate());
  for (const CodePart& part : parts) {
    out.seconds_codegen += part.code.codegen_seconds;
    out.seconds_link += part.code.link_seconds;
  }
  return ModelParts(functions, model.tasks, lowering.placed(), parts, options, &out);
}

absl::StatusOr<std::string> CompileModel(const graph::Graph& fused, const target::Target& target,
                                         ScheduleProvider* schedules, const CompileOptions& options,
                                         CompileReport* report) {
  TW_ASSIGN(const module::ModuleParts parts,
            CompileParts(fused, target, schedules, options, report));
  return module::SerializeModule(parts);
}

absl::StatusOr<BuiltCandidate> BuildCandidate(std::string_view task_text, std::string_view steps,
                                              const target::Target& target, const TaskCheck* check,
                                              const std::string& test_miscompile) {
  TW_ASSIGN(const graph::Graph body, ParseTask(task_text));
  TW_TRY(RequireFixed(body));
  TW_ASSIGN(const std::vector<schedule::Variant> variants, TaskVariants(body));
  BuiltCandidate result;
  const Stopwatch lower_time;
  TW_ASSIGN(const ir::Function scheduled, schedule::Replay(variants, steps));
  result.program_hash = ir::ProgramHash(scheduled);
  TW_ASSIGN(LoweredTask flat, LowerTask(scheduled, target, "", test_miscompile));
  result.seconds_lower = lower_time.Seconds();
  std::vector<ir::Function> functions = {std::move(flat.main)};
  if (flat.prepare.has_value()) {
    flat.prepared.program = 1;
    functions.push_back(*std::move(flat.prepare));
  }
  TW_ASSIGN(codegen::Artifact code, targets::BackendOf(target).generate({functions, target, {}}));
  result.seconds_codegen = code.codegen_seconds;
  result.seconds_link = code.link_seconds;
  result.resources = code.resources;
  TW_ASSIGN(const std::vector<TaskInput> inputs,
            TaskInputs(body, check != nullptr ? check->seed : kTimingSeed));
  TW_ASSIGN(module::ModuleParts parts,
            CandidateParts(body, inputs, flat.prepared, std::string(steps), result.program_hash,
                           target, code));
  if (check != nullptr) {
    parts.manifest.measurement->expected_digest = support::Sha256Hex(check->expected_bytes);
    parts.manifest.measurement->tolerance = {check->atol, check->rtol};
  }
  TW_ASSIGN(result.module_bytes, module::SerializeModule(parts));
  return result;
}

absl::StatusOr<bool> ChoosesWhenItRuns(const graph::Graph& task) {
  if (!graph::IsSymbolic(task)) return false;
  TW_ASSIGN(const std::vector<schedule::Variant> variants, TaskVariants(task));
  return HasAlgorithmsByRows(variants);
}

absl::StatusOr<std::string> DefaultSteps(std::string_view task_text, const target::Target& target) {
  TW_ASSIGN(const graph::Graph task, ParseTask(task_text));  // its sizes may be open
  TW_ASSIGN(const std::vector<schedule::Variant> variants, TaskVariants(task));
  return schedule::ToText(space::DefaultSchedule(variants, target));
}

}  // namespace tilewright::driver
