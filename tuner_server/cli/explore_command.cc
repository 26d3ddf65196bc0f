#include "tuner_server/cli/explore_command.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "compiler/target/on_chip.h"
#include "compiler/target/target.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/explore_synthesis.h"
#include "tuner_server/cli/local_tuning.h"
#include "tuner_server/cli/native_target.h"
#include "tuner_server/cli/svg_chart.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

constexpr double kNsPerUs = 1e3;
constexpr uint64_t kMaxCellsBytes = 1 << 20;

absl::StatusOr<std::vector<std::string>> TargetsOf(const ExploreOptions& options) {
  std::vector<std::string> targets;
  std::set<std::string> kinds;
  for (const std::string& text : options.targets) {
    TW_ASSIGN(const std::string expanded, ExpandMeasuredTarget(text));
    TW_ASSIGN(const target::Target parsed, target::ParseTarget(expanded));
    if (std::find(targets.begin(), targets.end(), expanded) != targets.end()) {
      return support::InvalidArgument("cli.usage.explore",
                                      StrCat("expected each target once, found two ", expanded));
    }
    targets.push_back(expanded);
    kinds.insert(parsed.kind);
  }
  if (kinds.size() == 1) return targets;
  return support::InvalidArgument(
      "cli.usage.explore", StrCat("expected targets of one kind, which one device measures, found ",
                                  support::Join(kinds, ", ")));
}

bool AnyCells(const std::vector<ExploredTarget>& rows) {
  return std::any_of(rows.begin(), rows.end(),
                     [](const ExploredTarget& row) { return row.cells.has_value(); });
}

std::string CellsText(const std::optional<int64_t>& cells) {
  return cells.has_value() ? CountText(static_cast<double>(*cells)) : "-";
}

absl::StatusOr<std::vector<ExploredTarget>> TuneAll(const ExploreOptions& options) {
  TW_ASSIGN(const std::vector<std::string> targets, TargetsOf(options));
  std::string cells;
  if (!options.cells_path.empty()) {
    TW_ASSIGN(cells, support::ReadFile(options.cells_path, kMaxCellsBytes));
  }
  CatchInterrupts();
  TW_ASSIGN(const auto here, LocalTuning::Start({options.state_dir, options.log_path,
                                                 targets.front(), options.device}));
  std::vector<ExploredTarget> rows;
  for (const std::string& target : targets) {
    PrintErr(StrCat("tuning for ", target, "; tuning log ", here->log_path(), "\n"));
    JobRequest request = options.job;
    request.target = target;
    // Weights change no time, and no module is wanted.
    request.records_only = true;
    TW_ASSIGN(const v1::Job job, here->Run(request));
    TW_TRY(support::WithContext(CheckSucceeded(job), target));
    TW_ASSIGN(const std::vector<v1::Task> tasks, FetchTasks(here->client(), job.name()));
    TW_ASSIGN(ExploredTarget row, ExploredOf(target, tasks));
    rows.push_back(std::move(row));
  }
  if (!options.synthesise_path.empty()) {
    constexpr int64_t kMsPerMinute = 60'000;
    TW_TRY(Synthesise({options.synthesise_path, options.synthesis_minutes * kMsPerMinute}, &rows));
  }
  if (!cells.empty()) TW_TRY(AddCells(cells, options.cells_path, &rows));
  MarkBest(&rows);
  return rows;
}

absl::Status RunExplore(const ExploreOptions& options) {
  TW_ASSIGN(const std::vector<ExploredTarget> rows, TuneAll(options));
  if (!options.svg_path.empty())
    TW_TRY(support::WriteFileAtomic(options.svg_path, ExploreSvg(rows)));
  if (options.format == OutputFormat::kJson) {
    PrintJson(ExploreJson(rows));
    return absl::OkStatus();
  }
  PrintOut(ExploreTable(rows));
  if (!options.svg_path.empty()) PrintOut(StrCat("wrote ", options.svg_path));
  return absl::OkStatus();
}

}  // namespace

std::string ConfigurationOf(const std::string& target) {
  const auto parsed = target::ParseTarget(target);
  if (!parsed.ok() || parsed->cpu.empty()) return target;
  const size_t kind_bytes = parsed->kind.size() + 1;
  const std::string settings = parsed->WithoutThreads().substr(kind_bytes);
  return settings.find(',') == std::string::npos ? parsed->cpu : settings;
}

absl::StatusOr<ExploredTarget> ExploredOf(const std::string& target,
                                          const std::vector<v1::Task>& tasks) {
  TW_ASSIGN(const target::Target parsed, target::ParseTarget(target));
  ExploredTarget row;
  row.target = target;
  row.on_chip_bytes = target::OnChipBytes(parsed.machine);
  for (const v1::Task& task : tasks) {
    row.kernels += task.weight();
    row.trials += task.trials();
    if (!(task.default_us() > 0) || !(task.best_us() > 0)) {
      row.unmeasured += task.weight();
      continue;
    }
    row.default_value += task.weight() * task.default_us() * kNsPerUs;
    row.tuned_value += task.weight() * task.best_us() * kNsPerUs;
    row.unit = UnitOf(task.value_kind()).name;
  }
  return row;
}

absl::Status AddCells(const std::string& text, const std::string& from,
                      std::vector<ExploredTarget>* rows) {
  const nlohmann::json parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto bad = [](std::string_view what) {
    return support::InvalidArgument(
        "cli.explore.cells",
        StrCat("expected {\"CONFIGURATION\": {\"cells\": N}, ...} in the file of --cells, found ",
               what));
  };
  if (!parsed.is_object()) return bad("no JSON object");
  const nlohmann::json& known = parsed.contains("synthesis") && parsed["synthesis"].is_object()
                                    ? parsed["synthesis"]
                                    : parsed;
  for (ExploredTarget& row : *rows) {
    if (row.cells.has_value()) continue;
    const auto found = known.find(ConfigurationOf(row.target));
    if (found == known.end()) continue;
    if (!found->is_object() || !found->contains("cells") || !(*found)["cells"].is_number_integer())
      return bad(StrCat("no cells of ", ConfigurationOf(row.target)));
    row.cells = (*found)["cells"].get<int64_t>();
    row.cells_from = from;
    if (found->contains("block_ram") && (*found)["block_ram"].is_number())
      row.block_ram = (*found)["block_ram"].get<double>();
  }
  return absl::OkStatus();
}

void MarkBest(std::vector<ExploredTarget>* rows) {
  const auto better = [](const ExploredTarget& a, const ExploredTarget& b) {
    if (a.kernels != b.kernels || a.unmeasured > 0 || a.unit != b.unit) return false;
    const bool as_good = a.on_chip_bytes <= b.on_chip_bytes && a.tuned_value <= b.tuned_value;
    return as_good && (a.on_chip_bytes < b.on_chip_bytes || a.tuned_value < b.tuned_value);
  };
  for (ExploredTarget& row : *rows) {
    row.is_best = row.unmeasured == 0 && row.tuned_value > 0 &&
                  std::none_of(rows->begin(), rows->end(),
                               [&](const ExploredTarget& other) { return better(other, row); });
  }
}

std::string ExploreTable(const std::vector<ExploredTarget>& rows) {
  const bool synthesised = AnyCells(rows);
  std::vector<Table::Column> columns = {{"target"}, {"on chip", true}};
  if (synthesised) columns.insert(columns.end(), {{"cells", true}, {"block RAM", true}});
  columns.insert(columns.end(), {{"kernels", true},
                                 {"default", true},
                                 {"tuned", true},
                                 {"gain", true},
                                 {"trials", true},
                                 {"best"}});
  Table table(columns);
  for (const ExploredTarget& row : rows) {
    std::vector<std::string> cells = {
        row.target,
        row.on_chip_bytes > 0 ? BytesText(static_cast<double>(row.on_chip_bytes)) : "-"};
    if (synthesised) {
      cells.push_back(CellsText(row.cells));
      cells.push_back(row.block_ram.has_value() ? support::FormatFixed(*row.block_ram, 1) : "-");
    }
    const std::string kernels = row.unmeasured > 0
                                    ? StrCat(row.kernels, " (", row.unmeasured, " without a value)")
                                    : StrCat(row.kernels);
    cells.insert(cells.end(), {kernels, ValueText(row.default_value, row.unit),
                               ValueText(row.tuned_value, row.unit),
                               RatioText(row.default_value, row.tuned_value), StrCat(row.trials),
                               row.is_best ? "*" : ""});
    table.AddRow(std::move(cells));
  }
  std::string notes;
  for (const ExploredTarget& row : rows) {
    if (row.cells_from.empty() && row.cells_note.empty()) continue;
    const std::string said = row.cells_from.empty() ? "none" : StrCat("by ", row.cells_from);
    const std::string why = row.cells_note.empty() ? "" : StrCat(" (", row.cells_note, ")");
    notes += StrCat("cells of ", ConfigurationOf(row.target), ": ", said, why, "\n");
  }
  return StrCat(table.Render(), notes,
                "* no other target with as many kernels on the device is as small and as fast\n");
}

nlohmann::json ExploreJson(const std::vector<ExploredTarget>& rows) {
  nlohmann::json out = nlohmann::json::array();
  for (const ExploredTarget& row : rows) {
    nlohmann::json entry = {{"target", row.target},
                            {"on_chip_bytes", row.on_chip_bytes},
                            {"kernels", row.kernels},
                            {"unmeasured", row.unmeasured},
                            {"default", row.default_value},
                            {"tuned", row.tuned_value},
                            {"unit", row.unit},
                            {"trials", row.trials},
                            {"best", row.is_best}};
    if (row.cells.has_value()) entry["cells"] = *row.cells;
    if (row.block_ram.has_value()) entry["block_ram"] = *row.block_ram;
    if (!row.cells_from.empty()) entry["cells_from"] = row.cells_from;
    if (!row.cells_note.empty()) entry["cells_note"] = row.cells_note;
    out.push_back(std::move(entry));
  }
  return {{"targets", std::move(out)}};
}

namespace {

// Values against what each configuration costs by `cost`; those that it does not know are left out.
template <typename Cost>
Chart ChartOf(const std::vector<ExploredTarget>& rows, const std::string& label, Cost cost) {
  ChartSeries tuned{.name = "tuned", .points = {}, .line = false};
  ChartSeries by_default{.name = "default", .points = {}, .line = false};
  std::string unit;
  for (const ExploredTarget& row : rows) {
    const std::optional<double> x = cost(row);
    if (!x) continue;
    const auto title = [&](double value) {
      std::string text = StrCat(row.target, ": ", ValueText(value, row.unit));
      if (row.cells.has_value()) text += StrCat(", ", *row.cells, " cells");
      return text;
    };
    tuned.points.push_back(
        {*x, row.tuned_value, title(row.tuned_value), ConfigurationOf(row.target)});
    by_default.points.push_back({*x, row.default_value, title(row.default_value)});
    unit = row.unit;
  }
  const support::MeasureUnit* known = support::FindMeasureUnit(unit);
  return {.x_label = label,
          .y_label = std::string(known != nullptr ? known->symbol : "value"),
          .series = {std::move(tuned), std::move(by_default)}};
}

}  // namespace

std::string ExploreSvg(const std::vector<ExploredTarget>& rows) {
  constexpr double kKiB = 1024;
  std::vector<Chart> charts = {ChartOf(rows, "on-chip memory, KiB", [](const ExploredTarget& row) {
    return std::optional(static_cast<double>(row.on_chip_bytes) / kKiB);
  })};
  if (AnyCells(rows)) {
    charts.push_back(ChartOf(rows, "cells", [](const ExploredTarget& row) {
      return row.cells ? std::optional(static_cast<double>(*row.cells)) : std::nullopt;
    }));
  }
  return ChartFile(charts);
}

int Explore(const ExploreOptions& options) {
  return Finish("explore", "cannot explore " + options.job.model_path, RunExplore(options));
}

}  // namespace tilewright::cli
