// Which of a task's measured programs is its schedule: one rule for jobs and for `compile --log`.
//
// - A program's time is that of its fastest record, which of many is partly luck. A front-runner
//   that was measured again in turns with the others (trials made by "final") has the lower median
//   of those measurements instead, once there are two of them.
// - The default schedule stays unless a pick beats it by more than the two measurements can be off:
//   a tuned module must never be slower than an untuned one by luck. Where both were in the finals,
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

// What could become a task's schedule. Keeps only those; a plain value, not thread-safe.
class Contenders {
 public:
  void Add(TrialRow trial, RecordRow record);
  // Null: nothing was added. Valid until the next Add.
  const MeasuredTrial* Choice() const;
  // The programs that finals are worth for: the two fastest, the faster one first, where the second
  // is within `share` of the first and neither was in finals. Else empty.
  std::vector<const MeasuredTrial*> FrontRunners(double share) const;

 private:
  struct Program {
    const MeasuredTrial* row = nullptr;  // stands for it
    bool is_default = false;
    int finals = 0;
  };
  std::vector<Program> Programs() const;

  std::vector<MeasuredTrial> rows_;  // in the order added
  double fastest_ = 0;
};

}  // namespace tilewright::log
