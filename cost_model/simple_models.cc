// The two models that learn nothing: the analytical prior and the random baseline.
#include <cstring>

#include "cost_model/model.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"

namespace tilewright::cost_model {
namespace {

class UntrainedModel : public CostModel {
 public:
  explicit UntrainedModel(FeatureSet features) : features_(features) {}
  bool pretrained() const override { return false; }
  absl::Status Fit(const Dataset&) override { return absl::OkStatus(); }
  absl::StatusOr<std::string> Save() const override { return SchemaHash(features_); }
  absl::Status Load(std::string_view bytes) override {
    if (bytes == SchemaHash(features_)) return absl::OkStatus();
    return support::FailedPrecondition(
        "cost_model.load.schema", "expected schema " + SchemaHash(features_) + ", found another");
  }
  absl::StatusOr<std::vector<float>> Predict(const std::vector<FeatureVector>& rows) override {
    std::vector<float> scores;
    for (const FeatureVector& row : rows) {
      if (row.size() != FeatureNames(features_).size()) {
        return support::InvalidArgument("cost_model.predict.columns", "rows of another schema");
      }
      scores.push_back(Score(row));
    }
    return scores;
  }

 protected:
  virtual float Score(const FeatureVector& row) const = 0;

 private:
  FeatureSet features_;
};

class PriorModel final : public UntrainedModel {
 public:
  using UntrainedModel::UntrainedModel;

 protected:
  float Score(const FeatureVector& row) const override { return row.back(); }
};

class RandomModel final : public UntrainedModel {
 public:
  RandomModel(uint64_t seed, FeatureSet features) : UntrainedModel(features), seed_(seed) {}

 protected:
  float Score(const FeatureVector& row) const override {
    support::Hasher64 hasher;
    hasher.Add(seed_);
    hasher.Add(std::string_view(FeaturesHash(row)));
    return static_cast<float>(static_cast<double>(hasher.Finish() >> 11) * 0x1p-53);
  }

 private:
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<CostModel> MakePriorModel(FeatureSet features) {
  return std::make_unique<PriorModel>(features);
}
std::unique_ptr<CostModel> MakeRandomModel(uint64_t seed, FeatureSet features) {
  return std::make_unique<RandomModel>(seed, features);
}

}  // namespace tilewright::cost_model
