// tilewright-opt: schedule steps and lowering passes on tensor IR in a file, by hand. What a log
// record's replay is, what a failing pass's reproducer starts, and how a kernel is looked at.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/driver/run_function.h"
#include "compiler/driver/tasks.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/verify.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/explain.h"
#include "compiler/transform/passes.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::driver {
namespace {

using support::StrCat;

constexpr uint64_t kMaxInputBytes = uint64_t{64} << 20;
constexpr int kFailed = 1, kUsage = 2;

struct Options {
  std::string file, task, apply, passes, pipeline, stop_after, target = "native", dump_dir, output;
  std::string reference = "interp", miscompile;
  std::vector<int64_t> sizes;
  bool print_hash = false, print_handles = false, verify_each = false, run = false, quiet = false;
  bool emit_code = false, explain = false;
  uint64_t seed = 0;
  int repeat = 1;
  double rtol = 1e-4, atol = 1e-5;
};

absl::StatusOr<std::string> ReadText(const std::string& path) {
  if (path != "-") return support::ReadFile(path, kMaxInputBytes);
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

// Comment lines (a reproducer's command) may precede the function.
std::string WithoutComments(const std::string& text) {
  std::string kept;
  for (const std::string& line : support::Split(text, '\n')) {
    if (!line.starts_with("#")) kept += line + "\n";
  }
  return kept;
}

absl::StatusOr<target::Target> TargetOf(const Options& o) {
  runtime::CpuInfo cpu = runtime::DetectCpu();
  std::string name =
      target::BestMachineName(cpu.arch, cpu.vendor, cpu.family, cpu.model, cpu.features);
  TW_ASSIGN(std::string text, target::ExpandNative(o.target, cpu.arch, name, cpu.cores_usable));
  return target::ParseTarget(text);
}

// The function as it is; of a task also its operators' other algorithms, for `variant` steps.
absl::StatusOr<std::vector<schedule::Variant>> Input(const Options& o) {
  if (!o.task.empty()) {
    TW_ASSIGN(std::string text, ReadText(o.task));
    TW_ASSIGN(const graph::Graph task, ParseTask(text));
    return TaskVariants(task);
  }
  TW_ASSIGN(std::string text, ReadText(o.file));
  TW_ASSIGN(ir::Function f, ir::ParseFunction(WithoutComments(text)));
  TW_TRY(ir::Verify(f));
  return std::vector<schedule::Variant>{{"direct", std::move(f)}};
}

absl::StatusOr<std::vector<transform::PassRow>> PassesOf(const Options& o) {
  std::vector<transform::PassRow> rows;
  if (!o.pipeline.empty()) {
    for (const transform::PassRow& row :
         o.pipeline == "gpu" ? transform::GpuPipeline() : transform::CpuPipeline()) {
      rows.push_back(row);
      if (row.name == o.stop_after) return rows;
    }
    if (!o.stop_after.empty()) {
      return support::InvalidArgument(
          "opt.pass.unknown",
          StrCat("expected a pass of the pipeline, found ", support::Quote(o.stop_after, 60)));
    }
    return rows;
  }
  if (o.passes.empty()) return rows;
  for (const std::string& name : support::Split(o.passes, ',')) {
    const transform::PassRow* row = transform::FindPass(name);
    if (row == nullptr) {
      std::vector<std::string> known;
      for (const transform::PassRow& r : transform::CpuPipeline()) {
        if (std::find(known.begin(), known.end(), r.name) == known.end()) {
          known.emplace_back(r.name);
        }
      }
      return support::InvalidArgument(
          "opt.pass.unknown", StrCat("expected one of ", support::Join(known, ", "), ", found ",
                                     support::Quote(name, 60)));
    }
    rows.push_back(*row);
  }
  return rows;
}

// Compiles `f`, runs it, and compares with `reference` (the function as it was read) interpreted.
absl::Status Run(const Options& o, const ir::Function& reference, const ir::Function& f,
                 const transform::PassContext& ctx) {
  TW_ASSIGN(std::vector<ir::TensorData> arguments, SeededArguments(reference, o.sizes, o.seed));
  TW_ASSIGN(CompiledRun run, RunCompiledFunction(f, o.sizes, arguments, ctx, o.repeat));
  std::vector<double> times = run.run_seconds;
  std::sort(times.begin(), times.end());
  std::cout << StrCat("codegen_ms=", run.codegen_seconds * 1e3, " link_ms=", run.link_seconds * 1e3,
                      " run_us_median=", times[times.size() / 2] * 1e6,
                      " run_us_best=", times.front() * 1e6, " repeats=", times.size(), "\n");
  if (o.reference == "none") return absl::OkStatus();
  std::vector<ir::TensorData> expected = arguments;
  std::vector<ir::TensorData*> pointers;
  for (ir::TensorData& d : expected) pointers.push_back(&d);
  TW_TRY(ir::Interpret(reference, o.sizes, pointers));
  TW_ASSIGN(std::vector<OutputDifference> rows,
            CompareOutputs(reference, run.arguments, expected, o.rtol, o.atol));
  int64_t mismatches = 0;
  for (const OutputDifference& row : rows) {
    std::cout << row.output << ": " << row.text << "\n";
    mismatches += row.mismatches;
  }
  if (mismatches == 0) return absl::OkStatus();
  return support::Internal("opt.run.mismatch", StrCat("expected the interpreter's values, found ",
                                                      mismatches, " elements that differ"));
}

absl::Status Write(const Options& o, const std::string& text) {
  if (!o.output.empty()) return support::WriteFileAtomic(o.output, text);
  std::cout << text;
  return absl::OkStatus();
}

absl::Status Execute(const Options& o) {
  transform::PassContext ctx;
  TW_ASSIGN(ctx.target, TargetOf(o));
  ctx.verify_each = o.verify_each;
  ctx.dump_dir = o.dump_dir;
  ctx.test_miscompile = o.miscompile;
  TW_ASSIGN(std::vector<transform::PassRow> passes, PassesOf(o));
  TW_ASSIGN(const std::vector<schedule::Variant> variants, Input(o));
  const ir::Function& input = variants[0].function;
  ir::Function f = input;
  if (o.explain) {
    TW_ASSIGN(const std::string text, space::Explain(variants, ctx.target));
    return Write(o, text);
  }
  bool text_wanted = !o.print_hash && !o.print_handles && !o.run && !o.emit_code;
  if (f.stage == ir::Stage::kScheduled) {
    TW_ASSIGN(schedule::Steps steps, schedule::ParseSteps(o.apply));
    schedule::Schedule schedule(variants);
    schedule.set_verify_each(o.verify_each);
    TW_TRY(schedule.ApplyAll(steps));
    f = schedule.function();
    if (o.print_handles) std::cout << schedule.Describe();
  } else if (!o.apply.empty() || o.print_handles) {
    return support::FailedPrecondition(
        "opt.apply.stage", "expected a function of stage scheduled, found a lowered one");
  }
  if (o.print_hash) std::cout << ir::ProgramHash(f) << "\n";
  if (o.run) TW_TRY(Run(o, input, f, ctx));
  TW_ASSIGN(ir::Function lowered, transform::RunPipeline(f, passes, ctx));
  if (o.emit_code) {
    TW_ASSIGN(ir::Function flat, lowered.stage == ir::Stage::kFlat
                                     ? absl::StatusOr<ir::Function>(lowered)
                                     : transform::RunPipeline(f, transform::CpuPipeline(), ctx));
    codegen::CodegenOptions options;
    options.dump_dir = o.dump_dir;
    TW_ASSIGN(codegen::Artifact artifact, codegen::Generate({flat}, ctx.target, options));
    return Write(o, artifact.bytes);
  }
  return text_wanted || !passes.empty() ? Write(o, ir::Print(lowered)) : absl::OkStatus();
}

void AddOptions(CLI::App* app, Options* o) {
  app->add_option("file", o->file, "tensor IR text; - reads standard input");
  app->add_option("--task", o->task, "a task's canonical text instead of tensor IR");
  app->add_option("--apply", o->apply, "schedule steps: 'split %3 [4,?]; vectorize %5'");
  auto* passes = app->add_option("--passes", o->passes, "lowering passes, in order: a,b,c");
  app->add_option("--pipeline", o->pipeline, "the passes of a target kind")
      ->check(CLI::IsMember({"cpu", "gpu"}))
      ->excludes(passes);
  app->add_option("--stop-after", o->stop_after, "last pass of --pipeline (its first occurrence)");
  app->add_flag("--print-hash", o->print_hash, "print the program hash of the scheduled function");
  app->add_flag("--print-handles", o->print_handles, "print the schedule's handles");
  app->add_flag("--explain", o->explain,
                "print what the default schedule decides and why, and the space of the search")
      ->excludes(passes);
  app->add_flag("--verify-each", o->verify_each, "verify after every step and pass");
  app->add_option("--dump-ir", o->dump_dir, "folder for the IR after each pass, .ll and .s");
  app->add_option("--target", o->target, "target string")->capture_default_str();
  app->add_flag("--run", o->run, "compile, run on seeded inputs, compare with --reference");
  app->add_option("--reference", o->reference, "what --run compares with")
      ->check(CLI::IsMember({"interp", "none"}))
      ->capture_default_str();
  app->add_option("--sizes", o->sizes, "values of the size parameters, in order")->delimiter(',');
  app->add_option("--seed", o->seed, "seed of the inputs of --run");
  app->add_option("--repeat", o->repeat, "runs of --run")->check(CLI::Range(1, 1'000'000));
  app->add_option("--rtol", o->rtol, "relative tolerance of --run")->capture_default_str();
  app->add_option("--atol", o->atol, "absolute tolerance of --run")->capture_default_str();
  app->add_flag("--emit-code", o->emit_code, "write the shared object (to -o)");
  app->add_option("-o,--output", o->output, "file for the result; default: standard output");
  app->add_option("--test-miscompile", o->miscompile, "plant a fault in lowering (tests only)")
      ->check(CLI::IsMember({"tail", "init"}));
  app->footer(
      "Exit status: 0 ok, 1 failed, 2 usage.\n"
      "Examples:\n"
      "  tilewright-opt conv.tir --print-handles\n"
      "  tilewright-opt conv.tir --apply='split %0 [?,8]; parallel %4' --print-hash\n"
      "  tilewright-opt conv.tir --pipeline=cpu --stop-after=partition_loops --verify-each\n"
      "  tilewright-opt conv.tir --run --target=native,threads=2 --repeat=100 --dump-ir=dump\n"
      "  tilewright-opt --task conv.task --explain --target native,threads=2\n"
      "  tilewright-opt --task conv.task --apply=\"$STEPS\" --print-hash");
}

int Main(int argc, char** argv) {
  CLI::App app("Runs schedule steps and lowering passes on tensor IR.");
  app.name("tilewright-opt");
  Options options;
  AddOptions(&app, &options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (options.file.empty() == options.task.empty()) {
    std::cerr << "opt.input.missing: expected a file or --task, found "
              << (options.file.empty() ? "neither" : "both") << "\n";
    return kUsage;
  }
  absl::Status status = Execute(options);
  if (status.ok()) return 0;
  std::cerr << support::StatusText(status) << "\n";
  std::string slug = support::Slug(status);
  bool usage = slug == "opt.pass.unknown" || slug.starts_with("ir.target.") ||
               slug.starts_with("schedule.step.");
  return usage ? kUsage : kFailed;
}

}  // namespace
}  // namespace tilewright::driver

int main(int argc, char** argv) { return tilewright::driver::Main(argc, argv); }
