// How much of the accelerator's time its products take: ResNet-18's convolutions but the first, by
// their default schedules on the cycle model, with and without a second virtual thread, which hides
// loads and stores. Prints a line of JSON for each layer.
//   vta_layers [CONFIG [FOLDER]]
//     CONFIG: block16 (default), block8, block32
//     FOLDER: gets a timeline of each layer, as a picture and for Chrome's trace viewer
#include <cstdio>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/schedule/default_schedule.h"
#include "compiler/schedule/matrix_tiles.h"
#include "compiler/targets/backend.h"
#include "compiler/transform/passes.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/bench/layers.h"
#include "tests/support/matrix_tasks.h"
#include "vta/isa/code_object.h"
#include "vta/sim/cycle_model.h"
#include "vta/sim/timeline.h"

namespace tilewright {
namespace {

using support::StrCat;

constexpr uint64_t kSeed = 1;

struct Run {
  schedule::MatrixTile tile;
  vta::CycleReport report;
};

absl::StatusOr<Run> RunLayer(const ir::Function& function, const target::Target& target,
                             int64_t threads, const std::string& timeline) {
  const target::MatrixUnit& unit = target.machine.matrix;
  const auto problem = schedule::MatrixProblemOf(function, unit);
  TW_CHECK(problem.has_value());
  const auto tile = schedule::BestTile(
      unit, *problem, {.rows = 0, .columns = 0, .steps = 0, .threads = threads, .width = 0});
  if (!tile.has_value()) return support::NotFound("bench.tile", "no tile fits the memories");
  schedule::Schedule scheduled(function);
  schedule::Choices choices;
  choices[problem->key()].threads = threads;
  schedule::ApplyDefaultSchedule(target, choices, &scheduled);
  transform::PassContext context;
  context.target = target;
  const targets::Backend& backend = targets::BackendOf(target);
  TW_ASSIGN(ir::Function lowered,
            transform::RunPipeline(scheduled.function(), backend.pipeline(), context));
  const std::vector<ir::Function> functions = {std::move(lowered)};
  TW_ASSIGN(const codegen::Artifact artifact, backend.generate({functions, target, {}}));
  TW_ASSIGN(const vta::CodeObject code, vta::ParseCode(artifact.bytes));
  TW_ASSIGN(const vta::Isa isa, vta::Isa::Make(code.config));
  const vta::Program& program = code.programs.at(0);
  TW_ASSIGN(const std::vector<vta::Word128> words, program.Encoded(isa));
  TW_ASSIGN(std::vector<uint8_t> dram, program.Image(isa));
  Run run{*tile, {}};
  TW_ASSIGN(run.report, vta::RunCycles(isa, words, {}, kSeed, &dram));
  if (timeline.empty()) return run;
  TW_TRY(support::WriteFileAtomic(timeline + ".svg", vta::TimelineSvg(program.stream, run.report)));
  TW_TRY(
      support::WriteFileAtomic(timeline + ".json", vta::ChromeTrace(program.stream, run.report)));
  return run;
}

// Products are counted once for each pair of a vector and a matrix, without resets.
void Print(const std::string& layer, int64_t threads, int64_t products, const Run& run) {
  const auto& [tile, report] = run;
  const auto share = [&](int64_t part) {
    return static_cast<double>(part) / static_cast<double>(report.cycles);
  };
  std::printf(
      "{\"layer\": \"%s\", \"threads\": %d, \"rows\": %d, \"width\": %d, \"columns\": %d, "
      "\"steps\": %d, \"instructions\": %d, \"cycles\": %d, \"products\": %.4f, "
      "\"compute\": %.4f, \"load\": %.4f, \"store\": %.4f}\n",
      layer.c_str(), static_cast<int>(threads), static_cast<int>(tile.rows),
      static_cast<int>(tile.width), static_cast<int>(tile.columns), static_cast<int>(tile.steps),
      static_cast<int>(report.counters.instructions), static_cast<int>(report.cycles),
      share(products), share(report.busy[1]), share(report.busy[0]), share(report.busy[2]));
}

absl::Status RunAll(const std::string& config, const std::string& folder) {
  TW_ASSIGN(const target::Target target, target::ParseTarget("vta,config=" + config));
  const int64_t block = target.machine.matrix.block;
  if (!folder.empty()) TW_TRY(support::MakeDirs(folder));
  for (int n = 2; n <= 12; ++n) {
    TW_ASSIGN(const bench::Layer layer, bench::FindLayer(StrCat("C", n)));
    const tests::ConvolutionTask task{.inputs = layer.in / block,
                                      .columns = layer.out / block,
                                      .height = layer.size,
                                      .width = layer.size,
                                      .taps = layer.kernel,
                                      .stride = layer.stride,
                                      .pad = layer.kernel / 2};
    const ir::Function function = tests::FunctionOf(task, block);
    const int64_t out = layer.out_size();
    const int64_t products = out * out * task.columns * task.inputs * layer.kernel * layer.kernel;
    for (const int64_t threads : {1, 2}) {
      const std::string timeline =
          folder.empty() ? "" : support::PathJoin(folder, StrCat(layer.name, "_", threads));
      TW_ASSIGN(const Run run, RunLayer(function, target, threads, timeline));
      Print(layer.name, threads, products, run);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
  const absl::Status ran =
      tilewright::RunAll(argc > 1 ? argv[1] : "block16", argc > 2 ? argv[2] : "");
  if (!ran.ok()) std::fprintf(stderr, "%s\n", tilewright::support::StatusText(ran).c_str());
  return ran.ok() ? 0 : 1;
}
