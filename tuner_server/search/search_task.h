// The search of one task: ask for the next picks, tell what became of them. Everything it knows
// besides its space comes from Tell, so it can be rebuilt from the log at any time. Deterministic
// by (seed, what was told, batch id). One owner; not thread-safe.
//
// Ask keeps a pool of drafts (legal, lowered, with features, never measured): analytical drafts,
// mutations and crossings of the best told points, random ones. The cost model ranks the whole
// pool; the picks are its top, but for a stated share that is drawn at random.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/target.h"
#include "cost_model/model.h"
#include "deploy/support/clock.h"
#include "tuner_server/search/search.h"
#include "tuner_server/search/space.h"

namespace tilewright::search {

struct SearchOptions {
  uint64_t seed = 0;
  int considered = 320;            // drafts that each batch ranks, at least (the space permitting)
  int fresh = 96;                  // of those, made anew for each batch
  double exploration_share = 0.1;  // of the picks, chosen at random
};

struct Pick {
  Candidate candidate;
  double predicted = 0;
  int rank = 0;  // 1 = best predicted
  bool explored = false;
};
struct AskResult {
  std::vector<Pick> picks;
  std::vector<Pick> ranked;  // the whole pool, best first
  int considered = 0;
  int invalid = 0;  // infeasible programs that the rules made: bugs
  double search_seconds = 0, features_seconds = 0, model_seconds = 0;
};

class SearchTask {
 public:
  // `variants`: the task's unscheduled functions, the usual one first; `flops` of one run.
  static absl::StatusOr<std::unique_ptr<SearchTask>> Create(std::vector<schedule::Variant> variants,
                                                            double flops, const ir::Target& target,
                                                            const SearchOptions& options);

  // Repeated records replace what was known of the program.
  void Tell(const Told& told, std::string_view steps);

  absl::StatusOr<AskResult> Ask(int count, std::string_view batch_id, cost_model::CostModel* model);

  // Applies steps, lowers, computes features. FAILED steps are schedule.* errors.
  absl::StatusOr<Candidate> MakeFromSteps(std::string_view steps) const;
  // Told and measured (or infeasible) programs with features, for training. Records whose steps do
  // not replay are left out.
  std::vector<cost_model::DataRow> TrainingRows(int group);

  const Space& space() const { return *space_; }
  size_t told_count() const { return told_.size(); }

 private:
  SearchTask(std::unique_ptr<Space> space, double flops, ir::Target target, SearchOptions options)
      : space_(std::move(space)), flops_(flops), target_(std::move(target)), options_(options) {}

  struct Known {
    Told told;
    std::string steps;
    bool has_candidate = false;
    Candidate candidate;  // with features; the point where it came from this process
    bool stale = false;
  };

  absl::StatusOr<Candidate> Lower(const schedule::Schedule& schedule, AskResult* timing) const;
  absl::StatusOr<Candidate> MakeFromPoint(const Point& point, Origin origin,
                                          AskResult* timing) const;
  void Choose(int total, support::Rng* rng, AskResult* result) const;
  void FillPool(support::Rng* rng, AskResult* result);
  bool Propose(support::Rng* rng, const std::vector<const Known*>& best, Point* point,
               Origin* origin) const;
  std::vector<const Known*> BestKnown(size_t count) const;

  std::unique_ptr<Space> space_;
  double flops_;
  ir::Target target_;
  SearchOptions options_;
  std::optional<Point> default_point_;
  std::vector<Candidate> pool_;
  std::unordered_set<std::string> seen_;             // program hashes in the pool or told
  std::unordered_map<std::string, Candidate> made_;  // picked candidates by program hash
  std::unordered_map<std::string, Known> told_;
  std::vector<std::string> told_order_;
};

}  // namespace tilewright::search
