// Which of a task's measured programs is its schedule: one rule for jobs and for `compile --log`.
//
// - A program that was measured once has the time of that record. Of many the fastest is partly
//   luck, or a lie. So a job measures its winners again (finals), and the time of a program with
//   several records is their median: of two that differ by more than noise, the slower one.
// - A program that gave a wrong result is never a schedule, nor is one that failed in two finals:
//   one failure may be the device's.
// - A program that was measured once is no schedule if two of its finals gave no time.
// - A job measures at most kFinalsOfTask finals of a task. If it used them up, only what was
//   measured twice can be the schedule of that task, or the default schedule.
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

inline constexpr int kFinalsOfProgram = 2;  // that give no time; then it is out
inline constexpr int kFinalsOfTask = 6;     // in one job

struct MeasuredTrial {
  TrialRow trial;
  RecordRow record;  // usable
};

// The trials that may become a task's schedule. A plain value, not thread-safe.
class Contenders {
 public:
  // Takes any record of the task; for a final that ended without one, an empty one.
  void Add(TrialRow trial, RecordRow record);
  // Returns what the task's module gets; null: nothing was measured that may be a schedule. Valid
  // until the next Add, as what the other methods return.
  const MeasuredTrial* Choice() const;
  // Returns the best so far, whether it can still be confirmed or not: what a search improves on.
  const MeasuredTrial* Leader() const;
  // Returns the leader if a final must confirm it: its program was measured once. Returns null for
  // a default schedule: nothing claims that it is fast.
  const MeasuredTrial* Unconfirmed() const;

 private:
  struct Program {
    std::vector<MeasuredTrial> rows;  // the fastest first
    bool is_default = false;
    bool wrong = false;     // a wrong result
    int failed_finals = 0;  // by a crash, a time limit
    int silent_finals = 0;  // which say nothing of it: a device was lost, or noisy

    bool confirmed() const { return is_default || rows.size() > 1; }
    bool out() const;
  };
  const Program* Best(bool confirmed_only) const;
  void Forget();

  std::map<std::string, Program> programs_;  // by program hash
  size_t single_ = 0;                        // of them measured once, no defaults
  std::map<std::string, int> finals_;        // by job
  bool gave_up_ = false;                     // a job used up its finals
};

}  // namespace tilewright::log
