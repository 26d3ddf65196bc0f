// Which of a task's measured programs is its schedule: one rule for jobs and for `compile --log`.
//
// - A program's time is that of its fastest record. Of many records the fastest is partly luck, so
//   finals measure the front-runners again, in turns (trials made by "final"). Once a program has
//   two such measurements, the lower median of them is its time.
// - The default schedule stays unless a pick beats it by more than the two measurements can be off:
//   a tuned module must never be slower than an untuned one by luck. If both were in the finals,
//   the faster one is taken.
#pragma once

#include <string_view>
#include <vector>

#include "tuner_server/log/log_types.h"

namespace tilewright::log {

// TrialRow.generated_by of such a trial.
inline constexpr std::string_view kFinal = "final";

struct MeasuredTrial {
  TrialRow trial;
  RecordRow record;  // usable
};

// The trials that may become a task's schedule. A plain value, not thread-safe.
class Contenders {
 public:
  void Add(TrialRow trial, RecordRow record);
  // Null: nothing was added. Valid until the next Add.
  const MeasuredTrial* Choice() const;
  // Returns the two fastest programs, the faster one first, if finals are worth their cost: the
  // second is within `share` of the first, and neither was in finals. Else returns none.
  std::vector<const MeasuredTrial*> FrontRunners(double share) const;

 private:
  struct Program {
    const MeasuredTrial* row = nullptr;  // the one that represents it
    bool is_default = false;
    int finals = 0;
  };
  std::vector<Program> Programs() const;

  std::vector<MeasuredTrial> rows_;  // in the order added
  double fastest_ = 0;
};

}  // namespace tilewright::log
