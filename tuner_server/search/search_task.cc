#include "tuner_server/search/search_task.h"

#include <algorithm>
#include <cmath>

#include "compiler/ir/structural.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::search {
namespace {

constexpr size_t kParents = 12;        // best points that mutations start from
constexpr int kFailedProposals = 400;  // in a row: the space is exhausted
constexpr double kOldPoolShare = 0.75;
constexpr int kPicksOfEachVariant = 8;

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

absl::StatusOr<std::unique_ptr<SearchTask>> SearchTask::Create(
    std::vector<schedule::Variant> variants, double flops, const ir::Target& target,
    const SearchOptions& options) {
  TW_ASSIGN(std::unique_ptr<Space> space, Space::Create(std::move(variants), target));
  std::unique_ptr<SearchTask> task(new SearchTask(std::move(space), flops, target, options));
  task->default_point_ = task->space_->DefaultPoint();
  if (!task->default_point_.has_value()) return task;
  // The job measures the default by itself; its point is where the search starts from.
  TW_ASSIGN(Candidate candidate,
            task->MakeFromPoint(*task->default_point_, Origin::kDraft, nullptr));
  task->made_[candidate.program_hash] = std::move(candidate);
  return task;
}

void SearchTask::Tell(const Told& told, std::string_view steps) {
  Known& known = told_[told.program_hash];
  if (known.told.program_hash.empty()) {
    told_order_.push_back(told.program_hash);
    known.steps = std::string(steps);
    const auto made = made_.find(told.program_hash);
    if (made != made_.end()) {
      known.candidate = made->second;
      known.has_candidate = true;
    }
  } else if (told.pending) {
    return;  // a pick that is measured already
  }
  known.told = told;
  seen_.insert(told.program_hash);
  std::erase_if(pool_, [&](const Candidate& c) { return c.program_hash == told.program_hash; });
}

absl::StatusOr<Candidate> SearchTask::Lower(const schedule::Schedule& schedule,
                                            AskResult* timing) const {
  support::SystemClock clock;
  const int64_t start = clock.NowNs();
  Candidate candidate;
  candidate.program_hash = ir::ProgramHash(schedule.function());
  candidate.steps = schedule::ToText(schedule.steps());
  transform::PassContext context;
  context.target = target_;
  TW_ASSIGN(ir::Function loops, transform::LowerToLoops(schedule.function(), context));
  const int64_t lowered = clock.NowNs();
  TW_ASSIGN(candidate.features, cost_model::ComputeFeatures(loops, flops_, target_));
  if (timing != nullptr) {
    timing->search_seconds += Seconds(lowered - start);
    timing->features_seconds += Seconds(clock.NowNs() - lowered);
  }
  return candidate;
}

absl::StatusOr<Candidate> SearchTask::MakeFromPoint(const Point& point, Origin origin,
                                                    AskResult* timing) const {
  support::SystemClock clock;
  const int64_t start = clock.NowNs();
  TW_ASSIGN(schedule::Schedule schedule, space_->Apply(point));
  if (timing != nullptr) timing->search_seconds += Seconds(clock.NowNs() - start);
  // A known program needs no second lowering.
  if (seen_.count(ir::ProgramHash(schedule.function())) > 0) {
    return support::AlreadyExists("search.known", "this program was made before");
  }
  TW_ASSIGN(Candidate candidate, Lower(schedule, timing));
  candidate.point = point;
  candidate.origin = origin;
  return candidate;
}

absl::StatusOr<Candidate> SearchTask::MakeFromSteps(std::string_view steps) const {
  schedule::Schedule schedule(space_->variants());
  TW_ASSIGN(schedule::Steps parsed, schedule::ParseSteps(steps));
  TW_TRY(schedule.ApplyAll(parsed));
  TW_ASSIGN(Candidate candidate, Lower(schedule, nullptr));
  candidate.has_point = false;
  return candidate;
}

std::vector<const SearchTask::Known*> SearchTask::BestKnown(size_t count) const {
  std::vector<const Known*> best;
  for (const std::string& hash : told_order_) {
    const Known& known = told_.at(hash);
    if (known.told.outcome == v1::OK && known.told.median_ns > 0 && known.has_candidate &&
        known.candidate.has_point) {
      best.push_back(&known);
    }
  }
  std::stable_sort(best.begin(), best.end(), [](const Known* a, const Known* b) {
    return a->told.median_ns < b->told.median_ns;
  });
  if (best.size() > count) best.resize(count);
  return best;
}

bool SearchTask::Propose(support::Rng* rng, const std::vector<const Known*>& best, Point* point,
                         Origin* origin) const {
  const uint64_t dice = rng->Uniform(10);
  // The better half of the parents is chosen more often.
  const auto parent = [&] {
    return best[std::min(rng->Uniform(best.size()), rng->Uniform(best.size()))];
  };
  if (!best.empty() && dice < 5) {
    *origin = Origin::kMutation;
    return space_->Mutate(parent()->candidate.point, rng, point);
  }
  if (best.size() > 1 && dice < 7) {
    *origin = Origin::kCrossover;
    return space_->Cross(parent()->candidate.point, parent()->candidate.point, rng, point);
  }
  if (default_point_.has_value() && dice >= 8) {
    *origin = Origin::kMutation;
    return space_->Mutate(*default_point_, rng, point);
  }
  *origin = Origin::kDraft;
  return space_->Sample(rng, point);
}

void SearchTask::FillPool(support::Rng* rng, AskResult* result) {
  const std::vector<const Known*> best = BestKnown(kParents);
  const size_t wanted = std::max(static_cast<size_t>(options_.considered),
                                 pool_.size() + static_cast<size_t>(options_.fresh));
  int failures = 0;
  while (pool_.size() < wanted && failures < kFailedProposals) {
    Point point;
    Origin origin;
    if (!Propose(rng, best, &point, &origin)) {
      ++failures;
      continue;
    }
    absl::StatusOr<Candidate> candidate = MakeFromPoint(point, origin, result);
    if (!candidate.ok()) {
      if (candidate.status().code() != absl::StatusCode::kAlreadyExists) ++result->invalid;
      ++failures;
      continue;
    }
    if (!seen_.insert(candidate->program_hash).second) {
      ++failures;
      continue;
    }
    failures = 0;
    pool_.push_back(*std::move(candidate));
  }
}

// The algorithm that steps begin with; empty for the usual one.
std::string_view VariantOf(std::string_view steps) {
  constexpr std::string_view kStep = "variant ";
  if (steps.substr(0, kStep.size()) != kStep) return "";
  return steps.substr(kStep.size(), steps.find(';') - kStep.size());
}

// Each algorithm's best drafts until enough of them were picked (a model knows little of a
// structure that it has never seen), the top by prediction, then the explored share from everything
// below.
void SearchTask::Choose(int total, support::Rng* rng, AskResult* result) const {
  std::map<std::string_view, int> told;
  for (const std::string& hash : told_order_) ++told[VariantOf(told_.at(hash).steps)];
  const int explore = static_cast<int>(std::floor(total * options_.exploration_share + 0.5));
  std::vector<bool> taken(result->ranked.size());
  int left = total - explore;
  if (space_->variants().size() > 1) {
    std::map<std::string_view, int> owed;
    const int share = std::max(1, left / static_cast<int>(space_->variants().size()));
    for (size_t r = 0; r < taken.size() && left > 0; ++r) {
      const std::string_view variant = VariantOf(result->ranked[r].candidate.steps);
      if (told[variant] + owed[variant] >= kPicksOfEachVariant || owed[variant] >= share) continue;
      ++owed[variant];
      taken[r] = true;
      --left;
    }
  }
  for (size_t r = 0; r < taken.size() && left > 0; ++r) {
    left -= taken[r] ? 0 : 1;
    taken[r] = true;
  }
  std::vector<size_t> rest;
  for (size_t r = 0; r < taken.size(); ++r) {
    if (taken[r]) result->picks.push_back(result->ranked[r]);
    if (!taken[r]) rest.push_back(r);
  }
  rng->Shuffle(&rest);
  for (size_t i = 0; i < rest.size() && static_cast<int>(i) < explore; ++i) {
    result->picks.push_back(result->ranked[rest[i]]);
    result->picks.back().explored = true;
  }
}

absl::StatusOr<AskResult> SearchTask::Ask(int count, std::string_view batch_id,
                                          cost_model::CostModel* model) {
  AskResult result;
  support::Rng rng = support::Rng(options_.seed).Split(batch_id);
  FillPool(&rng, &result);
  support::SystemClock clock;
  const int64_t start = clock.NowNs();
  std::vector<cost_model::FeatureVector> rows;
  for (const Candidate& candidate : pool_) rows.push_back(candidate.features);
  TW_ASSIGN(std::vector<float> scores, model->Predict(rows));
  std::vector<size_t> order(pool_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  result.model_seconds = Seconds(clock.NowNs() - start);
  result.considered = static_cast<int>(order.size());
  for (size_t r = 0; r < order.size(); ++r) {
    result.ranked.push_back({pool_[order[r]], scores[order[r]], static_cast<int>(r) + 1, false});
  }
  const int total = std::min(count, static_cast<int>(order.size()));
  Choose(total, &rng, &result);
  for (const Pick& pick : result.picks) {
    made_[pick.candidate.program_hash] = pick.candidate;
    Told told{pick.candidate.program_hash, v1::OUTCOME_UNSPECIFIED, 0, true};
    Tell(told, pick.candidate.steps);
  }
  // Room for new ideas: the worst-ranked drafts leave, and may be made again.
  const size_t keep = static_cast<size_t>(static_cast<double>(options_.considered) * kOldPoolShare);
  if (pool_.size() > keep) {
    std::unordered_map<std::string, int> rank;
    for (const Pick& pick : result.ranked) rank[pick.candidate.program_hash] = pick.rank;
    std::stable_sort(pool_.begin(), pool_.end(), [&](const Candidate& a, const Candidate& b) {
      return rank[a.program_hash] < rank[b.program_hash];
    });
    for (size_t i = keep; i < pool_.size(); ++i) seen_.erase(pool_[i].program_hash);
    pool_.resize(keep);
  }
  return result;
}

std::vector<cost_model::DataRow> SearchTask::TrainingRows(int group) {
  std::vector<cost_model::DataRow> rows;
  for (const std::string& hash : told_order_) {
    Known& known = told_.at(hash);
    if (known.told.pending || known.stale || known.told.outcome == v1::CANCELLED ||
        known.told.outcome == v1::DEVICE_LOST || known.told.outcome == v1::OUTCOME_UNSPECIFIED) {
      continue;
    }
    if (!known.has_candidate) {
      absl::StatusOr<Candidate> candidate = MakeFromSteps(known.steps);
      known.stale = !candidate.ok() || candidate->program_hash != hash;
      if (known.stale) continue;
      known.candidate = *std::move(candidate);
      known.has_candidate = true;
    }
    if (known.told.outcome == v1::EARLY_STOPPED) continue;  // a bound, not a time
    rows.push_back(
        {known.candidate.features, group, known.told.outcome == v1::OK ? known.told.median_ns : 0});
  }
  return rows;
}

}  // namespace tilewright::search
