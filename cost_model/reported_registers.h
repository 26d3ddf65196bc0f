// Registers that a device's compiler reports in place of those that the estimate counts. Of a
// program that was compiled they are facts; of others they follow from how the facts of the same
// task's programs differed from their estimates. Only devices of groups and threads report them.
// Plain values.
#pragma once

#include "compiler/target/machine.h"
#include "cost_model/features.h"

namespace tilewright::cost_model {

// Puts a thread's registers, and what follows from them (groups on a unit, occupancy), in place of
// the estimated ones. REQUIRES: features of FeatureSet::kGroups.
void SetRegisters(double registers, const target::LaunchLimits& limits, FeatureVector* features);

// How the reported registers of a task's programs follow from the estimated ones: a line in
// logarithms. Few reports leave it near the estimate.
class RegisterCalibration {
 public:
  // REQUIRES: as SetRegisters; `estimated` as ComputeFeatures returned them, registers > 0.
  void Add(const FeatureVector& estimated, double registers);
  bool empty() const { return count_ == 0; }
  // Returns the features with the registers that such a program would be reported to have; the
  // same features without any report.
  FeatureVector Apply(FeatureVector features, const target::LaunchLimits& limits) const;

 private:
  // Of x = log2(1 + estimated) and d = log2(1 + reported) - x.
  double count_ = 0, sum_x_ = 0, sum_d_ = 0, sum_xx_ = 0, sum_xd_ = 0;
};

}  // namespace tilewright::cost_model
