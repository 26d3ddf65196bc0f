// `tilewright quantize` without models: which files are which samples, and which layers the report
// suggests to keep.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "tuner_server/cli/calibration_data.h"
#include "tuner_server/cli/quantize_report.h"

namespace tilewright::cli {
namespace {

using Shape = std::vector<int64_t>;

module::Tensor Input(const std::string& name, const Shape& shape) {
  module::Tensor tensor;
  tensor.name = name;
  for (const int64_t dim : shape) tensor.shape.push_back(dim);
  return tensor;
}

// Inputs in memory, as a session has them.
class FakeInputs final : public runtime::BoundTensors {
 public:
  explicit FakeInputs(std::vector<module::Tensor> tensors) : tensors_(std::move(tensors)) {
    for (const module::Tensor& tensor : tensors_) {
      size_t count = 1;
      for (const module::Dim& dim : tensor.shape) count *= static_cast<size_t>(dim.value());
      values.emplace_back(count, -1.0F);
    }
  }
  const module::Function& function() const override { return function_; }
  size_t num_inputs() const override { return tensors_.size(); }
  size_t num_outputs() const override { return 0; }
  runtime::TensorView input(size_t i) const override {
    return {&tensors_[i], const_cast<float*>(values[i].data()), values[i].size() * sizeof(float)};
  }
  runtime::TensorView output(size_t) const override { return {}; }
  void* MutableInput(size_t i) override { return values[i].data(); }

  std::vector<std::vector<float>> values;

 private:
  const std::vector<module::Tensor> tensors_;
  const module::Function function_;
};

class Calibration : public testing::Test {
 protected:
  // A float32 tensor of first, first + 1, ...
  std::string Write(const std::string& name, const Shape& shape, float first) {
    runtime::HostTensor tensor;
    tensor.shape = shape;
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    for (int64_t i = 0; i < count; ++i) {
      const float value = first + static_cast<float>(i);
      tensor.data.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    const std::string path = folder_->File(name);
    EXPECT_TRUE(support::MakeDirs(support::DirName(path)).ok());
    EXPECT_TRUE(runtime::WriteTensorFile(path, tensor).ok());
    return path;
  }
  std::string Slug(const std::string& path, const std::vector<module::Tensor>& inputs) {
    return support::Slug(CalibrationData::Find({path}, inputs).status());
  }

  const std::vector<module::Tensor> one_ = {Input("x", {1, 2})};
  const std::vector<module::Tensor> two_ = {Input("x", {1, 2}), Input("y", {3})};
  absl::StatusOr<support::TempDir> folder_ = support::TempDir::Create();
};

TEST_F(Calibration, ReadsSetsOfAllInputs) {
  Write("data/test_data_set_0/input_0.pb", {1, 2}, 10);
  Write("data/test_data_set_0/input_1.npy", {3}, 20);
  Write("data/test_data_set_1/input_0.npy", {1, 2}, 30);
  Write("data/test_data_set_1/input_1.pb", {3}, 40);
  Write("data/test_data_set_1/output_0.pb", {9}, 0);
  auto data = CalibrationData::Find({folder_->File("data")}, two_);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->size(), 2U);
  // A module may have its inputs in another order.
  FakeInputs inputs({two_[1], two_[0]});
  ASSERT_TRUE(data->Fill(1, &inputs).ok());
  EXPECT_EQ(inputs.values[1], (std::vector<float>{30, 31}));
  EXPECT_EQ(inputs.values[0], (std::vector<float>{40, 41, 42}));
  ASSERT_TRUE(data->Fill(0, &inputs).ok());
  EXPECT_EQ(inputs.values[1], (std::vector<float>{10, 11}));
  // The folder of one set is one sample.
  data = CalibrationData::Find({folder_->File("data/test_data_set_1")}, two_);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->size(), 1U);
}

TEST_F(Calibration, ReadsStackedSamples) {
  const std::string stacked = Write("many/a.npy", {3, 2}, 0);
  Write("many/b.pb", {1, 2}, 50);
  auto data = CalibrationData::Find({folder_->File("many"), stacked}, one_);
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_EQ(data->size(), 7U);
  FakeInputs inputs(one_);
  ASSERT_TRUE(data->Fill(2, &inputs).ok());
  EXPECT_EQ(inputs.values[0], (std::vector<float>{4, 5}));
  ASSERT_TRUE(data->Fill(3, &inputs).ok());
  EXPECT_EQ(inputs.values[0], (std::vector<float>{50, 51}));
}

TEST_F(Calibration, RefusesWhatIsNoSample) {
  Write("set/input_0.pb", {1, 2}, 0);
  EXPECT_EQ(Slug(folder_->File("set"), two_), "cli.calibration.missing");
  Write("set/input_1.pb", {6}, 0);
  EXPECT_EQ(Slug(folder_->File("set"), two_), "cli.calibration.count");
  EXPECT_EQ(Slug(Write("x.npy", {1, 3}, 0), one_), "cli.input.shape");
  EXPECT_EQ(Slug(Write("flat.npy", {2}, 0), one_), "cli.input.shape");
  EXPECT_EQ(Slug(Write("y.npy", {1, 2}, 0), two_), "cli.calibration.missing");
  ASSERT_TRUE(support::MakeDirs(folder_->File("empty")).ok());
  EXPECT_EQ(Slug(folder_->File("empty"), one_), "cli.calibration.none");
  EXPECT_EQ(CalibrationData::Find({folder_->File("nowhere")}, one_).status().code(),
            absl::StatusCode::kNotFound);
}

// A report of layers with these decibels, alone.
QuantizeReport ReportOf(const std::vector<double>& decibels) {
  QuantizeReport report;
  report.compared = true;
  for (size_t i = 0; i < decibels.size(); ++i) {
    report.AddLayer({.node = "n" + std::to_string(i), .op = "Conv"});
    const auto error = static_cast<float>(std::pow(10, -decibels[i] / 20));
    report.layers.back().alone.Add(std::vector<float>{1}, std::vector<float>{1 + error});
  }
  return report;
}

TEST(QuantizeReport, SuggestsLayersThatLoseMuchMoreThanOthers) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(ReportOf({35, 34, 36, 33, 35}).Suggestions(), Names{});
  EXPECT_EQ(ReportOf({35, 15, 36, 8, 35}).Suggestions(), (Names{"n3", "n1"}));
  // Worse than others, but good.
  EXPECT_EQ(ReportOf({45, 24, 46, 48, 45}).Suggestions(), Names{});
  // Bad, as all are.
  EXPECT_EQ(ReportOf({15, 14, 12, 13, 15}).Suggestions(), Names{});
  EXPECT_EQ(ReportOf({9, 8, 7, 6, 40, 40, 40, 40, 40}).Suggestions(), (Names{"n3", "n2", "n1"}));
}

TEST(QuantizeReport, CountsTheLargestOfScoresOnly) {
  QuantizeReport report;
  report.AddOutput("scores", {1, 3});
  report.AddOutput("image", {1, 3, 2, 2});
  report.AddOutput("number", {1, 1});
  report.outputs[0].Add(std::vector<float>{1, 2, 3}, std::vector<float>{1, 3, 2});
  report.outputs[0].Add(std::vector<float>{1, 2, 3}, std::vector<float>{1, 2, 3});
  report.outputs[2].Add(std::vector<float>{1}, std::vector<float>{1});
  EXPECT_EQ(report.outputs[0].rows, 2);
  EXPECT_EQ(report.outputs[0].same_largest, 1);
  EXPECT_EQ(report.outputs[1].row, 0);
  EXPECT_EQ(report.outputs[2].rows, 0);
}

}  // namespace
}  // namespace tilewright::cli
