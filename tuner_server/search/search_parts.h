// The parts of a search that a job can switch off or on: for ablations, and to find the part that
// causes a problem. Does not use the compiler. Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tilewright::search {

struct SearchParts {
  bool transfer = true;       // first picks: decisions of a task's relatives in the log
  bool quota = true;          // early picks of micro-kernels that were not tried yet
  bool owed = true;           // first picks of each algorithm of an operator
  bool adapt = true;          // mutations and crossings of the best measured
  bool evolution = true;      // generations of mutations of the best predicted
  bool annealing = false;     // instead of generations: chains of mutations that cool down
  bool descent = false;       // half of the later picks are neighbours of the best measured
  bool training = true;       // of the cost model on what the job measured
  bool shipped_model = true;  // ranks before the first training; else the analytical estimate
  bool finals = true;         // the winners are measured again when the search has ended

  bool operator==(const SearchParts&) const = default;
};

// Parses switches "PART=on" and "PART=off". The last one of a part counts. invalid_argument
// search.part for any other text.
absl::StatusOr<SearchParts> ParseSearchParts(const std::vector<std::string>& switches);
// Returns the names of the parts: "adapt, annealing, …".
std::string SearchPartNames();

}  // namespace tilewright::search
