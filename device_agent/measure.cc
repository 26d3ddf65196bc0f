#include "device_agent/measure.h"

#include <google/protobuf/util/time_util.h>
#include <malloc.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "deploy/daemon/fleet_contract.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/result_check.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/clock.h"
#include "deploy/support/duration.h"
#include "deploy/support/strings.h"
#include "device_agent/referee.h"
#include "device_agent/sample_stats.h"

namespace tilewright::device_agent {
namespace {

using google::protobuf::util::TimeUtil;
using support::StrCat;

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
constexpr int kMappedBytes = 128 << 10;
constexpr uint8_t kPoison = 0xFF;  // NaN of floats

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

// What the worker has to know of the outputs before it can compare them.
v1::OutputList ListOutputs(const module::Manifest& manifest, const module::Function& function) {
  v1::OutputList list;
  for (const int64_t id : function.outputs) {
    const module::Tensor& tensor = manifest.tensors[static_cast<size_t>(id)];
    list.add_dtypes(std::string(module::DTypeName(tensor.dtype)));
    list.add_bytes(tensor.bytes);
  }
  list.set_scratch_bytes(manifest.arena_bytes + manifest.workspace_bytes);
  return list;
}

// One measurement under way. Each step returns false when the outcome is decided.
class Measurement {
 public:
  Measurement(const MeasureJob& job, const MeasureHost& host)
      : job_(job), host_(host), plan_(CompletePlan(job.request->plan())) {}

  v1::ModuleMeasured Run() {
    const int64_t start = WallNs();
    int64_t loaded = start;
    bool measured = false;
    if (Load() && MakeInputs() && Prepare()) {
      loaded = WallNs();
      measured = FirstRun() && Baseline(&before_) && Warmup() && Timed() && Baseline(&after_);
    }
    if (loaded == start) loaded = WallNs();
    *result_.mutable_load_time() = TimeUtil::NanosecondsToDuration(loaded - start);
    *result_.mutable_run_time() = TimeUtil::NanosecondsToDuration(WallNs() - loaded);
    result_.set_baseline_before(before_);
    result_.set_baseline_after(after_);
    if (measured) {
      result_.set_outcome(v1::OK);
      result_.set_phase(v1::WORKER_PHASE_UNSPECIFIED);
      if (host_.claim) LastRuns();
    }
    return std::move(result_);
  }

 private:
  void Enter(v1::WorkerPhase phase) {
    result_.set_phase(phase);
    if (host_.announce) host_.announce(phase);
  }

  void Wait() const {
    if (host_.wait) host_.wait();
  }

  bool Fail(v1::Outcome outcome, const std::string& error_class, const std::string& detail) {
    result_.set_outcome(outcome);
    result_.set_error_class(error_class);
    result_.set_error_detail(detail);
    return false;
  }

  absl::StatusOr<std::unique_ptr<MeasuredSession>> LoadSession(module::ModuleFile file,
                                                               const std::string& entry_point) {
    if (job_.device != nullptr) return LoadOnDevice(std::move(file), entry_point, *job_.device);
    return LoadOnHost(std::move(file), entry_point, job_.max_threads, job_.counter);
  }

  // Loading on a device runs the module once.
  bool FailLoad(const absl::Status& status) {
    if (absl::IsUnavailable(status)) {
      return Fail(v1::DEVICE_LOST, "DRIVER", support::StatusText(status));
    }
    if (absl::IsDeadlineExceeded(status)) {
      return Fail(v1::RUN_TIMEOUT, "DEVICE_LIMIT", support::StatusText(status));
    }
    if (absl::IsResourceExhausted(status)) {
      return Fail(v1::OUT_OF_MEMORY, "ALLOCATION", support::StatusText(status));
    }
    return Fail(v1::BUILD_ERROR, "LOAD_REFUSED", support::StatusText(status));
  }

  bool LoadCandidate() {
    auto file = module::ModuleFile::FromBytes(job_.module);
    if (!file.ok()) return FailLoad(file.status());
    const std::string& entry_point = job_.request->entry_point();
    const module::Function* function = MeasuredFunction(file->manifest(), entry_point);
    // Before foreign code is here: what is said now is true.
    if (function != nullptr && host_.outputs) {
      host_.outputs(ListOutputs(file->manifest(), *function));
    }
    auto loaded = LoadSession(*std::move(file), entry_point);
    if (!loaded.ok()) return FailLoad(loaded.status());
    candidate_ = *std::move(loaded);
    return true;
  }

  bool LoadBaseline() {
    if (job_.baseline.empty()) return true;
    auto file = module::ModuleFile::FromBytes(job_.baseline);
    if (!file.ok()) return BaselineRefused(file.status());
    auto baseline = LoadSession(*std::move(file), "");
    if (!baseline.ok()) return BaselineRefused(baseline.status());
    baseline_ = *std::move(baseline);
    return true;
  }

  bool Load() {
    Enter(v1::WORKER_PHASE_LOAD);
    if (!LoadCandidate() || !LoadBaseline()) return false;
    result_.set_clock(std::string(candidate_->clock()));
    if (plan_.flush_cache()) {
      flush_.resize(static_cast<size_t>(
          std::max<int64_t>(2 * runtime::DetectCpu().l3_bytes, kMinFlushBytes)));
    }
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
    if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) return FailLoad(status);
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

  bool Poison() {
    const absl::Status status = candidate_->Poison(kPoison);
    return status.ok() || KernelFailed(status);
  }

  bool FirstRun() {
    Enter(v1::WORKER_PHASE_FIRST_RUN);
    if (!Poison() || !RunOnce()) return false;
    if (!Show(v1::WORKER_PHASE_CHECK)) return false;
    Wait();
    return true;
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

  // Puts the outputs where the worker compares them.
  bool Show(v1::WorkerPhase phase) {
    result_.set_phase(phase);
    const absl::Status collected = candidate_->Collect();
    if (absl::IsDataLoss(collected)) {
      return Fail(v1::WRONG_RESULT, "OUT_OF_BOUNDS", support::StatusText(collected));
    }
    if (!collected.ok()) return KernelFailed(collected);
    const bool first = phase == v1::WORKER_PHASE_CHECK;
    if (first && job_.request->fault() == v1::INJECTED_FAULT_WRONG) SpoilOutput();
    size_t at = 0;
    for (size_t i = 0; i < candidate_->tensors()->num_outputs(); ++i) {
      const runtime::TensorView view = candidate_->tensors()->output(i);
      if (view.bytes > host_.window.size() - at) break;  // nothing is expected
      memcpy(host_.window.data() + at, view.data, view.bytes);
      at += view.bytes;
    }
    Enter(phase);
    return true;
  }

  // Each run writes onto poison, so that what it shows is its own work. The worker asks for them
  // and times them; it ends the process when it has seen enough.
  void LastRuns() {
    if (!Poison()) return;
    host_.claim(result_);
    for (bool again = false;; again = true) {
      Wait();
      result_.set_phase(v1::WORKER_PHASE_LAST_CHECK);
      if (again && !Poison()) return;
      if (!RunOnce() || !Show(v1::WORKER_PHASE_LAST_CHECK)) return;
    }
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

  // The fastest of the samples: disturbances only ever add time. Nothing drifts where equal runs
  // give equal values.
  bool Baseline(double* value) {
    Enter(v1::WORKER_PHASE_BASELINE);
    if (job_.unit.deterministic) return true;
    int loops = 1;
    for (int i = -1; i < kBaselineSamples; ++i) {  // the first one warms up and sets the loops
      const int64_t begin = WallNs();
      const auto timed = TimeBaseline(loops);
      if (!timed.ok()) return BaselineRefused(timed.status());
      const auto elapsed = static_cast<double>(*timed);
      if (i == 0 || (i > 0 && elapsed / loops < *value)) *value = elapsed / loops;
      if (i < 0) loops = RunsOf(elapsed, WallSince(begin), kBaselineSampleNs);
    }
    return true;
  }

  // What a device's driver takes around a run is not the run's.
  int RunsOf(double run_ns, double wall_ns, int64_t wanted_ns) const {
    return RunsPerSample(run_ns, candidate_->on_host() ? wall_ns : 0,
                         static_cast<double>(wanted_ns), kMaxInnerLoops);
  }
  static double WallSince(int64_t begin) { return static_cast<double>(WallNs() - begin); }

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
    double best_wall = 0;
    for (int run = 0;; ++run) {
      int64_t elapsed_ns = 0;
      // The first run of a process also counts what is done once, as to bind symbols. A device that
      // counts its own time does not count that.
      const bool counts_binding = job_.unit.deterministic && candidate_->on_host();
      if (counts_binding && !TimedRuns(1, &elapsed_ns)) return false;
      const int64_t begin = WallNs();
      if (!TimedRuns(1, &elapsed_ns)) return false;
      const double wall = WallSince(begin);
      const auto elapsed = static_cast<double>(elapsed_ns);
      best = run == 0 ? elapsed : std::min(best, elapsed);
      warm_ = best;
      best_wall = run == 0 ? wall : std::min(best_wall, wall);
      if (limit > 0 && best > limit) {
        const bool final_verdict = job_.unit.deterministic || best >= kHopeless * limit;
        if (!final_verdict && run + 1 < kLooks) continue;
        result_.add_samples(best);
        result_.set_inner_loops(1);
        result_.set_outcome(v1::EARLY_STOPPED);
        return false;
      }
      if (job_.unit.deterministic || WallNs() >= end) break;
    }
    const bool one_run = plan_.flush_cache() || job_.unit.deterministic;
    loops_ = one_run ? 1 : RunsOf(best, best_wall, support::DurationNs(plan_.min_repeat_time()));
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
    if (job_.unit.deterministic) {  // the warm-up was a run as good as any
      result_.add_samples(warm_);
      result_.set_inner_loops(1);
      return true;
    }
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
    const Switches after = SwitchesNow(threads);
    v1::Telemetry* telemetry = result_.mutable_telemetry();
    telemetry->set_voluntary_context_switches(after.voluntary - before.voluntary);
    telemetry->set_involuntary_context_switches(after.involuntary - before.involuntary);
    return true;
  }

  const MeasureJob& job_;
  const MeasureHost& host_;
  const v1::MeasurementPlan plan_;
  v1::ModuleMeasured result_;
  std::unique_ptr<MeasuredSession> candidate_;
  std::unique_ptr<MeasuredSession> baseline_;
  std::vector<char> flush_;
  volatile uint64_t calibration_ = 1;
  double before_ = 0;
  double after_ = 0;
  int loops_ = 1;
  double warm_ = 0;  // of the warm-up, the fastest run
  bool quiet_ = true;
};

}  // namespace

v1::ModuleMeasured Measure(const MeasureJob& job, const MeasureHost& host) {
  // Never taken down: the process ends with its answer. To unload the code would take time, and
  // make threads that a candidate left behind run into nothing.
  if (job.counter == nullptr) return (new Measurement(job, host))->Run();
  // Addresses decide which lines of a cache meet. What this process has allocated so far depends on
  // clocks and files; a new thread has its own stack and heap, which begin the same each time. From
  // which size on memory is mapped depends on what was freed before, unless it is set.
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  v1::ModuleMeasured measured;
  std::thread([&] { measured = (new Measurement(job, host))->Run(); }).join();
  return measured;
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

}  // namespace tilewright::device_agent
