// What may choose a job's candidates: the values of JobRow.cost_model, of the flag --cost-model and
// of tilewright.v1.Job.cost_model. The first one is the default. Constants only.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace tilewright::log {

inline constexpr std::string_view kXgboostModel = "xgboost";  // learns while the job runs
inline constexpr std::string_view kPriorModel = "prior";      // the analytical estimate alone
inline constexpr std::string_view kRandomModel = "random";    // chance
inline constexpr std::array kCostModels = {kXgboostModel, kPriorModel, kRandomModel};

constexpr bool IsCostModel(std::string_view name) {
  return std::find(kCostModels.begin(), kCostModels.end(), name) != kCostModels.end();
}

}  // namespace tilewright::log
