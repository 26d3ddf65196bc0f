#include "tests/support/run_wasm.h"

#include <cstdio>

#include "compiler/codegen/codegen.h"
#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/kernel_process.h"
#include "tests/support/run_compiled.h"

namespace tilewright::tests {
namespace {

// Node.js 20 has the relaxed instructions behind this flag, older ones other instructions.
constexpr char kRelaxedFlag[] = "--experimental-wasm-relaxed-simd";
constexpr int64_t kProbeMs = 20'000;

bool HasRelaxedInstructions() {
  support::ChildOptions options;
  options.program = TILEWRIGHT_NODE;
  options.args = {kRelaxedFlag, "--input-type=module", "-e",
                  support::StrCat("import { engineFeatures } from '", TILEWRIGHT_JAVASCRIPT,
                                  "/code.js'; process.exit(engineFeatures().includes("
                                  "'relaxed_simd') ? 0 : 1)")};
  const auto ran = support::RunCommand(options, "", kProbeMs);
  return ran.ok() && ran->status.ok();
}

absl::StatusOr<std::string> Run(const ir::Function& f, const target::Target& target, int calls,
                                const std::vector<int64_t>& sizes,
                                const std::vector<ir::TensorData*>& args) {
  TW_ASSIGN(const ir::Function flat, LowerChecked(f, target));
  TW_ASSIGN(const codegen::Artifact artifact, codegen::Generate({flat}, target));
  TW_ASSIGN(const support::TempDir folder, support::TempDir::Create("tilewright-wasm"));
  TW_TRY(support::WriteFileAtomic(folder.File("kernel.wasm"), artifact.bytes));
  TW_TRY(SizeArguments(f, sizes, args));
  const support::Dim& workspace = artifact.programs[0].workspace_bytes;
  support::Sizes named;
  for (size_t i = 0; i < sizes.size(); ++i) named[flat.size_params[i]->name] = sizes[i];
  TW_ASSIGN(const int64_t workspace_bytes, workspace.Evaluate(named));
  std::vector<std::string> command = {TILEWRIGHT_NODE};
  if (target.machine.Has("relaxed_simd")) command.push_back(kRelaxedFlag);
  command.insert(command.end(), {TILEWRIGHT_WASM_RUNNER, folder.File("kernel.wasm"),
                                 artifact.programs[0].calls[0].symbol,
                                 support::StrCat(workspace_bytes), support::StrCat(calls)});
  for (const int64_t size : sizes) command.push_back(support::StrCat(size));
  return CallKernelProcess(command, f, args);
}

}  // namespace

std::vector<target::Target> WasmTargets() {
  if (std::string(TILEWRIGHT_NODE).empty()) {
    fprintf(stderr, "[SKIP] WebAssembly: no Node.js here (Debian: nodejs)\n");
    return {};
  }
  std::vector<target::Target> targets = {*target::ParseTarget("wasm")};
  if (HasRelaxedInstructions()) targets.push_back(*target::ParseTarget("wasm,cpu=relaxed_simd"));
  return targets;
}

absl::Status RunWasm(const ir::Function& f, const target::Target& target,
                     const std::vector<int64_t>& sizes, std::vector<ir::TensorData*> args) {
  return Run(f, target, 0, sizes, args).status();
}

absl::StatusOr<double> TimeWasm(const ir::Function& f, const target::Target& target, int calls,
                                std::vector<ir::TensorData*> args) {
  TW_ASSIGN(const std::string text, Run(f, target, calls, {}, args));
  double best = 0;
  if (std::sscanf(text.c_str(), "%lf", &best) == 1) return best;
  return support::Internal("tests.kernel.untimed", text);
}

}  // namespace tilewright::tests
