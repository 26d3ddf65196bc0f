// The text of `log stats`: outcomes, time by kind of work, quality of the cost models. Pure
// functions over rows.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tuner_server/log/log_stats.h"

namespace tilewright::cli {

// How well one model ranked those of its picks that were measured.
struct PickQuality {
  std::string model_id;  // "prior" and "random" for picks made without a trained model
  int64_t measured = 0;  // usable trials that it picked
  int64_t pairs = 0;     // pairs of them within one task with different times
  int64_t right = 0;     // pairs that it had put in the right order
  double accuracy() const { return pairs > 0 ? static_cast<double>(right) / pairs : 0; }
};
std::vector<PickQuality> ComputePickQuality(const std::vector<log::TrialRow>& trials);

std::string StatsText(const log::JobStats& stats);
// `has_models`: the source stores models (a log file); else only the quality of picks is shown.
std::string ModelsText(const log::JobStats& stats, const std::vector<PickQuality>& picks,
                       bool has_models);
nlohmann::json StatsJson(const log::JobStats& stats, const std::vector<PickQuality>& picks);

}  // namespace tilewright::cli
