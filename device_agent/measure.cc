#include "device_agent/measure.h"

#include <google/protobuf/util/time_util.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "deploy/daemon/fleet_contract.h"
#include "deploy/runtime/compare.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/result_check.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/clock.h"
#include "deploy/support/duration.h"
#include "deploy/support/strings.h"
#include "device_agent/sample_stats.h"

namespace tilewright::device_agent {
namespace {

using google::protobuf::util::TimeUtil;
using support::StrCat;

constexpr int kMaxInnerLoops = 1 << 20;
constexpr int kBaselineSamples = 5;
// A run that is this much slower than the limit needs no second look; others get three.
constexpr double kHopeless = 4;
constexpr int kLooks = 3;
// Samples that the statistic must rest on before measuring may end.
constexpr int kMinKept = 3;
// A candidate close to the best one is sampled on for at most this long.
constexpr double kFineNs = 10e6;
constexpr int64_t kBaselineSampleNs = 100'000;
constexpr int64_t kCalibrationSteps = 1 << 16;
constexpr int64_t kProbeSteps = 12'000;
// A probe that is this much slower than a quiet one had company.
constexpr double kQuietFactor = 1.25;
// Longer than the runtime's threads wait for the next loop before they sleep.
constexpr int64_t kPoolRestNs = 150'000;
// While clean samples are short, so many times the plan's samples are taken within the budget.
constexpr size_t kPatience = 10;
constexpr int64_t kMinFlushBytes = int64_t{32} << 20;
constexpr uint8_t kPoison = 0xFF;  // NaN of floats
// More than this much of the samples' sum over the child's life is no rounding of clocks.
constexpr double kClockSlack = 1.05;
constexpr double kClockSlackNs = 2e6;
// A process that computed so much more than what it reports did something else.
constexpr double kMinShare = 1e-5;

int64_t WallNs() { return support::ReadClockNs(CLOCK_MONOTONIC); }

struct Switches {
  int64_t voluntary = 0;
  int64_t involuntary = 0;
};

Switches SwitchesNow(bool all_threads) {
  rusage usage{};
  getrusage(all_threads ? RUSAGE_SELF : RUSAGE_THREAD, &usage);
  return {usage.ru_nvcsw, usage.ru_nivcsw};
}

// A fixed chain of dependent integer steps: its time follows the clock of the core and nothing
// else.
uint64_t CalibrationLoop(uint64_t x) {
  for (int64_t i = 0; i < kCalibrationSteps; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
  }
  return x;
}

// Independent chains, as many as keep all integer units busy; about 20 microseconds.
uint64_t BusyLoop(uint64_t seed) {
  uint64_t a = seed, b = seed + 1, c = seed + 2, d = seed + 3, e = seed + 4, f = seed + 5;
  for (int64_t i = 0; i < kProbeSteps; ++i) {
    a ^= a << 7;
    b ^= b >> 9;
    c += c << 3;
    d ^= d >> 5;
    e += e << 11;
    f ^= f << 13;
  }
  return a ^ b ^ c ^ d ^ e ^ f;
}

// Specifications for all inputs of `function`, by name where every name is one of its inputs, else
// in order. Without any, those that the module itself carries.
absl::StatusOr<std::vector<module::InputSpec>> InputsOf(const v1::InputSpec& given,
                                                        const module::Manifest& manifest,
                                                        const module::Function& function) {
  if (given.tensors().empty()) {
    if (manifest.measurement.has_value()) return manifest.measurement->inputs;
    if (function.inputs.empty()) return std::vector<module::InputSpec>();
  }
  if (given.tensors_size() != static_cast<int>(function.inputs.size())) {
    return support::InvalidArgument(
        "measure.inputs.count",
        StrCat("expected ", function.inputs.size(), " tensors, found ", given.tensors_size()));
  }
  const auto find = [&](const std::string& name) -> int64_t {
    for (const int64_t id : function.inputs) {
      if (manifest.tensors[static_cast<size_t>(id)].name == name) return id;
    }
    return -1;
  };
  const bool by_name = std::all_of(given.tensors().begin(), given.tensors().end(),
                                   [&](const auto& spec) { return find(spec.name()) >= 0; });
  std::vector<module::InputSpec> specs;
  for (int i = 0; i < given.tensors_size(); ++i) {
    const v1::TensorSpec& from = given.tensors(i);
    module::InputSpec& spec = specs.emplace_back();
    spec.tensor = by_name ? find(from.name()) : function.inputs[static_cast<size_t>(i)];
    spec.seed = from.seed();
    TW_ASSIGN(spec.distribution, DistributionOf(from.distribution()));
    int64_t elements = 1;
    for (const int64_t extent : from.shape()) elements *= extent;
    const module::Tensor& tensor = manifest.tensors[static_cast<size_t>(spec.tensor)];
    if (elements * module::DTypeBytes(tensor.dtype) != tensor.bytes) {
      return support::InvalidArgument("measure.inputs.shape",
                                      StrCat("input '", tensor.name, "': expected ", tensor.bytes,
                                             " bytes, found ", elements, " elements"));
    }
  }
  return specs;
}

// One measurement under way. Each step returns false when the outcome is decided.
class Measurement {
 public:
  Measurement(const MeasureJob& job, const PhaseSink& announce)
      : job_(job), announce_(announce), plan_(CompletePlan(job.request->plan())) {
    result_.set_value_kind(v1::VALUE_KIND_WALL_NS);
  }

  v1::ModuleMeasured Run(const std::function<absl::Status()>& after_load) {
    const int64_t start = WallNs();
    int64_t loaded = start;
    if (Load(after_load) && MakeInputs() && Prepare()) {
      loaded = WallNs();
      if (FirstRun() && Baseline(&before_) && Warmup() && Timed() && Baseline(&after_)) LastCheck();
    }
    if (loaded == start) loaded = WallNs();
    *result_.mutable_load_time() = TimeUtil::NanosecondsToDuration(loaded - start);
    *result_.mutable_run_time() = TimeUtil::NanosecondsToDuration(WallNs() - loaded);
    result_.set_baseline_before(before_);
    result_.set_baseline_after(after_);
    if (result_.outcome() == v1::OUTCOME_UNSPECIFIED) {
      result_.set_outcome(v1::OK);
      result_.set_phase(v1::WORKER_PHASE_UNSPECIFIED);
    }
    return std::move(result_);
  }

 private:
  void Enter(v1::WorkerPhase phase) {
    result_.set_phase(phase);
    announce_(phase);
  }

  bool Fail(v1::Outcome outcome, const std::string& error_class, const std::string& detail) {
    result_.set_outcome(outcome);
    result_.set_error_class(error_class);
    result_.set_error_detail(detail);
    return false;
  }

  absl::StatusOr<std::unique_ptr<MeasuredSession>> LoadSession(std::string_view bytes,
                                                               const std::string& entry_point) {
    return job_.device == nullptr ? LoadOnHost(bytes, entry_point, job_.max_threads)
                                  : LoadOnDevice(bytes, entry_point, *job_.device);
  }

  bool FailLoad(const absl::Status& status) {
    if (absl::IsUnavailable(status)) {
      return Fail(v1::DEVICE_LOST, "DRIVER", support::StatusText(status));
    }
    if (absl::IsResourceExhausted(status)) {
      return Fail(v1::OUT_OF_MEMORY, "ALLOCATION", support::StatusText(status));
    }
    return Fail(v1::BUILD_ERROR, "LOAD_REFUSED", support::StatusText(status));
  }

  bool Load(const std::function<absl::Status()>& after_load) {
    Enter(v1::WORKER_PHASE_LOAD);
    auto loaded = LoadSession(job_.module, job_.request->entry_point());
    if (!loaded.ok()) return FailLoad(loaded.status());
    candidate_ = *std::move(loaded);
    if (!job_.baseline.empty()) {
      auto baseline = LoadSession(job_.baseline, "");
      if (!baseline.ok()) return BaselineRefused(baseline.status());
      baseline_ = *std::move(baseline);
    }
    result_.set_clock(std::string(candidate_->clock()));
    if (plan_.flush_cache()) {
      flush_.resize(static_cast<size_t>(
          std::max<int64_t>(2 * runtime::DetectCpu().l3_bytes, kMinFlushBytes)));
    }
    const absl::Status sealed = after_load();
    if (!sealed.ok()) return Fail(v1::RUN_CRASH, "SANDBOX", support::StatusText(sealed));
    return true;
  }

  bool BaselineRefused(const absl::Status& status) {
    return Fail(v1::BUILD_ERROR, "BASELINE_REFUSED", support::StatusText(status));
  }

  absl::Status Fill(const v1::InputSpec& given, MeasuredSession* loaded) {
    runtime::BoundTensors* session = loaded->tensors();
    const module::Manifest& manifest = loaded->manifest();
    const std::vector<int64_t>& ids = session->function().inputs;
    TW_ASSIGN(auto specs, InputsOf(given, manifest, session->function()));
    std::erase_if(specs, [&](const module::InputSpec& spec) {
      const auto id = std::find(ids.begin(), ids.end(), spec.tensor);
      if (job_.inputs == nullptr || id == ids.end()) return false;
      const module::Tensor& tensor = manifest.tensors[static_cast<size_t>(spec.tensor)];
      const std::string_view bytes =
          job_.inputs->Find(tensor.dtype, tensor.bytes / module::DTypeBytes(tensor.dtype),
                            spec.distribution, spec.seed);
      if (bytes.empty()) return false;
      memcpy(session->MutableInput(static_cast<size_t>(id - ids.begin())), bytes.data(),
             bytes.size());
      return true;
    });
    return runtime::FillInputs(specs, session);
  }

  bool MakeInputs() {
    Enter(v1::WORKER_PHASE_INPUTS);
    absl::Status status = Fill(job_.request->inputs(), candidate_.get());
    if (status.ok() && baseline_ != nullptr) status = Fill({}, baseline_.get());
    return status.ok() || FailLoad(status);
  }

  bool KernelFailed(const absl::Status& status) {
    if (absl::IsUnavailable(status)) return FailLoad(status);
    return Fail(v1::RUN_CRASH, "KERNEL_ERROR", support::StatusText(status));
  }

  bool Prepare() {
    Enter(v1::WORKER_PHASE_PREPARE);
    absl::Status status = candidate_->Prepare();
    if (!status.ok()) return KernelFailed(status);
    if (baseline_ == nullptr) return true;
    status = baseline_->Prepare();
    return status.ok() || BaselineRefused(status);
  }

  bool RunOnce() {
    const absl::Status status = candidate_->Run();
    return status.ok() || KernelFailed(status);
  }

  // One run whose outputs are its own.
  bool PoisonedRun() {
    const absl::Status status = candidate_->Poison(kPoison);
    return (status.ok() || KernelFailed(status)) && RunOnce();
  }

  bool FirstRun() {
    Enter(v1::WORKER_PHASE_FIRST_RUN);
    return PoisonedRun() && Check(v1::WORKER_PHASE_CHECK);
  }

  // A flipped bit of the exponent (of a high value bit for integers), in one element or, where a
  // share may differ, in all.
  void SpoilOutput() {
    if (candidate_->tensors()->num_outputs() == 0) return;
    const runtime::TensorView view = candidate_->tensors()->output(0);
    const auto step = static_cast<size_t>(module::DTypeBytes(view.tensor->dtype));
    const bool all = job_.request->tolerance().max_mismatch_fraction() > 0;
    auto* bytes = static_cast<uint8_t*>(view.data);
    for (size_t end = step; end <= view.bytes; end += step) {
      bytes[end - 1] ^= view.tensor->dtype == module::DType::kBool ? 0x01 : 0x40;
      if (!all) return;
    }
  }

  bool Check(v1::WorkerPhase phase) {
    Enter(phase);
    const absl::Status collected = candidate_->Collect();
    if (absl::IsDataLoss(collected)) {
      return Fail(v1::WRONG_RESULT, "OUT_OF_BOUNDS", support::StatusText(collected));
    }
    if (!collected.ok()) return KernelFailed(collected);
    const bool first = phase == v1::WORKER_PHASE_CHECK;
    if (first && job_.request->fault() == v1::INJECTED_FAULT_WRONG) SpoilOutput();
    const std::string& expected = job_.request->expected_output();
    if (expected.empty()) return true;
    const module::Tolerance tolerance{job_.request->tolerance().abs(),
                                      job_.request->tolerance().rel()};
    const auto compared = runtime::CheckOutputs(*candidate_->tensors(), expected, tolerance);
    if (!compared.ok()) return FailLoad(compared.status());
    int64_t mismatches = 0;
    int64_t count = 0;
    std::string text;
    double max_error = result_.max_abs_error();
    for (size_t i = 0; i < compared->size(); ++i) {
      const runtime::CompareResult& output = (*compared)[i];
      mismatches += output.mismatches;
      count += output.count;
      max_error = std::max(max_error, output.max_abs_diff);
      if (!output.ok() && text.empty()) {
        text = StrCat("output ", i, ": ", runtime::CompareText(output));
      }
    }
    result_.set_max_abs_error(max_error);
    const double allowed = job_.request->tolerance().max_mismatch_fraction();
    if (static_cast<double>(mismatches) <= allowed * static_cast<double>(count)) return true;
    return Fail(v1::WRONG_RESULT, first ? "FIRST_RUN" : "LAST_RUN", text);
  }

  bool TimedRuns(int runs, int64_t* elapsed_ns) {
    const auto elapsed = candidate_->Time(runs);
    if (!elapsed.ok()) return KernelFailed(elapsed.status());
    *elapsed_ns = *elapsed;
    return true;
  }

  absl::StatusOr<int64_t> TimeBaseline(int loops) {
    if (baseline_ != nullptr) return baseline_->Time(loops);
    const clockid_t clock = candidate_->host_clock();
    const int64_t start = support::ReadClockNs(clock);
    for (int k = 0; k < loops; ++k) calibration_ = CalibrationLoop(calibration_ | 1);
    return support::ReadClockNs(clock) - start;
  }

  bool Baseline(double* value) {
    Enter(v1::WORKER_PHASE_BASELINE);
    std::vector<double> samples;
    int loops = 1;
    for (int i = -1; i < kBaselineSamples; ++i) {  // the first one warms up and sets the loops
      const auto timed = TimeBaseline(loops);
      if (!timed.ok()) return BaselineRefused(timed.status());
      const auto elapsed = static_cast<double>(*timed);
      if (i >= 0) samples.push_back(elapsed / loops);
      if (i < 0) loops = LoopsFor(elapsed, kBaselineSampleNs);
    }
    *value = ComputeStats(samples).median;
    return true;
  }

  static int LoopsFor(double one_run_ns, int64_t wanted_ns) {
    const double loops = std::ceil(static_cast<double>(wanted_ns) / std::max(one_run_ns, 1.0));
    return static_cast<int>(std::clamp(loops, 1.0, static_cast<double>(kMaxInnerLoops)));
  }

  void CommitFault() {
    if (job_.request->fault() == v1::INJECTED_FAULT_CRASH) {
      *reinterpret_cast<volatile char*>(uintptr_t{64}) = 1;
    }
    if (job_.request->fault() == v1::INJECTED_FAULT_HANG) {
      for (volatile bool forever = true; forever;) continue;
    }
  }

  // Runs for the plan's warm-up time, and again where it looks too slow: a disturbed run is no
  // verdict.
  bool Warmup() {
    Enter(v1::WORKER_PHASE_WARMUP);
    CommitFault();
    const double limit = plan_.abort_if_slower_than_ns();
    const int64_t end = WallNs() + support::DurationNs(plan_.warmup());
    double best = 0;
    for (int run = 0;; ++run) {
      int64_t elapsed_ns = 0;
      if (!TimedRuns(1, &elapsed_ns)) return false;
      const auto elapsed = static_cast<double>(elapsed_ns);
      best = run == 0 ? elapsed : std::min(best, elapsed);
      if (limit > 0 && best > limit) {
        if (best < kHopeless * limit && run + 1 < kLooks) continue;
        result_.add_samples(best);
        result_.set_inner_loops(1);
        result_.set_outcome(v1::EARLY_STOPPED);
        return false;
      }
      if (WallNs() >= end) break;
    }
    loops_ = plan_.flush_cache() ? 1 : LoopsFor(best, support::DurationNs(plan_.min_repeat_time()));
    return true;
  }

  void FlushCache() {
    for (size_t i = 0; i < flush_.size(); i += 64) flush_[i] = static_cast<char>(flush_[i] + 1);
  }

  bool many_threads() const { return candidate_->host_clock() == CLOCK_MONOTONIC; }

  // Whether nobody shares the core now. The pool's own threads look for work for a while after a
  // run; they are let go to sleep first.
  bool Quiet() {
    if (job_.quiet_probe_ns <= 0 || !candidate_->on_host()) return true;
    if (many_threads()) {
      for (const int64_t end = WallNs() + kPoolRestNs; WallNs() < end;) continue;
    }
    return ProbeNs() <= kQuietFactor * job_.quiet_probe_ns;
  }

  // One sample in nanoseconds per run; `clean` tells whether scheduler and neighbours left it
  // alone.
  bool Sample(double* ns, bool* clean) {
    const bool quiet_before = quiet_;
    const bool threads = many_threads();
    if (threads && !RunOnce()) return false;  // wakes the pool
    FlushCache();
    const int64_t before = SwitchesNow(threads).involuntary;
    int64_t elapsed = 0;
    if (!TimedRuns(loops_, &elapsed)) return false;
    *ns = static_cast<double>(elapsed) / loops_;
    *clean = SwitchesNow(threads).involuntary == before || !candidate_->on_host();
    quiet_ = Quiet();
    *clean = *clean && quiet_before && quiet_;
    return true;
  }

  // Disturbances only ever add time: of too many samples the fastest stay.
  static void KeepFastest(size_t count, std::vector<double>* samples) {
    if (samples->size() <= count) return;
    std::nth_element(samples->begin(), samples->begin() + static_cast<std::ptrdiff_t>(count),
                     samples->end());
    samples->resize(count);
  }

  bool Timed() {
    Enter(v1::WORKER_PHASE_TIMED);
    const bool threads = many_threads();
    const Switches before = SwitchesNow(threads);
    const int64_t end = WallNs() + support::DurationNs(plan_.budget_per_candidate());
    std::vector<double> all;
    std::vector<double> clean_ones;
    const auto min_repeats = static_cast<size_t>(plan_.min_repeats());
    const auto max_repeats = static_cast<size_t>(plan_.max_repeats());
    double sampled_ns = 0;
    bool undecided = plan_.compare_to_ns() > 0;
    quiet_ = Quiet();
    while (all.empty() || WallNs() < end) {
      const bool enough_clean = clean_ones.size() >= min_repeats;
      if (all.size() >= (enough_clean && !undecided ? max_repeats : kPatience * max_repeats)) break;
      double ns = 0;
      bool clean = false;
      if (!Sample(&ns, &clean)) return false;
      all.push_back(ns);
      if (clean) clean_ones.push_back(ns);
      if (clean) sampled_ns += ns * loops_;
      const SampleStats stats = ComputeStats(clean_ones);
      undecided = sampled_ns < kFineNs && OrderIsOpen(stats, plan_.compare_to_ns());
      if (clean_ones.size() >= min_repeats && stats.kept >= kMinKept && !undecided &&
          stats.ci_rel <= plan_.target_rel_ci()) {
        break;
      }
    }
    // Disturbed samples are left out where enough others remain.
    const bool enough = clean_ones.size() >= std::min<size_t>(kMinKept, all.size());
    std::vector<double>& reported = enough ? clean_ones : all;
    KeepFastest(max_repeats, &reported);
    for (const double ns : reported) result_.add_samples(ns);
    result_.set_inner_loops(loops_);
    // The last timed run writes onto poison, so that what is checked afterwards is its own work.
    if (!PoisonedRun()) return false;
    const Switches after = SwitchesNow(threads);
    v1::Telemetry* telemetry = result_.mutable_telemetry();
    telemetry->set_voluntary_context_switches(after.voluntary - before.voluntary);
    telemetry->set_involuntary_context_switches(after.involuntary - before.involuntary);
    return true;
  }

  void LastCheck() { Check(v1::WORKER_PHASE_LAST_CHECK); }

  const MeasureJob& job_;
  const PhaseSink& announce_;
  const v1::MeasurementPlan plan_;
  v1::ModuleMeasured result_;
  std::unique_ptr<MeasuredSession> candidate_;
  std::unique_ptr<MeasuredSession> baseline_;
  std::vector<char> flush_;
  volatile uint64_t calibration_ = 1;
  double before_ = 0;
  double after_ = 0;
  int loops_ = 1;
  bool quiet_ = true;
};

}  // namespace

v1::ModuleMeasured Measure(const MeasureJob& job, const PhaseSink& announce,
                           const std::function<absl::Status()>& after_load) {
  // Never taken down: the process ends with its answer. To unload the code would take time, and
  // make threads that a candidate left behind run into nothing.
  auto& measurement = *new Measurement(job, announce);
  return measurement.Run(after_load);
}

double ProbeNs() {
  static volatile uint64_t sink = 1;
  const int64_t start = support::ReadClockNs(CLOCK_THREAD_CPUTIME_ID);
  sink = BusyLoop(sink);
  return static_cast<double>(support::ReadClockNs(CLOCK_THREAD_CPUTIME_ID) - start);
}

v1::MeasurementPlan CompletePlan(const v1::MeasurementPlan& plan) {
  v1::MeasurementPlan full = plan;
  if (full.min_repeats() <= 0) full.set_min_repeats(daemon::kMinRepeats);
  if (full.max_repeats() <= 0) full.set_max_repeats(daemon::kMaxRepeats);
  full.set_min_repeats(std::min(full.min_repeats(), kMaxSamples));
  full.set_max_repeats(std::clamp(full.max_repeats(), full.min_repeats(), kMaxSamples));
  if (support::DurationNs(full.min_repeat_time()) <= 0) {
    *full.mutable_min_repeat_time() = TimeUtil::NanosecondsToDuration(daemon::kMinRepeatTimeNs);
  }
  if (support::DurationNs(full.budget_per_candidate()) <= 0) {
    *full.mutable_budget_per_candidate() =
        TimeUtil::NanosecondsToDuration(daemon::kCandidateBudgetNs);
  }
  if (!full.has_warmup()) {
    *full.mutable_warmup() = TimeUtil::NanosecondsToDuration(daemon::kWarmupNs);
  }
  if (full.target_rel_ci() <= 0) full.set_target_rel_ci(daemon::kTargetRelCi);
  return full;
}

namespace {

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

}  // namespace

absl::Status CheckPlausible(const v1::ModuleMeasured& measured, int64_t lifetime_ns,
                            int64_t cpu_ns) {
  TW_TRY(CheckAnswer(measured));
  const auto forged = [](const std::string& why) {
    return support::DataLoss("measure.samples.forged", why);
  };
  if (measured.outcome() != v1::OK && measured.outcome() != v1::EARLY_STOPPED) {
    return absl::OkStatus();
  }
  if (measured.samples().empty() || measured.inner_loops() < 1 ||
      measured.inner_loops() > kMaxInnerLoops) {
    return forged("expected samples of at least one run each");
  }
  double sum = 0;
  for (const double sample : measured.samples()) {
    if (!std::isfinite(sample) || sample < 1) {
      return forged(StrCat("expected at least 1 ns per run, found ", sample));
    }
    sum += sample * measured.inner_loops();
  }
  const auto at_most = [&](int64_t limit_ns, const char* of) {
    if (sum <= static_cast<double>(limit_ns) * kClockSlack + kClockSlackNs) return absl::OkStatus();
    return forged(StrCat("samples of ", sum, " ns from a process with ", limit_ns, " ns of ", of));
  };
  TW_TRY(at_most(lifetime_ns, "life"));
  const bool others_compute = measured.clock() == "monotonic" || measured.clock() == "device";
  if (!others_compute) TW_TRY(at_most(cpu_ns, "processor time"));
  if (sum < static_cast<double>(cpu_ns) * kMinShare) {
    return forged(StrCat("samples of ", sum, " ns from ", cpu_ns, " ns of processor time"));
  }
  return absl::OkStatus();
}

}  // namespace tilewright::device_agent
