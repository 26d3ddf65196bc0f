#include "device_agent/referee.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "deploy/support/duration.h"
#include "deploy/support/strings.h"
#include "device_agent/sample_stats.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;

// The steps of a measurement, in order. The result comes between the last two.
constexpr std::array kSteps = {v1::WORKER_PHASE_LOAD,     v1::WORKER_PHASE_INPUTS,
                               v1::WORKER_PHASE_PREPARE,  v1::WORKER_PHASE_FIRST_RUN,
                               v1::WORKER_PHASE_CHECK,    v1::WORKER_PHASE_BASELINE,
                               v1::WORKER_PHASE_WARMUP,   v1::WORKER_PHASE_TIMED,
                               v1::WORKER_PHASE_BASELINE, v1::WORKER_PHASE_LAST_CHECK};
constexpr size_t kLoading = 1;   // steps begun when the code is loaded
constexpr size_t kWarm = 7;      // when a slow candidate may be stopped
constexpr size_t kMeasured = 9;  // when the result is due
// More than this much of the samples' sum over the child's life is no rounding of clocks.
constexpr double kClockSlack = 1.05;
constexpr double kClockSlackNs = 2e6;
// A process that computed so much more than what it reports did something else.
constexpr double kMinShare = 1e-5;
// No core writes more to its nearest cache.
constexpr double kMostBytesPerNs = 1024;
// One run with cold caches, against the median of many with warm ones.
constexpr double kColdFactor = 20;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kColdNs = 5'000'000;  // our own part of it
#else
constexpr double kColdNs = 300'000;
#endif
constexpr double kColdNsPerByte = 1;
constexpr int kRuns = 3;  // that are asked for before a slow one is believed

// Longer texts than a measurement writes.
constexpr size_t kMaxClassBytes = 100;
constexpr size_t kMaxDetailBytes = 16384;

// What a measuring process may say at all. CANCELLED, for one, is its agent's word: the tracker
// would have the candidate measured again for ever.
bool MayAnswer(v1::Outcome outcome) {
  switch (outcome) {
    case v1::OK:
    case v1::EARLY_STOPPED:
    case v1::WRONG_RESULT:
    case v1::BUILD_ERROR:
    case v1::OUT_OF_MEMORY:
    case v1::RUN_CRASH:
    case v1::RUN_TIMEOUT:
    case v1::DEVICE_LOST:
      return true;
    default:
      return false;
  }
}

v1::ValueKind KindOf(const support::MeasureUnit& unit) {
  v1::ValueKind kind = v1::VALUE_KIND_UNSPECIFIED;
  const auto* row = v1::ValueKind_descriptor()->FindValueByNumber(unit.kind);
  if (row != nullptr) v1::ValueKind_Parse(row->name(), &kind);
  return kind;
}

bool IsTime(double value) { return std::isfinite(value) && value >= 0; }

absl::Status CheckAnswer(const v1::ModuleMeasured& measured) {
  const auto forged = [](const std::string& why) {
    return support::DataLoss("measure.answer.forged", why);
  };
  if (!MayAnswer(measured.outcome())) {
    return forged(StrCat("expected the outcome of a measurement, found ",
                         static_cast<int>(measured.outcome())));
  }
  if (measured.error_class().size() > kMaxClassBytes ||
      measured.error_detail().size() > kMaxDetailBytes || measured.samples_size() > kMaxSamples) {
    return forged(StrCat("an answer of ", measured.ByteSizeLong(), " bytes"));
  }
  if (!IsTime(measured.baseline_before()) || !IsTime(measured.baseline_after())) {
    return forged("expected times of the baseline");
  }
  return absl::OkStatus();
}

void AddToDuration(int64_t ns, google::protobuf::Duration* duration) {
  *duration =
      google::protobuf::util::TimeUtil::NanosecondsToDuration(support::DurationNs(*duration) + ns);
}

absl::Status SamplesForged(const std::string& why) {
  return support::DataLoss("measure.samples.forged", why);
}

}  // namespace

absl::Status CheckPlausible(const v1::ModuleMeasured& measured, int64_t lifetime_ns, int64_t cpu_ns,
                            const support::MeasureUnit& unit) {
  TW_TRY(CheckAnswer(measured));
  if (measured.outcome() != v1::OK && measured.outcome() != v1::EARLY_STOPPED) {
    return absl::OkStatus();
  }
  if (measured.samples().empty() || measured.inner_loops() < 1 ||
      measured.inner_loops() > kMaxInnerLoops) {
    return SamplesForged("expected samples of at least one run each");
  }
  double sum = 0;
  for (const double sample : measured.samples()) {
    if (!std::isfinite(sample) || sample < 1) {
      return SamplesForged(StrCat("expected at least 1 ", unit.symbol, " per run, found ", sample));
    }
    sum += sample * measured.inner_loops();
  }
  if (!unit.time) return absl::OkStatus();
  const auto at_most = [&](int64_t limit_ns, const char* of) {
    if (sum <= static_cast<double>(limit_ns) * kClockSlack + kClockSlackNs) return absl::OkStatus();
    return SamplesForged(
        StrCat("samples of ", sum, " ns from a process with ", limit_ns, " ns of ", of));
  };
  TW_TRY(at_most(lifetime_ns, "life"));
  const bool others_compute = measured.clock() == "monotonic" || measured.clock() == "device";
  if (!others_compute) TW_TRY(at_most(cpu_ns, "processor time"));
  if (sum < static_cast<double>(cpu_ns) * kMinShare) {
    return SamplesForged(StrCat("samples of ", sum, " ns from ", cpu_ns, " ns of processor time"));
  }
  return absl::OkStatus();
}

Referee::Next Referee::Fail(v1::Outcome outcome, const std::string& error_class,
                            const std::string& detail) {
  v1::ModuleMeasured measured;
  measured.set_outcome(outcome);
  measured.set_error_class(error_class);
  measured.set_error_detail(detail);
  measured.set_phase(phase_);
  answer_ = std::move(measured);
  return Next::kDone;
}

Referee::Next Referee::Forged(const std::string& why) {
  return Fail(v1::RUN_CRASH, "SANDBOX", "forged: " + why);
}

Referee::Next Referee::Forged(const absl::Status& why) { return Forged(support::StatusText(why)); }

Referee::Next Referee::Garbled() {
  return done() ? Next::kDone : Forged("the child's answer is no valid message");
}

Referee::Next Referee::Refuse(const absl::Status& why) {
  return done() ? Next::kDone : Fail(v1::RUN_CRASH, "SANDBOX", support::StatusText(why));
}

Referee::Next Referee::Take(const v1::MeasuringReport& report) {
  if (done()) return Next::kDone;
  if (report.has_outputs()) return TakeOutputs(report.outputs());
  if (report.has_measured()) return TakeResult(report.measured());
  if (report.report_case() == v1::MeasuringReport::kPhase) return TakePhase(report.phase());
  return Garbled();
}

Referee::Next Referee::TakeOutputs(const v1::OutputList& outputs) {
  if (step_ != kLoading || outputs_.has_value()) return Forged("a second list of outputs");
  const absl::Status makes_sense = judge_->CheckList(outputs);
  if (absl::IsInvalidArgument(makes_sense)) {
    return Fail(v1::BUILD_ERROR, "LOAD_REFUSED", support::StatusText(makes_sense));
  }
  if (!makes_sense.ok()) return Forged(makes_sense);
  outputs_ = outputs;
  return Next::kListen;
}

Referee::Next Referee::TakePhase(v1::WorkerPhase phase) {
  const bool again = step_ == kSteps.size() && phase == v1::WORKER_PHASE_LAST_CHECK;
  if (!again && (step_ == kSteps.size() || phase != kSteps[step_])) {
    return Forged(StrCat("step ", static_cast<int>(phase), " after ", static_cast<int>(phase_)));
  }
  if (step_ == kLoading && !outputs_.has_value()) return Forged("no list of outputs");
  if (!again) ++step_;
  phase_ = phase;
  switch (phase) {
    case v1::WORKER_PHASE_CHECK:
      return CheckFirstRun();
    case v1::WORKER_PHASE_LAST_CHECK:
      return claim_.has_value() ? CheckLastRun() : Forged("a last run without a result");
    default:
      return Next::kListen;
  }
}

// False: the answer says that they are wrong, or that they cannot be compared.
absl::StatusOr<bool> Referee::OutputsRight(const char* error_class) {
  TW_ASSIGN(const OutputVerdict verdict, judge_->Compare(*outputs_, options_.tolerance));
  max_abs_error_ = std::max(max_abs_error_, verdict.max_abs_error);
  if (verdict.ok) return true;
  (void)Fail(v1::WRONG_RESULT, error_class, verdict.text);
  answer_->set_max_abs_error(max_abs_error_);
  return false;
}

Referee::Next Referee::CheckFirstRun() {
  const auto right = OutputsRight("FIRST_RUN");
  if (!right.ok()) return Forged(right.status());
  if (!*right) return Next::kDone;
  released_at_ = observe_();
  return Next::kGo;
}

Referee::Next Referee::TakeFailure(const v1::ModuleMeasured& measured) {
  // Code for the processor cannot lose it: what says so wants to be measured for ever.
  if (measured.outcome() == v1::DEVICE_LOST && step_ > 0 && !options_.on_device) {
    return Forged("a lost device");
  }
  answer_ = measured;
  if (measured.outcome() == v1::DEVICE_LOST) answer_->set_phase(phase_);
  return Next::kDone;
}

Referee::Next Referee::TakeResult(const v1::ModuleMeasured& measured) {
  const Observed now = observe_();
  const absl::Status plausible = CheckPlausible(measured, now.wall_ns, now.cpu_ns, options_.unit);
  if (!plausible.ok()) return Forged(plausible);
  if (measured.outcome() == v1::EARLY_STOPPED) {
    if (step_ < kWarm || claim_.has_value()) return Forged("stopped before it ran");
    return Accept(measured);
  }
  if (measured.outcome() != v1::OK) return TakeFailure(measured);
  if (step_ != kMeasured || claim_.has_value()) return Forged("a result before it was measured");
  const absl::Status times = CheckTimes(measured, now);
  if (!times.ok()) return Forged(times);
  claim_ = measured;
  return AskForRun();
}

// The samples were taken after the first check, by clocks of ours that foreign code cannot change.
absl::Status Referee::CheckTimes(const v1::ModuleMeasured& measured, const Observed& now) const {
  TW_TRY(CheckPlausible(measured, now.wall_ns - released_at_.wall_ns,
                        now.cpu_ns - released_at_.cpu_ns, options_.unit));
  if (options_.on_device || !options_.unit.time) return absl::OkStatus();
  if (measured.clock() == "device") return SamplesForged("a processor has no timer of its own");
  const double least =
      static_cast<double>(judge_->size()) / (kMostBytesPerNs * std::max(options_.threads, 1));
  for (const double sample : measured.samples()) {
    if (sample >= least) continue;
    return SamplesForged(StrCat("expected at least ", least, " ns for ", judge_->size(),
                                " bytes of outputs, found ", sample));
  }
  return absl::OkStatus();
}

Referee::Next Referee::AskForRun() {
  ++asked_;
  judge_->Clear();
  asked_at_ = observe_();
  return Next::kGo;
}

Referee::Next Referee::CheckLastRun() {
  const auto right = OutputsRight("LAST_RUN");
  if (!right.ok()) return Forged(right.status());
  if (!*right) return Next::kDone;
  // After the outputs were compared: what completes them late is counted, too.
  const Observed now = observe_();
  const auto spent = static_cast<double>(now.cpu_ns - asked_at_.cpu_ns);
  const double median = ComputeStats({claim_->samples().begin(), claim_->samples().end()}).median;
  const double bytes =
      static_cast<double>(judge_->size()) + static_cast<double>(outputs_->scratch_bytes());
  const double most =
      std::max(options_.threads, 1) * (kColdFactor * median + kColdNs + kColdNsPerByte * bytes);
  if (spent > most && !options_.on_device && options_.unit.time) {
    if (asked_ < kRuns) return AskForRun();
    return Forged(SamplesForged(StrCat("one run took ", spent, " ns of processor time, samples of ",
                                       median, " ns allow ", most)));
  }
  AddToDuration(now.wall_ns - asked_at_.wall_ns, claim_->mutable_run_time());
  return Accept(*claim_);
}

Referee::Next Referee::Accept(const v1::ModuleMeasured& measured) {
  answer_ = measured;
  answer_->set_value_kind(KindOf(options_.unit));
  answer_->set_max_abs_error(max_abs_error_);
  return Next::kDone;
}

}  // namespace tilewright::device_agent
