// Timelines of a module's programs for the accelerator: when load, compute and store worked on the
// cycle model, as pictures and for Chrome's trace viewer. Cycles do not depend on data, so memory
// is zeros. Prints a line of JSON for each program.
//   vta_timeline MODULE.tw FOLDER
#include <cstdio>
#include <string>
#include <vector>

#include "deploy/module/module_file.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/isa/code_object.h"
#include "vta/sim/cycle_model.h"
#include "vta/sim/timeline.h"

namespace tilewright {
namespace {

constexpr uint64_t kSeed = 1;

absl::Status Draw(const vta::Isa& isa, const vta::Program& program, const std::string& folder) {
  TW_ASSIGN(const std::vector<vta::Word128> words, program.Encoded(isa));
  TW_ASSIGN(std::vector<uint8_t> dram, program.Image(isa));
  TW_ASSIGN(const vta::CycleReport report, vta::RunCycles(isa, words, {}, kSeed, &dram));
  const std::string path = support::PathJoin(folder, program.name);
  TW_TRY(support::WriteFileAtomic(path + ".svg", vta::TimelineSvg(program.stream, report)));
  TW_TRY(support::WriteFileAtomic(path + ".json", vta::ChromeTrace(program.stream, report)));
  const auto share = [&](int64_t part) {
    return static_cast<double>(part) / static_cast<double>(report.cycles);
  };
  std::printf(
      "{\"program\": \"%s\", \"cycles\": %lld, \"instructions\": %lld, \"compute\": %.4f, "
      "\"load\": %.4f, \"store\": %.4f}\n",
      program.name.c_str(), static_cast<long long>(report.cycles),
      static_cast<long long>(report.counters.instructions), share(report.busy[1]),
      share(report.busy[0]), share(report.busy[2]));
  return absl::OkStatus();
}

absl::Status DrawAll(const std::string& path, const std::string& folder) {
  TW_ASSIGN(const module::ModuleFile file, module::ModuleFile::Open(path));
  TW_TRY(support::MakeDirs(folder));
  int64_t programs = 0;
  for (size_t i = 0; i < file.num_code(); ++i) {
    if (file.manifest().code[i].format != vta::kCodeFormat) continue;
    TW_ASSIGN(const vta::CodeObject code, vta::ParseCode(file.code(i)));
    TW_ASSIGN(const vta::Isa isa, vta::Isa::Make(code.config));
    for (const vta::Program& program : code.programs) {
      TW_TRY(Draw(isa, program, folder));
      ++programs;
    }
  }
  if (programs > 0) return absl::OkStatus();
  return support::NotFound("bench.timeline.none",
                           support::StrCat("expected code of the accelerator in ", path));
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "vta_timeline MODULE.tw FOLDER\n");
    return 2;
  }
  const absl::Status drawn = tilewright::DrawAll(argv[1], argv[2]);
  if (!drawn.ok()) std::fprintf(stderr, "%s\n", tilewright::support::StatusText(drawn).c_str());
  return drawn.ok() ? 0 : 1;
}
