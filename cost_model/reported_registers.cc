#include "cost_model/reported_registers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "compiler/target/occupancy.h"
#include "cost_model/feature_row.h"

namespace tilewright::cost_model {
namespace {

// So many reports that agree with the estimate are taken for granted, and so much spread of it.
constexpr double kPriorReports = 1, kPriorSpread = 1;
// No thread has more: a report in a log may say anything.
constexpr double kMostRegisters = 1 << 16;

// Where the columns are.
struct Columns {
  static size_t Of(std::string_view name) { return FeatureIndex(name, FeatureSet::kGroups); }
  const size_t threads = Of("group.threads"), shared = Of("group.shared_bytes"),
               registers = Of("group.registers"), per_unit = Of("group.per_unit"),
               occupancy = Of("group.occupancy");
};
const Columns& At() {
  static const Columns columns;
  return columns;
}

}  // namespace

void SetRegisters(double registers, const target::LaunchLimits& limits, FeatureVector* features) {
  const auto whole = [&](size_t column) {
    return std::llround(std::exp2(static_cast<double>((*features)[column])) - 1);
  };
  const int64_t threads = whole(At().threads), shared = whole(At().shared);
  registers = std::clamp(registers, 1.0, kMostRegisters);
  const auto used = static_cast<int64_t>(std::llround(registers));
  FeatureRow row;
  row.AddLog("group.registers", registers);
  row.AddLog("group.per_unit", static_cast<double>(std::max<int64_t>(
                                   1, target::GroupsPerUnit(limits, threads, shared, used))));
  row.Add("group.occupancy", target::Occupancy(limits, threads, shared, used));
  (*features)[At().registers] = row.values[0];
  (*features)[At().per_unit] = row.values[1];
  (*features)[At().occupancy] = row.values[2];
}

void RegisterCalibration::Add(const FeatureVector& estimated, double registers) {
  const double x = static_cast<double>(estimated[At().registers]);
  const double d = std::log2(1 + std::clamp(registers, 1.0, kMostRegisters)) - x;
  count_ += 1;
  sum_x_ += x;
  sum_d_ += d;
  sum_xx_ += x * x;
  sum_xd_ += x * d;
}

FeatureVector RegisterCalibration::Apply(FeatureVector features,
                                         const target::LaunchLimits& limits) const {
  if (empty()) return features;
  const double x = static_cast<double>(features[At().registers]);
  const double mean_x = sum_x_ / count_, mean_d = sum_d_ / count_;
  const double slope =
      (sum_xd_ - count_ * mean_x * mean_d) / (sum_xx_ - count_ * mean_x * mean_x + kPriorSpread);
  const double shift = sum_d_ / (count_ + kPriorReports) + slope * (x - mean_x);
  SetRegisters(std::exp2(x + shift) - 1, limits, &features);
  return features;
}

}  // namespace tilewright::cost_model
