// What a module's programs do on the accelerator, by the cycle model: when load, compute and store
// worked, as pictures and for Chrome's trace viewer; and how much of the peak each program reaches,
// as a roofline of all of them (roofline.svg). Cycles do not depend on data, so memory is zeros.
// Prints a line of JSON for each program.
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/module/module_file.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/svg_chart.h"
#include "vta/isa/code_object.h"
#include "vta/sim/cycle_model.h"
#include "vta/sim/stream_cycles.h"
#include "vta/sim/timeline.h"

namespace tilewright {
namespace {

constexpr uint64_t kSeed = 1;
constexpr char kUsage[] =
    "vta_timeline MODULE.tw FOLDER\n\n"
    "Writes PROGRAM.svg and PROGRAM.json (chrome://tracing, ui.perfetto.dev) for each program of "
    "the\n"
    "accelerator in a module, and roofline.svg for all of them. Prints a line of JSON for each.\n\n"
    "Examples:\n"
    "  tilewright compile model.int8.onnx --target vta,config=block16 -o model.tw\n"
    "  vta_timeline model.tw pictures\n";

// One program in the roofline: products of an element and a matrix, by bytes of DRAM, by cycle.
struct RooflinePoint {
  std::string program;
  double per_byte = 0, per_cycle = 0;
};

// The peak is a product a cycle; below it, what DRAM brings at its rate.
absl::Status DrawRoofline(const std::vector<RooflinePoint>& points, const std::string& folder) {
  constexpr double kMostPerByte = 64;
  const auto rate = static_cast<double>(vta::CycleTiming().bytes_per_beat);
  cli::ChartSeries peak{.name = "roof", .points = {}}, found{.name = "programs", .points = {}};
  double least = 1 / rate;
  for (const RooflinePoint& p : points) {
    least = std::min(least, p.per_byte);
    found.points.push_back(
        {p.per_byte, p.per_cycle,
         support::StrCat(p.program, ": ", static_cast<int>(100 * p.per_cycle), " % of the peak"),
         ""});
  }
  found.line = false;
  peak.points = {{least, least * rate}, {1 / rate, 1}, {kMostPerByte, 1}};
  return support::WriteFileAtomic(
      support::PathJoin(folder, "roofline.svg"),
      cli::ChartFile({.x_label = "products (of a vector and a matrix) per byte of DRAM",
                      .y_label = "products per cycle",
                      .log_x = true,
                      .log_y = true,
                      .series = {std::move(peak), std::move(found)}}));
}

absl::Status Draw(const vta::Isa& isa, const vta::Program& program, const std::string& folder,
                  std::vector<RooflinePoint>* points) {
  TW_ASSIGN(const std::vector<vta::Word128> words, program.Encoded(isa));
  TW_ASSIGN(std::vector<uint8_t> dram, program.Image(isa));
  TW_ASSIGN(const vta::CycleReport report, vta::RunCycles(isa, words, {}, kSeed, &dram));
  const std::string path = support::PathJoin(folder, program.name);
  TW_TRY(support::WriteFileAtomic(path + ".svg", vta::TimelineSvg(program.stream, report)));
  TW_TRY(support::WriteFileAtomic(path + ".json", vta::ChromeTrace(program.stream, report)));
  const auto share = [&](int64_t part) {
    return static_cast<double>(part) / static_cast<double>(report.cycles);
  };
  int64_t products = 0;
  for (const vta::Instruction& i : program.stream) {
    if (i.op == vta::Opcode::kGemm && i.reset == 0) products += vta::LoopCycles(i, 0);
  }
  const int64_t bytes =
      (report.read_beats + report.write_beats) * vta::CycleTiming().bytes_per_beat;
  points->push_back(
      {program.name, static_cast<double>(products) / static_cast<double>(bytes), share(products)});
  std::printf(
      "{\"program\": \"%s\", \"cycles\": %lld, \"instructions\": %lld, \"products\": %.4f, "
      "\"products_per_byte\": %.4f, \"compute\": %.4f, \"load\": %.4f, \"store\": %.4f}\n",
      program.name.c_str(), static_cast<long long>(report.cycles),
      static_cast<long long>(report.counters.instructions), share(products),
      points->back().per_byte, share(report.busy[1]), share(report.busy[0]), share(report.busy[2]));
  return absl::OkStatus();
}

absl::Status DrawAll(const std::string& path, const std::string& folder) {
  TW_ASSIGN(const module::ModuleFile file, module::ModuleFile::Open(path));
  TW_TRY(support::MakeDirs(folder));
  std::vector<RooflinePoint> points;
  for (size_t i = 0; i < file.num_code(); ++i) {
    if (file.manifest().code[i].format != vta::kCodeFormat) continue;
    TW_ASSIGN(const vta::CodeObject code, vta::ParseCode(file.code(i)));
    TW_ASSIGN(const vta::Isa isa, vta::Isa::Make(code.config));
    for (const vta::Program& program : code.programs) {
      TW_TRY(Draw(isa, program, folder, &points));
    }
  }
  if (!points.empty()) return DrawRoofline(points, folder);
  return support::NotFound("bench.timeline.none",
                           support::StrCat("expected code of the accelerator in ", path));
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
  const bool asked = argc == 2 && std::string_view(argv[1]) == "--help";
  if (argc != 3) {
    std::fputs(tilewright::kUsage, asked ? stdout : stderr);
    return asked ? 0 : 2;
  }
  const absl::Status drawn = tilewright::DrawAll(argv[1], argv[2]);
  if (!drawn.ok()) std::fprintf(stderr, "%s\n", tilewright::support::StatusText(drawn).c_str());
  return drawn.ok() ? 0 : 1;
}
