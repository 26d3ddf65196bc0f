#include "tuner_server/cli/calibration_data.h"

#include <cstring>
#include <optional>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/tensor_files.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

bool IsTensorFile(const std::string& name) {
  return name.ends_with(".pb") || name.ends_with(".npy");
}

// K of "input_K.pb" and "input_K.npy".
std::optional<uint64_t> InputNumber(const std::string& name) {
  constexpr std::string_view kPrefix = "input_";
  if (!IsTensorFile(name) || !name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view rest = std::string_view(name).substr(kPrefix.size());
  return support::ParseUint64(rest.substr(0, rest.find('.')));
}

// How many tensors of the shape are stacked in this one; 0 if none are.
int64_t Stacked(const std::vector<int64_t>& shape, const std::vector<int64_t>& one) {
  if (shape == one) return 1;
  if (shape.empty() || shape.size() != one.size() || one[0] <= 0 || shape[0] % one[0] != 0) {
    return 0;
  }
  for (size_t d = 1; d < shape.size(); ++d) {
    if (shape[d] != one[d]) return 0;
  }
  return shape[0] / one[0];
}

}  // namespace

absl::StatusOr<CalibrationData> CalibrationData::Find(const std::vector<std::string>& paths,
                                                      std::vector<module::Tensor> inputs) {
  CalibrationData data(std::move(inputs));
  for (const std::string& path : paths) TW_TRY(data.AddPath(path));
  return data;
}

absl::Status CalibrationData::AddPath(const std::string& path) {
  const size_t before = samples_.size();
  std::vector<std::string> files;
  if (support::IsDirectory(path)) {
    TW_ASSIGN(bool found, AddSet(path));
    TW_ASSIGN(const std::vector<std::string> names, support::ListDir(path));
    for (const std::string& name : names) {
      const std::string inner = support::PathJoin(path, name);
      if (name.starts_with("test_data_set_") && support::IsDirectory(inner)) {
        TW_ASSIGN(const bool added, AddSet(inner));
        found = found || added;
      }
      if (IsTensorFile(name)) files.push_back(inner);
    }
    if (found) return absl::OkStatus();
  } else {
    TW_TRY(support::FileSize(path).status());
    files.push_back(path);
  }
  if (!files.empty() && inputs_.size() != 1) {
    return support::InvalidArgument(
        "cli.calibration.missing",
        StrCat("expected a folder with input_0.pb to input_", inputs_.size() - 1,
               ".pb for each sample, found other files in ", path));
  }
  for (const std::string& file : files) TW_TRY(AddSample({file}));
  if (samples_.size() > before) return absl::OkStatus();
  return support::InvalidArgument(
      "cli.calibration.none",
      StrCat("expected folders test_data_set_N, or files input_K.pb or .npy, found none in ",
             path));
}

// Whether the folder has files of inputs.
absl::StatusOr<bool> CalibrationData::AddSet(const std::string& folder) {
  TW_ASSIGN(const std::vector<std::string> names, support::ListDir(folder));
  std::map<uint64_t, std::string> files;
  for (const std::string& name : names) {
    if (const auto number = InputNumber(name)) {
      files.try_emplace(*number, support::PathJoin(folder, name));
    }
  }
  if (files.empty()) return false;
  std::vector<std::string> in_order;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const auto file = files.find(i);
    if (file == files.end()) {
      return support::InvalidArgument(
          "cli.calibration.missing",
          StrCat("expected input_", i, ".pb or input_", i, ".npy for the input ",
                 support::Quote(inputs_[i].name), ", found none in ", folder));
    }
    in_order.push_back(file->second);
  }
  TW_TRY(AddSample(in_order));
  return true;
}

absl::StatusOr<const runtime::HostTensor*> CalibrationData::Read(size_t input,
                                                                 const std::string& path) {
  auto& [last_path, tensor] = last_[input];
  if (last_path == path) return &tensor;
  TW_ASSIGN(tensor, runtime::ReadTensorFile(path));
  last_path = path;
  const module::Tensor& wanted = inputs_[input];
  if (tensor.dtype == wanted.dtype && Stacked(tensor.shape, module::FixedExtents(wanted.shape)) > 0)
    return &tensor;
  last_path.clear();
  // Says what was expected.
  TW_TRY(ReadTensorLike(path, wanted, module::FixedExtents(wanted.shape)).status());
  return &tensor;
}

absl::Status CalibrationData::AddSample(const std::vector<std::string>& files) {
  std::optional<int64_t> count;
  for (size_t i = 0; i < files.size(); ++i) {
    TW_ASSIGN(const runtime::HostTensor* tensor, Read(i, files[i]));
    const int64_t found = Stacked(tensor->shape, module::FixedExtents(inputs_[i].shape));
    if (count && *count != found) {
      return support::InvalidArgument(
          "cli.calibration.count",
          StrCat("expected ", *count, " samples for each input, found ", found, " in ", files[i]));
    }
    count = found;
  }
  for (int64_t part = 0; part < count.value_or(0); ++part) samples_.push_back({files, part});
  return absl::OkStatus();
}

absl::Status CalibrationData::Fill(size_t index, runtime::BoundTensors* tensors) {
  const Sample& sample = samples_[index];
  std::vector<runtime::TensorView> views;
  for (size_t i = 0; i < tensors->num_inputs(); ++i) views.push_back(tensors->input(i));
  for (size_t i = 0; i < inputs_.size(); ++i) {
    TW_ASSIGN(const size_t at, FindTensor(views, inputs_[i].name, "input"));
    TW_ASSIGN(const runtime::HostTensor* tensor, Read(i, sample.files[i]));
    const size_t bytes = views[at].bytes;
    std::memcpy(tensors->MutableInput(at),
                tensor->data.data() + static_cast<size_t>(sample.part) * bytes, bytes);
  }
  return absl::OkStatus();
}

}  // namespace tilewright::cli
