#include "tuner_server/cli/tensor_files.h"

#include <cstring>

#include "deploy/runtime/input_gen.h"
#include "deploy/support/strings.h"

namespace tilewright::cli {
namespace {

std::string Describe(const module::Tensor& tensor) {
  return support::StrCat(tensor.name, " ", module::DTypeName(tensor.dtype), " ",
                         module::ShapeText(tensor.shape));
}

}  // namespace

std::vector<int64_t> StaticShape(const module::Tensor& tensor) {
  std::vector<int64_t> shape;
  for (const module::Dim& dim : tensor.shape) shape.push_back(dim.value);
  return shape;
}

absl::StatusOr<std::vector<NamedFile>> ParseNamedFiles(const std::vector<std::string>& texts,
                                                       std::string_view flag) {
  std::vector<NamedFile> files;
  for (const std::string& text : texts) {
    const size_t eq = text.find('=');
    if (eq == std::string::npos || eq == 0 || eq + 1 == text.size()) {
      return support::InvalidArgument(
          "cli.usage.named_file",
          support::StrCat("--", flag, " expects NAME=FILE, found ", support::Quote(text)));
    }
    files.push_back({text.substr(0, eq), text.substr(eq + 1)});
  }
  return files;
}

absl::StatusOr<size_t> FindTensor(const std::vector<runtime::TensorView>& views,
                                  const std::string& name, std::string_view kind) {
  std::vector<std::string> known;
  for (size_t i = 0; i < views.size(); ++i) {
    if (views[i].tensor->name == name) return i;
    known.push_back(Describe(*views[i].tensor));
  }
  return support::InvalidArgument(
      "cli.input.name", support::StrCat("the module has no ", kind, " ", support::Quote(name),
                                        "; it has: ", support::Join(known, ", ")));
}

absl::StatusOr<runtime::HostTensor> ReadTensorLike(const std::string& path,
                                                   const module::Tensor& wanted) {
  TW_ASSIGN(runtime::HostTensor tensor, runtime::ReadTensorFile(path));
  if (path.ends_with(".npy") && wanted.dtype == module::DType::kBFloat16 &&
      tensor.dtype == module::DType::kFloat32) {
    tensor = runtime::RoundToBFloat16(tensor);
  }
  if (tensor.dtype == wanted.dtype && tensor.shape == StaticShape(wanted)) return tensor;
  return support::InvalidArgument(
      "cli.input.shape",
      support::StrCat("expected ", Describe(wanted), ", found ", module::DTypeName(tensor.dtype),
                      " ", support::Join(tensor.shape, "x"), " in ", path));
}

absl::Status FillInputs(const std::vector<std::string>& named, uint64_t seed,
                        runtime::BoundTensors* tensors) {
  std::vector<runtime::TensorView> inputs;
  for (size_t i = 0; i < tensors->num_inputs(); ++i) inputs.push_back(tensors->input(i));
  TW_ASSIGN(std::vector<NamedFile> files, ParseNamedFiles(named, "input"));
  std::vector<bool> bound(inputs.size(), false);
  for (const NamedFile& file : files) {
    TW_ASSIGN(size_t index, FindTensor(inputs, file.name, "input"));
    if (bound[index]) {
      return support::InvalidArgument("cli.usage.input_twice",
                                      support::StrCat("--input ", file.name, " is given twice"));
    }
    TW_ASSIGN(const runtime::HostTensor tensor, ReadTensorLike(file.path, *inputs[index].tensor));
    std::memcpy(tensors->MutableInput(index), tensor.data.data(), tensor.data.size());
    bound[index] = true;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (bound[i]) continue;
    const module::Tensor& tensor = *inputs[i].tensor;
    const int64_t count = static_cast<int64_t>(inputs[i].bytes) / module::DTypeBytes(tensor.dtype);
    TW_TRY(runtime::GenerateInput(tensor.dtype, count, runtime::DefaultDistribution(tensor.dtype),
                                  seed + i, tensors->MutableInput(i)));
  }
  return absl::OkStatus();
}

}  // namespace tilewright::cli
