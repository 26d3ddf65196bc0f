#include "tuner_server/cli/compile_command.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler/target/machine.h"
#include "compiler/target/target.h"
#include "deploy/support/file.h"
#include "deploy/support/measure_units.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/model_compiler.h"
#include "tuner_server/cli/native_target.h"
#include "tuner_server/cli/predicted_schedules.h"
#include "tuner_server/cli/schedule_choice.h"
#include "tuner_server/cli/shape_flags.h"
#include "tuner_server/cli/tuned_coverage.h"
#include "tuner_server/log/sqlite_log.h"
#include "tuner_server/log/toolchain_text.h"

namespace tilewright::cli {
namespace {

using nlohmann::json;
using support::StrCat;

std::string Text(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}
double Number(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : 0;
}
bool Flag(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_boolean() && it->get<bool>();
}

absl::StatusOr<json> ParseSummary(const v1::ModuleCompiled& compiled) {
  json summary = json::parse(compiled.manifest_summary_json(), nullptr, false);
  if (!summary.is_object() || !summary.contains("kernels") || !summary["kernels"].is_array()) {
    return support::Internal("builder.summary.malformed", "expected an object with kernels");
  }
  return summary;
}

void TellChoice(const ScheduleChoice& choice) {
  std::string text;
  if (choice.by_task.empty()) {
    text = "note: the log has no usable record for these tasks, this target and this toolchain";
  } else {
    text = StrCat("using records of device class ", choice.device_class);
    const std::string_view compiler = log::CompilerOf(choice.toolchain);
    if (!compiler.empty()) text += StrCat(" and driver compiler ", compiler);
    if (!choice.other_toolchains.empty()) {
      text += StrCat(" (not those of other driver compilers: toolchain ",
                     support::Join(choice.other_toolchains, ", "), ")");
    }
    if (!choice.other_classes.empty()) {
      text += StrCat(" (the log also has ", support::Join(choice.other_classes, ", "),
                     ": choose with --device-class)");
    }
  }
  PrintErr(text + "\n");
}

void TellPredicted(const PredictedSchedules& predicted) {
  if (predicted.out_of_time == 0) return;
  PrintErr(StrCat("note: ", predicted.out_of_time,
                  " kernels keep their default schedules: the time of --effort is over\n"));
}

// What users of targets without a plug-in must know.
void TellNoDevices(const std::string& target) {
  const std::string kind = target.substr(0, target.find(','));
  if (target::FindKind(kind)->has_devices()) return;
  PrintErr(StrCat("note: this version has no device plug-in for ", kind,
                  ": it compiles the module, and cannot run, measure or tune it; no device of the "
                  "kind has been tested\n"));
}

// Integers may be slower than floats, which have faster algorithms, where no instruction sums
// products of bytes.
void TellBytes(const target::Target& target, const v1::JobOpened& opened) {
  const target::Machine& machine = target.machine;
  const bool plain = !machine.has_groups() && !machine.has_matrix();
  if (!plain || machine.dots_per_cycle >= machine.fma_per_cycle) return;
  int uses = 0;
  for (const v1::BuilderTask& task : opened.tasks()) {
    if (task.data_type() == "int8") uses += task.weight();
  }
  if (uses == 0) return;
  PrintErr(StrCat("note: ", uses, " launches compute with int8 numbers, for whose dot products ",
                  machine.name,
                  " has no instruction: they gain little over float32, and lose where Winograd's "
                  "convolutions serve. Race both modules: tilewright bench diff\n"));
}

// Kernels of sizes that calls decide about are the processor's, whose schedules nobody measures.
void TellHostKernels(const std::string& target, const json& summary) {
  const std::string kind = target.substr(0, target.find(','));
  int uses = 0, all = 0;
  std::set<std::string> sizes;
  for (const json& kernel : summary["kernels"]) {
    if (!kernel.is_object()) continue;
    all += static_cast<int>(Number(kernel, "uses"));
    const json open = kernel.value("open_sizes", json::array());
    if (open.empty()) continue;
    uses += static_cast<int>(Number(kernel, "uses"));
    for (const json& name : open) {
      if (name.is_string()) sizes.insert(name.get<std::string>());
    }
  }
  if (sizes.empty()) return;
  const std::string names = support::Join(sizes, ", "), first = *sizes.begin();
  PrintErr(StrCat("warning: ", uses, " of ", all, " launches run on the processor, not on ", kind,
                  ": ", names, " open. A fixed size (--shape ", first,
                  "=NUMBER) or kernels for some (--specialise ", first, "=NUMBER,...) run on ",
                  kind, "\n"));
}

// "specialised: at_batch_1 (batch=1), at_batch_8 (batch=8)"; "" if nothing is.
std::string SpecialisedText(const json& summary) {
  std::vector<std::string> parts;
  for (const json& function : summary.value("functions", json::array())) {
    const json at = function.value("at", json::object());
    if (at.empty()) continue;
    std::vector<std::string> sizes;
    for (const auto& [name, size] : at.items()) sizes.push_back(StrCat(name, "=", size.dump()));
    parts.push_back(StrCat(Text(function, "name"), " (", support::Join(sizes, ","), ")"));
  }
  return parts.empty() ? "" : "specialised: " + support::Join(parts, ", ");
}

// The builder says what a session of the module holds (deploy/module/memory_need.h).
absl::Status CheckRam(const json& summary, uint64_t most) {
  const json& ram = summary["ram_bytes"];
  const double total = Number(ram, "total");
  if (most == 0 || total <= static_cast<double>(most)) return absl::OkStatus();
  const auto text = [&](const char* part) { return BytesText(Number(ram, part)); };
  return support::FailedPrecondition(
      "cli.ram.exceeded",
      StrCat("expected at most ", most, " bytes of memory, found ", static_cast<int64_t>(total),
             ": weights ", text("weights"), ", arena ", text("arena"), ", workspace ",
             text("workspace"), ", inputs and outputs ", text("inputs_outputs"), ", state ",
             text("state"), ", code ", text("code")));
}

absl::Status Compile(const CompileOptions& options) {
  if (options.print_passes) {
    TW_ASSIGN(const std::string passes, PassTables());
    PrintOut(passes);
    if (options.model_path.empty()) return absl::OkStatus();
  }
  TW_ASSIGN(const log::ModelSizes sizes, ParseSizes(options.sizes));
  TW_ASSIGN(const std::string target, ExpandTarget(options.target));
  const std::string output =
      options.output.empty() ? DefaultOutput(options.model_path) : options.output;
  TW_TRY(CheckWritable(output));
  TW_ASSIGN(ModelCompiler compiler, ModelCompiler::Open({.model_path = options.model_path,
                                                         .target = target,
                                                         .sizes = sizes,
                                                         .operators = options.operators,
                                                         .disabled = options.disabled_passes,
                                                         .enabled = options.enabled_passes,
                                                         .predict = options.effort_s > 0}));
  v1::CompileModule request;
  ScheduleChoice choice;
  if (!options.log_path.empty()) {
    TW_ASSIGN(choice, UseLogFile(options.log_path, target, options.device_class, compiler.opened(),
                                 &request));
  }
  PredictedSchedules predicted;
  if (options.effort_s > 0) {
    // Each point has kernels of its own.
    const double seconds = options.effort_s * static_cast<double>(1 + sizes.points.size());
    TW_ASSIGN(predicted, PredictSchedules(seconds, &compiler, &request));
    TellPredicted(predicted);
  }
  if (!options.dump_dir.empty()) {
    TW_TRY(support::MakeDirs(options.dump_dir));
    request.set_dump_dir(options.dump_dir);
  }
  TW_ASSIGN(const v1::ModuleCompiled compiled, compiler.CompileFile(std::move(request)));
  TW_ASSIGN(json summary, ParseSummary(compiled));
  TW_ASSIGN(const TunedCoverage coverage, ComputeCoverage(summary, choice));
  const double share = coverage.percent;
  if (share < options.require_tuned) {
    PrintErr(MissTable(coverage));
    return support::FailedPrecondition(
        "cli.tuned_share.low",
        StrCat("expected ", options.require_tuned, " % of the time in tuned kernels, found ",
               support::FormatFixed(share, 1), " %"));
  }
  TW_TRY(CheckRam(summary, options.max_ram));
  TW_TRY(support::MoveFile(compiled.path(), output));
  TellNoDevices(target);
  TW_ASSIGN(const target::Target parsed, target::ParseTarget(target));
  TellBytes(parsed, compiler.opened());
  TellHostKernels(target, summary);
  if (options.format == OutputFormat::kJson) {
    for (json& kernel : summary["kernels"]) {
      const auto gain = predicted.gains.find(Text(kernel, "task_hash"));
      if (gain != predicted.gains.end()) kernel["predicted_gain"] = gain->second;
    }
    summary["output"] = output;
    summary["bytes"] = compiled.digest().size_bytes();
    summary["tuned_percent"] = share;
    summary["misses"] = MissesJson(coverage);
    summary["sha256"] = support::HexEncode(compiled.digest().hash());
    PrintJson(summary);
    return absl::OkStatus();
  }
  TW_ASSIGN(const std::string table, KernelTable(summary));
  PrintOut(table);
  const std::string specialised = SpecialisedText(summary);
  if (!specialised.empty()) PrintOut(specialised);
  PrintOut(StrCat("wrote ", output, "  ",
                  BytesText(static_cast<double>(compiled.digest().size_bytes())), "  ram ",
                  BytesText(Number(summary["ram_bytes"], "total")), "  target ", target, "  ",
                  support::FormatFixed(share, 0), " % tuned  sha256 ",
                  support::HexEncode(compiled.digest().hash())));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ScheduleChoice> UseRecords(log::TuningLog* log, const std::string& target,
                                          const std::string& device_class,
                                          const v1::JobOpened& opened, v1::CompileModule* request) {
  ScheduleQuery query{target, opened.toolchain(), device_class, {}};
  for (const v1::BuilderTask& task : opened.tasks()) query.task_hashes.push_back(task.hash());
  TW_ASSIGN(ScheduleChoice choice, ChooseSchedules(log, query));
  const bool is_time = support::UnitOfClass(choice.device_class).time;
  for (const auto& [hash, chosen] : choice.by_task) {
    (*request->mutable_steps_by_task())[hash] = chosen.steps;
    (*request->mutable_program_hash_by_task())[hash] = chosen.program_hash;
    (*request->mutable_record_by_task())[hash] = chosen.measurement_id;
    if (!is_time) continue;  // cycles predict no latency
    (*request->mutable_predicted_ns_by_task())[hash] = chosen.median_ns;
  }
  return choice;
}

absl::StatusOr<ScheduleChoice> UseLogFile(const std::string& log_path, const std::string& target,
                                          const std::string& device_class,
                                          const v1::JobOpened& opened, v1::CompileModule* request) {
  TW_TRY(support::FileSize(log_path).status());
  TW_ASSIGN(const std::unique_ptr<log::TuningLog> log,
            log::OpenSqliteLog(log_path, {.read_only = true}));
  TW_ASSIGN(ScheduleChoice choice, UseRecords(log.get(), target, device_class, opened, request));
  TellChoice(choice);
  return choice;
}

std::string DefaultOutput(const std::string& model_path) {
  std::string stem = support::BaseName(model_path);
  const size_t dot = stem.rfind('.');
  if (dot != std::string::npos && dot > 0) stem.resize(dot);
  return stem + ".tw";
}

absl::Status CheckWritable(const std::string& path) {
  const std::string folder = support::DirName(path);
  if (support::IsDirectory(path)) {
    return support::InvalidArgument("cli.output.is_folder",
                                    "expected a file, found folder " + path);
  }
  if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
    return support::ErrnoError(errno, "cli.output.not_writable", "cannot write into " + folder);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> KernelTable(const json& summary) {
  Table table({{"task"}, {"kernel"}, {"uses", true}, {"MFLOP", true}, {"schedule"}});
  std::vector<std::string> reasons;
  for (const json& kernel : summary["kernels"]) {
    if (!kernel.is_object()) {
      return support::Internal("builder.summary.malformed", "expected kernels as objects");
    }
    const bool stale = Flag(kernel, "stale");
    const std::string library = Text(kernel, "library");
    const std::string schedule = !library.empty()            ? "none: library " + library
                                 : Flag(kernel, "tuned")     ? "tuned"
                                 : Flag(kernel, "predicted") ? "predicted"
                                 : stale                     ? "stale, default used"
                                                             : "default";
    // The others run on the target's device.
    const std::string where = Flag(kernel, "on_host") ? ", on the processor" : "";
    table.AddRow({Text(kernel, "task"), Text(kernel, "task_name"), StrCat(Number(kernel, "uses")),
                  support::FormatFixed(Number(kernel, "flops") / 1e6, 3), schedule + where});
    if (!where.empty()) {
      reasons.push_back(StrCat("on the processor: ", Text(kernel, "task_name"), ": ",
                               Text(kernel, "host_reason")));
    }
    if (stale) {
      reasons.push_back(
          StrCat("stale: ", Text(kernel, "task_name"), ": ", Text(kernel, "stale_reason")));
    }
  }
  std::string text = table.Render();
  for (const std::string& reason : reasons) text += reason + "\n";
  return text;
}

int CompileModel(const CompileOptions& options) {
  const std::string what = options.model_path.empty() ? "cannot print the passes"
                                                      : "cannot compile " + options.model_path;
  return Finish("compile", what, Compile(options));
}

}  // namespace tilewright::cli
