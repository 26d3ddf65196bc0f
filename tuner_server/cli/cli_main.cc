// tilewright: the command line. This file and *_flags.cc are the only ones that see CLI11: one
// function per group of commands declares flags, help and examples, and says which function of the
// library runs.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "deploy/support/process.h"
#include "deploy/support/version.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/command_flags.h"
#include "tuner_server/cli/compile_command.h"
#include "tuner_server/cli/device_commands.h"
#include "tuner_server/cli/job_commands.h"
#include "tuner_server/cli/own_process.h"
#include "tuner_server/cli/run_command.h"
#include "tuner_server/cli/targets_command.h"
#include "tuner_server/cli/tune_command.h"
#include "tuner_server/log/cost_models.h"
#include "tuner_server/search/search_parts.h"

namespace tilewright::cli {

CLI::App* AddCommand(CLI::App* parent, const std::string& name, const std::string& what,
                     const std::string& examples) {
  CLI::App* command = parent->add_subcommand(name, what);
  command->footer("\nExamples:\n" + examples);
  return command;
}

CLI::App* AddGroup(CLI::App* parent, const std::string& name, const std::string& what,
                   const std::string& examples) {
  CLI::App* group = AddCommand(parent, name, what, examples);
  group->require_subcommand(1);
  return group;
}

void AddFormat(CLI::App* command, const std::string& flag, OutputFormat* format) {
  command
      ->add_option_function<std::string>(
          flag,
          [format](const std::string& text) {
            *format = text == "json" ? OutputFormat::kJson : OutputFormat::kTable;
          },
          "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->default_str("table");
}

void AddInputs(CLI::App* command, std::vector<std::string>* inputs) {
  command
      ->add_option("--input", *inputs,
                   "NAME=FILE, ONNX TensorProto (.pb) or NumPy (.npy); repeatable; inputs that are "
                   "not given are drawn from --seed")
      ->allow_extra_args(false)
      ->take_all();
}

void AddSizes(CLI::App* command, std::vector<std::string>* shapes) {
  command
      ->add_option("--shape", *shapes,
                   "N=7, the size of a variable of a module of open sizes, for inputs that are not "
                   "given (default: the smallest); repeatable")
      ->allow_extra_args(false)
      ->take_all();
}

void AddModelSizes(CLI::App* command, SizeFlags* flags) {
  command
      ->add_option(
          "--shape", flags->shapes,
          "input shape NAME=1x3x224x224, or a dimension by its name: NAME=8, or NAME=1..64\n"
          "where it stays open and each run decides; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--specialise", flags->specialise,
                   "sizes of open dimensions for which the module has kernels of their own, as\n"
                   "fast as those of a module of these sizes; others take the kernels of all\n"
                   "sizes. NAME=1,8,32 is three points; NAME=1,8,OTHER=128 combines each with\n"
                   "each; a dimension without a number stays open; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option(
          "--state", flags->states,
          "an input that the module keeps from run to run, with the output that continues\n"
          "it: PAST=PRESENT, or known for past_key_values.N.key and present.N.key;\n"
          "its length is open from 0 on (--shape past_sequence_length=0..512)")
      ->allow_extra_args(false)
      ->take_all();
}

void AddOperatorFiles(CLI::App* command, std::vector<std::string>* files) {
  command
      ->add_option("--operators", *files,
                   "file with definitions of custom operators that the model has; repeatable\n"
                   "(deploy/docs/custom_operators.md)")
      ->allow_extra_args(false)
      ->take_all();
}

CLI::Option* AddLibraries(CLI::App* command, std::vector<std::string>* libraries) {
  return command
      ->add_option("--allow-library", *libraries,
                   "path of a shared library whose functions the module may call, if it asks for\n"
                   "its file name (external kernels); loaded with all your rights; repeatable")
      ->allow_extra_args(false)
      ->take_all();
}

void AddInputSeed(CLI::App* command, uint64_t* seed) {
  command->add_option("--seed", *seed, "seed of the inputs that are not given")
      ->capture_default_str();
}

void AddServer(CLI::App* command, ServerPlace* server) {
  command->add_option("--server", server->address,
                      "HOST:PORT of tilewright-tuner (default: environment TILEWRIGHT_SERVER)");
  command->add_option("--identity", server->identity,
                      "folder with certificate and token, for a server with TLS (default: "
                      "environment TILEWRIGHT_IDENTITY; TILEWRIGHT_TOKEN replaces its token)");
}

namespace {

void AddCompile(CLI::App* app, Action* action) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App* command = AddCommand(
      app, "compile", "compile an ONNX model to a module",
      "  tilewright compile model.onnx --target native -o model.tw\n"
      "  tilewright compile model.onnx --target cpu,arch=x86_64,cpu=znver4,threads=2 --log "
      "tuner.db --require-tuned 95\n"
      "  tilewright compile model.onnx --target native --shape input=1x3x224x224 --dump-ir ir/\n"
      "  tilewright compile model.onnx --target native --shape batch=1..32\n"
      "  tilewright compile model.onnx --target native --shape batch=1..32 --specialise batch=1,8\n"
      "  tilewright compile model.onnx --target native --shape batch=1..8 --shape seq=1..512 "
      "--specialise batch=1,8,seq=128 --specialise batch=1\n"
      "  tilewright compile model.onnx --target native --max-ram 64MiB\n"
      "  tilewright compile model.onnx --target native --operators acme.ops\n"
      "  tilewright compile decoder.onnx --target native --shape past=0..512 --state known\n");
  CLI::Option* model = command->add_option("MODEL", options->model_path, "ONNX file");
  CLI::Option* target =
      command->add_option("--target", options->target, "target, see 'tilewright targets'");
  command->add_option("-o,--output", options->output,
                      "module to write (default: the model's name with .tw, in this folder)");
  command->add_option("--log", options->log_path,
                      "tuning log (SQLite): the best measured schedule of each kernel is used");
  command->add_option("--device-class", options->device_class,
                      "whose records to use (default: the class that knows most kernels)");
  AddModelSizes(command, &options->sizes);
  AddOperatorFiles(command, &options->operators);
  command
      ->add_option("--effort", options->effort_s,
                   "seconds in which the cost model chooses schedules of kernels that were\n"
                   "never measured, and again for each point of --specialise; 0: default\n"
                   "schedules")
      ->check(CLI::Range(0.0, 86'400.0))
      ->capture_default_str();
  command
      ->add_option("--require-tuned", options->require_tuned,
                   "fail (1) with a table of misses unless the kernels with a measured schedule\n"
                   "take at least this percentage of the time; the time of others is estimated")
      ->check(CLI::Range(0.0, 100.0));
  command
      ->add_option("--max-ram", options->max_ram,
                   "refuse (1) a module whose weights, arena, workspace, inputs, outputs and code\n"
                   "take more memory: bytes, or 512KiB, 64MiB, 2GiB")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  command->add_option("--dump-ir", options->dump_dir,
                      "folder that gets each kernel's IR after each pass, and why it has its "
                      "default schedule");
  command
      ->add_option("--disable-pass", options->disabled_passes,
                   "leave out this graph pass, see --print-passes; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--enable-pass", options->enabled_passes,
                   "run this optional graph pass even if no gain is expected, see\n"
                   "--print-passes; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  command->add_flag("--print-passes", options->print_passes,
                    "print the passes in order (alone: without a model)");
  AddFormat(command, kFormatFlag, &options->format);
  command->callback([=] {
    if (model->empty() && !options->print_passes) throw CLI::RequiredError("MODEL");
    if (!model->empty() && target->empty()) throw CLI::RequiredError("--target");
    *action = [options] {
      // An interrupt then leaves nothing in the folder for temporary files.
      const std::string what = "cannot compile " + options->model_path;
      return RunInOwnProcess({"compile", what, "tilewright-compile", "cli.process.crashed"},
                             [options](const StepSink&) { return CompileModel(*options); });
    };
  });
}

void AddRun(CLI::App* app, Action* action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = AddCommand(
      app, "run", "run a module on this machine: check its output, time it",
      "  tilewright run model.tw --repeat 100 --profile\n"
      "  tilewright run model.tw --input x=input_0.pb --expect y=output_0.pb --rtol 1e-4\n"
      "  tilewright run model.tw --input x=image.npy --output-dir out --output-format npy\n"
      "  tilewright run dynamic.tw --shape N=7\n"
      "  tilewright run model.tw --profile -o json\n"
      "  tilewright run model.tw --trace model.trace.json\n"
      "  tilewright run model.tw --html layers.html\n"
      "  tilewright run model.tw --timeline pictures\n"
      "  tilewright run model.tw --key release.key.pub\n"
      "  tilewright run unknown.tw --sandbox\n"
      "  tilewright run board.tw --bridge \"ssh -T board exec ./tilewright-worker\"\n"
      "\nA module is a program: its code runs on this machine with all your rights, as soon as it\n"
      "is loaded. Its digests find damage, they say nothing about who made it. Run only modules\n"
      "that you compiled, or whose release is checked with --key before anything is loaded. With\n"
      "--sandbox the code runs in a process that is confined as on devices (tilewright-worker).\n"
      "Its outputs and times are then what the code says.\n");
  command->add_option("MODULE", options->module_path, "module (.tw)")->required();
  command->add_option("--key", options->key,
                      "public key that must have signed the module (default: environment "
                      "TILEWRIGHT_MODULE_KEY); any other module is refused (exit code 5)");
  command->add_option("--signature", options->signature,
                      "with --key: the detached signature (default: MODULE.sig)");
  command->add_flag("--sandbox", options->sandbox,
                    "run the module's code in a process without network, other processes and "
                    "files to write; refused where this machine cannot confine it");
  command
      ->add_option("--bridge", options->bridge,
                   "shell command that runs tilewright-worker on a board, with the worker's "
                   "standard input and output: the module runs there, confined as with --sandbox "
                   "(deploy/ops/boards)")
      ->excludes("--sandbox");
  command->add_flag("--allow-weak-sandbox", options->allow_weak_sandbox,
                    "with --sandbox or --bridge: run it also where the machine (a container, an "
                    "old kernel) permits a part of the sandbox only; behind a bridge, also where "
                    "it has none (an emulator)");
  AddLibraries(command, &options->libraries)->excludes("--sandbox")->excludes("--bridge");
  AddInputs(command, &options->inputs);
  AddSizes(command, &options->shapes);
  command
      ->add_option("--expect", options->expects,
                   "NAME=FILE of an output: |a - e| <= ATOL + RTOL * |e|, else exit code 5")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--rtol", options->rtol, "relative tolerance of --expect")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--atol", options->atol, "absolute tolerance of --expect")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--output-dir", options->output_dir,
                      "folder that gets output_0.pb, output_1.pb, ... in the model's order");
  command
      ->add_option("--output-format", options->output_format,
                   "of the files in --output-dir: pb (ONNX TensorProto, with the tensor's name) or "
                   "npy (NumPy; bfloat16 is written as float32)")
      ->check(CLI::IsMember({"pb", "npy"}))
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "timed runs, after 3 warm-ups")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "threads (default: the module's target)")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--device", options->device,
                   "for modules that use a device: its index or its name (default: the first)")
      ->excludes("--sandbox")
      ->excludes("--bridge");
  AddInputSeed(command, &options->seed);
  command->add_flag("--profile", options->profile,
                    "time per kernel, and its share of what this machine can do at most");
  command->add_option("--trace", options->trace,
                      "file for the profile as a trace (chrome://tracing, ui.perfetto.dev)");
  command->add_option(
      "--html", options->html,
      "file for the profile as a page: the model's layers, their kernels, times and "
      "shares of what this machine can do at most");
  command
      ->add_option("--timeline", options->timeline,
                   "folder for what a device did in each launch, if it can say it (a simulator): "
                   "pictures (SVG), traces for chrome://tracing, and a roofline")
      ->excludes("--sandbox")
      ->excludes("--bridge");
  AddFormat(command, kOutputFlag, &options->format);
  command->callback([=] { *action = [options] { return RunModule(*options); }; });
}

// What `tune` and `jobs submit` share. `trials` is 0 when not given.
void AddJobFlags(CLI::App* command, JobRequest* job) {
  command->add_option("MODEL", job->model_path, "ONNX file")->required();
  command->add_option("--target", job->target, "target, see 'tilewright targets'")->required();
  CLI::Option* trials = command
                            ->add_option("--trials", job->trials,
                                         "measured candidates, all kernels together (default 256)")
                            ->check(CLI::Range(1, 100'000'000));
  command->add_option("--minutes", job->minutes, "tune for this long instead")
      ->check(CLI::PositiveNumber)
      ->excludes(trials);
  command->add_option("--seed", job->seed, "seed of the search")->capture_default_str();
  command->add_option("--cost-model", job->cost_model, "how candidates are chosen")
      ->check(
          CLI::IsMember(std::vector<std::string>(log::kCostModels.begin(), log::kCostModels.end())))
      ->capture_default_str();
  AddModelSizes(command, &job->sizes);
  AddOperatorFiles(command, &job->operators);
  command->add_option("--name", job->name, "id of the job (default: the server chooses)");
  command->add_option("--pool", job->pool, "device class (default: any that satisfies the target)");
  command->add_flag(
      "--recall,!--fresh", job->recall,
      "whether to use what earlier jobs measured of the same kernels; it counts towards "
      "--trials");
  command
      ->add_option("--search", job->search_parts,
                   "switch a part of the search, to measure its effect: PART=on or PART=off;\n"
                   "repeatable. Parts: " +
                       search::SearchPartNames())
      ->check([](const std::string& text) {
        const auto parts = search::ParseSearchParts({text});
        return parts.ok() ? "" : support::StatusText(parts.status());
      })
      ->allow_extra_args(false)
      ->take_all();
  command->add_flag("--records-only", job->records_only,
                    "keep the weights here: the server gets the shapes with made-up numbers and\n"
                    "tunes those; 'tune' then compiles the module on this machine");
  command->add_option("--priority", job->priority, "1 (urgent) to 5 (idle)")
      ->check(CLI::Range(1, 5))
      ->capture_default_str();
}

void SetDefaultBudget(JobRequest* job) {
  constexpr int kDefaultTrials = 256;
  if (job->trials == 0 && job->minutes <= 0) job->trials = kDefaultTrials;
}

void AddTune(CLI::App* app, Action* action) {
  auto options = std::make_shared<TuneOptions>();
  options->job.recall = true;
  CLI::App* command = AddCommand(
      app, "tune", "tune a model and fetch the module",
      "  tilewright tune model.onnx --target native --trials 300 -o model.tw\n"
      "  tilewright tune model.onnx --target native --log tuner.db --minutes 5\n"
      "  tilewright tune model.onnx --target cpu,arch=x86_64,cpu=znver4,threads=2 --server "
      "tuner:7000\n"
      "  tilewright tune model.onnx --target native --server tuner:7000 --detach\n"
      "  tilewright tune model.onnx --target native --server tuner:7000 --records-only\n"
      "  tilewright tune model.onnx --target native --shape batch=1..32 --specialise batch=1,8,32\n"
      "  tilewright tune decoder.onnx --target native --shape seq=1 --shape past=0..512 --state "
      "known\n"
      "\nKernels of fixed sizes are tuned. Where sizes stay open, --specialise gives those at "
      "which\n"
      "the module has kernels of fixed sizes: all of them are tuned together, equal ones once. At\n"
      "other sizes the module runs default schedules.\n"
      "\nWithout --server a tracker, a tuner and an agent run on this machine as long as the\n"
      "command, with a state folder of their own. With --server, Ctrl-C leaves the job running,\n"
      "and the command waits up to 5 minutes while the server restarts.\n");
  AddJobFlags(command, &options->job);
  AddServer(command, &options->server);
  command->add_option("--log", options->log_path,
                      "without --server: tuning log (SQLite) to keep the measurements in");
  command->add_option("--state-dir", options->state_dir,
                      "without --server: folder of the services (default: "
                      "$XDG_STATE_HOME/tilewright/embedded, one of its own per --log; "
                      "XDG_STATE_HOME defaults to ~/.local/state)");
  command->add_option("--device", options->device,
                      "without --server, for targets with a driver: the device to measure on, by\n"
                      "its index or its name (default: the first)");
  command
      ->add_option("--bridge", options->bridge,
                   "without --server: shell command whose standard input and output are those of\n"
                   "a worker elsewhere, which measures (a board, JavaScript)")
      ->excludes("--device");
  command->add_option("-o,--output", options->output,
                      "module to write (default: the model's name with .tw, in this folder)");
  command->add_flag("--detach", options->detach, "with --server: submit the job and return");
  AddFormat(command, kFormatFlag, &options->format);
  command->callback([=] {
    SetDefaultBudget(&options->job);
    *action = [options] { return TuneModel(*options); };
  });
}

// Flags of a group's commands: each command that has them fills the same place.
struct GroupOptions {
  ServerPlace server;
  std::string name;
  std::vector<std::string> names;
  OutputFormat format = OutputFormat::kTable;
  JobRequest job;
  std::string reason = "drained from the command line";
  std::string holder;
  std::string purpose;
  double minutes = 60;
  bool now = false;
  bool release = false;
};

void AddJobs(CLI::App* app, Action* action) {
  auto o = std::make_shared<GroupOptions>();
  CLI::App* group = AddGroup(app, "jobs", "tuning jobs of a server",
                             "  tilewright jobs list --server tuner:7000\n"
                             "  tilewright jobs watch dqn-1\n");
  CLI::App* submit =
      AddCommand(group, "submit", "submit a job and return",
                 "  tilewright jobs submit model.onnx --target native --trials 300\n"
                 "  tilewright jobs submit model.onnx --target native --shape batch=1..32 "
                 "--specialise batch=1,8,32\n");
  AddJobFlags(submit, &o->job);
  AddServer(submit, &o->server);
  AddFormat(submit, kOutputFlag, &o->format);
  submit->callback([=] {
    SetDefaultBudget(&o->job);
    *action = [o] { return JobsSubmit(o->server, o->job, o->format); };
  });
  CLI::App* list =
      AddCommand(group, "list", "all jobs, newest first", "  tilewright jobs list -o json\n");
  AddServer(list, &o->server);
  AddFormat(list, kOutputFlag, &o->format);
  list->callback([=] { *action = [o] { return JobsList(o->server, o->format); }; });

  CLI::App* get =
      AddCommand(group, "get", "one job with its tasks", "  tilewright jobs get dqn-1\n");
  CLI::App* watch = AddCommand(group, "watch", "follow a job to its end",
                               "  tilewright jobs watch dqn-1 --server tuner:7000\n");
  CLI::App* cancel = AddCommand(group, "cancel", "end a job; its records stay",
                                "  tilewright jobs cancel dqn-1\n");
  for (CLI::App* command : {get, watch, cancel}) {
    command->add_option("JOB", o->name, "id of the job")->required();
    AddServer(command, &o->server);
  }
  AddFormat(get, kOutputFlag, &o->format);
  AddFormat(cancel, kOutputFlag, &o->format);
  get->callback([=] { *action = [o] { return JobsGet(o->server, o->name, o->format); }; });
  watch->callback([=] { *action = [o] { return JobsWatch(o->server, o->name); }; });
  cancel->callback([=] { *action = [o] { return JobsCancel(o->server, o->name, o->format); }; });
}

void AddDevices(CLI::App* app, Action* action) {
  auto o = std::make_shared<GroupOptions>();
  CLI::App* group = AddGroup(app, "devices", "the fleet's devices",
                             "  tilewright devices list --server tuner:7000\n"
                             "  tilewright devices drain board-3 --reason 'new kernel'\n");
  CLI::App* list = AddCommand(group, "list", "all devices, and why a device gets no work",
                              "  tilewright devices list -o json\n");
  AddServer(list, &o->server);
  AddFormat(list, kOutputFlag, &o->format);
  list->callback([=] { *action = [o] { return DevicesList(o->server, o->format); }; });

  CLI::App* shares = AddCommand(group, "shares", "who uses the devices, weights and quotas",
                                "  tilewright devices shares\n");
  AddServer(shares, &o->server);
  AddFormat(shares, kOutputFlag, &o->format);
  shares->callback([=] { *action = [o] { return DevicesShares(o->server, o->format); }; });

  CLI::App* get = AddCommand(group, "get", "one device with its attributes",
                             "  tilewright devices get board-3\n");
  CLI::App* drain = AddCommand(group, "drain", "finish what runs, take nothing new",
                               "  tilewright devices drain board-3 --reason 'new kernel' --now\n");
  CLI::App* undrain = AddCommand(group, "undrain", "back into service (ends a hold too)",
                                 "  tilewright devices undrain board-3\n");
  CLI::App* hold = AddCommand(
      group, "hold", "reserve a device for a person",
      "  tilewright devices hold board-3 --holder ana --purpose 'power test' --minutes 90\n"
      "  tilewright devices hold holds/7 --release\n");
  // The same under the words that people look for.
  CLI::App* reserve =
      AddCommand(group, "reserve", "reserve a device for a person (as hold)",
                 "  tilewright devices reserve board-3 --holder ana --minutes 90\n");
  CLI::App* release = AddCommand(group, "release", "end a reservation, by its name or its device's",
                                 "  tilewright devices release board-3\n");
  CLI::App* reset =
      AddCommand(group, "reset", "run the operator's reset command for a device",
                 "  tilewright devices reset board-3 --reason 'does not answer to ping'\n");
  CLI::App* forget = AddCommand(group, "forget", "remove devices that are gone",
                                "  tilewright devices forget board-3\n"
                                "  tilewright devices forget board-3 board-4\n"
                                "\nIts admin state, its health and its place among its agent's "
                                "devices go. A device that its\n"
                                "agent still reports, that has a lease or that is held is refused. "
                                "Needs an admin's token on\n"
                                "a fleet with TLS.\n");
  forget->add_option("DEVICE", o->names, "names of devices")->required();
  AddServer(forget, &o->server);
  forget->callback([=] { *action = [o] { return DevicesForget(o->server, o->names); }; });
  for (CLI::App* command : {get, drain, undrain, hold, reserve, release, reset}) {
    command->add_option("DEVICE", o->name, "name of the device")->required();
    AddServer(command, &o->server);
  }
  AddFormat(get, kOutputFlag, &o->format);
  drain->add_option("--reason", o->reason, "for people")->capture_default_str();
  drain->add_flag("--now", o->now,
                  "take the running batch away immediately; it is measured elsewhere");
  reset->add_option("--reason", o->reason, "for the agent's log")->capture_default_str();
  for (CLI::App* command : {hold, reserve}) {
    command->add_option("--holder", o->holder, "person who gets the device");
    command->add_option("--purpose", o->purpose, "purpose, for people");
    command->add_option("--minutes", o->minutes, "for how long")
        ->check(CLI::Range(1.0, 7 * 24 * 60.0))
        ->capture_default_str();
  }
  hold->add_flag("--release", o->release, "end the hold named holds/N instead");
  get->callback([=] { *action = [o] { return DevicesGet(o->server, o->name, o->format); }; });
  drain->callback(
      [=] { *action = [o] { return DevicesDrain(o->server, o->name, true, o->reason, o->now); }; });
  undrain->callback(
      [=] { *action = [o] { return DevicesDrain(o->server, o->name, false, "", false); }; });
  release->callback([=] { *action = [o] { return DevicesRelease(o->server, o->name); }; });
  reset->callback([=] { *action = [o] { return DevicesReset(o->server, o->name, o->reason); }; });
  const auto take = [=] {
    if (o->release) {
      *action = [o] { return DevicesRelease(o->server, o->name); };
      return;
    }
    if (o->holder.empty()) throw CLI::RequiredError("--holder");
    *action = [o] { return DevicesHold(o->server, o->name, o->holder, o->purpose, o->minutes); };
  };
  hold->callback(take);
  reserve->callback(take);
}

void AddTargets(CLI::App* app, Action* action) {
  auto format = std::make_shared<OutputFormat>(OutputFormat::kTable);
  CLI::App* command =
      AddCommand(app, "targets", "all targets, and what native means on this machine",
                 "  tilewright targets -o json\n");
  AddFormat(command, kOutputFlag, format.get());
  command->callback([=] { *action = [format] { return ListTargets(*format); }; });
}

// The command that was being read when parsing ended: "jobs submit".
std::string CommandName(const CLI::App& app) {
  std::string name;
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    name += (name.empty() ? "" : " ") + at->get_name();
  }
  return name.empty() ? "COMMAND" : name;
}

// A standard stream that the caller closed is opened here, or the first file that a command opens
// takes its number and gets what is meant for people. Writing to such a standard output fails.
void OpenStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is this one.
    if (open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
  }
}

int Main(int argc, const char* const* argv) {
  OpenStandardStreams();
  support::IgnoreSigpipe();
  CLI::App app("Tilewright: compile, tune and run machine-learning models", "tilewright");
  app.set_version_flag("--version", support::Version());
  app.require_subcommand(1);
  app.footer(
      "\n'tilewright COMMAND --help' shows flags and examples.\n"
      "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 unavailable, 5 mismatch,\n"
      "6 nothing new (modules fetch --if-newer --exit-code).\n");
  Action action;
  AddCheck(&app, &action);
  AddCompile(&app, &action);
  AddRun(&app, &action);
  AddCompare(&app, &action);
  AddBench(&app, &action);
  AddQuantize(&app, &action);
  AddTune(&app, &action);
  AddExplore(&app, &action);
  AddJobs(&app, &action);
  AddDevices(&app, &action);
  AddModules(&app, &action);
  AddLog(&app, &action);
  AddTargets(&app, &action);
  AddOperators(&app, &action);
  AddCerts(&app, &action);
  AddTokens(&app, &action);
  AddAudit(&app, &action);
  AddReport(&app, &action);
  AddCompletion(&app, &action);
  AddBackup(&app, &action);
  // CLI11 reports everything by exceptions; they end here.
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    std::ostringstream text;
    const int code = app.exit(success, text, text);
    PrintRaw(text.str());
    return FinishOutput(CommandName(app), code);
  } catch (const CLI::ParseError& error) {
    const std::string name = CommandName(app);
    return Finish(name, "cannot understand the command line",
                  support::InvalidArgument("cli.usage.flags", error.what()));
  }
  return FinishOutput(CommandName(app), action());
}

}  // namespace
}  // namespace tilewright::cli

int main(int argc, char** argv) { return tilewright::cli::Main(argc, argv); }
