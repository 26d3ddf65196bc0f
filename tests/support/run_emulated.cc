#include "tests/support/run_emulated.h"

#include <cinttypes>
#include <cstdio>
#include <string_view>
#include <utility>

#include "compiler/codegen/codegen.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/kernel_process.h"
#include "tests/support/run_compiled.h"

namespace tilewright::tests {
namespace {

constexpr std::string_view kNoCounter = "0", kCounter = "0x545743000000";

// Targets and the emulator's processors: one with exactly these features where there is one.
constexpr std::pair<std::string_view, std::string_view> kProcessors[] = {
    {"generic", "cortex-a53"},    {"cortex-a53", "cortex-a53"},   {"cortex-a72", "cortex-a72"},
    {"cortex-a76", "cortex-a76"}, {"neoverse-n1", "neoverse-n1"}, {"neoverse-v1", "max"},
    {"a64fx", "a64fx"},
};

std::string_view ProcessorOf(const target::Target& target) {
  for (const auto& [cpu, processor] : kProcessors) {
    if (target.cpu == cpu) return processor;
  }
  return "max";
}

// With a counter at that address, if there is one.
absl::StatusOr<std::string> Run(const std::string& processor, const std::string& counter,
                                const ir::Function& f, const target::Target& target,
                                const std::vector<int64_t>& sizes,
                                const std::vector<ir::TensorData*>& args) {
  TW_ASSIGN(const ir::Function flat, LowerChecked(f, target));
  TW_ASSIGN(const codegen::Artifact artifact, codegen::Generate({flat}, target));
  if (artifact.format != "elf-aarch64") {
    return support::Internal("tests.kernel.format", artifact.format);
  }
  TW_ASSIGN(const support::TempDir folder, support::TempDir::Create("tilewright-emulated"));
  TW_TRY(support::WriteFileAtomic(folder.File("kernel.so"), artifact.bytes));
  TW_TRY(SizeArguments(f, sizes, args));
  std::vector<std::string> command = {TILEWRIGHT_QEMU_AARCH64, "-L", "/usr/aarch64-linux-gnu",
                                      "-cpu", processor};
  if (counter != kNoCounter) {
    command.insert(command.end(),
                   {"-plugin", support::StrCat(TILEWRIGHT_QEMU_BOARD, ",at=", counter)});
  }
  command.insert(
      command.end(),
      {TILEWRIGHT_AARCH64_RUNNER, folder.File("kernel.so"), artifact.programs[0].calls[0].symbol,
       support::StrCat(artifact.programs[0].workspace_bytes.value()), counter});
  for (int64_t size : sizes) command.push_back(support::StrCat(size));
  return CallKernelProcess(command, f, args);
}

}  // namespace

std::vector<target::Target> EmulatedTargets() {
  const std::string emulator = TILEWRIGHT_QEMU_AARCH64, runner = TILEWRIGHT_AARCH64_RUNNER;
  if (emulator.empty() || runner.empty()) {
    fprintf(stderr, "[SKIP] aarch64: no %s here (Debian: qemu-user, gcc-aarch64-linux-gnu)\n",
            emulator.empty() ? "qemu-aarch64" : "cross compiler");
    return {};
  }
  std::vector<target::Target> targets;
  for (const auto& [cpu, processor] : kProcessors) {
    auto target = target::ParseTarget(support::StrCat("cpu,arch=aarch64,cpu=", cpu));
    TW_CHECK(target.ok()) << support::StatusText(target.status());
    targets.push_back(*std::move(target));
  }
  return targets;
}

absl::Status RunEmulated(const ir::Function& f, const target::Target& target,
                         const std::vector<int64_t>& sizes, std::vector<ir::TensorData*> args) {
  return RunEmulatedOn(std::string(ProcessorOf(target)), f, target, sizes, std::move(args));
}

absl::Status RunEmulatedOn(const std::string& processor, const ir::Function& f,
                           const target::Target& target, const std::vector<int64_t>& sizes,
                           std::vector<ir::TensorData*> args) {
  return Run(processor, std::string(kNoCounter), f, target, sizes, args).status();
}

absl::StatusOr<EmulatedCost> CountEmulated(const ir::Function& f, const target::Target& target,
                                           const std::vector<int64_t>& sizes,
                                           std::vector<ir::TensorData*> args) {
  TW_ASSIGN(const std::string text,
            Run(std::string(ProcessorOf(target)), std::string(kCounter), f, target, sizes, args));
  EmulatedCost cost;
  if (std::sscanf(text.c_str(), "%" SCNd64 " %" SCNd64, &cost.cycles, &cost.instructions) == 2) {
    return cost;
  }
  return support::Internal("tests.kernel.uncounted", text);
}

}  // namespace tilewright::tests
