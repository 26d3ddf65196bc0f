// The search of one task: ask for the next picks, tell their results. Picks are a pure function of
// the seed, the results and their order, the batch id and the model. Therefore a search that is
// rebuilt from the log continues exactly as the one that wrote it. All other state only saves work.
// One owner; not thread-safe.
//
// Ask ranks a pool of drafts (legal, lowered, with features, never measured):
//   inherited  good points of the task's relatives (transfer.h), while little is known;
//   base       the best predicted points of a random stream, which grows with the results. Where
//              rules estimate points, the stream begins with those of the best estimates;
//   fresh      mutations and crossings of the best measured points, neighbours of the default, and
//              mutations of the best predicted. Each batch makes them from its own random stream.
// The cost model ranks all of them. The picks are its top, except for two shares. One descends: it
// takes neighbours of the best measured, with one knob one step up or down (off by default). The
// other explores. While little is known, it takes the best predicted of micro-kernels (lanes,
// register tile, unrolling) that were not tried yet; later, any draft at random. Estimates of rules
// are trusted more than chance: with them the early share is not larger than the later one.
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
#include "compiler/space/space.h"
#include "compiler/target/target.h"
#include "cost_model/model.h"
#include "cost_model/reported_registers.h"
#include "deploy/support/rng.h"
#include "tuner_server/search/draft_maker.h"
#include "tuner_server/search/search.h"
#include "tuner_server/search/search_parts.h"

namespace tilewright::search {

struct SearchOptions {
  uint64_t seed = 0;
  int considered = 256;  // drafts that each batch ranks (the space permitting)
  int fresh = 48;        // of those, made for this batch from the best told
  int generations = 6;   // of mutations of what a pre-trained model likes best, `offspring` each,
  int late_generations = 1;  // while little is known, and then: the best told are better parents
  // The same, of a choice by the estimate alone, on devices of groups and threads: their spaces
  // are so sparse that few random points are any good.
  int estimate_generations = 24;
  int offspring = 24;
  double base_growth = 1;  // additional points of the stream for each told program
  // Chains of mutations that cool down, instead of those generations, with as many drafts.
  bool annealing = false;
  int chains = 12;
  double transfer_share = 0.25;    // of a task's first picks: what it inherited
  bool owed = true;                // picks of each algorithm of an operator
  double exploration_share = 0.1;  // of the picks
  double early_exploration = 0.5;  // the same for a task's first ones
  size_t descend_from = 16;        // measured programs from which on
  double descend_share = 0;        // of the picks are neighbours of the best measured (measured:
                                   // adds nothing to mutations, results/ablations.txt)
  std::map<std::string, int64_t> typical = {};  // sizes of a task whose sizes are open, by name
};

// Applies the switched parts to a task's search.
void UseParts(const SearchParts& parts, SearchOptions* options);

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
  int invalid = 0;               // infeasible programs that the rules made: bugs
  double exploration_share = 0;  // of these picks
  DraftTimes times;
  double model_seconds = 0;
};

// A schedule that was chosen without a measurement.
struct Prediction {
  std::string steps;  // empty: nothing promises more than the default schedule
  std::string program_hash;
  double gain = 0;  // log2 of the speedup over the default schedule that is to be expected
};

class SearchTask {
 public:
  // `variants`: the task's unscheduled functions, the usual algorithm first. `flops`: of one run.
  static absl::StatusOr<std::unique_ptr<SearchTask>> Create(std::vector<schedule::Variant> variants,
                                                            double flops,
                                                            const target::Target& target,
                                                            const SearchOptions& options);

  // Takes a result. A repeated record replaces the earlier one. With `point` (PointText) the
  // program becomes a parent of others, if the point gives this program.
  void Tell(const Told& told, std::string_view steps, std::string_view point = "");

  // Sets the points that were good for the task's relatives, the most promising first. They are
  // among the first picks. Call before the first Ask.
  void Inherit(std::vector<Point> points) { inherited_ = std::move(points); }

  // Estimates the time of one run by first principles. Errors: schedule.* if the steps do not
  // replay.
  absl::StatusOr<double> EstimateNs(std::string_view steps);
  // Returns the log2 of the speedup that the model expects of the best of `count` drafts over the
  // default schedule, at least 0. The drafts are the first points of the random stream, which Ask
  // looks at again: no later pick changes. Errors: as EstimateNs, and the model's.
  absl::StatusOr<double> PredictGain(std::string_view default_steps, int count,
                                     cost_model::CostModel* model);
  // Returns the time of one run of the fastest of these, as the model corrects the estimate.
  absl::StatusOr<double> PredictNs(std::string_view default_steps, int count,
                                   cost_model::CostModel* model);

  // Returns the best predicted program of a batch's pool. Changes no later pick. Errors: as
  // PredictGain.
  absl::StatusOr<Prediction> PredictBest(std::string_view default_steps,
                                         cost_model::CostModel* model);

  absl::StatusOr<AskResult> Ask(int count, std::string_view batch_id, cost_model::CostModel* model);

  // Returns the measured or infeasible programs with features, for training, in the order told.
  // Leaves out records whose steps do not replay.
  std::vector<cost_model::DataRow> TrainingRows(int group);

  const Space& space() const { return *space_; }
  const std::string& default_steps() const { return default_steps_; }
  size_t told_count() const { return told_.size(); }

 private:
  // Of a task's first programs so many are chosen to be unlike each other: a model learns nothing
  // from picks that are all the same (reference: diversity beats a better model at tiny budgets).
  static constexpr size_t kEarlyPrograms = 16;

  SearchTask(std::unique_ptr<Space> space, double flops, const target::Target& target,
             SearchOptions options)
      : space_(std::move(space)),
        options_(options),
        set_(target.machine.feature_set),
        limits_(target.machine.launch),
        maker_(space_.get(), flops, target),
        base_rng_(support::Rng(options.seed).Split("base")) {}

  struct Known {
    Told told;
    std::string steps;
    std::optional<Point> point;  // nothing: cannot be a parent
    bool point_checked = false;  // it gives this program
    std::optional<cost_model::FeatureVector> features;
    bool stale = false;  // the steps do not replay to this program, or its estimate is not known
  };
  struct BasePoint {
    Point point;
    std::string program_hash;
  };

  // Drafts of a batch in the making, with scores, each program once.
  struct Pool {
    std::vector<Candidate> drafts;
    std::vector<float> scores;
    std::unordered_set<std::string> hashes;
  };
  std::vector<Point> BestKnown(size_t count);
  static std::vector<Point> BestPredicted(const Pool& pool, size_t count);
  bool IsParent(Known* known);
  // A candidate without a point, but with its estimate if it is the default schedule.
  absl::StatusOr<Candidate> FromSteps(std::string_view steps);
  bool NextBasePoint(Point* point);
  bool Propose(support::Rng* rng, const std::vector<Point>& best, bool with_default, Point* point,
               Origin* origin) const;
  void AddFresh(support::Rng* rng, const std::vector<Point>& parents, bool with_default, int count,
                Pool* pool, AskResult* result);
  // Program hashes of what was inherited and is not told, the most promising first.
  std::vector<std::string> AddInherited(Pool* pool, AskResult* result);
  absl::Status Anneal(cost_model::CostModel* model, int drafts, support::Rng* rng, Pool* pool,
                      AskResult* result);
  absl::Status AddBase(cost_model::CostModel* model, int size, Pool* pool, AskResult* result);
  bool GrowBase(AskResult* result);
  absl::Status Score(cost_model::CostModel* model, Pool* pool, AskResult* result) const;
  // Micro-kernels of what was told.
  std::set<std::vector<float>> KnownKernels();
  // Program hashes of drafts one step away from the best measured.
  using Neighbours = std::unordered_set<std::string>;
  Neighbours AddNeighbours(Pool* pool, AskResult* result);
  absl::StatusOr<std::vector<float>> PredictScores(std::string_view default_steps, int count,
                                                   cost_model::CostModel* model);
  absl::StatusOr<AskResult> Rank(support::Rng* rng, cost_model::CostModel* model,
                                 std::vector<std::string>* inherited, Neighbours* neighbours);
  absl::Status Refine(cost_model::CostModel* model, support::Rng* rng, AskResult* result);
  void Choose(int total, const std::vector<std::string>& inherited, const Neighbours& neighbours,
              support::Rng* rng, AskResult* result);
  int TakeInherited(const std::vector<std::string>& inherited, int count, AskResult* result,
                    std::vector<bool>* taken);
  int TakeOwed(int left, const AskResult& result, std::vector<bool>* taken) const;
  void Explore(int count, const std::vector<bool>& taken, support::Rng* rng, AskResult* result);
  bool FindFeatures(Known* known);
  // From the programs that were told with registers.
  void CalibrateRegisters();
  cost_model::FeatureVector Calibrated(cost_model::FeatureVector features) const {
    return registers_.Apply(std::move(features), limits_);
  }
  bool IsTold(const std::string& program_hash) const { return told_.count(program_hash) > 0; }

  std::unique_ptr<Space> space_;
  SearchOptions options_;
  cost_model::FeatureSet set_;
  target::LaunchLimits limits_;
  cost_model::RegisterCalibration registers_;
  DraftMaker maker_;
  std::optional<Point> default_point_;
  std::vector<Point> inherited_;
  std::string default_steps_, default_hash_;
  std::vector<Point> best_points_;  // by the rules' estimates: how the base stream begins
  size_t next_best_point_ = 0;
  support::Rng base_rng_;
  std::vector<BasePoint> base_;  // distinct programs, in the order of the stream
  std::unordered_set<std::string> base_hashes_;
  bool base_ended_ = false;                      // the stream gives nothing new any more
  AskResult unreported_;                         // counts since the last Ask
  std::unordered_map<std::string, Known> told_;  // pending ones, too
  std::vector<std::string> measured_;            // of those, program hashes in the order told
};

}  // namespace tilewright::search
