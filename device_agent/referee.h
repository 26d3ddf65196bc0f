// What a worker believes of the process that it measures in. Foreign code shares that process: it
// may write any report, at any moment, and read or change all of its memory. So the referee
//   * takes reports in one order only, and no result before the steps that lead to it;
//   * compares the outputs itself (output_judge.h), which it clears before the last run;
//   * refuses times that are below what the outputs' bytes alone take, above the time that passed,
//     or that one run of its own, timed by the kernel's account of the process, contradicts.
// Within these bounds a candidate can lie about its time: see deploy/ops/threat_model.md. A state
// machine without I/O; not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "deploy/support/measure_units.h"
#include "deploy/support/status.h"
#include "device_agent/output_judge.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

// Of the measuring process, as its parent sees it.
struct Observed {
  int64_t wall_ns = 0;  // since it began
  int64_t cpu_ns = 0;   // of all its threads, by the kernel's account
};

struct RefereeOptions {
  v1::Tolerance tolerance;
  int threads = 1;         // that a module may use
  bool on_device = false;  // behind a driver, not on this processor
  // Of the samples, as the worker knows it. Bounds by clocks hold for times only.
  support::MeasureUnit unit = support::MeasureUnits().front();
};

class Referee {
 public:
  // `judge` outlives the referee and knows the expected outputs.
  Referee(RefereeOptions options, OutputJudge* judge, std::function<Observed()> observe)
      : options_(std::move(options)), judge_(judge), observe_(std::move(observe)) {}

  enum class Next {
    kListen,  // for the next report
    kGo,      // let the process continue, then listen
    kDone,    // answer() is there; nothing that follows matters
  };
  Next Take(const v1::MeasuringReport& report);
  // For a report that cannot be read.
  Next Garbled();
  // For a process that the worker finds in a state in which its reports count for nothing.
  Next Refuse(const absl::Status& why);

  bool done() const { return answer_.has_value(); }
  // REQUIRES: done().
  const v1::ModuleMeasured& answer() const { return *answer_; }
  // The last step that was begun, for the evidence of a death.
  v1::WorkerPhase phase() const { return phase_; }

 private:
  Next Forged(const std::string& why);
  Next Forged(const absl::Status& why);
  Next Fail(v1::Outcome outcome, const std::string& error_class, const std::string& detail);
  Next TakeOutputs(const v1::OutputList& outputs);
  Next TakePhase(v1::WorkerPhase phase);
  Next TakeResult(const v1::ModuleMeasured& measured);
  Next TakeFailure(const v1::ModuleMeasured& measured);
  Next CheckFirstRun();
  Next AskForRun();
  Next CheckLastRun();
  absl::StatusOr<bool> OutputsRight(const char* error_class);
  Next Accept(const v1::ModuleMeasured& measured);
  absl::Status CheckTimes(const v1::ModuleMeasured& measured, const Observed& now) const;

  const RefereeOptions options_;
  OutputJudge* const judge_;
  const std::function<Observed()> observe_;
  size_t step_ = 0;  // steps that were begun
  v1::WorkerPhase phase_ = v1::WORKER_PHASE_UNSPECIFIED;
  std::optional<v1::OutputList> outputs_;
  double max_abs_error_ = 0;
  Observed released_at_;                     // after the first check
  std::optional<v1::ModuleMeasured> claim_;  // the result that the last run must bear out
  Observed asked_at_;
  int asked_ = 0;
  std::optional<v1::ModuleMeasured> answer_;
};

// Limit of samples of one candidate, for the worker and for what its child reports.
inline constexpr int kMaxSamples = 10'000;
// Limit of the runs in one sample.
inline constexpr int kMaxInnerLoops = 1 << 20;

// Checks whether a child's report can be true. The child ran foreign code, so any field may hold
// any value. `lifetime_ns` is how long the child lived by the parent's clock, `cpu_ns` the
// processor time that it used by the kernel's count; both bound samples that are times. data_loss:
// measure.answer.forged for values that no measurement gives or that are too long to pass on;
// measure.samples.forged.
absl::Status CheckPlausible(const v1::ModuleMeasured& measured, int64_t lifetime_ns, int64_t cpu_ns,
                            const support::MeasureUnit& unit = support::MeasureUnits().front());

}  // namespace tilewright::device_agent
