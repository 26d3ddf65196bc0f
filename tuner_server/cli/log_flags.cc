// Flags, help and examples of the commands around the tuning log.
#include <memory>

#include "tuner_server/cli/command_flags.h"
#include "tuner_server/cli/log_check_command.h"
#include "tuner_server/cli/log_commands.h"
#include "tuner_server/cli/log_explain.h"
#include "tuner_server/cli/log_import.h"
#include "tuner_server/cli/report_command.h"

namespace tilewright::cli {
namespace {

void AddLogPlace(CLI::App* command, LogPlace* place) {
  command->add_option("--log", place->log_path,
                      "tuning log (SQLite), e.g. tuner.db of a tuner's state folder");
  AddServer(command, &place->server);
}

void AddTaskQuery(CLI::App* command, TaskQuery* query) {
  command
      ->add_option("TASK", query->word,
                   "name of the task, at least 4 digits of its hash, a launch of the profile, or a "
                   "node of the ONNX model")
      ->required();
  command->add_option("--job", query->job, "of this job (default: the newest that has the task)");
  command->add_option("--module", query->module_path,
                      "TASK is a launch, a node or a task of this module (.tw)");
}

void AddLogQueries(CLI::App* group, Action* action) {
  auto show = std::make_shared<LogShowOptions>();
  CLI::App* command =
      AddCommand(group, "show", "one task: its records, the steps of the best, its program",
                 "  tilewright log show conv2d-1 --log tuner.db\n"
                 "  tilewright log show 3f9a --log tuner.db --ir\n"
                 "  tilewright log show conv2d-1 --record dqn-1/conv2d-1/17/1 --ir\n");
  AddTaskQuery(command, &show->task);
  AddLogPlace(command, &show->place);
  command->add_option("--record", show->record, "measurement id (default: the chosen schedule)");
  command->add_flag("--ir", show->show_ir, "print the scheduled program");
  command->add_option("--limit", show->limit, "records listed")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  AddFormat(command, kOutputFlag, &show->format);
  command->callback([=] { *action = [show] { return LogShow(*show); }; });

  auto explain = std::make_shared<LogExplainOptions>();
  command = AddCommand(group, "explain",
                       "why a task has its schedule: what was tried, the runner-ups, the device",
                       "  tilewright log explain t0-conv2d-add-relu --log tuner.db\n"
                       "  tilewright log explain relu_4 --module model.tw --log tuner.db\n"
                       "  tilewright log explain 3f9a --server tuner:7000 -o json\n");
  AddTaskQuery(command, &explain->task);
  AddLogPlace(command, &explain->place);
  command->add_option("--limit", explain->runner_ups, "runner-ups listed")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  AddFormat(command, kOutputFlag, &explain->format);
  command->callback([=] { *action = [explain] { return LogExplain(*explain); }; });

  struct BestOptions {
    LogPlace place;
    std::string task;
    OutputFormat format = OutputFormat::kTable;
  };
  auto best = std::make_shared<BestOptions>();
  command = AddCommand(group, "best",
                       "the schedules that compile --log takes, by task, target and device class",
                       "  tilewright log best --log tuner.db\n");
  command->add_option("TASK", best->task, "name or first digits of the hash (default: all)");
  AddLogPlace(command, &best->place);
  AddFormat(command, kOutputFlag, &best->format);
  command->callback(
      [=] { *action = [best] { return LogBest(best->place, best->task, best->format); }; });
}

void AddImport(CLI::App* group, Action* action) {
  auto o = std::make_shared<LogImportOptions>();
  const auto add = [&](const std::string& word, const std::string& what,
                       const std::string& examples) {
    CLI::App* command = AddCommand(group, word, what, examples);
    command->add_option("FILE", o->sources, "exports (JSON lines) or logs (SQLite) to import")
        ->required();
    command->add_option("--job-prefix", o->job_prefix,
                        "put before the names of imported jobs, if both logs use the same names");
    AddFormat(command, kOutputFlag, &o->format);
    command->callback([=] { *action = [o, word] { return LogImport(*o, "log " + word); }; });
    return command;
  };
  constexpr char kLogHelp[] = "tuning log (SQLite); created if it does not exist";
  constexpr char kRules[] =
      "\nImporting twice is harmless. Rows that contradict the log are skipped and counted.\n"
      "A file FILE.sha256, as 'log export -o' writes it, is checked (exit code 5).\n";
  CLI::App* import =
      add("import", "import exported records",
          std::string("  tilewright log import records.jsonl --log tuner.db\n"
                      "  tilewright log import records.jsonl --server tuner:7000\n") +
              kRules + "Only an administrator may import into a server's log.\n");
  CLI::Option* file = import->add_option("--log", o->log_path, kLogHelp);
  AddServer(import, &o->server);
  import->get_option("--server")->excludes(file);
  import->add_option("--sha256", o->sha256,
                     "SHA-256 that the file must have (default: FILE.sha256)");
  CLI::App* merge =
      add("merge", "import all of other logs",
          std::string("  tilewright log merge lab-a.db lab-b.db --log all.db\n"
                      "  tilewright log merge lab-b.db --job-prefix lab-b- --log all.db\n") +
              kRules);
  merge->add_option("--log", o->log_path, kLogHelp)->required();
}

}  // namespace

void AddLog(CLI::App* app, Action* action) {
  CLI::App* group = AddGroup(
      app, "log", "what was measured",
      "  tilewright log stats --log tuner.db --model\n"
      "  tilewright log export --server tuner:7000 > records.jsonl\n"
      "\nWithout --log and --server: TILEWRIGHT_SERVER, else the log of 'tilewright tune' on this\n"
      "machine.\n");
  AddLogQueries(group, action);
  AddImport(group, action);

  auto exported = std::make_shared<LogExportOptions>();
  CLI::App* command = AddCommand(
      group, "export", "records as JSON lines",
      "  tilewright log export --log tuner.db > records.jsonl\n"
      "  tilewright log export dqn-1 --drafts --features --server tuner:7000 -o drafts.jsonl\n"
      "  tilewright log export --log damaged.db --skip-damaged -o whole.jsonl\n"
      "\nA log file is read through first. If any of it is damaged, nothing is exported.\n");
  command->add_option("JOB", exported->request.job, "id of the job (default: all)");
  AddLogPlace(command, &exported->place);
  command->add_flag("--features", exported->request.features, "with the feature vectors");
  command->add_flag("--drafts", exported->request.drafts,
                    "the drafts considered for each batch instead of the records");
  command->add_flag("--skip-damaged", exported->request.skip_damaged,
                    "of a damaged log file: export what is whole");
  command->add_option("-o,--output", exported->output,
                      "file (default: standard output); FILE.sha256 is written, too");
  command->callback([=] { *action = [exported] { return LogExport(*exported); }; });

  auto check = std::make_shared<LogCheckOptions>();
  command = AddCommand(
      group, "check", "what of a log file is as it was written, row by row",
      "  tilewright log check --log tuner.db\n"
      "\nExit code 1 if anything is damaged. The log may be in use. To keep what is whole:\n"
      "  tilewright log export --log tuner.db --skip-damaged --features -o whole.jsonl\n"
      "  tilewright log import whole.jsonl --log new.db\n");
  command->add_option("--log", check->log_path,
                      "tuning log (default: that of 'tilewright tune' on this machine)");
  AddFormat(command, kOutputFlag, &check->format);
  command->callback([=] { *action = [check] { return LogCheck(*check); }; });

  auto stats = std::make_shared<LogStatsOptions>();
  command = AddCommand(group, "stats", "outcomes, times, gains, quality of the cost models",
                       "  tilewright log stats dqn-1 --log tuner.db --model -o json\n");
  command->add_option("JOB", stats->job, "id of the job (default: each)");
  AddLogPlace(command, &stats->place);
  command->add_flag("--model", stats->models, "with the cost models");
  AddFormat(command, kOutputFlag, &stats->format);
  command->callback([=] { *action = [stats] { return LogStats(*stats); }; });

  struct ModelOptions {
    LogPlace place;
    std::string id, job, output;
  };
  auto model = std::make_shared<ModelOptions>();
  command = AddCommand(group, "model", "write a stored cost model (XGBoost UBJSON)",
                       "  tilewright log model m3 --log tuner.db -o model.ubj\n"
                       "\nModels are in log files only: servers do not export them.\n");
  command->add_option("ID", model->id, "model_id of a record, see 'log stats --model'")->required();
  command->add_option("--log", model->place.log_path,
                      "tuning log (default: that of 'tilewright tune' on this machine)");
  command->add_option("--job", model->job, "of this job (default: the newest with that id)");
  command->add_option("-o,--output", model->output, "file to write")->required();
  command->callback([=] {
    *action = [model] { return LogModel(model->place, model->id, model->job, model->output); };
  });
}

void AddReport(CLI::App* app, Action* action) {
  auto o = std::make_shared<ReportOptions>();
  CLI::App* command = AddCommand(
      app, "report", "tuning curves, rooflines, device time and failures as one HTML page",
      "  tilewright report --log tuner.db -o report.html\n"
      "  tilewright report dqn-1 --server tuner:7000 --peak-gflops 180 --peak-gbs 40\n"
      "\nThe page needs no network and no scripts.\n");
  command->add_option("JOB", o->job, "id of the job (default: each)");
  AddLogPlace(command, &o->place);
  command->add_option("-o,--output", o->output, "file to write")->capture_default_str();
  command
      ->add_option("--peak-gflops", o->peaks.float32,
                   "roof of the rooflines (default: as the server's devices say)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--peak-int8-gops", o->peaks.int8,
                   "the same for tasks of int8 (default: as the server's devices say)")
      ->check(CLI::PositiveNumber);
  command->add_option("--peak-gbs", o->peak_gbs, "memory's gigabytes per second: their slope")
      ->check(CLI::PositiveNumber);
  command->callback([=] { *action = [o] { return Report(*o); }; });
}

}  // namespace tilewright::cli
