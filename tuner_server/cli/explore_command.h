// `tilewright explore`: one model, tuned for several configurations of a device on this machine, to
// choose the hardware by. Blocking; one thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "deploy/support/measure_units.h"
#include "deploy/support/status.h"
#include "tuner_server/cli/job_commands.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct ExploreOptions {
  JobRequest job;                    // for each target; its own target is not used
  std::vector<std::string> targets;  // of one kind
  std::string device;                // index or name; empty: the first of the kind
  std::string state_dir, log_path;   // as those of tune
  // What synthesis says of each configuration: by a program that runs it, then from a file where it
  // says nothing. Empty: nothing.
  std::string synthesise_path, cells_path;
  int64_t synthesis_minutes = 20;  // of one configuration
  std::string svg_path;            // gets the picture; empty: none
  OutputFormat format = OutputFormat::kTable;
};

// What a configuration costs, and what it gives.
struct ExploredTarget {
  std::string target;
  int64_t on_chip_bytes = 0;          // 0: the machine has no such memory
  std::optional<int64_t> cells = {};  // of the synthesised hardware
  std::optional<double> block_ram = {};
  std::string cells_from = {};          // the file or the program that said it
  std::string cells_note = {};          // why synthesis said nothing
  int64_t kernels = 0, unmeasured = 0;  // launches of the model on the device; of those, not timed
  double default_value = 0, tuned_value = 0;  // of all launches, in `unit`
  std::string unit;
  int64_t trials = 0;
  // No other target is as small and as fast, and one of both more. Those that run other numbers of
  // kernels on the device are not compared.
  bool is_best = false;
};

// The configuration's name; all settings where memories have other sizes than it says; or the whole
// target.
std::string ConfigurationOf(const std::string& target);
// The row of a target whose kernels were tuned.
absl::StatusOr<ExploredTarget> ExploredOf(const std::string& target,
                                          const std::vector<v1::Task>& tasks);
// Adds what the text says, a JSON object {CONFIGURATION: {"cells": N, "block_ram": N}} or one with
// such an object as its member "synthesis". invalid_argument cli.explore.cells for another text.
// Configurations that it does not name, and those that have cells, stay as they are. `from`: the
// text's file.
absl::Status AddCells(const std::string& text, const std::string& from,
                      std::vector<ExploredTarget>* rows);
void MarkBest(std::vector<ExploredTarget>* rows);

std::string ExploreTable(const std::vector<ExploredTarget>& rows);
nlohmann::json ExploreJson(const std::vector<ExploredTarget>& rows);
// Cycles, or times, against on-chip memory, and against cells where they are known.
std::string ExploreSvg(const std::vector<ExploredTarget>& rows);

// Returns the exit code.
int Explore(const ExploreOptions& options);

}  // namespace tilewright::cli
