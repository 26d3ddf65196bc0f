// Measured candidates of one task, kept in a file: a program is built and measured once, however
// many searches ask for it, so that searches are compared by the same times and most of a
// comparison costs nothing. Times are ratios to the task's baseline kernel, taken in turns with it
// in the thread's own time, so that runs of different days can be compared. A line per measurement;
// the last line of a program counts. One owner; not thread-safe.
#pragma once

#include <fstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/driver/tasks.h"
#include "compiler/target/target.h"
#include "tests/bench/local_tuner.h"

namespace tilewright::bench {

struct Workload {
  std::string name;
  driver::Task task;
};
// Of a text file of named graphs (workloads.txt), or the tasks of an ONNX file but for those that
// have next to nothing to choose; named by `prefix` and a number then.
std::vector<Workload> ReadWorkloads(const std::string& path, const target::Target& target);

struct Measured {
  std::string program_hash, steps, origin;
  double ratio = 0;    // time / the baseline's; 0: not built, or a wrong result
  double ns = 0;       // of one run, as measured then
  int pairs = 0;       // turns taken; few for candidates that were far behind
  int placements = 1;  // sets of buffers that they were taken with; the ratio is their median
  bool wrong = false;
};

class TrialStore {
 public:
  // Reads DIR/<name>.jsonl, or starts it with the default schedule as the baseline.
  static absl::StatusOr<std::unique_ptr<TrialStore>> Open(const std::string& dir,
                                                          const Workload& workload,
                                                          const target::Target& target);

  // From the file, or built, checked and measured now.
  const Measured& Get(const std::string& program_hash, const std::string& steps,
                      const std::string& origin);
  // Measures a known program again, with so many sets of buffers for it and for the baseline: where
  // the pages of one set lie decides up to a fifth of the time of small memory-bound kernels.
  const Measured& Again(const std::string& program_hash, int placements);
  // The point that a program was made from, so that other searches can inherit it.
  void NotePoint(const std::string& program_hash, const std::string& point);
  const std::string& PointOf(const std::string& program_hash) const;  // empty: not known
  // Those with a time, quickest first.
  std::vector<const Measured*> ByRatio() const;
  const std::vector<std::string>& order() const { return order_; }  // program hashes, oldest first
  const Measured* Find(const std::string& program_hash) const;
  const std::string& baseline_steps() const { return baseline_steps_; }
  const std::string& baseline_hash() const { return baseline_hash_; }
  int built() const { return built_; }
  int failed() const { return failed_; }

 private:
  TrialStore(const Workload& workload, target::Target target)
      : workload_(workload), target_(std::move(target)) {}
  absl::Status Read(const std::string& path);
  Measured Measure(const std::string& program_hash, const std::string& steps, int placements);
  const Measured& Keep(Measured measured);
  const Loaded& Baseline();

  Workload workload_;
  target::Target target_;
  std::ofstream file_;
  std::string baseline_steps_, baseline_hash_;
  std::optional<Loaded> baseline_;
  std::unordered_map<std::string, Measured> known_;
  std::vector<std::string> order_;
  std::unordered_map<std::string, std::string> points_;  // kept beside the times
  std::string points_path_;
  double best_ratio_ = 0;
  int built_ = 0, failed_ = 0;
};

}  // namespace tilewright::bench
