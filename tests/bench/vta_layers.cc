// How much of the accelerator's time its products take: ResNet-18's convolutions but the first, by
// their default schedules on the cycle model, with and without a second virtual thread, which hides
// loads and stores; then the best of the tiles that the estimate likes most. Prints a line of JSON
// for each. At best, products take products / (products + operations) of the time: `bound`, where
// operations are those of the bias, relu and requantisation. `of_bound` is the part of it that is
// reached; sums that are set to zero, loads, stores and what waits for them are what is missing.
//   vta_layers [CONFIG [FOLDER [LAYER]]]
//     CONFIG: block16 (default), block8, block32
//     FOLDER: gets a timeline of each layer, as a picture and for Chrome's trace viewer; '' for
//       none
//     LAYER: C2 to C12: runs every tile of this layer that fits instead, and prints the best and
//       the default
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/space/block_info.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/matrix_tiles.h"
#include "compiler/targets/backend.h"
#include "compiler/transform/passes.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/bench/layers.h"
#include "tests/support/matrix_tasks.h"
#include "vta/isa/code_object.h"
#include "vta/sim/cycle_model.h"
#include "vta/sim/stream_cycles.h"
#include "vta/sim/timeline.h"

namespace tilewright {
namespace {

using support::StrCat;

constexpr uint64_t kSeed = 1;
constexpr size_t kSearched = 16;  // tiles of a layer

struct Run {
  space::MatrixTile tile;
  vta::CycleReport report;
  int64_t operations = 0, resets = 0;  // cycles of alu, and of gemm that only clears
};

absl::StatusOr<Run> RunLayer(const ir::Function& function, const target::Target& target,
                             const space::MatrixTile& given, const std::string& timeline) {
  const target::MatrixUnit& unit = target.machine.matrix;
  const auto problem = space::MatrixProblemOf(function, unit);
  TW_CHECK(problem.has_value());
  const auto tile = space::BestTile(unit, *problem, given);
  if (!tile.has_value()) return support::NotFound("bench.tile", "no tile fits the memories");
  schedule::Schedule scheduled(function);
  space::Choices choices;
  space::BlockChoice& choice = choices[problem->key()];
  choice.rows = given.rows;
  choice.planes = given.width;
  choice.vectors = given.columns;
  choice.unroll = given.steps;
  choice.threads = given.threads;
  space::ApplyDefaultSchedule(target, choices, &scheduled);
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
  Run run{.tile = *tile, .report = {}};
  for (const vta::Instruction& i : program.stream) {
    if (i.op == vta::Opcode::kAlu) run.operations += vta::LoopCycles(i, 0);
    if (i.op == vta::Opcode::kGemm && i.reset != 0) run.resets += vta::LoopCycles(i, 0);
  }
  TW_ASSIGN(run.report, vta::RunCycles(isa, words, {}, kSeed, &dram));
  if (timeline.empty()) return run;
  TW_TRY(support::WriteFileAtomic(timeline + ".svg", vta::TimelineSvg(program.stream, run.report)));
  TW_TRY(
      support::WriteFileAtomic(timeline + ".json", vta::ChromeTrace(program.stream, run.report)));
  return run;
}

// Products are counted once for each pair of a vector and a matrix, without resets.
void Print(const std::string& layer, const char* chosen, int64_t products, const Run& run) {
  const space::MatrixTile& tile = run.tile;
  const vta::CycleReport& report = run.report;
  const auto share = [&](int64_t part) {
    return static_cast<double>(part) / static_cast<double>(report.cycles);
  };
  std::printf(
      "{\"layer\": \"%s\", \"tile\": \"%s\", \"threads\": %d, \"rows\": %d, \"width\": %d, "
      "\"columns\": %d, \"steps\": %d, \"instructions\": %d, \"cycles\": %d, "
      "\"bound\": %.4f, \"of_bound\": %.4f, \"resets\": %.4f, \"products\": %.4f, "
      "\"compute\": %.4f, \"load\": %.4f, \"store\": %.4f}\n",
      layer.c_str(), chosen, static_cast<int>(tile.threads), static_cast<int>(tile.rows),
      static_cast<int>(tile.width), static_cast<int>(tile.columns), static_cast<int>(tile.steps),
      static_cast<int>(report.counters.instructions), static_cast<int>(report.cycles),
      static_cast<double>(products) / static_cast<double>(products + run.operations),
      share(products + run.operations), share(run.resets), share(products), share(report.busy[1]),
      share(report.busy[0]), share(report.busy[2]));
}

// Calls visit for every tile that fits.
template <typename Visit>
void ForEachTile(const target::MatrixUnit& unit, const space::MatrixProblem& problem, Visit visit) {
  for (const int64_t rows : space::Divisors(problem.rows, 1, problem.rows)) {
    for (const int64_t width : space::Divisors(problem.width, 1, problem.width)) {
      for (const int64_t columns : space::Divisors(problem.columns, 1, problem.columns)) {
        for (const int64_t steps : space::Divisors(problem.steps, 1, problem.steps)) {
          for (const int64_t threads : {1, 2, 4}) {
            const space::MatrixTile tile{rows, columns, steps, threads, width};
            if (Fits(unit, problem, tile)) visit(tile);
          }
        }
      }
    }
  }
}

// A search of few trials: runs the tiles of the best estimates.
absl::StatusOr<Run> SearchTiles(const ir::Function& function, const target::Target& target) {
  const target::MatrixUnit& unit = target.machine.matrix;
  const auto problem = space::MatrixProblemOf(function, unit);
  TW_CHECK(problem.has_value());
  std::vector<std::pair<double, space::MatrixTile>> tiles;
  ForEachTile(unit, *problem, [&](const space::MatrixTile& tile) {
    tiles.emplace_back(TileCycles(unit, *problem, tile), tile);
  });
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  tiles.resize(std::min(tiles.size(), kSearched));
  std::optional<Run> best;
  for (const auto& [estimate, tile] : tiles) {
    TW_ASSIGN(Run run, RunLayer(function, target, tile, ""));
    if (!best || run.report.cycles < best->report.cycles) best = std::move(run);
  }
  TW_CHECK(best.has_value());
  return *std::move(best);
}

// Every tile that fits, by the estimate: where the default stands among them, and at which trial a
// search in this order comes to the best.
absl::Status RunTiles(const std::string& name, const ir::Function& function,
                      const target::Target& target) {
  const target::MatrixUnit& unit = target.machine.matrix;
  const auto problem = space::MatrixProblemOf(function, unit);
  TW_CHECK(problem.has_value());
  const space::MatrixTile free{.rows = 0, .columns = 0, .steps = 0, .threads = 0, .width = 0};
  const auto chosen = space::BestTile(unit, *problem, free);
  std::optional<Run> best, of_default;
  int64_t better = 0;
  std::vector<int64_t> cycles;
  std::vector<space::MatrixTile> all;
  ForEachTile(unit, *problem, [&](const space::MatrixTile& tile) { all.push_back(tile); });
  std::stable_sort(all.begin(), all.end(), [&](const auto& a, const auto& c) {
    return TileCycles(unit, *problem, a) < TileCycles(unit, *problem, c);
  });
  int64_t trials_to_best = 0;
  for (const space::MatrixTile& tile : all) {
    TW_ASSIGN(Run run, RunLayer(function, target, tile, ""));
    cycles.push_back(run.report.cycles);
    const bool is_default = chosen->rows == tile.rows && chosen->width == tile.width &&
                            chosen->columns == tile.columns && chosen->steps == tile.steps &&
                            chosen->threads == tile.threads;
    if (is_default) of_default = run;
    if (best && run.report.cycles >= best->report.cycles) continue;
    best = std::move(run);
    trials_to_best = static_cast<int64_t>(cycles.size());
  }
  TW_CHECK(best && of_default);
  for (const int64_t n : cycles) better += n < of_default->report.cycles;
  const space::MatrixTile& b = best->tile;
  std::printf(
      "{\"layer\": \"%s\", \"tiles\": %d, \"best_cycles\": %d, \"default_cycles\": %d, "
      "\"better_than_default\": %d, \"trials_to_best\": %d, \"best\": {\"rows\": %d, \"width\": "
      "%d, \"columns\": %d, "
      "\"steps\": %d, \"threads\": %d}}\n",
      name.c_str(), static_cast<int>(all.size()), static_cast<int>(best->report.cycles),
      static_cast<int>(of_default->report.cycles), static_cast<int>(better),
      static_cast<int>(trials_to_best), static_cast<int>(b.rows), static_cast<int>(b.width),
      static_cast<int>(b.columns), static_cast<int>(b.steps), static_cast<int>(b.threads));
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status RunAll(const std::string& config, const std::string& folder, const std::string& only) {
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
    if (!only.empty()) {
      if (only == layer.name) TW_TRY(RunTiles(layer.name, function, target));
      continue;
    }
    for (const int64_t threads : {1, 2}) {
      const std::string timeline =
          folder.empty() ? "" : support::PathJoin(folder, StrCat(layer.name, "_", threads));
      TW_ASSIGN(const Run run,
                RunLayer(function, target,
                         {.rows = 0, .columns = 0, .steps = 0, .threads = threads, .width = 0},
                         timeline));
      Print(layer.name, threads == 1 ? "one thread" : "default", products, run);
    }
    TW_ASSIGN(const Run found, SearchTiles(function, target));
    Print(layer.name, "search", products, found);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
  const absl::Status ran = tilewright::RunAll(argc > 1 ? argv[1] : "block16",
                                              argc > 2 ? argv[2] : "", argc > 3 ? argv[3] : "");
  if (!ran.ok()) std::fprintf(stderr, "%s\n", tilewright::support::StatusText(ran).c_str());
  return ran.ok() ? 0 : 1;
}
