// The parts of a search that can be switched off or on, job by job: for ablations and for people
// who look for a part's fault. Without the compiler; pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tilewright::search {

struct SearchParts {
  bool transfer = true;       // decisions of a task's relatives in the log, first of all
  bool quota = true;          // early picks of micro-kernels that were not tried yet
  bool owed = true;           // first picks of each algorithm of an operator
  bool adapt = true;          // mutations and crossings of the best measured
  bool evolution = true;      // mutations of what the model likes best, and of those ...
  bool annealing = false;     // or, instead, chains of mutations that cool down
  bool descent = false;       // half of the later picks next to the best measured
  bool training = true;       // of the cost model on what the job measured
  bool shipped_model = true;  // ranks before the first training; else the analytical estimate
  bool finals = false;        // the front-runners again, in turns, when the budget ends

  bool operator==(const SearchParts&) const = default;
};

// Each of `switches` is "PART=on" or "PART=off"; the last one of a part counts. invalid_argument
// search.part for anything else.
absl::StatusOr<SearchParts> ParseSearchParts(const std::vector<std::string>& switches);
// "adapt, annealing, …": what can be switched.
std::string SearchPartNames();

}  // namespace tilewright::search
