// Flags, help and examples of `tilewright bench`.
#include <memory>

#include "tuner_server/cli/bench_command.h"
#include "tuner_server/cli/command_flags.h"

namespace tilewright::cli {
namespace {

void AddBenchDiff(CLI::App* group, Action* action) {
  auto options = std::make_shared<BenchDiffOptions>();
  CLI::App* command = AddCommand(
      group, "diff", "which of two modules of a model is faster here, and where",
      "  tilewright bench diff default.tw tuned.tw --profile\n"
      "  tilewright bench diff released.tw new.tw --at-least 0.98 -o json\n"
      "\nBoth run in this process in turns (A B B A), on the same inputs, so that what disturbs\n"
      "the machine disturbs both. The ratio is the median over all turns, with the interval that\n"
      "holds the true median with 95 % probability. Both modules run with all your rights.\n"
      "Exit code 5: B is certainly slower than --at-least allows.\n");
  command->add_option("A", options->a_path, "module (.tw)")->required();
  command->add_option("B", options->b_path, "module (.tw) of the same model")->required();
  command->add_option("--seconds", options->seconds, "how long they race")
      ->check(CLI::Range(0.0, 86'400.0))
      ->capture_default_str();
  command
      ->add_option("--at-least", options->at_least,
                   "fail (5) if B surely has less than so many times A's speed")
      ->check(CLI::PositiveNumber);
  command->add_flag("--profile", options->profile, "their kernels side by side");
  AddInputs(command, &options->inputs);
  AddSizes(command, &options->shapes);
  AddInputSeed(command, &options->seed);
  command->add_option("--threads", options->threads, "threads (default: each module's target)")
      ->check(CLI::Range(1, 1024));
  AddFormat(command, kOutputFlag, &options->format);
  command->callback([=] { *action = [options] { return BenchDiff(*options); }; });
}

}  // namespace

void AddBench(CLI::App* app, Action* action) {
  CLI::App* group = AddGroup(app, "bench", "race modules against each other",
                             "  tilewright bench diff default.tw tuned.tw --profile\n");
  AddBenchDiff(group, action);
}

}  // namespace tilewright::cli
