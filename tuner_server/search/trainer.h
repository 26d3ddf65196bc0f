// Trains a job's cost model on its measurements. Pure functions; thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cost_model/model.h"
#include "tilewright/v1/builder.pb.h"

namespace tilewright::search {

struct TrainedModel {
  std::unique_ptr<cost_model::CostModel> model;  // null: too few rows
  bool replaces = false;                         // good enough to rank from now on
  std::string reason;
  v1::ModelMetrics metrics;
};
// The input of a training: a snapshot, so that the search can continue during the training.
struct TrainingInput {
  cost_model::Dataset train, held_out, all;
  uint64_t seed = 0;
  cost_model::FeatureSet features = cost_model::FeatureSet::kLoops;  // of the rows
  std::string base;                 // a pre-trained model that training continues; empty: none
  double previous_recall_at_8 = 0;  // of the model in use, on the held-out rows
};
// Splits the rows. `previous`: the model in use, if `has_previous`.
absl::StatusOr<TrainingInput> PrepareTraining(cost_model::Dataset all, uint64_t seed,
                                              std::string base, cost_model::CostModel* previous,
                                              bool has_previous);
// Trains on all rows, from the base if there is one. A twin that does not see the held-out rows
// measures the quality. The model replaces the one in use unless the twin orders fewer pairs of the
// held-out rows than the base does, or the analytical prior without a base.
absl::StatusOr<TrainedModel> TrainAndJudge(const TrainingInput& input);

}  // namespace tilewright::search
