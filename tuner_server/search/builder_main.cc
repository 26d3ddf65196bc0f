// tilewright-builder: the only service process that links the compiler's back end. Started by the
// tuner and by the CLI, never by hand but for --mode=sample and --mode=passes. Frames over standard
// input and output (proto/tilewright/v1/builder.proto); ends when its input ends.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <new>

#include "compiler/codegen/link_elf.h"
#include "compiler/driver/tasks.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/ir/structural.h"
#include "compiler/transform/passes.h"
#include "deploy/support/file.h"
#include "deploy/support/frame_io.h"
#include "deploy/support/process.h"
#include "deploy/support/scratch_folder.h"
#include "deploy/support/status.h"
#include "tuner_server/search/builder_client.h"
#include "tuner_server/search/builder_session.h"

namespace tilewright::search {
namespace {

constexpr size_t kMaxRequestBytes = size_t{1} << 30;
constexpr uint64_t kMaxTaskBytes = 16 << 20;

// Says it in a way that the parent understands. Allocates nothing.
[[noreturn]] void EndWithoutMemory() {
  constexpr std::string_view kText = "builder.memory: the machine gives no more memory\n";
  (void)!write(STDERR_FILENO, kText.data(), kText.size());
  _exit(kNoMemoryExitCode);
}

int Serve(const std::string& test_miscompile) {
  support::IgnoreSigpipe();
  std::set_new_handler(EndWithoutMemory);
  // Builders end by a signal when those that started them end.
  support::SweepScratchFolders(codegen::kLinkScratch);
  if (const std::string memory = support::MemoryFolder(0); !memory.empty()) {
    support::SweepScratchFolders(codegen::kLinkScratch, memory);
  }
  BuilderSession session(test_miscompile);
  while (true) {
    const auto frame = support::ReadFrame(STDIN_FILENO, kMaxRequestBytes);
    if (!frame.ok()) {
      if (support::Slug(frame.status()) == "frame.read.closed") return 0;
      std::cerr << support::StatusText(frame.status()) << "\n";
      return 1;
    }
    v1::BuilderRequest request;
    if (!request.ParseFromString(*frame)) {
      std::cerr << "builder.request.malformed: not a BuilderRequest\n";
      return 1;
    }
    const absl::Status written =
        support::WriteFrame(STDOUT_FILENO, session.Handle(request).SerializeAsString());
    if (!written.ok()) return 1;
  }
}

// Legal programs of a task's space: one line each, hash and steps.
absl::Status PrintSamples(const std::string& path, const std::string& target_text, int count,
                          uint64_t seed) {
  TW_ASSIGN(std::string text, support::ReadFile(path, kMaxTaskBytes));
  TW_ASSIGN(target::Target target, target::ParseTarget(target_text));
  TW_ASSIGN(auto variants, driver::TaskVariants(text));
  TW_ASSIGN(std::unique_ptr<Space> space, Space::Create(std::move(variants), target));
  support::Rng rng(seed);
  for (int i = 0; i < count; ++i) {
    Point point;
    if (!space->Sample(&rng, &point))
      return support::NotFound("space.empty", "no feasible point found");
    TW_ASSIGN(schedule::Schedule schedule, space->Apply(point));
    std::cout << ir::ProgramHash(schedule.function()) << "\t" << schedule::ToText(schedule.steps())
              << "\n";
  }
  return absl::OkStatus();
}

void PrintPasses() {
  std::cout << "graph passes:\n";
  for (const graph::GraphPass& pass : graph::GraphPasses()) {
    const bool optional = pass.use == graph::GraphPass::Use::kOptional;
    std::cout << "  " << pass.name
              << (optional ? " (where it is predicted to pay, or --enable-pass)" : "") << "\n";
  }
  std::cout << "tensor passes (cpu):\n";
  for (const transform::PassRow& pass : transform::CpuPipeline()) {
    std::cout << "  " << pass.name << "\n";
  }
}

int Main(int argc, char** argv) {
  CLI::App app("Compiles for the tuner and the command line; started by them.");
  std::string mode = "build", miscompile, task, target = "cpu,arch=x86_64,cpu=x86-64-v3";
  int count = 10;
  uint64_t seed = 0;
  app.add_option("--mode", mode, "search | build: serve frames; sample | passes: print and exit")
      ->check(CLI::IsMember({"search", "build", "sample", "passes"}));
  app.add_option("--test-miscompile", miscompile,
                 "plant a fault in every candidate, to prove that the check finds it (tests only)")
      ->check(CLI::IsMember({"tail", "init"}));
  app.add_option("--task", task, "file with a task's canonical text (--mode=sample)");
  app.add_option("--target", target, "target string (--mode=sample)");
  app.add_option("--count", count, "programs to print (--mode=sample)")->check(CLI::PositiveNumber);
  app.add_option("--seed", seed, "random seed (--mode=sample)");
  app.footer("Example:\n  tilewright-builder --mode=sample --task conv.task --count 5 --seed 1");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 64;
  }
  if (mode == "passes") {
    PrintPasses();
    return 0;
  }
  if (mode == "sample") {
    const absl::Status status = PrintSamples(task, target, count, seed);
    if (!status.ok()) std::cerr << support::StatusText(status) << "\n";
    return status.ok() ? 0 : 1;
  }
  return Serve(miscompile);
}

}  // namespace
}  // namespace tilewright::search

int main(int argc, char** argv) { return tilewright::search::Main(argc, argv); }
