// How much of the accelerator's time its products take: convolutions by their default schedules,
// with and without more virtual threads, which hide loads and stores; then the best of the tiles
// that the estimate likes most. Cycles are those of the cycle model, and with --rtl also those of
// the RTL. Prints a line of JSON for each. At best, products take products / (products +
// operations) of the time: `bound`, where operations are those of the bias, relu and
// requantisation. `of_bound` is the part of it that is reached; sums that are set to zero, loads,
// stores and what waits for them are what is missing. `reads` is the share of cycles in which DRAM
// brings something, `least_reads` the same if it brought each operand once. `fill`,
// `operand_loads`, `waits` and `drain` are the shares of Idle.
//   vta_layers [--config NAME] [--rtl] [--timelines FOLDER] [--tiles | --interpreter]
//              [LAYER ...]
//     --config: block16 (default), block8, block32
//     --rtl: runs on the RTL too; results are those of the simulators, bit for bit, or it fails
//     --timelines: a timeline of each layer, as a picture and for Chrome's trace viewer
//     --tiles: runs every tile that fits instead, and prints the best and the default
//     --interpreter: runs the default program on random operands on both simulators instead, and
//       the layer's function, unscheduled, by the interpreter: the results are the same, bit for
//       bit, or it fails
//     LAYER: names of FindLayer (layers.h); default: ResNet-18's, C2 to C12
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/bench/vta_layer_run.h"
#include "vta/sim/timeline.h"

namespace tilewright::bench {
namespace {

using support::StrCat;

// What the bound stands on: bias (a load of operands and a sum), relu and requantisation.
constexpr int64_t kEpilogueCycles = 5;
constexpr size_t kSearched = 16;  // tiles of a layer
// Everything is chosen.
constexpr space::MatrixTile kFree{.rows = 0, .columns = 0, .steps = 0, .threads = 0, .width = 0};

struct Options {
  std::string config = "block16", timelines;
  bool rtl = false, tiles = false, interpreter = false;
  std::vector<std::string> layers;
};

long long Int(int64_t n) { return n; }

absl::Status Draw(const VtaProgram& program, const vta::CycleReport& report,
                  const std::string& path) {
  const auto& stream = program.code.programs.at(0).stream;
  TW_TRY(support::WriteFileAtomic(path + ".svg", vta::TimelineSvg(stream, report)));
  return support::WriteFileAtomic(path + ".json", vta::ChromeTrace(stream, report));
}

// Cycles in which compute neither multiplies nor operates. Those of `loads` and `waits` are between
// the first product and the last operation.
struct Idle {
  int64_t fill = 0;   // before the first product
  int64_t loads = 0;  // while compute loads biases, multipliers and micro-ops
  int64_t waits = 0;  // while it waits for load and store
  int64_t drain = 0;  // after the last operation: the last store
};
Idle IdleOf(const std::vector<vta::Instruction>& stream, const vta::CycleReport& report) {
  Idle idle;
  int64_t last = 0;  // the end of the instruction before; 0: no product has begun
  for (const vta::StageSpan& span : report.trace) {
    if (span.module != vta::Module::kCompute) continue;
    const vta::Opcode op = stream[span.instruction].op;
    if (op == vta::Opcode::kFinish || (last == 0 && op == vta::Opcode::kLoad)) continue;
    (last == 0 ? idle.fill : idle.waits) += span.start - last;
    if (op == vta::Opcode::kLoad) idle.loads += span.end - span.start;
    last = span.end;
  }
  idle.drain = report.cycles - last;
  return idle;
}

// Runs a program and prints its row. `timeline`: a path without an ending; empty: no timeline.
absl::Status Measure(const VtaLayer& layer, const char* chosen, const VtaProgram& program, bool rtl,
                     const std::string& timeline) {
  if (program.operations != kEpilogueCycles * layer.outputs) {
    return support::Internal("bench.epilogue",
                             StrCat(layer.name, ": expected ", kEpilogueCycles,
                                    " cycles of operations for each vector, found ",
                                    program.operations, " for ", layer.outputs));
  }
  TW_ASSIGN(const vta::CycleReport report, RunOnModel(program));
  const Idle idle = IdleOf(program.code.programs.at(0).stream, report);
  const space::MatrixTile& tile = program.tile;
  const int64_t work = layer.products + program.operations;
  const auto share = [&](int64_t part) {
    return static_cast<double>(part) / static_cast<double>(report.cycles);
  };
  std::printf(
      "{\"layer\": \"%s\", \"tile\": \"%s\", \"threads\": %lld, \"rows\": %lld, \"width\": %lld, "
      "\"columns\": %lld, \"steps\": %lld, \"instructions\": %lld, \"cycles\": %lld, "
      "\"bound\": %.4f, \"of_bound\": %.4f, \"resets\": %.4f, \"products\": %.4f, "
      "\"compute\": %.4f, \"load\": %.4f, \"store\": %.4f, \"reads\": %.4f, "
      "\"least_reads\": %.4f, \"fill\": %.4f, \"operand_loads\": %.4f, \"waits\": %.4f, "
      "\"drain\": %.4f",
      layer.name.c_str(), chosen, Int(tile.threads), Int(tile.rows), Int(tile.width),
      Int(tile.columns), Int(tile.steps), Int(report.counters.instructions), Int(report.cycles),
      static_cast<double>(layer.products) / static_cast<double>(work), share(work),
      share(program.resets), share(layer.products), share(report.busy[1]), share(report.busy[0]),
      share(report.busy[2]), share(report.read_beats),
      share(program.operand_bytes / vta::CycleTiming().bytes_per_beat), share(idle.fill),
      share(idle.loads), share(idle.waits), share(idle.drain));
  if (rtl) {
    TW_ASSIGN(const RtlRun real, RunOnRtl(program));
    std::printf(", \"rtl_cycles\": %lld, \"rtl_seconds\": %.2f", Int(real.cycles), real.seconds);
  }
  std::printf("}\n");
  std::fflush(stdout);
  return timeline.empty() ? absl::OkStatus() : Draw(program, report, timeline);
}

struct TilesRun {
  std::vector<int64_t> cycles;  // of each tile, in the order of the estimates
  std::optional<VtaProgram> best;
  size_t best_at = 0;
};
absl::StatusOr<TilesRun> RunTiles(const VtaLayer& layer, const target::Target& target,
                                  size_t most) {
  const target::MatrixUnit& unit = target.machine.matrix;
  std::vector<space::MatrixTile> tiles =
      space::TilesByEstimate(unit, *space::MatrixProblemOf(layer.function, unit));
  tiles.resize(std::min(tiles.size(), most));
  TilesRun run;
  for (const space::MatrixTile& tile : tiles) {
    TW_ASSIGN(VtaProgram program, CompileTile(layer, target, tile));
    TW_ASSIGN(const vta::CycleReport report, RunOnModel(program));
    run.cycles.push_back(report.cycles);
    if (run.best.has_value() && report.cycles >= run.cycles[run.best_at]) continue;
    run.best = std::move(program);
    run.best_at = run.cycles.size() - 1;
  }
  if (run.best.has_value()) return run;
  return support::NotFound("bench.tile", "no tile fits the memories");
}

// Where the default is among all tiles, and at which trial a search by the estimate comes to the
// best.
absl::Status PrintOptimum(const VtaLayer& layer, const target::Target& target) {
  TW_ASSIGN(const TilesRun all, RunTiles(layer, target, SIZE_MAX));
  TW_ASSIGN(const VtaProgram chosen, CompileTile(layer, target, kFree));
  TW_ASSIGN(const vta::CycleReport report, RunOnModel(chosen));
  const auto better = std::count_if(all.cycles.begin(), all.cycles.end(),
                                    [&](int64_t n) { return n < report.cycles; });
  const space::MatrixTile& best = all.best->tile;
  std::printf(
      "{\"layer\": \"%s\", \"tiles\": %zu, \"best_cycles\": %lld, \"default_cycles\": %lld, "
      "\"better_than_default\": %lld, \"trials_to_best\": %zu, \"best\": {\"rows\": %lld, "
      "\"width\": %lld, \"columns\": %lld, \"steps\": %lld, \"threads\": %lld}}\n",
      layer.name.c_str(), all.cycles.size(), Int(all.cycles[all.best_at]), Int(report.cycles),
      Int(better), all.best_at + 1, Int(best.rows), Int(best.width), Int(best.columns),
      Int(best.steps), Int(best.threads));
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status PrintComparison(const VtaLayer& layer, const target::Target& target) {
  TW_ASSIGN(const VtaProgram program, CompileTile(layer, target, kFree));
  TW_ASSIGN(const int64_t bytes, CompareWithInterpreter(layer, program));
  std::printf("{\"layer\": \"%s\", \"equal_bytes\": %lld}\n", layer.name.c_str(), Int(bytes));
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status RunLayer(const VtaLayer& layer, const target::Target& target, const Options& options) {
  if (options.tiles) return PrintOptimum(layer, target);
  if (options.interpreter) return PrintComparison(layer, target);
  for (const bool hides : {false, true}) {
    space::MatrixTile given = kFree;
    if (!hides) given.threads = 1;
    TW_ASSIGN(const VtaProgram program, CompileTile(layer, target, given));
    const std::string timeline =
        options.timelines.empty()
            ? ""
            : support::PathJoin(options.timelines, StrCat(layer.name, "_", program.tile.threads));
    TW_TRY(Measure(layer, hides ? "default" : "one thread", program, options.rtl, timeline));
  }
  TW_ASSIGN(const TilesRun found, RunTiles(layer, target, kSearched));
  return Measure(layer, "search", *found.best, options.rtl, "");
}

absl::Status RunAll(const Options& options) {
  TW_ASSIGN(const target::Target target, target::ParseTarget("vta,config=" + options.config));
  if (!options.timelines.empty()) TW_TRY(support::MakeDirs(options.timelines));
  for (const std::string& name : options.layers) {
    TW_ASSIGN(const VtaLayer layer, MakeVtaLayer(name, target.machine.matrix.block));
    TW_TRY(RunLayer(layer, target, options));
  }
  return absl::OkStatus();
}

Options ParseFlags(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--config" && i + 1 < argc) {
      options.config = argv[++i];
    } else if (flag == "--timelines" && i + 1 < argc) {
      options.timelines = argv[++i];
    } else if (flag == "--rtl") {
      options.rtl = true;
    } else if (flag == "--interpreter") {
      options.interpreter = true;
    } else if (flag == "--tiles") {
      options.tiles = true;
    } else {
      options.layers.emplace_back(flag);
    }
  }
  if (!options.layers.empty()) return options;
  for (int n = 2; n <= 12; ++n) options.layers.push_back(StrCat("C", n));
  return options;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) {
  const absl::Status ran = tilewright::bench::RunAll(tilewright::bench::ParseFlags(argc, argv));
  if (!ran.ok()) std::fprintf(stderr, "%s\n", tilewright::support::StatusText(ran).c_str());
  return ran.ok() ? 0 : 1;
}
