// A cost model: learns from measured rows, scores unmeasured ones. It knows floats and the schema
// of the features, nothing of programs. Larger score = better; scores compare within a task only.
// One owner; not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cost_model/dataset.h"

namespace tilewright::cost_model {

class CostModel {
 public:
  virtual ~CostModel() = default;
  // Replaces what was learned. failed_precondition cost_model.fit.too_few with fewer rows than the
  // model needs.
  virtual absl::Status Fit(const Dataset& data) = 0;
  // Whether it knows more than the rows of its last Fit: measurements of other tasks.
  virtual bool pretrained() const = 0;
  virtual absl::StatusOr<std::vector<float>> Predict(const std::vector<FeatureVector>& rows) = 0;
  // Bytes that Load of the same class takes.
  virtual absl::StatusOr<std::string> Save() const = 0;
  // failed_precondition cost_model.load.schema when it was trained on other features.
  virtual absl::Status Load(std::string_view bytes) = 0;
};

// Models are of one schema, and refuse rows and stored models of another.
//
// Scores by the analytical estimate (column prior.score). Learns nothing.
std::unique_ptr<CostModel> MakePriorModel(FeatureSet features = FeatureSet::kLoops);
// Scores by a seeded hash of the row: the baseline every other model must beat.
std::unique_ptr<CostModel> MakeRandomModel(uint64_t seed, FeatureSet features = FeatureSet::kLoops);
// Gradient-boosted trees (xgb_model.cc). With a `base`, the bytes of a trained one, Fit
// continues from it: fewer, shallower trees learn only what this data says that the base does not.
// A base of another schema makes every Fit fail with cost_model.load.schema.
std::unique_ptr<CostModel> MakeXgbModel(uint64_t seed, std::string base = "",
                                        FeatureSet features = FeatureSet::kLoops);
// Boosting rounds that Fit adds on so many rows.
int TrainingRounds(size_t rows, bool has_base);

}  // namespace tilewright::cost_model
