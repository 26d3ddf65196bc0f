#include "tuner_server/cli/report_command.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/driver/tasks.h"
#include "deploy/module/dtype.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/compile_command.h"
#include "tuner_server/cli/html_page.h"
#include "tuner_server/cli/launch_text.h"
#include "tuner_server/cli/layer_view.h"
#include "tuner_server/cli/log_jobs.h"
#include "tuner_server/cli/server_client.h"
#include "tuner_server/cli/shape_flags.h"
#include "tuner_server/cli/svg_chart.h"
#include "tuner_server/cli/table.h"
#include "tuner_server/jobs/job_times.h"
#include "tuner_server/jobs/work_items.h"
#include "tuner_server/log/log_stats.h"

namespace tilewright::cli {
namespace {

using support::FormatFixed;
using support::StrCat;

// One job with what the charts need.
struct JobData {
  log::JobStats stats;  // its tasks' times are those below
  jobs::JobTimes times;
  std::vector<log::TrialRow> trials;  // in the order of their ends, open ones left out
  std::vector<log::RecordRow> records;
};

absl::StatusOr<JobData> Load(log::TuningLog* log, const std::string& job) {
  JobData data;
  TW_ASSIGN(data.stats, log::ComputeJobStats(log, job));
  TW_ASSIGN(const v1::Job spec, jobs::SpecFromJson(data.stats.job.spec_json));
  TW_ASSIGN(data.times, jobs::ReadJobTimes(log, data.stats.job, spec));
  for (size_t i = 0; i < data.times.tasks.size(); ++i) {
    data.stats.tasks[i].default_median = data.times.tasks[i].standard.time;
    data.stats.tasks[i].best_median = data.times.tasks[i].best.time;
  }
  TW_ASSIGN(std::vector<log::TrialRow> trials, AllTrials(log, job));
  std::erase_if(trials, [](const log::TrialRow& trial) { return !log::IsFinal(trial.state); });
  std::stable_sort(trials.begin(), trials.end(),
                   [](const auto& a, const auto& b) { return a.ended_us < b.ended_us; });
  data.trials = std::move(trials);
  log::RecordQuery query{job, 0, log::kPageRows};
  while (true) {
    TW_ASSIGN(const std::vector<log::RecordRow> page, log->ListRecords(query));
    if (page.empty()) return data;
    data.records.insert(data.records.end(), page.begin(), page.end());
    query.after_seq = page.back().seq;
  }
}

// Otherwise the medians are cycles, and operations per cycle are no rate of a machine.
bool IsTime(const JobData& data) {
  const support::MeasureUnit* unit = support::FindMeasureUnit(data.stats.unit);
  return unit == nullptr || unit->time;
}

// End-to-end time after each ended trial: the sum over tasks of uses x best so far.
std::string CurveSvg(const JobData& data) {
  std::map<std::string, double> weight, best;
  for (const log::TaskStats& task : data.stats.tasks) {
    weight[task.task.name] = static_cast<double>(task.task.weight);
  }
  ChartSeries curve{"best so far", {}, true, true};
  double shown = 0;
  for (size_t i = 0; i < data.trials.size(); ++i) {
    const log::TrialRow& trial = data.trials[i];
    double& mine = best[trial.task];
    if (trial.median > 0 && (mine <= 0 || trial.median < mine)) mine = trial.median;
    double total = 0;
    bool all = true;
    for (const auto& [name, uses] : weight) {
      all = all && best[name] > 0;
      total += uses * best[name];
    }
    const bool last = i + 1 == data.trials.size();
    if (!all || (total == shown && !last)) continue;
    curve.points.push_back({static_cast<double>(i + 1), total * 1e-3,
                            StrCat("trial ", i + 1, ": ", ValueText(total, data.stats.unit))});
    shown = total;
  }
  Chart chart{
      "trials ended", StrCat("end to end, ", IsTime(data) ? "µs" : "kcycles", " (sum of kernels)"),
      false,          false,
      true,           {curve}};
  const double baseline = data.stats.default_total() * 1e-3;
  if (baseline > 0 && !curve.points.empty()) {
    chart.series.push_back(
        {"default schedules",
         {{curve.points.front().x, baseline, ""}, {curve.points.back().x, baseline, ""}}});
  }
  return ChartSvg(chart);
}

// Marked where another job measured it.
std::string MarkedTime(const jobs::TrialTime& time, const std::string& job) {
  return ValueText(time.time, time.unit) + (time.time > 0 && time.job != job ? "*" : "");
}

// What the marks of the table mean, and why times are missing.
std::string TaskNotesHtml(const JobData& data) {
  std::set<std::string> others;
  std::string text;
  for (size_t i = 0; i < data.times.tasks.size(); ++i) {
    const jobs::TaskTimes& task = data.times.tasks[i];
    for (const jobs::TrialTime* time : {&task.standard, &task.best}) {
      if (time->time > 0 && time->job != data.stats.job.id) others.insert(time->job);
    }
    if (task.standard.time > 0) continue;
    text += StrCat("<p>No default time of ", EscapeHtml(data.times.rows[i].name), ": ",
                   EscapeHtml(task.why_no_default), ".</p>\n");
  }
  if (others.empty()) return text;
  return StrCat("<p>* from the log: measured by job ", EscapeHtml(support::Join(others, ", ")),
                ".</p>\n", text);
}

std::string TasksHtml(const JobData& data) {
  const auto time = [&](size_t i) {
    return data.times.tasks[i].weight * data.times.tasks[i].best.time;
  };
  std::vector<size_t> order;
  double total = 0;
  for (size_t i = 0; i < data.times.tasks.size(); ++i) {
    order.push_back(i);
    total += time(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&time](size_t a, size_t b) { return time(a) > time(b); });
  std::vector<std::vector<std::string>> rows;
  for (const size_t i : order) {
    const log::TaskRow& row = data.times.rows[i];
    const jobs::TaskTimes& task = data.times.tasks[i];
    const double share = total > 0 ? 100 * time(i) / total : 0;
    const double gflops = task.best.time > 0 && IsTime(data) ? row.flops / task.best.time : 0;
    rows.push_back({row.name, row.description, StrCat(row.weight),
                    MarkedTime(task.standard, row.job), MarkedTime(task.best, row.job),
                    RatioText(task.standard.time, task.best.time),
                    gflops > 0 ? FormatFixed(gflops, 1) : "-", FormatFixed(share, 1) + "%",
                    StrCat(task.ended), LaunchesText(module::ParseLaunchNames(row.launch_names))});
  }
  return HtmlTable({"task", "what", ">uses", ">default", ">best", ">gain", ">GFLOP/s",
                    ">of the time", ">trials", "launches (ONNX nodes)"},
                   rows) +
         TaskNotesHtml(data);
}

// What the launches of the tuned kernels take together, layer by layer: the best time of each task,
// as often as it is used.
std::vector<LaunchProfile> LaunchesOf(const JobData& data, const ReportOptions& options) {
  std::vector<LaunchProfile> launches;
  double total = 0;
  const peaks::Roofline roofline(options.peaks.float32, options.peaks.int8,
                                 {{0, options.peak_gbs}});
  for (size_t i = 0; i < data.times.tasks.size(); ++i) {
    const log::TaskRow& row = data.times.rows[i];
    const double time = data.times.tasks[i].best.time;
    if (time <= 0) continue;
    peaks::KernelWork work{row.flops};
    if (const auto task = driver::MakeTask(row.text); task.ok()) {
      work.bytes = static_cast<double>(task->bytes);
      work.type = module::DTypeFromName(task->data_type).value_or(work.type);
    }
    for (const module::LaunchNames& names : module::ParseLaunchNames(row.launch_names)) {
      LaunchProfile& launch = launches.emplace_back();
      launch.name = names.launch;
      launch.task = names.task;
      launch.nodes = names.nodes;
      launch.median_ns = time;
      launch.gflop_s = work.operations / time;
      launch.gb_s = work.bytes / time;
      launch.of_limit = roofline.LeastNs(work) / time;
      launch.bound = roofline.BoundOf(work);
      total += time;
    }
  }
  for (LaunchProfile& launch : launches) launch.share = launch.median_ns / total;
  return launches;
}

// Operations per byte that must move at least, against operations per time: what a kernel could
// reach on a machine is the lower of its two roofs.
std::string RooflineSvg(const JobData& data, const ReportOptions& options) {
  ChartSeries defaults{"default schedule", {}, false}, best{"best schedule", {}, false};
  double low = 0, high = 0;
  std::set<std::string> data_types;
  for (const log::TaskStats& stats : data.stats.tasks) {
    const auto task = driver::MakeTask(stats.task.text);
    if (!task.ok() || task->bytes <= 0 || stats.task.flops <= 0) continue;
    const double intensity = stats.task.flops / static_cast<double>(task->bytes);
    low = low == 0 ? intensity : std::min(low, intensity);
    high = std::max(high, intensity);
    data_types.insert(task->data_type);
    const auto point = [&](double median) {
      const double gflops = stats.task.flops / median;
      return ChartPoint{
          intensity, gflops,
          StrCat(stats.task.name, ": ", ValueText(median, data.stats.unit), ", ",
                 FormatFixed(gflops, 1), " GFLOP/s, ", FormatFixed(intensity, 2), " FLOP/byte")};
    };
    if (stats.default_median > 0) defaults.points.push_back(point(stats.default_median));
    if (stats.best_median > 0) best.points.push_back(point(stats.best_median));
  }
  Chart chart{"operations per byte", "GFLOP/s", true, true, false, {defaults, best}};
  for (const std::string& data_type : data_types) {
    const double peak = options.peaks.Of(data_type);
    if (peak > 0) chart.series.push_back(Roof(data_type, peak, options.peak_gbs, low, high));
  }
  return ChartSvg(chart);
}

std::string DeviceTimeHtml(const JobData& data) {
  std::map<std::string, std::pair<double, int64_t>> by_device;
  for (const log::RecordRow& record : data.records) {
    if (record.device.empty()) continue;
    auto& [seconds, count] = by_device[LastPart(record.device)];
    seconds += record.fetch_s + record.load_s + record.run_s;
    ++count;
  }
  std::vector<Bar> devices;
  for (const auto& [name, use] : by_device) {
    devices.push_back(
        {name, StrCat(FormatFixed(use.first, 1), " s, ", use.second, " measured"), use.first});
  }
  const log::TimeShares& time = data.stats.time;
  std::vector<Bar> work;
  for (const auto& [label, seconds] :
       std::initializer_list<std::pair<const char*, double>>{{"making candidates", time.search_s},
                                                             {"feature vectors", time.features_s},
                                                             {"ranking", time.model_s},
                                                             {"training", time.train_s},
                                                             {"lowering", time.lower_s},
                                                             {"code generation", time.codegen_s},
                                                             {"linking", time.link_s},
                                                             {"to the device", time.fetch_s},
                                                             {"loading", time.load_s},
                                                             {"running", time.run_s}}) {
    work.push_back({label, FormatFixed(seconds, 2) + " s", seconds});
  }
  return BarsSvg(devices) + HtmlSection(4, "By kind of work", BarsSvg(work));
}

std::string FailuresHtml(const JobData& data) {
  struct Kind {
    int64_t count = 0;
    std::string example, measurement;
  };
  std::map<std::tuple<std::string, std::string, std::string>, Kind> kinds;
  for (const log::RecordRow& record : data.records) {
    // A candidate that was stopped for being slow did not fail.
    if (record.outcome == log::Outcome::kEarlyStopped) continue;
    if (record.outcome == log::Outcome::kOk && record.valid) continue;
    const std::string outcome = record.outcome == log::Outcome::kOk
                                    ? "not valid: " + support::Join(record.invalid_reasons, " ")
                                    : std::string(log::OutcomeName(record.outcome));
    Kind& kind = kinds[{outcome, record.error_class, record.task}];
    ++kind.count;
    if (kind.example.empty()) kind.example = record.error_detail.substr(0, 300);
    kind.measurement = record.measurement_id;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [key, kind] : kinds) {
    rows.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), StrCat(kind.count),
                    kind.example, kind.measurement});
  }
  return HtmlTable({"outcome", "class", "task", ">count", "an example", "last measurement"}, rows);
}

std::string JobHtml(const JobData& data, const ReportOptions& options) {
  const log::JobRow& job = data.stats.job;
  const jobs::TimedTasks timed = jobs::SumTimed(data.times.tasks);
  const log::ModelSizes sizes = SizesOfSpec(job.spec_json);
  std::string html = StrCat(
      "<p>", EscapeHtml(job.model_name.empty() ? "model" : job.model_name), " for ",
      EscapeHtml(job.target), sizes.empty() ? "" : ", " + EscapeHtml(sizes.Words()), ", asked by ",
      EscapeHtml(job.created_by.empty() ? "-" : job.created_by), ": ",
      EscapeHtml(support::ToLower(log::JobStateName(job.state))), " after ",
      data.stats.counts.ended, " trials; ", FormatFixed(data.stats.counts.device_s, 1),
      " s on devices. Default ", ValueText(timed.standard, data.stats.unit), ", tuned ",
      ValueText(timed.best, data.stats.unit), ", gain ", RatioText(timed.standard, timed.best),
      static_cast<size_t>(timed.tasks) == data.times.tasks.size()
          ? ""
          : StrCat(" (", timed.tasks, " of ", data.times.tasks.size(), " tasks)"),
      ".</p>\n");
  if (!job.state_reason.empty()) html += StrCat("<p>", EscapeHtml(job.state_reason), ".</p>\n");
  html += HtmlSection(3, "Tuning curve", CurveSvg(data));
  html += HtmlSection(3, "Tasks", TasksHtml(data));
  if (IsTime(data)) {
    html += HtmlSection(3, "Layers", LayersHtml(LayersOf(LaunchesOf(data, options))));
    html += HtmlSection(3, "Roofline", RooflineSvg(data, options));
  }
  html += HtmlSection(3, "Device time", DeviceTimeHtml(data));
  html += HtmlSection(3, "Failures", FailuresHtml(data));
  return HtmlSection(2, "Job " + job.id, html);
}

absl::Status Write(ReportOptions options) {
  TW_TRY(CheckWritable(options.output));
  TW_ASSIGN(const LogPlace place, ResolveLogPlace(options.place));
  TW_ASSIGN(const std::unique_ptr<log::TuningLog> log, OpenLog(place, options.job, true));
  const bool all_known = options.peaks.float32 > 0 && options.peaks.int8 > 0;
  if (!all_known && place.log_path.empty()) {
    TW_ASSIGN(const std::vector<log::JobRow> jobs, AllJobs(log.get(), options.job));
    TW_ASSIGN(ServerClient client, ServerClient::Connect(place.server));
    FleetPeaks fleet;
    for (const log::JobRow& job : jobs) {
      const FleetPeaks peaks = FindFleetPeaks(client, job.target);
      fleet.float32 = std::max(fleet.float32, peaks.float32);
      fleet.int8 = std::max(fleet.int8, peaks.int8);
    }
    if (options.peaks.float32 <= 0) options.peaks.float32 = fleet.float32;
    if (options.peaks.int8 <= 0) options.peaks.int8 = fleet.int8;
  }
  TW_ASSIGN(const std::string html, ReportHtml(log.get(), options));
  TW_TRY(support::WriteFileAtomic(options.output, html));
  PrintOut(StrCat("wrote ", options.output, "  ", BytesText(static_cast<double>(html.size()))));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReportHtml(log::TuningLog* log, const ReportOptions& options) {
  TW_ASSIGN(const std::vector<log::JobRow> jobs, AllJobs(log, options.job));
  std::string body;
  std::vector<std::vector<std::string>> rows;
  for (const log::JobRow& job : jobs) {
    TW_ASSIGN(const JobData data, Load(log, job.id));
    const log::JobStats& stats = data.stats;
    const jobs::TimedTasks timed = jobs::SumTimed(data.times.tasks);
    rows.push_back({job.id, job.model_name, job.target,
                    support::ToLower(log::JobStateName(job.state)), StrCat(stats.counts.ended),
                    ValueText(timed.standard, stats.unit), ValueText(timed.best, stats.unit),
                    RatioText(timed.standard, timed.best),
                    FormatFixed(stats.counts.device_s, 1) + " s"});
    body += JobHtml(data, options);
  }
  return HtmlPage("Tilewright report", HtmlTable({"job", "model", "target", "state", ">trials",
                                                  ">default", ">tuned", ">gain", ">device time"},
                                                 rows) +
                                           body);
}

int Report(const ReportOptions& options) {
  return Finish("report", "cannot write the report", Write(options));
}

}  // namespace tilewright::cli
