// A model that `quantize` made, compiled with default schedules and run in this process on samples.
// One owner, one thread.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/quantize/quantize.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/status.h"
#include "tuner_server/cli/calibration_data.h"

namespace tilewright::cli {

// The elements of a float32 tensor.
std::span<const float> FloatsOf(const runtime::TensorView& view);

class ObservedRun {
 public:
  // `target`: canonical, of this machine.
  static absl::StatusOr<ObservedRun> Compile(
      const quantize::ObservedModel& model, const std::string& target,
      const std::map<std::string, std::vector<int64_t>>& shapes);
  // Computes all that is observed for a sample.
  absl::Status Run(CalibrationData* data, size_t sample);
  // Of the last run: what the model observes as the i-th.
  std::span<const float> Observed(size_t i) const { return FloatsOf(observed_[i]); }
  // Of the last run: an output of the model; its shape. cli.input.name for another name.
  absl::StatusOr<runtime::TensorView> Output(const std::string& name) const;

 private:
  std::unique_ptr<runtime::Session> session_;
  std::vector<runtime::TensorView> outputs_, observed_;  // in the session
};

}  // namespace tilewright::cli
