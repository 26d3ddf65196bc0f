// The training of a job's cost model on what was measured. Pure functions; thread-safe.
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
// What a training needs: a snapshot, so that it may run beside a search that goes on.
struct TrainingInput {
  cost_model::Dataset train, held_out, all;
  uint64_t seed = 0;
  std::string base;                 // a pre-trained model that training goes on from; empty: none
  double previous_recall_at_8 = 0;  // of the model in use, on the held-out rows
};
// `previous`: the model in use, where `has_previous`.
absl::StatusOr<TrainingInput> PrepareTraining(cost_model::Dataset all, uint64_t seed,
                                              std::string base, cost_model::CostModel* previous,
                                              bool has_previous);
// Trains on all rows, from the base where there is one. Its quality is measured by a twin that does
// not see the held-out rows; the gate compares that, on the same rows, with what there is without
// this data: the base, else the analytical prior.
absl::StatusOr<TrainedModel> TrainAndJudge(const TrainingInput& input);

}  // namespace tilewright::search
