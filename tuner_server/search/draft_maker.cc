#include "tuner_server/search/draft_maker.h"

#include <limits>
#include <optional>
#include <utility>

#include "compiler/ir/structural.h"
#include "compiler/space/open_cost.h"
#include "compiler/space/run_loops.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tuner_server/search/code_size.h"

namespace tilewright::search {
namespace {

// Some 20 MB each; then everything is forgotten and made again.
constexpr size_t kMaxPrograms = 50'000;
constexpr size_t kMaxFeatures = 30'000;
constexpr size_t kMaxRemembered = 8'000;  // steps, a few MB: twice a first batch's

// Adds the time from its start to its end.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds), start_(clock_.NowNs()) {}
  ~Stopwatch() { *seconds_ += static_cast<double>(clock_.NowNs() - start_) * 1e-9; }

 private:
  support::SystemClock clock_;
  double* seconds_;
  int64_t start_;
};

}  // namespace

absl::StatusOr<DraftMaker::Features> DraftMaker::FeaturesOf(const std::string& hash,
                                                            const schedule::Schedule& schedule,
                                                            double max_code_size,
                                                            DraftTimes* times) {
  const auto known = features_.find(hash);
  if (known != features_.end()) return known->second;
  ir::Function loops;
  {
    const Stopwatch watch(&times->search_seconds);
    TW_ASSIGN(loops, space::LowerRun(schedule.function(), target_, space_->typical()));
    const double code_size = CodeSize(loops, target_);
    if (code_size > max_code_size) {
      return support::ResourceExhausted(
          "search.code_size", support::StrCat("about ", static_cast<int64_t>(code_size),
                                              " instructions: would take too long to compile"));
    }
  }
  const Stopwatch watch(&times->features_seconds);
  TW_ASSIGN(cost_model::FeatureVector values, cost_model::ComputeFeatures(loops, flops_, target_));
  if (features_.size() >= kMaxFeatures) features_.clear();
  auto features = std::make_shared<const cost_model::FeatureVector>(std::move(values));
  features_.emplace(hash, features);
  return features;
}

absl::StatusOr<Candidate> DraftMaker::Make(const Point& point, Origin origin,
                                           const std::function<bool(const std::string&)>& wanted,
                                           DraftTimes* times) {
  const std::string key = PointText(point);
  auto program = programs_.find(key);
  std::optional<schedule::Schedule> schedule;
  const auto apply = [&]() -> absl::StatusOr<Program> {
    const Stopwatch watch(&times->search_seconds);
    if (!start_.has_value() || start_->remembered() > kMaxRemembered) {
      start_ = space_->Start();
      start_->RememberSteps();
    }
    schedule = start_;
    TW_TRY(space_->Apply(point, &*schedule));
    return Program{schedule->ProgramHash(), schedule::ToText(schedule->steps())};
  };
  if (program == programs_.end()) {
    if (programs_.size() >= kMaxPrograms) programs_.clear();
    program = programs_.emplace(key, apply()).first;
  }
  TW_TRY(program->second.status());
  const std::string& hash = program->second->hash;
  if (!wanted(hash)) return support::AlreadyExists("search.known", "this program was made before");
  Candidate candidate{point, origin, program->second->steps, hash, {}, true};
  const auto known = features_.find(hash);
  if (known != features_.end()) {
    candidate.features = *known->second;
  } else {
    if (!schedule.has_value()) TW_TRY(apply().status());
    const absl::StatusOr<Features> features = FeaturesOf(hash, *schedule, kMaxCodeSize, times);
    if (!features.ok()) program->second = features.status();  // not lowered again
    TW_TRY(features.status());
    candidate.features = **features;
  }
  SetEstimate(point, &candidate);
  return candidate;
}

void DraftMaker::SetEstimate(const Point& point, Candidate* candidate) const {
  const std::optional<double> estimate = space_->Estimate(point);
  if (estimate.has_value()) cost_model::SetEstimate(*estimate, &candidate->features);
}

absl::StatusOr<Candidate> DraftMaker::MakeFromSteps(std::string_view steps) {
  schedule::Schedule schedule(space_->variants());
  TW_ASSIGN(schedule::Steps parsed, schedule::ParseSteps(steps));
  TW_TRY(schedule.ApplyAll(parsed));
  Candidate candidate;
  candidate.program_hash = ir::ProgramHash(schedule.function());
  candidate.steps = schedule::ToText(schedule.steps());
  DraftTimes unused;
  TW_ASSIGN(const Features features, FeaturesOf(candidate.program_hash, schedule,
                                                std::numeric_limits<double>::infinity(), &unused));
  candidate.features = *features;
  candidate.has_point = false;
  return candidate;
}

absl::StatusOr<double> DraftMaker::OpenCost(std::string_view steps) const {
  if (space_->function().size_params.empty() ||
      target_.machine.rule_set != target::RuleSet::kLoops) {
    return 0;
  }
  TW_ASSIGN(const ir::Function scheduled, schedule::Replay(space_->variants(), steps));
  return space::OpenCost(scheduled, target_, space_->typical());
}

}  // namespace tilewright::search
