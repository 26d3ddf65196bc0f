#include "tuner_server/search/search_task.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "compiler/ir/structural.h"
#include "compiler/space/default_schedule.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"

namespace tilewright::search {
namespace {

constexpr size_t kParents = 12;        // best points that mutations start from
constexpr size_t kDescendParents = 2;  // and that all neighbours are drafts of
// Measured programs from which on mutations of what the prior likes best are made, too.
constexpr size_t kFavouritesFrom = 8;
constexpr int kProposalsPerFresh = 16;   // tries for each fresh draft; many are known already
constexpr int kKnownToEndFresh = 96;     // in a row: a space of few programs and many points
constexpr int kFailuresToEndBase = 150;  // points in a row without a new program

// The best of hundreds of predictions is partly an error: on the tasks of seven networks programs
// were 1.25 times as slow as the model said (log2 of it; tests/bench/results/predicted.json).
constexpr double kOptimism = 0.32;

// So many of the best predicted of a task of open sizes are looked at as they will run.
constexpr size_t kPredictionTries = 4;

// Positions by score, best first; equal ones in their order.
std::vector<size_t> ByScore(const std::vector<float>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  return order;
}

// Of a draft that is neither made nor left out for a reason: a bug of a rule.
int IsInvalid(const absl::Status& status) {
  return absl::IsAlreadyExists(status) || absl::IsResourceExhausted(status) ? 0 : 1;
}

}  // namespace

void UseParts(const SearchParts& parts, SearchOptions* options) {
  if (!parts.transfer) options->transfer_share = 0;
  if (!parts.quota) options->early_exploration = 0;
  if (!parts.adapt) options->fresh = 0;
  if (!parts.evolution) options->generations = options->late_generations = 0;
  if (parts.descent) options->descend_share = 0.5;
  options->owed = parts.owed;
  options->annealing = parts.annealing;
}

absl::StatusOr<std::unique_ptr<SearchTask>> SearchTask::Create(
    std::vector<schedule::Variant> variants, double flops, const target::Target& target,
    const SearchOptions& options) {
  TW_ASSIGN(std::unique_ptr<Space> space,
            Space::Create(std::move(variants), target, options.typical));
  std::unique_ptr<SearchTask> task(new SearchTask(std::move(space), flops, target, options));
  task->best_points_ = task->space_->BestPoints(static_cast<size_t>(options.considered));
  task->default_point_ = task->space_->DefaultPoint();
  if (!task->default_point_.has_value()) {
    task->default_steps_ =
        schedule::ToText(space::DefaultSchedule(task->space_->variants(), target, options.typical));
    return task;
  }
  // The job measures the default by itself, however large its code; its point is where the search
  // starts from.
  TW_ASSIGN(const schedule::Schedule schedule, task->space_->Apply(*task->default_point_));
  task->default_hash_ = ir::ProgramHash(schedule.function());
  task->default_steps_ = schedule::ToText(schedule.steps());
  return task;
}

void SearchTask::Tell(const Told& told, std::string_view steps, std::string_view point) {
  Known& known = told_[told.program_hash];
  const bool first = known.told.program_hash.empty();
  const bool was_measured = !first && !known.told.pending;
  if (first) {
    known.steps = std::string(steps);
    known.point = space::ParsePoint(point);
    if (told.program_hash == default_hash_) known.point = default_point_;
  }
  if (told.pending && was_measured) return;
  known.told = told;
  if (set_ != cost_model::FeatureSet::kGroups) known.told.registers = 0;  // no such columns
  if (!told.pending && !was_measured) measured_.push_back(told.program_hash);
}

// Whether the point that was told is one, and of this program: spaces change between versions.
bool SearchTask::IsParent(Known* known) {
  if (!known->point.has_value() || known->point_checked) return known->point.has_value();
  known->point_checked = true;
  if (!space_->Contains(*known->point)) {
    known->point.reset();
    return false;
  }
  const auto same = [&](const std::string& hash) { return hash == known->told.program_hash; };
  DraftTimes unused;
  absl::StatusOr<Candidate> made = maker_.Make(*known->point, Origin::kDraft, same, &unused);
  if (!made.ok()) known->point.reset();
  if (made.ok() && !known->features.has_value()) known->features = std::move(made->features);
  return made.ok();
}

std::vector<Point> SearchTask::BestKnown(size_t count) {
  std::vector<Known*> timed;
  for (const std::string& hash : measured_) {
    Known& known = told_.at(hash);
    if (known.told.outcome == v1::OK && known.told.median_ns > 0) timed.push_back(&known);
  }
  std::stable_sort(timed.begin(), timed.end(), [](const Known* a, const Known* b) {
    return a->told.median_ns < b->told.median_ns;
  });
  std::vector<Point> best;
  for (Known* known : timed) {
    if (best.size() == count) break;
    if (IsParent(known)) best.push_back(*known->point);
  }
  return best;
}

// Of drafts with scores: each sketch's best in turn, the best sketch first. Good points are rare in
// large sketches: without a turn of their own they would have no offspring beside a small sketch
// whose every point is decent.
std::vector<Point> SearchTask::BestPredicted(const Pool& pool, size_t count) {
  std::vector<int> sketches;  // in the order of their best
  std::map<int, std::vector<Point>> by_sketch;
  for (const size_t i : ByScore(pool.scores)) {
    const Point& point = pool.drafts[i].point;
    std::vector<Point>& same = by_sketch[point.sketch];
    if (same.empty()) sketches.push_back(point.sketch);
    if (same.size() < count) same.push_back(point);
  }
  std::vector<Point> best;
  for (size_t turn = 0; turn < count; ++turn) {
    for (const int sketch : sketches) {
      const std::vector<Point>& same = by_sketch[sketch];
      if (turn < same.size() && best.size() < count) best.push_back(same[turn]);
    }
  }
  return best;
}

bool SearchTask::Propose(support::Rng* rng, const std::vector<Point>& best, bool with_default,
                         Point* point, Origin* origin) const {
  const uint64_t dice = rng->Uniform(10);
  // The better half of the parents is chosen more often.
  const auto parent = [&]() -> const Point& {
    return best[std::min(rng->Uniform(best.size()), rng->Uniform(best.size()))];
  };
  with_default = with_default && default_point_.has_value();
  if (!best.empty() && (dice < 6 || !with_default)) {
    *origin = Origin::kMutation;
    return space_->Mutate(parent(), rng, point);
  }
  if (best.size() > 1 && dice < 8) {
    *origin = Origin::kCrossover;
    const Point& mother = parent();
    return space_->Cross(mother, parent(), rng, point);
  }
  if (with_default) {
    *origin = Origin::kMutation;
    return space_->Mutate(*default_point_, rng, point);
  }
  *origin = Origin::kDraft;
  return space_->Sample(rng, point);
}

// Up to `count` new programs.
void SearchTask::AddFresh(support::Rng* rng, const std::vector<Point>& parents, bool with_default,
                          int count, Pool* pool, AskResult* result) {
  const auto is_new = [&](const std::string& hash) {
    return !IsTold(hash) && pool->hashes.count(hash) == 0;
  };
  int known = 0;
  for (int tries = kProposalsPerFresh * count; tries > 0 && count > 0 && known < kKnownToEndFresh;
       --tries) {
    Point point;
    Origin origin;
    if (!Propose(rng, parents, with_default, &point, &origin)) continue;
    absl::StatusOr<Candidate> candidate = maker_.Make(point, origin, is_new, &result->times);
    if (!candidate.ok()) {
      result->invalid += IsInvalid(candidate.status());
      ++known;
      continue;
    }
    known = 0;
    pool->hashes.insert(candidate->program_hash);
    pool->drafts.push_back(*std::move(candidate));
    --count;
  }
}

std::vector<std::string> SearchTask::AddInherited(Pool* pool, AskResult* result) {
  std::vector<std::string> hashes;
  if (told_.size() >= kEarlyPrograms) return hashes;
  const auto is_new = [&](const std::string& hash) {
    return !IsTold(hash) && pool->hashes.count(hash) == 0;
  };
  for (const Point& point : inherited_) {
    // Illegal here: the relative's own business.
    auto candidate = maker_.Make(point, Origin::kTransfer, is_new, &result->times);
    if (!candidate.ok()) continue;
    hashes.push_back(candidate->program_hash);
    pool->hashes.insert(candidate->program_hash);
    pool->drafts.push_back(*std::move(candidate));
  }
  return hashes;
}

// Simulated annealing on the model's scores: chains from the best predicted, each step a mutation,
// taken where it is better or, the more often the earlier, where it is not much worse. All programs
// that chains came by are drafts.
absl::Status SearchTask::Anneal(cost_model::CostModel* model, int drafts, support::Rng* rng,
                                Pool* pool, AskResult* result) {
  const auto is_new = [&](const std::string& hash) {
    return !IsTold(hash) && pool->hashes.count(hash) == 0;
  };
  std::vector<size_t> chains;
  for (const size_t i : ByScore(pool->scores)) {
    if (static_cast<int>(chains.size()) < options_.chains) chains.push_back(i);
  }
  if (chains.empty() || drafts == 0) return absl::OkStatus();
  const float spread = pool->scores[chains.front()] - pool->scores[chains.back()];
  const int steps = std::max(1, drafts / static_cast<int>(chains.size()));
  for (int step = 0; step < steps; ++step) {
    // Falls in a straight line to zero; at first, what separates the chains is nothing.
    const double temperature = spread * (1 - static_cast<double>(step) / steps);
    std::vector<std::pair<size_t, size_t>> moves;  // chain, draft
    for (size_t c = 0; c < chains.size(); ++c) {
      for (int tries = 0; tries < kProposalsPerFresh; ++tries) {
        Point point;
        if (!space_->Mutate(pool->drafts[chains[c]].point, rng, &point)) break;
        auto candidate = maker_.Make(point, Origin::kMutation, is_new, &result->times);
        if (!candidate.ok()) {
          result->invalid += absl::IsAlreadyExists(candidate.status()) ? 0 : 1;
          continue;
        }
        moves.emplace_back(c, pool->drafts.size());
        pool->hashes.insert(candidate->program_hash);
        pool->drafts.push_back(*std::move(candidate));
        break;
      }
    }
    TW_TRY(Score(model, pool, result));
    for (const auto& [chain, draft] : moves) {
      const double gain = pool->scores[draft] - pool->scores[chains[chain]];
      const double chance = temperature > 0 ? std::exp(gain / temperature) : 0;
      if (gain >= 0 || rng->Bernoulli(chance)) chains[chain] = draft;
    }
  }
  return absl::OkStatus();
}

SearchTask::Neighbours SearchTask::AddNeighbours(Pool* pool, AskResult* result) {
  Neighbours neighbours;
  const auto is_new = [&](const std::string& hash) {
    if (IsTold(hash)) return false;
    neighbours.insert(hash);
    return pool->hashes.count(hash) == 0;
  };
  for (const Point& best : BestKnown(kDescendParents)) {
    for (const Point& point : space_->Neighbours(best)) {
      auto candidate = maker_.Make(point, Origin::kMutation, is_new, &result->times);
      if (!candidate.ok()) {
        result->invalid += IsInvalid(candidate.status());
        continue;
      }
      pool->hashes.insert(candidate->program_hash);
      pool->drafts.push_back(*std::move(candidate));
    }
  }
  return neighbours;
}

bool SearchTask::NextBasePoint(Point* point) {
  if (next_best_point_ == best_points_.size()) return space_->Sample(&base_rng_, point);
  *point = best_points_[next_best_point_++];
  return true;
}

// One more program of the task's stream; false when there is none.
bool SearchTask::GrowBase(AskResult* result) {
  const auto is_new = [&](const std::string& hash) { return base_hashes_.count(hash) == 0; };
  for (int failures = 0; !base_ended_ && failures < kFailuresToEndBase; ++failures) {
    Point point;
    if (!NextBasePoint(&point)) continue;
    const auto made = maker_.Make(point, Origin::kDraft, is_new, &result->times);
    if (!made.ok()) {
      result->invalid += IsInvalid(made.status());
      continue;
    }
    base_hashes_.insert(made->program_hash);
    base_.push_back({std::move(point), made->program_hash});
    return true;
  }
  base_ended_ = true;
  return false;
}

// Fills the pool up to `size` with the best predicted of the stream's programs.
absl::Status SearchTask::AddBase(cost_model::CostModel* model, int size, Pool* pool,
                                 AskResult* result) {
  if (pool->drafts.size() >= static_cast<size_t>(size)) return absl::OkStatus();
  const size_t looked_at =
      static_cast<size_t>(size) +
      static_cast<size_t>(options_.base_growth * static_cast<double>(told_.size()));
  const auto is_new = [&](const std::string& hash) {
    return !IsTold(hash) && pool->hashes.count(hash) == 0;
  };
  Pool base;
  for (size_t i = 0; base.drafts.size() + pool->drafts.size() < looked_at; ++i) {
    if (i == base_.size() && !GrowBase(result)) break;
    auto made = maker_.Make(base_[i].point, Origin::kDraft, is_new, &result->times);
    if (made.ok()) base.drafts.push_back(*std::move(made));
  }
  TW_TRY(Score(model, &base, result));
  for (const size_t i : ByScore(base.scores)) {
    if (pool->drafts.size() >= static_cast<size_t>(size)) break;
    pool->hashes.insert(base.drafts[i].program_hash);
    pool->drafts.push_back(std::move(base.drafts[i]));
    pool->scores.push_back(base.scores[i]);
  }
  return absl::OkStatus();
}

// Scores the drafts that have none.
absl::Status SearchTask::Score(cost_model::CostModel* model, Pool* pool, AskResult* result) const {
  support::SystemClock clock;
  const int64_t start = clock.NowNs();
  std::vector<cost_model::FeatureVector> rows;
  for (size_t i = pool->scores.size(); i < pool->drafts.size(); ++i) {
    rows.push_back(Calibrated(pool->drafts[i].features));
  }
  TW_ASSIGN(const std::vector<float> scores, model->Predict(rows));
  pool->scores.insert(pool->scores.end(), scores.begin(), scores.end());
  result->model_seconds += static_cast<double>(clock.NowNs() - start) * 1e-9;
  return absl::OkStatus();
}

// False where the steps do not replay to the program, or the space estimates points and that of the
// program is not known.
bool SearchTask::FindFeatures(Known* known) {
  if (known->stale || known->features.has_value()) return !known->stale;
  if (space_->has_estimates()) {
    known->stale = !IsParent(known);
    return !known->stale;
  }
  absl::StatusOr<Candidate> candidate = maker_.MakeFromSteps(known->steps);
  known->stale = !candidate.ok() || candidate->program_hash != known->told.program_hash;
  if (!known->stale) known->features = std::move(candidate->features);
  return !known->stale;
}

absl::StatusOr<Candidate> SearchTask::FromSteps(std::string_view steps) {
  TW_ASSIGN(Candidate candidate, maker_.MakeFromSteps(steps));
  if (candidate.program_hash == default_hash_) maker_.SetEstimate(*default_point_, &candidate);
  return candidate;
}

absl::StatusOr<double> SearchTask::EstimateNs(std::string_view steps) {
  TW_ASSIGN(const Candidate candidate, FromSteps(steps));
  return cost_model::EstimatedNs(candidate.features);
}

// Of the default schedule, and of `count` drafts behind it.
absl::StatusOr<std::vector<float>> SearchTask::PredictScores(std::string_view default_steps,
                                                             int count,
                                                             cost_model::CostModel* model) {
  TW_ASSIGN(const Candidate standard, FromSteps(default_steps));
  std::vector<cost_model::FeatureVector> rows = {Calibrated(standard.features)};
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    if (i == base_.size() && !GrowBase(&unreported_)) break;
    const auto any = [](const std::string&) { return true; };
    auto made = maker_.Make(base_[i].point, Origin::kDraft, any, &unreported_.times);
    if (made.ok()) rows.push_back(Calibrated(std::move(made->features)));
  }
  return model->Predict(rows);
}

absl::StatusOr<double> SearchTask::PredictGain(std::string_view default_steps, int count,
                                               cost_model::CostModel* model) {
  TW_ASSIGN(const std::vector<float> scores, PredictScores(default_steps, count, model));
  return *std::max_element(scores.begin(), scores.end()) - scores.front();
}

absl::StatusOr<double> SearchTask::PredictNs(std::string_view default_steps, int count,
                                             cost_model::CostModel* model) {
  TW_ASSIGN(const std::vector<float> scores, PredictScores(default_steps, count, model));
  return std::exp2(-static_cast<double>(*std::max_element(scores.begin(), scores.end())));
}

// The pool of a batch, ranked.
absl::StatusOr<AskResult> SearchTask::Rank(support::Rng* rng, cost_model::CostModel* model,
                                           std::vector<std::string>* inherited,
                                           Neighbours* neighbours) {
  AskResult result = std::exchange(unreported_, {});
  Pool pool;
  // A model that knows other tasks is asked what is still better, generation by generation. The
  // prior, or a model of a few rows, would only be asked to repeat its mistakes.
  const bool some = measured_.size() >= kFavouritesFrom;
  const bool early = told_.size() < kEarlyPrograms;
  const int generations = !model->pretrained() ? (some ? std::min(1, options_.generations) : 0)
                          : early              ? options_.generations
                                               : options_.late_generations;
  const int fresh = generations > 0 ? options_.fresh / 2 : options_.fresh;
  const int evolved = fresh + generations * options_.offspring;
  *inherited = AddInherited(&pool, &result);
  TW_TRY(Score(model, &pool, &result));
  TW_TRY(AddBase(model, std::max(0, options_.considered - evolved), &pool, &result));
  AddFresh(rng, BestKnown(kParents), true, fresh, &pool, &result);
  TW_TRY(Score(model, &pool, &result));
  if (options_.annealing) {
    TW_TRY(Anneal(model, generations * options_.offspring, rng, &pool, &result));
  }
  for (int generation = 0; generation < generations && !options_.annealing; ++generation) {
    AddFresh(rng, BestPredicted(pool, kParents), false, options_.offspring, &pool, &result);
    TW_TRY(Score(model, &pool, &result));
  }
  if (measured_.size() >= options_.descend_from && options_.descend_share > 0) {
    *neighbours = AddNeighbours(&pool, &result);
    TW_TRY(Score(model, &pool, &result));
  }
  TW_TRY(AddBase(model, options_.considered, &pool, &result));
  result.considered = static_cast<int>(pool.drafts.size());
  for (const size_t i : ByScore(pool.scores)) {
    const int rank = static_cast<int>(result.ranked.size()) + 1;
    result.ranked.push_back({std::move(pool.drafts[i]), pool.scores[i], rank, false});
  }
  return result;
}

// Generations of mutations of a ranked pool's best.
absl::Status SearchTask::Refine(cost_model::CostModel* model, support::Rng* rng,
                                AskResult* result) {
  Pool pool;
  for (Pick& pick : result->ranked) {
    pool.hashes.insert(pick.candidate.program_hash);
    pool.scores.push_back(static_cast<float>(pick.predicted));
    pool.drafts.push_back(std::move(pick.candidate));
  }
  for (int generation = 0; generation < options_.estimate_generations; ++generation) {
    AddFresh(rng, BestPredicted(pool, kParents), false, options_.offspring, &pool, result);
    TW_TRY(Score(model, &pool, result));
  }
  result->ranked.clear();
  for (const size_t i : ByScore(pool.scores)) {
    const int rank = static_cast<int>(result->ranked.size()) + 1;
    result->ranked.push_back({std::move(pool.drafts[i]), pool.scores[i], rank, false});
  }
  return absl::OkStatus();
}

absl::StatusOr<Prediction> SearchTask::PredictBest(std::string_view default_steps,
                                                   cost_model::CostModel* model) {
  TW_ASSIGN(const Candidate standard, FromSteps(default_steps));
  TW_ASSIGN(const std::vector<float> score, model->Predict({Calibrated(standard.features)}));
  support::Rng rng = support::Rng(options_.seed).Split("predict");
  std::vector<std::string> inherited;
  Neighbours neighbours;
  TW_ASSIGN(AskResult result, Rank(&rng, model, &inherited, &neighbours));
  if (set_ == cost_model::FeatureSet::kGroups && !model->pretrained())
    TW_TRY(Refine(model, &rng, &result));
  // The model sees programs of fixed sizes.
  std::optional<double> standard_cost;
  if (result.ranked.size() > kPredictionTries) result.ranked.resize(kPredictionTries);
  Prediction best;
  for (const Pick& pick : result.ranked) {
    // To start a launch takes what it takes: the error is of the rest.
    const double start = limits_.launch_ns;
    const double rest = std::max(0.0, std::exp2(-pick.predicted) - start);
    const double gain = -score[0] - std::log2(start + rest * std::exp2(kOptimism));
    if (gain <= best.gain) break;
    if (!standard_cost) {
      TW_ASSIGN(standard_cost, maker_.OpenCost(default_steps));
    }
    TW_ASSIGN(const double cost, maker_.OpenCost(pick.candidate.steps));
    const double open_gain = gain - (cost - *standard_cost);
    if (open_gain <= best.gain) continue;
    best = {pick.candidate.steps, pick.candidate.program_hash, open_gain};
  }
  return best;
}

absl::StatusOr<AskResult> SearchTask::Ask(int count, std::string_view batch_id,
                                          cost_model::CostModel* model) {
  support::Rng rng = support::Rng(options_.seed).Split(batch_id);
  std::vector<std::string> inherited;
  Neighbours neighbours;
  CalibrateRegisters();
  TW_ASSIGN(AskResult result, Rank(&rng, model, &inherited, &neighbours));
  Choose(std::min(count, result.considered), inherited, neighbours, &rng, &result);
  for (const Pick& pick : result.picks) {
    const Candidate& c = pick.candidate;
    Tell({c.program_hash, v1::OUTCOME_UNSPECIFIED, 0, true}, c.steps, PointText(c.point));
    told_.at(c.program_hash).features = c.features;
  }
  // The log gets what the model saw.
  for (std::vector<Pick>* list : {&result.picks, &result.ranked}) {
    for (Pick& pick : *list)
      pick.candidate.features = Calibrated(std::move(pick.candidate.features));
  }
  return result;
}

void SearchTask::CalibrateRegisters() {
  registers_ = cost_model::RegisterCalibration();
  for (const std::string& hash : measured_) {
    Known& known = told_.at(hash);
    if (known.told.registers > 0 && FindFeatures(&known))
      registers_.Add(*known.features, static_cast<double>(known.told.registers));
  }
}

std::vector<cost_model::DataRow> SearchTask::TrainingRows(int group) {
  std::vector<cost_model::DataRow> rows;
  for (const std::string& hash : measured_) {
    Known& known = told_.at(hash);
    if (known.told.outcome == v1::CANCELLED || known.told.outcome == v1::DEVICE_LOST ||
        known.told.outcome == v1::OUTCOME_UNSPECIFIED ||
        known.told.outcome == v1::EARLY_STOPPED) {  // a bound, not a time
      continue;
    }
    if (!FindFeatures(&known)) continue;
    cost_model::DataRow row{*known.features, group,
                            known.told.outcome == v1::OK ? known.told.median_ns : 0};
    if (known.told.registers > 0) {
      cost_model::SetRegisters(static_cast<double>(known.told.registers), limits_, &row.features);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tilewright::search
