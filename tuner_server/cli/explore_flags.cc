// Flags, help and examples of `tilewright explore`.
#include <memory>

#include "tuner_server/cli/command_flags.h"
#include "tuner_server/cli/explore_command.h"

namespace tilewright::cli {

void AddExplore(CLI::App* app, Action* action) {
  constexpr int kDefaultTrials = 64;
  auto options = std::make_shared<ExploreOptions>();
  options->job.recall = true;
  options->job.trials = kDefaultTrials;
  CLI::App* command = AddCommand(
      app, "explore", "tune a model for several configurations of a device, to choose the hardware",
      "  tilewright explore model.onnx --target DEVICE,config=small --target DEVICE,config=large\n"
      "  tilewright explore model.onnx --target DEVICE,config=small --target DEVICE,config=large "
      "--trials 200 --svg design.svg -o json\n"
      "  tilewright explore model.onnx --target DEVICE,config=small --synthesise "
      "./synthesise --synthesis-minutes 60\n"
      "  tilewright explore model.onnx --target DEVICE,config=small --target DEVICE,config=large "
      "--cells synthesis.json\n"
      "\nDEVICE is a kind whose targets have configurations: see 'tilewright targets'.\n"
      "Prints what each configuration gives (the values of all kernels that run on the device,\n"
      "by default schedules and tuned) against what it costs: memory on the chip, and cells by\n"
      "the program of --synthesise, or by the file of --cells where there is none or it does not\n"
      "end in time; the output says which. Kernels that the processor next to the device runs are\n"
      "not counted; compare configurations that run equally many on the device.\n"
      "A tracker, a tuner and an agent run on this machine as long as the command. Values are\n"
      "kept in the log: the same command continues where the last one ended.\n");
  command->add_option("MODEL", options->job.model_path, "ONNX file")->required();
  command->add_option("--target", options->targets, "a configuration; repeatable, all of one kind")
      ->required()
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--trials", options->job.trials,
                   "measured candidates for each target, all kernels together")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  command->add_option("--seed", options->job.seed, "seed of the searches")->capture_default_str();
  AddModelSizes(command, &options->job.sizes);
  AddOperatorFiles(command, &options->job.operators);
  command->add_option("--device", options->device,
                      "the device to measure on, by its index or its name (default: the first)");
  command->add_option("--cells", options->cells_path,
                      "JSON file {CONFIGURATION: {\"cells\": N, \"block_ram\": N}, ...}, also as\n"
                      "member \"synthesis\" of an object");
  command->add_option("--synthesise", options->synthesise_path,
                      "program that synthesises a configuration: PROGRAM --json NAME prints\n"
                      "{\"cells\": N, \"block_ram\": N} or {\"error\": WHY}\n"
                      "(deploy/docs/engineer.md)");
  command
      ->add_option("--synthesis-minutes", options->synthesis_minutes,
                   "the longest that one configuration may take")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  command->add_option("--svg", options->svg_path,
                      "file that gets a picture: values against on-chip memory");
  command->add_option("--log", options->log_path,
                      "tuning log (SQLite) to keep the measurements in");
  command->add_option("--state-dir", options->state_dir,
                      "folder of the services (default: as tune has it)");
  AddFormat(command, kOutputFlag, &options->format);
  command->callback([=] { *action = [options] { return Explore(*options); }; });
}

}  // namespace tilewright::cli
