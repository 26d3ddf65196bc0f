// Which of a task's measured programs is its schedule: one rule for jobs and for `compile --log`.
//
// - A program that was measured once has the time of that record. Of many the fastest is partly
//   luck, or a lie. So a job measures its winners again (finals), and the time of a program with
//   several records is their median: of two that differ by more than noise, the slower one.
// - A program that gave a wrong result, or failed in its final, is never a schedule.
// - The default schedule stays unless a pick beats it by more than the two measurements can be off:
//   a tuned module must never be slower than an untuned one by luck.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tuner_server/log/log_types.h"

namespace tilewright::log {

// TrialRow.generated_by of a trial that measures a winner again.
inline constexpr std::string_view kFinal = "final";

struct MeasuredTrial {
  TrialRow trial;
  RecordRow record;  // usable
};

// True if the record shows that its program must not be chosen, for any other records.
bool Refutes(const TrialRow& trial, const RecordRow& record);

// The trials that may become a task's schedule. A plain value, not thread-safe.
class Contenders {
 public:
  // Takes any record of the task. One that is neither usable nor refutes its program says nothing.
  void Add(TrialRow trial, RecordRow record);
  // Null: there is none. Valid until the next Add.
  const MeasuredTrial* Choice() const;
  // The choice, if its program was measured once only; null for a default schedule: nothing claims
  // that it is fast.
  const MeasuredTrial* Unconfirmed() const;

 private:
  struct Program {
    std::vector<MeasuredTrial> rows;  // the fastest first
    bool is_default = false;
    bool refuted = false;
  };
  const Program* Chosen() const;
  void Forget();

  std::map<std::string, Program> programs_;  // by program hash
  size_t single_ = 0;                        // of them measured once, no defaults
};

}  // namespace tilewright::log
