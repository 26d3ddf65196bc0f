// The pre-trained model that is part of the product (shipped_model.ubj): it ranks a job's
// candidates before anything was measured, and training on a job's own measurements continues from
// it. Made by tests/bench/model_pool.py; tests/bench/results/model_pool.txt says how good it is.
// Pure functions; thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cost_model/model.h"

namespace tilewright::cost_model {

// XGBoost UBJSON, as CostModel::Load takes it.
std::string_view ShippedModel();
// "shipped-" and the first 16 hexadecimal digits of its SHA-256.
const std::string& ShippedModelId();
// Whether it has learned from machines like this one: processors, whose programs are loops. Those
// of a matrix unit have the same features, but other reasons to be fast.
bool KnowsShippedModel(const target::Machine& machine);
// What ranks programs before any measurement: the shipped model, or else the analytical estimate.
absl::StatusOr<std::unique_ptr<CostModel>> ModelBeforeMeasurements(const target::Machine& machine);

}  // namespace tilewright::cost_model
