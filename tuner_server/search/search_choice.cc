// The part of SearchTask that chooses picks from what was ranked.
#include <algorithm>
#include <cmath>
#include <map>

#include "tuner_server/search/search_task.h"

namespace tilewright::search {
namespace {

constexpr int kPicksOfEachVariant = 8;

// What the innermost computation of a program is, as far as the features tell.
std::vector<float> KernelOf(const cost_model::FeatureVector& features, cost_model::FeatureSet set) {
  std::vector<float> kernel;
  for (const char* name : {"tile.lanes", "tile.accumulators", "tile.body_ops", "loop.guarded"}) {
    kernel.push_back(features[cost_model::FeatureIndex(name, set)]);
  }
  return kernel;
}

// The algorithm that steps begin with; empty for the usual one.
std::string_view VariantOf(std::string_view steps) {
  constexpr std::string_view kStep = "variant ";
  if (steps.substr(0, kStep.size()) != kStep) return "";
  return steps.substr(kStep.size(), steps.find(';') - kStep.size());
}

}  // namespace

// What relatives were good with, then each algorithm's best drafts until enough of them were picked
// (a model knows little of a structure that it has never seen), neighbours of the best measured,
// the top by prediction, then the explored share from everything below.
void SearchTask::Choose(int total, const std::vector<std::string>& inherited,
                        const Neighbours& neighbours, support::Rng* rng, AskResult* result) {
  const bool learns = told_.size() < kEarlyPrograms && !space_->has_estimates();
  const double share = learns ? std::max(options_.early_exploration, options_.exploration_share)
                              : options_.exploration_share;
  std::vector<bool> taken(result->ranked.size());
  const int quota = static_cast<int>(std::floor(total * options_.transfer_share + 0.5));
  const int transferred = TakeInherited(inherited, quota, result, &taken);
  const int explore = static_cast<int>(std::floor((total - transferred) * share + 0.5));
  result->exploration_share = share;
  int left = total - transferred - explore;
  left -= TakeOwed(left, *result, &taken);
  int descend = static_cast<int>(std::floor(left * options_.descend_share + 0.5));
  for (size_t r = 0; r < taken.size() && descend > 0; ++r) {
    if (taken[r] || neighbours.count(result->ranked[r].candidate.program_hash) == 0) continue;
    taken[r] = true;
    --descend;
    --left;
  }
  for (size_t r = 0; r < taken.size() && left > 0; ++r) {
    left -= taken[r] ? 0 : 1;
    taken[r] = true;
  }
  for (size_t r = 0; r < taken.size(); ++r) {
    if (taken[r]) result->picks.push_back(result->ranked[r]);
  }
  Explore(explore, taken, rng, result);
}

// Marks up to `count` of the inherited programs, the most promising first; returns how many.
int SearchTask::TakeInherited(const std::vector<std::string>& inherited, int count,
                              AskResult* result, std::vector<bool>* taken) {
  int done = 0;
  for (const std::string& hash : inherited) {
    for (size_t r = 0; r < taken->size() && done < count; ++r) {
      if ((*taken)[r] || result->ranked[r].candidate.program_hash != hash) continue;
      (*taken)[r] = true;
      ++done;
    }
  }
  return done;
}

// Marks the best drafts of algorithms that were not picked often enough; returns how many.
int SearchTask::TakeOwed(int left, const AskResult& result, std::vector<bool>* taken) const {
  if (space_->variants().size() < 2 || !options_.owed) return 0;
  std::map<std::string_view, int> told, owed;
  for (const auto& [hash, known] : told_) ++told[VariantOf(known.steps)];
  const int share = std::max(1, left / static_cast<int>(space_->variants().size()));
  int done = 0;
  for (size_t r = 0; r < taken->size() && done < left; ++r) {
    if ((*taken)[r]) continue;
    const std::string_view variant = VariantOf(result.ranked[r].candidate.steps);
    if (told[variant] + owed[variant] >= kPicksOfEachVariant || owed[variant] >= share) continue;
    ++owed[variant];
    (*taken)[r] = true;
    ++done;
  }
  return done;
}

// `count` picks of what was not taken.
void SearchTask::Explore(int count, const std::vector<bool>& taken, support::Rng* rng,
                         AskResult* result) {
  std::set<std::vector<float>> kernels;
  const bool early = told_.size() < kEarlyPrograms;
  if (early) kernels = KnownKernels();
  for (const Pick& pick : result->picks) kernels.insert(KernelOf(pick.candidate.features, set_));
  std::vector<size_t> rest;
  for (size_t r = 0; r < taken.size(); ++r) {
    if (taken[r]) continue;
    const Pick& draft = result->ranked[r];
    if (early && count > 0 && kernels.insert(KernelOf(draft.candidate.features, set_)).second) {
      result->picks.push_back(draft);
      result->picks.back().explored = true;
      --count;
    } else {
      rest.push_back(r);
    }
  }
  rng->Shuffle(&rest);
  for (size_t i = 0; i < rest.size() && static_cast<int>(i) < count; ++i) {
    result->picks.push_back(result->ranked[rest[i]]);
    result->picks.back().explored = true;
  }
}

std::set<std::vector<float>> SearchTask::KnownKernels() {
  std::set<std::vector<float>> kernels;
  for (auto& [hash, known] : told_) {
    if (FindFeatures(&known)) kernels.insert(KernelOf(*known.features, set_));
  }
  return kernels;
}

}  // namespace tilewright::search
