// The pre-trained model that is part of the product (shipped_model.ubj): it ranks a job's
// candidates before anything was measured, and training on a job's own measurements continues from
// it. Made by tests/bench/model_pool.py; tests/bench/results/model_pool.txt says how good it is.
// Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace tilewright::cost_model {

// XGBoost UBJSON, as CostModel::Load takes it.
std::string_view ShippedModel();
// "shipped-" and the first 16 hexadecimal digits of its SHA-256.
const std::string& ShippedModelId();

}  // namespace tilewright::cost_model
