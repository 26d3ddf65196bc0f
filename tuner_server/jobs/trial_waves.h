// When an ended trial counts for its job: in what the search is told, the best times and the
// scheduler. Where devices measure by a clock, each trial counts as it ends. Where equal runs give
// equal values (a counter), two jobs of one seed must choose the same trials, so it must not matter
// which of two trials ended first. A wave is a batch of the search, the defaults or the finals. Its
// trials count together, in the order of their numbers, when all of them have ended. The next wave
// is asked for only then. A plain value; one owner.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tuner_server/log/log_types.h"

namespace tilewright::jobs {

struct EndedTrial {
  log::TrialRow trial;
  std::optional<log::RecordRow> record;  // of the measurement or build that ended it
};

class TrialWaves {
 public:
  // Takes the classes of the devices that could measure. Empty ones say nothing.
  template <typename Classes>
  void NoteClasses(const Classes& classes) {
    bool all_exact = true, any = false;
    for (const std::string& one : classes) {
      if (one.empty()) continue;
      any = true;
      all_exact = all_exact && IsExact(one);
    }
    if (!any) return;
    known_ = true;
    exact_ = all_exact;
  }

  // True if every device that could measure counts, and equal runs give equal values.
  bool exact() const { return exact_; }
  // True if the search must not be asked while a trial is open. That holds also before the first
  // device is known: it may be an exact one.
  bool SearchWaits() const { return exact_ || !known_; }

  // Takes a trial that ended; `last`: no trial is open now. Returns those that count from now on.
  std::vector<EndedTrial> Add(EndedTrial ended, bool last);
  // The same for a job that continues: all trials that have ended, by their numbers, and the open
  // one with the smallest number (null: none is open).
  std::vector<EndedTrial> Restore(std::vector<EndedTrial> ended, const log::TrialRow* open);

 private:
  static bool IsExact(const std::string& device_class);
  std::vector<EndedTrial> TakeWave();

  bool known_ = false;
  bool exact_ = false;
  std::map<int64_t, EndedTrial> wave_;  // ended, and do not count yet; by number
};

}  // namespace tilewright::jobs
