// Inputs of a model for calibration runs, from files. The files are found and checked first, and
// read when a sample is needed. One owner, one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deploy/module/manifest.h"
#include "deploy/runtime/runtime.h"
#include "deploy/runtime/tensor_io.h"
#include "deploy/support/status.h"

namespace tilewright::cli {

class CalibrationData {
 public:
  // Each path is
  //   a folder with folders test_data_set_N: each has input_K.pb or input_K.npy for the model's
  //     K-th input;
  //   a folder that has these files itself;
  //   for a model with one input: another folder of .pb and .npy files, or such a file.
  // A file has one tensor of the input's shape, or several of them stacked along the first
  // dimension: that many samples. cli.calibration.none if there are no files, .missing if an input
  // has no file, .count if the inputs of a folder have different numbers of samples;
  // cli.input.shape; NOT_FOUND.
  static absl::StatusOr<CalibrationData> Find(const std::vector<std::string>& paths,
                                              std::vector<module::Tensor> inputs);

  size_t size() const { return samples_.size(); }
  // Copies sample `index` into the inputs of a module of the same model.
  absl::Status Fill(size_t index, runtime::BoundTensors* tensors);

 private:
  struct Sample {
    std::vector<std::string> files;  // by input
    int64_t part = 0;                // of stacked ones
  };

  explicit CalibrationData(std::vector<module::Tensor> inputs) : inputs_(std::move(inputs)) {}
  absl::Status AddPath(const std::string& path);
  absl::StatusOr<bool> AddSet(const std::string& folder);
  absl::Status AddSample(const std::vector<std::string>& files);
  // The file as the input's tensors, one after the other.
  absl::StatusOr<const runtime::HostTensor*> Read(size_t input, const std::string& path);

  std::vector<module::Tensor> inputs_;
  std::vector<Sample> samples_;
  std::map<size_t, std::pair<std::string, runtime::HostTensor>> last_;  // by input: path, content
};

}  // namespace tilewright::cli
