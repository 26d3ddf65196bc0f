#include "tuner_server/cli/bench_command.h"

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "deploy/runtime/compare.h"
#include "deploy/support/clock.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/launch_pairs.h"
#include "tuner_server/cli/own_process.h"
#include "tuner_server/cli/paired_times.h"
#include "tuner_server/cli/run_host.h"
#include "tuner_server/cli/tensor_files.h"

namespace tilewright::cli {
namespace {

constexpr int kWarmUps = 3;
constexpr double kBlockNs = 2e6;  // runs of one module in a row; the first finds cold caches
constexpr int kMostRuns = 1000;
constexpr int kProfiledRuns = 30;

class Race {
 public:
  Race(const BenchDiffOptions& options, const StepSink& step) : options_(options), step_(step) {}

  absl::Status Run() {
    TW_TRY(Load(options_.a_path, &a_));
    TW_TRY(Load(options_.b_path, &b_));
    TW_TRY(CheckSame(a_->num_inputs(), b_->num_inputs(), true));
    TW_TRY(CheckSame(a_->num_outputs(), b_->num_outputs(), false));
    step_("running them in turns");
    TW_TRY(WarmUp());
    CompareOutputs();
    TW_TRY(TakeTurns());
    if (options_.profile) TW_TRY(Profile());
    const SpeedRatio ratio = RatioOf(pairs_);
    Report(ratio);
    if (options_.at_least <= 0 || ratio.high >= options_.at_least) return absl::OkStatus();
    return support::FailedPrecondition(
        "cli.mismatch.slower",
        support::StrCat("expected at least ", options_.at_least, " times the speed, found ",
                        support::FormatFixed(ratio.median, 3), ", at most ",
                        support::FormatFixed(ratio.high, 3)));
  }

 private:
  absl::Status Load(const std::string& path, std::unique_ptr<runtime::Session>* to) {
    step_("loading " + path);
    TW_ASSIGN(module::ModuleFile file, module::ModuleFile::Open(path));
    const int threads =
        options_.threads > 0 ? options_.threads : module::TargetThreads(file.manifest().target);
    TW_ASSIGN(*to, LoadSession(std::move(file), threads));
    const module::Manifest& manifest = (*to)->module().manifest();
    // The other one may be the same model at fixed sizes.
    const std::vector<std::string> none;
    TW_ASSIGN(
        const module::Sizes minima,
        FillInputs({options_.inputs, manifest.open_sizes() ? options_.shapes : none, options_.seed},
                   manifest, to->get()));
    SayMinima(minima);
    return absl::OkStatus();
  }

  absl::Status CheckSame(size_t in_a, size_t in_b, bool inputs) const {
    const std::string kind = inputs ? "input" : "output";
    bool same = in_a == in_b;
    for (size_t i = 0; same && i < in_a; ++i) {
      const runtime::TensorView a = inputs ? a_->input(i) : a_->output(i);
      const runtime::TensorView b = inputs ? b_->input(i) : b_->output(i);
      same = a.tensor->name == b.tensor->name && a.tensor->dtype == b.tensor->dtype &&
             a.shape == b.shape;
    }
    if (same) return absl::OkStatus();
    return support::InvalidArgument(
        "cli.bench.modules",
        support::StrCat("expected two modules of one model, found other ", kind, "s in ",
                        options_.b_path, " than in ", options_.a_path));
  }

  absl::Status WarmUp() {
    for (int i = 0; i < kWarmUps; ++i) {
      TW_TRY(a_->Run());
      TW_TRY(b_->Run());
    }
    return absl::OkStatus();
  }

  // Different schedules round differently; more than that is for `tilewright compare`.
  void CompareOutputs() {
    for (size_t i = 0; i < a_->num_outputs(); ++i) {
      const runtime::TensorView a = a_->output(i), b = b_->output(i);
      const int64_t count = static_cast<int64_t>(a.bytes) / module::DTypeBytes(a.tensor->dtype);
      const runtime::CompareResult result =
          runtime::CompareTensors(a.tensor->dtype, b.data, a.data, count, {});
      difference_ = std::max(difference_, result.relative_norm);
    }
  }

  // The median run of a block, without its first one.
  absl::StatusOr<double> Block(runtime::Session* session, int runs) {
    std::vector<double> times;
    for (int i = 0; i <= runs; ++i) {
      const int64_t start = clock_.NowNs();
      TW_TRY(session->Run());
      if (i > 0) times.push_back(static_cast<double>(std::max<int64_t>(clock_.NowNs() - start, 1)));
    }
    return MedianOf(std::move(times));
  }

  // A B B A: what changes steadily changes both alike.
  absl::Status TakeTurns() {
    TW_ASSIGN(const double once, Block(a_.get(), 1));
    const int runs = static_cast<int>(std::clamp(kBlockNs / once, 1.0, double{kMostRuns}));
    const int64_t end = clock_.NowNs() + static_cast<int64_t>(options_.seconds * 1e9);
    while (pairs_.size() < kFewestPairs || clock_.NowNs() < end) {
      TW_ASSIGN(const double a1, Block(a_.get(), runs));
      TW_ASSIGN(const double b1, Block(b_.get(), runs));
      TW_ASSIGN(const double b2, Block(b_.get(), runs));
      TW_ASSIGN(const double a2, Block(a_.get(), runs));
      pairs_.push_back({(a1 + a2) / 2, (b1 + b2) / 2});
    }
    return absl::OkStatus();
  }

  absl::Status Profile() {
    std::array<std::vector<std::vector<double>>, 2> samples;
    for (int i = 0; i < kProfiledRuns; ++i) {
      TW_TRY(AddProfile(a_.get(), &samples[0]));
      TW_TRY(AddProfile(b_.get(), &samples[1]));
    }
    std::array<std::vector<double>, 2> medians;
    for (size_t k = 0; k < 2; ++k) {
      for (std::vector<double>& times : samples[k])
        medians[k].push_back(MedianOf(std::move(times)));
    }
    launches_ = PairLaunches({a_->module().manifest(), a_->function(), medians[0]},
                             {b_->module().manifest(), b_->function(), medians[1]});
    return absl::OkStatus();
  }

  static absl::Status AddProfile(runtime::Session* session,
                                 std::vector<std::vector<double>>* samples) {
    TW_TRY(session->Run());  // the other module's run left the caches
    std::span<const TwLaunchTime> times;
    TW_TRY(session->RunProfiled(&times));
    samples->resize(times.size());
    for (size_t k = 0; k < times.size(); ++k) {
      (*samples)[k].push_back(static_cast<double>(times[k].ns));
    }
    return absl::OkStatus();
  }

  void Report(const SpeedRatio& ratio) const {
    std::vector<double> a, b;
    for (const Pair& pair : pairs_) {
      a.push_back(pair.a);
      b.push_back(pair.b);
    }
    const double a_ns = MedianOf(std::move(a)), b_ns = MedianOf(std::move(b));
    if (options_.format == OutputFormat::kJson) {
      nlohmann::json document = {{"a", {{"module", options_.a_path}, {"median_us", a_ns / 1e3}}},
                                 {"b", {{"module", options_.b_path}, {"median_us", b_ns / 1e3}}},
                                 {"ratio", ratio.median},
                                 {"ratio_low", ratio.low},
                                 {"ratio_high", ratio.high},
                                 {"pairs", pairs_.size()},
                                 {"outputs_relative_difference", difference_}};
      if (options_.profile) document["kernels"] = LaunchPairsJson(launches_);
      PrintJson(document);
      return;
    }
    if (options_.profile) PrintOut(LaunchPairsTable(launches_));
    PrintOut(support::StrCat("A  ", TimeText(a_ns), "  ", options_.a_path));
    PrintOut(support::StrCat("B  ", TimeText(b_ns), "  ", options_.b_path));
    PrintOut(support::StrCat("B against A: ", SpeedText(ratio), ", ", pairs_.size(),
                             " pairs; outputs differ by ", difference_));
  }

  const BenchDiffOptions& options_;
  const StepSink& step_;
  support::SystemClock clock_;
  std::unique_ptr<runtime::Session> a_, b_;
  std::vector<Pair> pairs_;
  std::vector<LaunchPair> launches_;
  double difference_ = 0;
};

}  // namespace

int BenchDiff(const BenchDiffOptions& options) {
  const std::string what = "cannot race " + options.a_path + " and " + options.b_path;
  return RunInOwnProcess({"bench diff", what, "", "run.code.crashed"}, [&](const StepSink& step) {
    return Finish("bench diff", what, Race(options, step).Run());
  });
}

}  // namespace tilewright::cli
