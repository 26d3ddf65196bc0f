#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/measure_units.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/backup_manifest.h"
#include "tuner_server/cli/check_command.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/compile_command.h"
#include "tuner_server/cli/embedded.h"
#include "tuner_server/cli/job_commands.h"
#include "tuner_server/cli/log_stats_text.h"
#include "tuner_server/cli/log_task.h"
#include "tuner_server/cli/native_target.h"
#include "tuner_server/cli/progress.h"
#include "tuner_server/cli/report_command.h"
#include "tuner_server/cli/schedule_choice.h"
#include "tuner_server/cli/server_client.h"
#include "tuner_server/cli/shape_flags.h"
#include "tuner_server/cli/svg_chart.h"
#include "tuner_server/cli/table.h"
#include "tuner_server/cli/tune_failure.h"
#include "tuner_server/cli/tuned_coverage.h"
#include "tuner_server/log/memory_log.h"
#include "tuner_server/log/schedule_rule.h"

namespace tilewright::cli {
namespace {

using support::StrCat;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Fields of other types used to end the program.
TEST(BackupManifest, WhatIsNoListIsRefusedWhateverItHolds) {
  const std::string good =
      BackupManifestText("tilewright-tracker", "2026-11-22", {{"tracker.db", 7, "ab"}});
  const auto files = ParseBackupManifest(good);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->at(0).path, "tracker.db");
  EXPECT_EQ(files->at(0).bytes, 7u);
  for (const std::string bad :
       {"", "[]", "{", R"({"format":"1","files":[]})", R"({"format":2,"files":[]})",
        R"({"format":1})", R"({"format":1,"files":{}})", R"({"format":1,"files":[7]})",
        R"({"format":1,"files":[{"path":7,"bytes":1,"sha256":"a"}]})",
        R"({"format":1,"files":[{"path":"a","bytes":"1","sha256":"a"}]})",
        R"({"format":1,"files":[{"path":"a","bytes":-1,"sha256":"a"}]})",
        R"({"format":1,"files":[{"path":"a","bytes":1,"sha256":[]}]})",
        R"({"format":1,"files":[{"path":"/a","bytes":1,"sha256":"a"}]})",
        R"({"format":1,"files":[{"path":"b/../../a","bytes":1,"sha256":"a"}]})"}) {
    EXPECT_EQ(support::Slug(ParseBackupManifest(bad).status()), "backup.manifest.invalid") << bad;
  }
}

TEST(CliTable, ColumnsAreAsWideAsTheirContentAndNumbersStandRight) {
  Table table({{"name"}, {"time", true}, {"note"}});
  table.AddRow({"a", "1.24 ms", ""});
  table.AddRow({"longer", "85.3 µs", "x"});
  EXPECT_EQ(table.Render(),
            "name       time  note\n"
            "------  -------  ----\n"
            "a       1.24 ms\n"
            "longer  85.3 µs  x\n");
}

TEST(CliTable, UnitsSuitTheSize) {
  EXPECT_EQ(TimeText(0), "-");
  EXPECT_EQ(TimeText(-3), "-");
  EXPECT_EQ(TimeText(412), "412 ns");
  EXPECT_EQ(TimeText(85'300), "85.3 µs");
  EXPECT_EQ(TimeText(1'240'000), "1.24 ms");
  EXPECT_EQ(TimeText(2.1e9), "2.10 s");
  EXPECT_EQ(BytesText(1536), "1.50 KiB");
  EXPECT_EQ(RatioText(3, 2), "1.50x");
  EXPECT_EQ(RatioText(0, 2), "-");
  EXPECT_EQ(RatioText(2, 0), "-");
}

TEST(CliProgress, LineShowsShareBestAndRest) {
  const ProgressState state{25, 100, 61, 183, "best 412 µs (1.9x)", "t0-conv2d", true};
  EXPECT_EQ(ProgressLine(state, 200),
            "[######..................] 25/100 trials  best 412 µs (1.9x)  1:01 elapsed  ETA 3:03  "
            "t0-conv2d");
}

TEST(CliProgress, LineNeverEndsInsideACharacter) {
  const ProgressState state{0, 0, 0, -1, "µµµµ", "", false};
  for (int width = 0; width < 80; ++width) {
    const std::string line = ProgressLine(state, width);
    EXPECT_TRUE(line.empty() || (static_cast<unsigned char>(line.back()) & 0xC0) != 0xC0) << line;
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    });
    EXPECT_LE(columns, width);
  }
}

TEST(CliProgress, MoreDoneThanPlannedStaysInTheBar) {
  const ProgressState state{120, 100, 1, 0, "", "", true};
  EXPECT_THAT(ProgressLine(state, 200), HasSubstr("[########################] 120/100"));
}

TEST(CliProgress, TimeGoesOnWithoutNews) {
  const ProgressState later = Later({5, 10, 20, 8, "best", "t0", true}, 3);
  EXPECT_EQ(later.elapsed_s, 23);
  EXPECT_EQ(later.eta_s, 5);
  EXPECT_EQ(later.done, 5);
  EXPECT_EQ(Later({5, 10, 20, 1, "", "", true}, 3).eta_s, 0);
  EXPECT_EQ(Later({5, 10, 20, -1, "", "", true}, 3).eta_s, -1);
}

TEST(CliProgress, Durations) {
  EXPECT_EQ(DurationText(0.4), "0:00");
  EXPECT_EQ(DurationText(65), "1:05");
  EXPECT_EQ(DurationText(7420), "2:03:40");
}

TEST(CliError, ExitCodesFollowTheDesign) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(support::InvalidArgument("graph.onnx.bad", "x")), 1);
  EXPECT_EQ(ExitCodeOf(support::InvalidArgument("cli.usage.flags", "x")), 2);
  EXPECT_EQ(ExitCodeOf(support::InvalidArgument("ir.target.unknown_kind", "x")), 2);
  EXPECT_EQ(ExitCodeOf(support::NotFound("log.job.not_found", "x")), 3);
  EXPECT_EQ(ExitCodeOf(support::Unavailable("rpc.unavailable", "x")), 4);
  EXPECT_EQ(ExitCodeOf(support::DeadlineExceeded("rpc.deadline_exceeded", "x")), 4);
  EXPECT_EQ(ExitCodeOf(support::FailedPrecondition("cli.mismatch.output", "x")), 5);
  // "| head" has seen enough.
  EXPECT_EQ(ExitCodeOf(support::Cancelled("cli.stdout.closed", "x")), 0);
  // Our own children are neither something the user named nor a server that is away.
  EXPECT_EQ(ExitCodeOf(support::NotFound("file.sibling.missing", "x")), 1);
  EXPECT_EQ(ExitCodeOf(support::Unavailable("builder.died", "x")), 1);
}

TEST(CliError, TextIsThreeLinesWhateverTheMessageHolds) {
  const std::string text =
      ErrorText("run", "cannot run m.tw", support::DataLoss("module.file.bad", "a\nb\r\n\tc"));
  EXPECT_EQ(text,
            "tilewright run: cannot run m.tw\n"
            "  why: module.file.bad: a b c\n"
            "  do:  the module is damaged: compile or fetch it again\n");
}

TEST(CliError, EveryCodeHasAdvice) {
  for (int code = 1; code <= 16; ++code) {
    EXPECT_FALSE(Advice(absl::Status(static_cast<absl::StatusCode>(code), "odd: x")).empty());
  }
}

TEST(CliShapes, NamesAndExtents) {
  const auto shapes = ParseShapes({"x=1x3x224x224", "odd=name=2"});
  EXPECT_FALSE(shapes.ok());  // "name=2" is no shape
  const auto good = ParseShapes({"x=1x3x224x224", "y=7"});
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_THAT(good->at("x"), ElementsAre(1, 3, 224, 224));
  EXPECT_THAT(good->at("y"), ElementsAre(7));
  for (const char* bad : {"", "x", "x=", "=1", "x=0", "x=-1", "x=1x", "x=1xx2", "x=1e3"}) {
    EXPECT_EQ(ExitCodeOf(ParseShapes({bad}).status()), kExitUsage) << bad;
  }
  EXPECT_EQ(ExitCodeOf(ParseShapes({"x=1", "x=2"}).status()), kExitUsage);
}

TEST(CliShapes, PointsOfOpenSizes) {
  using Points = std::vector<SizePoint>;
  const auto points = [](const std::vector<std::string>& texts) {
    const auto parsed = ParseSizePoints(texts);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return parsed.value_or(Points{});
  };
  EXPECT_EQ(points({}), Points{});
  EXPECT_EQ(points({"batch=1,8,32"}), (Points{{{"batch", 1}}, {{"batch", 8}}, {{"batch", 32}}}));
  EXPECT_EQ(points({"batch=1,seq=128"}), (Points{{{"batch", 1}, {"seq", 128}}}));
  EXPECT_EQ(points({"seq=64,128,batch=1,8"}), (Points{{{"batch", 1}, {"seq", 64}},
                                                      {{"batch", 1}, {"seq", 128}},
                                                      {{"batch", 8}, {"seq", 64}},
                                                      {{"batch", 8}, {"seq", 128}}}));
  EXPECT_EQ(points({"batch=1", "batch=1,seq=4"}),
            (Points{{{"batch", 1}}, {{"batch", 1}, {"seq", 4}}}));
  EXPECT_EQ(points({"odd name=2"}), (Points{{{"odd name", 2}}}));
  for (const char* bad : {"", "x", "x=", "=1", "x=0", "x=-1", "x=1,", ",x=1", "1", "x=1,1",
                          "x=1,x=2", "x=1x2", "x=1..4", "x=1,y", "x=1;2"}) {
    const absl::Status status = ParseSizePoints({bad}).status();
    EXPECT_EQ(support::Slug(status), "cli.usage.specialise") << bad;
    EXPECT_EQ(ExitCodeOf(status), kExitUsage) << bad;
  }
  EXPECT_FALSE(ParseSizePoints({"x=1", "x=2,1"}).ok());
  std::string many = "a=1";
  for (int i = 2; i <= 70; ++i) many += "," + std::to_string(i);
  EXPECT_FALSE(ParseSizePoints({many + ",b" + many.substr(1)}).ok()) << "4900 points";
}

TEST(CliShapes, FlagsBecomeTheSizesOfAModel) {
  const auto sizes = ParseSizes({{"x=1x3", "batch=1..32"}, {"batch=1,8"}, {"known", "a=b"}});
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  EXPECT_EQ(sizes->Words(),
            "x=1x3, batch=1..32, specialised at batch=1; batch=8, state a=b, state known");
  EXPECT_EQ(SizesJson(*sizes)["open"]["batch"], nlohmann::json({1, 32}));
  EXPECT_EQ(SizesJson({}), nlohmann::json::object());
  EXPECT_TRUE(ParseSizes({})->empty());
  const auto slug = [](const SizeFlags& flags) {
    return std::string(support::Slug(ParseSizes(flags).status()));
  };
  EXPECT_EQ(slug({{"batch=8..2"}, {}, {}}), "cli.usage.shape");
  EXPECT_EQ(slug({{}, {"batch"}, {}}), "cli.usage.specialise");
  EXPECT_EQ(slug({{}, {}, {"past"}}), "cli.usage.state");
}

TEST(CliTarget, NativeBecomesThisMachine) {
  const auto native = ExpandTarget("native,threads=1");
  ASSERT_TRUE(native.ok()) << native.status();
  EXPECT_TRUE(native->starts_with("cpu,arch=")) << *native;
  EXPECT_THAT(*native, testing::EndsWith(",threads=1"));
  EXPECT_EQ(*ExpandTarget(*native), *native);
  EXPECT_TRUE(CheckRunsHere(*native).ok());
  EXPECT_EQ(ExitCodeOf(ExpandTarget("toaster").status()), kExitUsage);
  const std::string other =
      native->find("x86_64") != std::string::npos ? "cpu,arch=aarch64" : "cpu,arch=x86_64";
  EXPECT_EQ(ExitCodeOf(CheckRunsHere(other)), kExitFailed);
}

TEST(CliServer, AddressIsChecked) {
  EXPECT_EQ(*ServerAddress("host:7000"), "host:7000");
  for (const char* bad : {"host", "host:", ":1", "host:0", "host:65536", "host:x"}) {
    EXPECT_EQ(ExitCodeOf(ServerAddress(bad).status()), kExitUsage) << bad;
  }
}

TEST(CliServer, PatienceRepeatsOnlyWhatMayPass) {
  int calls = 0;
  const auto away_once = [&calls]() -> absl::Status {
    return ++calls < 2 ? support::Unavailable("rpc.unavailable", "x") : absl::OkStatus();
  };
  EXPECT_TRUE(Patiently(10'000, away_once).ok());
  EXPECT_EQ(calls, 2);
  calls = 0;
  const auto wrong = [&calls]() -> absl::StatusOr<int> {
    ++calls;
    return support::NotFound("job.not_found", "x");
  };
  EXPECT_EQ(Patiently(10'000, wrong).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(calls, 1);
}

v1::Task MakeTask(const std::string& text, int weight, double flops, double default_us,
                  double best_us) {
  v1::Task task;
  task.set_description(text);
  task.set_weight(weight);
  task.set_flops(flops);
  task.set_default_us(default_us);
  task.set_best_us(best_us);
  task.set_trials(32);
  task.set_data_type("float32");
  return task;
}

TEST(CliJobs, TableShowsShareOfPeakAndTheWeightedGain) {
  const std::string text = TasksTable(
      {MakeTask("conv", 2, 4e6, 400, 100), MakeTask("dense", 1, 1e6, 200, 100)}, {80, 0});
  EXPECT_THAT(text, HasSubstr("conv      2   400 µs  100 µs  4.00x     40.0    50.0%      32"));
  EXPECT_THAT(text, HasSubstr("end to end (sum of kernels): default 1.00 ms, tuned 300 µs, gain "
                              "3.33x"));
}

// A kernel of int8 stood at 408 % of the peak of float.
TEST(CliJobs, EachDataTypeHasItsOwnPeak) {
  const FleetPeaks peaks{100, 400};
  EXPECT_EQ(peaks.Of("float32"), 100);
  EXPECT_EQ(peaks.Of("float64"), 50);
  EXPECT_EQ(peaks.Of("int8"), 400);
  EXPECT_EQ(peaks.Of("int32"), 0) << "no figure is better than a wrong one";
  EXPECT_EQ(peaks.Of(""), 0) << "a server of an older version does not say";
  v1::Task bytes = MakeTask("conv", 1, 2e6, 40, 10);  // 200 operations per nanosecond
  bytes.set_data_type("int8");
  EXPECT_THAT(TasksTable({bytes}, peaks), HasSubstr("200.0    50.0%"));
  EXPECT_EQ(TasksJson({bytes}, peaks)["tasks"][0]["share_of_peak"], 0.5);
  EXPECT_THAT(TasksTable({bytes}, {100, 0}), HasSubstr("200.0        -"));
}

TEST(CliJobs, TheTableNamesTaskLaunchesAndNodes) {
  v1::Task task = MakeTask("conv2d 1x4", 1, 1e6, 40, 10);
  task.set_name("projects/default/jobs/j/tasks/t0-conv2d");
  v1::Task::Launch* launch = task.add_launches();
  launch->set_name("relu_4");
  launch->add_onnx_nodes("Conv_0");
  launch->add_onnx_nodes("Relu_1");
  EXPECT_THAT(TasksTable({task}, {}), HasSubstr("t0-conv2d  conv2d 1x4"));
  EXPECT_THAT(TasksTable({task}, {}), HasSubstr("relu_4 (Conv_0, Relu_1)\n"));
  EXPECT_EQ(TasksJson({task}, {})["tasks"][0]["launches"][0]["onnx_nodes"][1], "Relu_1");
}

TEST(CliJobs, AMissingTimeLeavesTheGainOfTheOthersAndItsReason) {
  std::vector<v1::Task> tasks = {MakeTask("conv", 2, 4e6, 400, 100),
                                 MakeTask("dense", 1, 1e6, 0, 90)};
  tasks[1].set_name("projects/default/jobs/j/tasks/t1-dense");
  tasks[1].set_why_no_default("not valid: measure.baseline.drift");
  const std::string text = TasksTable(tasks, {});
  EXPECT_THAT(text, HasSubstr("end to end (sum of kernels, 1 of 2 tasks): default 800 µs, tuned "
                              "200 µs, gain 4.00x"));
  EXPECT_THAT(text, HasSubstr("no default time of t1-dense: not valid: measure.baseline.drift"));
  const nlohmann::json json = TasksJson(tasks, {});
  EXPECT_EQ(json["default_us"], 0.0) << "the whole is not known";
  EXPECT_EQ(json["gain"], 4.0);
  EXPECT_EQ(json["timed_tasks"], 1);
  EXPECT_EQ(json["tasks"][1]["why_no_default"], "not valid: measure.baseline.drift");
  EXPECT_THAT(TasksTable({MakeTask("dense", 1, 1e6, 0, 0)}, {}),
              HasSubstr("0 of 1 tasks): default -, tuned -, gain -"));
}

TEST(CliJobs, TimesFromTheLogAreMarked) {
  std::vector<v1::Task> tasks = {MakeTask("conv", 1, 4e6, 400, 100)};
  tasks[0].set_default_job("projects/default/jobs/first");
  EXPECT_THAT(TasksTable(tasks, {}), HasSubstr("400 µs*  100 µs "));
  EXPECT_THAT(TasksTable(tasks, {}), HasSubstr("* from the log: measured by job first"));
  const nlohmann::json json = TasksJson(tasks, {});
  EXPECT_EQ(json["tasks"][0]["default_from_log"], "first");
  EXPECT_EQ(json["tasks"][0]["tuned_from_log"], "");
}

TEST(CliJobs, OnlySucceededIsSuccess) {
  v1::Job job;
  job.set_state(v1::Job::SUCCEEDED);
  EXPECT_TRUE(CheckSucceeded(job).ok());
  job.set_state(v1::Job::CANCELLED);
  EXPECT_EQ(support::Slug(CheckSucceeded(job)), "job.cancelled");
  job.set_state(v1::Job::FAILED);
  EXPECT_EQ(support::Slug(CheckSucceeded(job)), "job.failed");
}

TEST(CliSvg, TextIsEscapedAndBrokenUtf8Replaced) {
  EXPECT_EQ(EscapeHtml("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(EscapeHtml("\xc2\xb5s"), "\xc2\xb5s");
  EXPECT_EQ(EscapeHtml("\xc2"), "?");
  EXPECT_EQ(EscapeHtml("\xff\x01z"), "??z");
}

TEST(CliSvg, PointsThatCannotBeDrawnAreLeftOut) {
  const double inf = std::numeric_limits<double>::infinity();
  Chart chart{"x",  "y",   true,
              true, false, {{"<s>", {{0, 1, ""}, {1, 0, ""}, {inf, 2, ""}}, false}}};
  EXPECT_THAT(ChartSvg(chart), HasSubstr("nothing to draw"));
  chart.series[0].points.push_back({3, 5, "a & b"});
  const std::string svg = ChartSvg(chart);
  EXPECT_THAT(svg, HasSubstr("<title>a &amp; b</title>"));
  EXPECT_THAT(svg, HasSubstr("&lt;s&gt;"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  size_t circles = 0;
  for (size_t at = 0; (at = svg.find("<circle", at)) != std::string::npos; ++at) ++circles;
  EXPECT_EQ(circles, 1U);
  EXPECT_THAT(BarsSvg({{"none", "0", 0}}), HasSubstr("nothing to draw"));
  EXPECT_THAT(BarsSvg({{"half", "5 s", 5}, {"all", "10 s", 10}}), HasSubstr("10 s"));
}

TEST(CliCompile, DefaultOutputIsTheModelsName) {
  EXPECT_EQ(DefaultOutput("some/where/model.onnx"), "model.tw");
  EXPECT_EQ(DefaultOutput("a.b.onnx"), "a.b.tw");
  EXPECT_EQ(DefaultOutput("plain"), "plain.tw");
}

TEST(CliCompile, OutputPlacesAreCheckedBeforeTheWork) {
  auto dir = support::TempDir::Create();
  ASSERT_TRUE(dir.ok());
  EXPECT_TRUE(CheckWritable(dir->File("new.tw")).ok());
  EXPECT_EQ(ExitCodeOf(CheckWritable(dir->path())), kExitFailed);
  EXPECT_EQ(ExitCodeOf(CheckWritable(dir->File("no/new.tw"))), kExitNotFound);
}

TEST(CliCompile, KernelTableTellsTunedDefaultAndStale) {
  const auto summary = nlohmann::json::parse(R"({"kernels": [
      {"task_name": "a", "uses": 2, "flops": 2e6, "tuned": true, "stale": false},
      {"task_name": "b", "uses": 1, "flops": 0, "tuned": false, "stale": false},
      {"task_name": "c", "uses": 1, "flops": 5, "tuned": false, "stale": true,
       "stale_reason": "other program"}]})");
  const auto text = KernelTable(summary);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr("a          2  2.000  tuned\n"));
  EXPECT_THAT(*text, HasSubstr("b          1  0.000  default\n"));
  EXPECT_THAT(*text, HasSubstr("stale, default used\n"));
  EXPECT_THAT(*text, HasSubstr("stale: c: other program\n"));
}

TEST(CliCompile, CoverageIsWeightedByTimeWithEstimatesForWhatWasNotMeasured) {
  const auto summary = nlohmann::json::parse(R"({"kernels": [
      {"task_name": "a", "task_hash": "ha", "uses": 2, "flops": 2e6, "tuned": true},
      {"task_name": "b", "task_hash": "hb", "uses": 1, "flops": 1e6, "tuned": false},
      {"task_name": "c", "task_hash": "hc", "uses": 1, "flops": 0, "tuned": true},
      {"task_name": "d", "task_hash": "hd", "uses": 1, "flops": 4e6, "tuned": false, "stale": true,
       "stale_reason": "other program"}]})");
  ScheduleChoice choice;
  choice.by_task["ha"].median_ns = 1000;
  choice.by_task["hc"].median_ns = 3000;  // no operations: says nothing about others
  choice.by_task["hd"].median_ns = 5000;  // measured, but its steps do not apply
  choice.why_not["hb"] = "measured with 4 threads";
  const auto coverage = ComputeCoverage(summary, choice);
  ASSERT_TRUE(coverage.ok()) << coverage.status();
  // a: 2 x 1000, c: 3000, d: 5000; b at the rate of a and d, 8e6 operations in 7000 ns: 875.
  EXPECT_NEAR(coverage->percent, 100.0 * 5000 / 10875, 0.01);
  ASSERT_EQ(coverage->misses.size(), 2U);
  EXPECT_EQ(coverage->misses[0].task, "d");
  EXPECT_EQ(coverage->misses[0].why, "stale: other program");
  EXPECT_EQ(coverage->misses[1].task, "b");
  EXPECT_EQ(coverage->misses[1].why, "measured with 4 threads");
  EXPECT_TRUE(coverage->misses[1].estimated);
  EXPECT_THAT(MissTable(*coverage), HasSubstr("measured with 4 threads"));
  const auto none = nlohmann::json::parse(R"({"kernels": []})");
  EXPECT_EQ(ComputeCoverage(none, {})->percent, 100);
  const auto unmeasured = ComputeCoverage(summary, {});
  EXPECT_EQ(unmeasured->percent, 100.0 * 4 / 9) << "by operations where nothing is measured";
}

// A log with one job and records made from (task, target key, threads, class, toolchain, median).
struct RecordSpec {
  std::string task;
  std::string device_class;
  double median;
  int64_t threads = 2;
  std::string toolchain = "llvm-19";
  log::Outcome outcome = log::Outcome::kOk;
  bool is_default = false;
  int64_t final_of = 0;  // number of the trial that it measures again
};

constexpr char kTarget[] = "cpu,arch=x86_64,cpu=znver4,threads=2";

std::unique_ptr<log::TuningLog> MakeLog(const std::vector<RecordSpec>& specs) {
  log::TuningLog::Import rows;
  log::JobRow job;
  job.id = "j";
  job.number = 1;
  job.uid = "u";
  job.spec_json = "{}";
  rows.jobs.push_back(job);
  int64_t number = 0;
  for (const RecordSpec& spec : specs) {
    ++number;
    const std::string id = support::StrCat("j/", spec.task, "/", number, "/1");
    log::TrialRow trial;
    trial.job = "j";
    trial.number = number;
    trial.task = spec.task;
    trial.state = log::TrialState::kSucceeded;
    trial.steps = support::StrCat("steps ", number);
    trial.program_hash = support::StrCat("hash ", number);
    if (spec.final_of > 0) {
      trial.generated_by = log::kFinal;
      trial.program_hash = support::StrCat("hash ", spec.final_of);
      trial.steps = support::StrCat("steps ", spec.final_of);
    }
    trial.measurement_id = id;
    trial.outcome = spec.outcome;
    trial.is_default = spec.is_default;
    if (spec.outcome == log::Outcome::kOk) trial.median = spec.median;
    rows.trials.push_back(trial);
    log::RecordRow record;
    record.measurement_id = id;
    record.job = "j";
    record.task = spec.task;
    record.trial = number;
    record.key = {"hash-" + spec.task, "cpu,arch=x86_64,cpu=znver4", spec.threads,
                  spec.device_class, spec.toolchain};
    record.accepted = true;
    record.attempt = 1;
    record.outcome = spec.outcome;
    record.valid = true;
    record.median = spec.median;
    record.value_kind = support::UnitOfClass(spec.device_class).name;
    rows.records.push_back(record);
  }
  for (const char* task : {"a", "b"}) {
    log::TaskRow row;
    row.job = "j";
    row.index = static_cast<int64_t>(rows.tasks.size());
    row.name = task;
    row.hash = std::string("hash-") + task;
    row.launch_names = StrCat("t\tlaunch_", task, "\tConv_", task, "\tRelu");
    rows.tasks.push_back(row);
  }
  auto log = log::MakeMemoryLog();
  const auto added = log->AddImported(rows);
  EXPECT_TRUE(added.ok()) << added.status();
  return log;
}

ScheduleQuery Query(const std::string& device_class = "") {
  return {kTarget, "llvm-19", device_class, {"hash-a", "hash-b"}};
}

TEST(CliReport, ThePageHoldsEachJobAndNothingFromElsewhere) {
  const auto log = MakeLog({{"a", "x", 30, 2, "llvm-19", log::Outcome::kOk, true},
                            {"a", "x", 20},
                            {"a", "x", 10, 2, "llvm-19", log::Outcome::kWrongResult},
                            {"b", "x", 7}});
  const auto html = ReportHtml(log.get(), {});
  ASSERT_TRUE(html.ok()) << html.status();
  for (const char* part :
       {"<h2>Job j</h2>", "Tuning curve", "Layers", "Conv_a, Relu, Conv_b", "27.0 ns", "Roofline",
        "Device time", "Failures", "WRONG_RESULT", "best so far"}) {
    EXPECT_THAT(*html, HasSubstr(part));
  }
  for (const char* outside : {"http:", "https:", "<script", "src=", "url("}) {
    EXPECT_EQ(html->find(outside), std::string::npos) << outside;
  }
}

TEST(CliReport, CyclesAreCalledCycles) {
  const auto log = MakeLog({{"a", "x@virtual_cycles", 30e6, 2, "llvm-19", log::Outcome::kOk, true},
                            {"a", "x@virtual_cycles", 20e6}});
  const auto html = ReportHtml(log.get(), {});
  ASSERT_TRUE(html.ok()) << html.status();
  EXPECT_THAT(*html, HasSubstr("20.0 Mcycles"));
  EXPECT_EQ(html->find("Roofline"), std::string::npos) << "operations per cycle are no rate";
  const auto stats = log::ComputeJobStats(log.get(), "j");
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_THAT(StatsText(*stats), HasSubstr("20.0 Mcycles"));
  EXPECT_EQ(StatsText(*stats).find("ms"), std::string::npos) << StatsText(*stats);
}

// The fastest record is a lie: its program computed wrong results in its final.
TEST(CliLogStats, ShowTheScheduleThatIsChosen) {
  const auto log = MakeLog({{.task = "a", .device_class = "x", .median = 30, .is_default = true},
                            {.task = "a", .device_class = "x", .median = 20},
                            {.task = "a", .device_class = "x", .median = 10},
                            {.task = "a",
                             .device_class = "x",
                             .median = 10,
                             .outcome = log::Outcome::kWrongResult,
                             .final_of = 3}});
  const auto stats = log::ComputeJobStats(log.get(), "j");
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->tasks.at(0).best_median, 20);
  EXPECT_EQ(stats->tasks.at(0).best_trial, 2);
  EXPECT_EQ(stats->tasks.at(0).default_median, 30);
}

TEST(CliLogTask, IsFoundByAnyOfItsNames) {
  const auto log = MakeLog({{"a", "x", 30}, {"b", "x", 7}});
  const auto name = [&](const std::string& word) {
    const auto task = FindTask(log.get(), {word, "", ""});
    return task.ok() ? task->name : support::Slug(task.status());
  };
  EXPECT_EQ(name("b"), "b");
  EXPECT_EQ(name("hash-b"), "b");
  EXPECT_EQ(name("launch_b"), "b") << "as the profile shows it";
  EXPECT_EQ(name("Conv_b"), "b") << "a node of the model";
  EXPECT_EQ(name("Conv"), "log.task.not_found");
  EXPECT_EQ(support::Slug(FindTask(log.get(), {"b", "", "nosuch.tw"}).status()), "file.map.failed");
}

TEST(CliTuneFailure, TrialErrorsAreCountedWithAnExampleOfEach) {
  const auto log = MakeLog({{"a", "x", 30},
                            {"a", "x", 1, 2, "llvm-19", log::Outcome::kRunCrash},
                            {"b", "x", 1, 2, "llvm-19", log::Outcome::kWrongResult},
                            {"b", "x", 1, 2, "llvm-19", log::Outcome::kRunCrash}});
  const auto errors = TrialErrors(log.get(), "j");
  ASSERT_TRUE(errors.ok()) << errors.status();
  EXPECT_EQ(*errors, "2 RUN_CRASH, 1 WRONG_RESULT");
}

TEST(CliTuneFailure, TheModelsFaultIsSaidAsTheImportSaysIt) {
  v1::Job job;
  job.set_state(v1::Job::FAILED);
  job.set_state_reason("graph.onnx.symbolic_shape: expected inputs of fixed shape");
  EXPECT_EQ(support::Slug(CauseOf(job)), "graph.onnx.symbolic_shape");
  EXPECT_THAT(Advice(CauseOf(job)), HasSubstr("--shape"));
  job.set_state_reason("job.search.crashed: the search child ended 3 times");
  EXPECT_EQ(support::Slug(CauseOf(job)), "job.failed");
  const absl::Status here = ExplainEmbedded(CauseOf(job), "j", "nosuch.db", "state");
  EXPECT_EQ(support::Slug(here), "cli.embedded.job");
  for (const char* part : {"search child ended", "nosuch.db", "state/tuner.log"}) {
    EXPECT_THAT(std::string(here.message()), HasSubstr(part));
  }
  EXPECT_THAT(Advice(here), Not(HasSubstr("jobs get"))) << "there is no server to ask";
  EXPECT_THAT(Advice(here), HasSubstr("log stats --log"));
}

// Written by the command itself, and true as long as this holds: tilewright operators -o markdown.
TEST(CliOperators, TheDocumentedPageIsUpToDate) {
  const std::string path = TILEWRIGHT_SOURCE_DIR "/deploy/docs/operators.md";
  const std::string page = OperatorsPage(graph::SupportedOnnx());
  if (support::GetEnv("TILEWRIGHT_UPDATE_GOLDEN") == "1") {
    ASSERT_TRUE(support::WriteFileAtomic(path, page).ok());
  }
  const auto documented = support::ReadFile(path, 1 << 20);
  ASSERT_TRUE(documented.ok()) << documented.status();
  EXPECT_EQ(*documented, page) << "TILEWRIGHT_UPDATE_GOLDEN=1 writes it";
  EXPECT_THAT(page, HasSubstr("| Conv | ai.onnx | one to three spatial dimensions |\n"));
}

// Advice that does not apply is worse than none.
TEST(CliError, AdviceFitsWhatIsWrongWithAModel) {
  const auto advice = [](const char* slug) { return Advice(support::InvalidArgument(slug, "x")); };
  EXPECT_THAT(advice("graph.onnx.symbolic_shape"), HasSubstr("--shape"));
  EXPECT_THAT(advice("graph.onnx.element_type"), HasSubstr("tilewright operators"));
  EXPECT_THAT(advice("graph.onnx.external_data"), HasSubstr("into the model's folder"));
  EXPECT_THAT(advice("graph.onnx.unsupported_operator"), HasSubstr("tilewright operators"));
  EXPECT_THAT(advice("graph.onnx.opset"), HasSubstr("version_converter"));
  for (const char* slug :
       {"graph.onnx.symbolic_shape", "graph.onnx.element_type", "graph.onnx.external_data",
        "graph.onnx.unsupported_operator", "graph.onnx.attribute", "graph.onnx.dynamic"}) {
    EXPECT_THAT(advice(slug), Not(HasSubstr("onnx.checker"))) << slug << ": the file is fine";
  }
}

// A second tuning measures nothing: its times are the first one's, marked as such.
TEST(CliReport, TimesFromTheLogAreShownAndMarked) {
  const auto log = MakeLog({{"a", "x", 30, 2, "llvm-19", log::Outcome::kOk, true}, {"a", "x", 10}});
  log::JobRow second;
  second.id = "second";
  second.uid = "v";
  second.target = kTarget;
  second.spec_json = R"({"recall": true})";
  second.state_reason = "version 1 stays the default: it is faster";
  ASSERT_TRUE(log->CreateJob(second).ok());
  log::TaskRow task;
  task.job = "second";
  task.name = "a";
  task.hash = "hash-a";
  task.weight = 1;
  ASSERT_TRUE(log->PutTasks("second", "llvm-19", "net", {task}).ok());
  ReportOptions options;
  options.job = "second";
  const auto html = ReportHtml(log.get(), options);
  ASSERT_TRUE(html.ok()) << html.status();
  EXPECT_THAT(*html, HasSubstr("Default 30.0 ns, tuned 10.0 ns, gain 3.00x.</p>"));
  EXPECT_THAT(*html, HasSubstr("<p>version 1 stays the default: it is faster.</p>"));
  EXPECT_THAT(*html, HasSubstr("30.0 ns*</td>"));
  EXPECT_THAT(*html, HasSubstr("* from the log: measured by job j."));
}

TEST(CliScheduleChoice, BestUsableRecordPerTask) {
  const auto log = MakeLog({{"a", "x", 30},
                            {"a", "x", 20},
                            {"a", "x", 10, 2, "llvm-19", log::Outcome::kWrongResult},
                            {"b", "x", 7}});
  const auto choice = ChooseSchedules(log.get(), Query());
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->device_class, "x");
  EXPECT_EQ(choice->by_task.at("hash-a").steps, "steps 2");
  EXPECT_EQ(choice->by_task.at("hash-a").program_hash, "hash 2");
  EXPECT_EQ(choice->by_task.at("hash-b").median_ns, 7);
}

TEST(CliScheduleChoice, TheDefaultStaysUnlessBeatenBeyondNoise) {
  const RecordSpec by_default{"a", "x", 1000, 2, "llvm-19", log::Outcome::kOk, true};
  for (const double pick : {995.0, 980.0}) {
    const auto log = MakeLog({{"a", "x", pick}, by_default, {"a", "x", pick + 1}});
    const auto choice = ChooseSchedules(log.get(), Query());
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->by_task.at("hash-a").median_ns, pick < 990 ? pick : 1000);
  }
}

// By the rule of jobs (schedule_rule_test): a second measurement that differs counts.
TEST(CliScheduleChoice, FinalsCountMoreThanTheFastestRecord) {
  const auto final_of = [](int64_t number, double median) {
    RecordSpec spec{"a", "x", median};
    spec.final_of = number;
    return spec;
  };
  const auto choose = [](const std::vector<RecordSpec>& specs) {
    const auto log = MakeLog(specs);
    const auto choice = ChooseSchedules(log.get(), Query());
    TW_CHECK(choice.ok()) << choice.status();
    return choice->by_task.at("hash-a");
  };
  std::vector<RecordSpec> specs = {{"a", "x", 50}, {"a", "x", 100}};
  EXPECT_EQ(choose(specs).program_hash, "hash 1");
  specs.push_back(final_of(1, 200));  // far from the fastest record, and heard all the same
  EXPECT_EQ(choose(specs).program_hash, "hash 2");
  specs.push_back(final_of(2, 101));
  EXPECT_EQ(choose(specs).program_hash, "hash 2");
  EXPECT_EQ(choose(specs).median_ns, 100);
  RecordSpec wrong = final_of(2, 1);
  wrong.outcome = log::Outcome::kWrongResult;
  specs.push_back(wrong);
  EXPECT_EQ(choose(specs).program_hash, "hash 1");
  specs.push_back({"a", "x", 90});  // of a later job
  EXPECT_EQ(choose(specs).program_hash, "hash 6");
  RecordSpec by_default{"a", "x", 90.5, 2, "llvm-19", log::Outcome::kOk, true};
  specs.push_back(by_default);
  EXPECT_EQ(choose(specs).program_hash, "hash 7") << "not beaten beyond noise";
}

TEST(CliScheduleChoice, OtherThreadsAndToolchainsNeverCount) {
  const auto log = MakeLog({{"a", "x", 5, 4}, {"b", "x", 5, 2, "llvm-18"}});
  const auto choice = ChooseSchedules(log.get(), Query());
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_TRUE(choice->by_task.empty());
  EXPECT_EQ(choice->why_not.at("hash-a"), "measured with 4 threads");
  EXPECT_EQ(choice->why_not.at("hash-b"), "measured with toolchain llvm-18");
}

TEST(CliScheduleChoice, OneDeviceClassTheFullestOrTheOneAskedFor) {
  const auto log = MakeLog({{"a", "fast", 1}, {"a", "full", 9}, {"b", "full", 9}});
  const auto fullest = ChooseSchedules(log.get(), Query());
  ASSERT_TRUE(fullest.ok());
  EXPECT_EQ(fullest->device_class, "full");
  EXPECT_EQ(fullest->by_task.at("hash-a").median_ns, 9);
  EXPECT_THAT(fullest->other_classes, ElementsAre("fast"));
  const auto asked = ChooseSchedules(log.get(), Query("fast"));
  ASSERT_TRUE(asked.ok());
  EXPECT_EQ(asked->by_task.size(), 1U);
  EXPECT_EQ(asked->by_task.at("hash-a").median_ns, 1);
}

// `compile` runs on no device: which driver compiler the records have, they say themselves.
TEST(CliScheduleChoice, OneDriverCompilerTheFullestThenTheNewest) {
  ScheduleQuery query = Query();
  query.toolchain = "cl";
  const auto choose = [&](const std::vector<RecordSpec>& specs) {
    const auto choice = ChooseSchedules(MakeLog(specs).get(), query);
    TW_CHECK(choice.ok()) << choice.status();
    return *choice;
  };
  const RecordSpec old_a{"a", "x", 3, 2, "cl+maker-1"}, old_b{"b", "x", 3, 2, "cl+maker-1"};
  const RecordSpec new_a{"a", "x", 9, 2, "cl+maker-2"}, new_b{"b", "x", 9, 2, "cl+maker-2"};
  ScheduleChoice choice = choose({new_a, old_a, old_b});
  EXPECT_EQ(choice.toolchain, "cl+maker-1");
  EXPECT_EQ(choice.by_task.size(), 2U);
  EXPECT_THAT(choice.other_toolchains, ElementsAre("cl+maker-2"));
  EXPECT_THAT(choice.other_classes, ElementsAre());
  EXPECT_EQ(choose({new_a, old_a, old_b, new_b}).toolchain, "cl+maker-2");
  EXPECT_EQ(choose({new_a, new_b, old_a, old_b}).toolchain, "cl+maker-1") << "the newest records";
  EXPECT_EQ(choose({{"a", "x", 3, 2, "cl"}}).by_task.size(), 1U) << "of an older version";
  query.toolchain = "cl+maker-2";  // a job's: exactly that
  choice = choose({new_a, old_a, old_b});
  EXPECT_EQ(choice.by_task.size(), 1U);
  EXPECT_EQ(choice.why_not.at("hash-b"), "measured with toolchain cl+maker-1");
}

log::TrialRow Pick(const std::string& task, const std::string& model, double predicted,
                   double median) {
  log::TrialRow trial;
  trial.task = task;
  trial.model_id = model;
  trial.proposed_by = model.empty() ? "prior" : "model";
  trial.predicted = predicted;
  trial.median = median;
  return trial;
}

TEST(CliStats, PickQualityCountsPairsWithinATaskAndAModel) {
  // Larger predictions are better: (3, 1) right, (3, 2) right, (1, 2) wrong; other tasks apart.
  const auto quality =
      ComputePickQuality({Pick("a", "m", 3, 10), Pick("a", "m", 1, 20), Pick("a", "m", 2, 30),
                          Pick("b", "m", 9, 99), Pick("a", "", 1, 5), Pick("a", "m", 7, 0)});
  ASSERT_EQ(quality.size(), 2U);
  EXPECT_EQ(quality[0].model_id, "m");
  EXPECT_EQ(quality[0].measured, 4);
  EXPECT_EQ(quality[0].pairs, 3);
  EXPECT_EQ(quality[0].right, 2);
  EXPECT_EQ(quality[1].model_id, "prior");
  EXPECT_EQ(quality[1].pairs, 0);
}

TEST(CliEmbedded, StateFoldersDifferByLog) {
  const auto plain = EmbeddedStateDir("");
  const auto first = EmbeddedStateDir("a.db");
  const auto second = EmbeddedStateDir("b.db");
  if (!plain.ok()) GTEST_SKIP() << plain.status();  // neither HOME nor XDG_STATE_HOME
  EXPECT_NE(*plain, *first);
  EXPECT_NE(*first, *second);
  EXPECT_EQ(*first, *EmbeddedStateDir("a.db"));
  EXPECT_EQ(EmbeddedLog("/s"), "/s/tuner/tuner.db");
}

}  // namespace
}  // namespace tilewright::cli
