#include "tuner_server/cli/tensor_files.h"

#include <cstring>

#include "deploy/module/found_vars.h"
#include "deploy/runtime/input_gen.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/shape_flags.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {
namespace {

std::string Describe(const module::Tensor& tensor) {
  return support::StrCat(tensor.name, " ", module::DTypeName(tensor.dtype), " ",
                         module::ShapeText(tensor.shape));
}

}  // namespace

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

namespace {

absl::Status WrongTensor(const module::Tensor& wanted, const runtime::HostTensor& found,
                         const std::string& path) {
  return support::InvalidArgument(
      "cli.input.shape",
      support::StrCat("expected ", Describe(wanted), ", found ", module::DTypeName(found.dtype),
                      " ", support::Join(found.shape, "x"), " in ", path));
}

absl::StatusOr<runtime::HostTensor> ReadTensorOfType(const std::string& path,
                                                     const module::Tensor& wanted) {
  TW_ASSIGN(runtime::HostTensor tensor, runtime::ReadTensorFile(path));
  if (path.ends_with(".npy") && wanted.dtype == module::DType::kBFloat16 &&
      tensor.dtype == module::DType::kFloat32) {
    tensor = runtime::RoundToBFloat16(tensor);
  }
  if (tensor.dtype == wanted.dtype) return tensor;
  return WrongTensor(wanted, tensor, path);
}

// The sizes that --shape gives to variables.
absl::StatusOr<module::Sizes> ChosenSizes(const std::vector<std::string>& shapes,
                                          const module::Manifest& manifest) {
  TW_ASSIGN(const auto parsed, ParseShapes(shapes));
  module::Sizes sizes;
  std::vector<std::string> known;
  const std::set<std::string> found = module::FoundVariables(manifest);
  for (const module::SizeVar& var : manifest.size_vars) {
    if (found.contains(var.name)) continue;
    known.push_back(support::StrCat(var.name, " (", var.min, " to ", var.max, ")"));
    const auto it = parsed.find(var.name);
    if (it != parsed.end() && it->second.size() == 1) sizes[var.name] = it->second[0];
  }
  if (sizes.size() == parsed.size()) return sizes;
  return support::InvalidArgument(
      "cli.usage.shape",
      known.empty() ? "--shape needs a module of open sizes: all inputs of this one are fixed"
                    : support::StrCat("--shape expects N=7 for one of ", support::Join(known, ", "),
                                      ", found ", support::Join(shapes, " ")));
}

// Fills the inputs that have files; what their shapes bind goes to `sizes`.
absl::Status FillFromFiles(const std::vector<std::string>& named, runtime::BoundTensors* tensors,
                           std::vector<bool>* bound, module::Sizes* sizes) {
  std::vector<runtime::TensorView> inputs;
  for (size_t i = 0; i < tensors->num_inputs(); ++i) inputs.push_back(tensors->input(i));
  TW_ASSIGN(std::vector<NamedFile> files, ParseNamedFiles(named, "input"));
  for (const NamedFile& file : files) {
    TW_ASSIGN(size_t index, FindTensor(inputs, file.name, "input"));
    if ((*bound)[index]) {
      return support::InvalidArgument("cli.usage.input_twice",
                                      support::StrCat("--input ", file.name, " is given twice"));
    }
    const module::Tensor& wanted = *inputs[index].tensor;
    TW_ASSIGN(const runtime::HostTensor tensor, ReadTensorOfType(file.path, wanted));
    if (module::IsOpen(wanted.shape)) {
      const absl::Status fits = tensors->SetInputShape(index, tensor.shape);
      if (!fits.ok()) {
        return support::InvalidArgument("cli.input.shape",
                                        support::StrCat(support::Detail(fits), " in ", file.path));
      }
    } else if (tensor.shape != module::FixedExtents(wanted.shape)) {
      return WrongTensor(wanted, tensor, file.path);
    }
    std::memcpy(tensors->MutableInput(index), tensor.data.data(), tensor.data.size());
    (*bound)[index] = true;
    for (size_t d = 0; d < wanted.shape.size(); ++d) {
      const std::string variable = wanted.shape[d].variable();
      if (variable.empty()) continue;
      const auto [known, added] = sizes->try_emplace(variable, tensor.shape[d]);
      if (added || known->second == tensor.shape[d]) continue;
      return support::InvalidArgument(
          "cli.input.size", support::StrCat("expected ", variable, "=", known->second, ", found ",
                                            tensor.shape[d], " in ", file.path));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<runtime::HostTensor> ReadTensorLike(const std::string& path,
                                                   const module::Tensor& wanted,
                                                   const std::vector<int64_t>& shape) {
  TW_ASSIGN(runtime::HostTensor tensor, ReadTensorOfType(path, wanted));
  if (tensor.shape == shape) return tensor;
  module::Tensor bound = wanted;
  bound.shape.assign(shape.begin(), shape.end());
  return WrongTensor(bound, tensor, path);
}

absl::StatusOr<module::Sizes> FillInputs(const InputChoice& choice,
                                         const module::Manifest& manifest,
                                         runtime::BoundTensors* tensors) {
  TW_ASSIGN(module::Sizes sizes, ChosenSizes(choice.shapes, manifest));
  std::vector<bool> bound(tensors->num_inputs(), false);
  TW_TRY(FillFromFiles(choice.files, tensors, &bound, &sizes));
  module::Sizes minima;
  const std::set<std::string> found = module::FoundVariables(manifest);
  for (const module::SizeVar& var : manifest.size_vars) {
    if (found.contains(var.name)) continue;
    if (sizes.try_emplace(var.name, var.min).second) minima[var.name] = var.min;
  }
  for (size_t i = 0; i < bound.size(); ++i) {
    const module::Tensor& tensor = *tensors->input(i).tensor;
    if (bound[i] || !module::IsOpen(tensor.shape)) continue;
    std::vector<int64_t> shape;
    for (const module::Dim& dim : tensor.shape) {
      TW_ASSIGN(const int64_t extent, dim.Evaluate(sizes));
      shape.push_back(extent);
    }
    TW_TRY(tensors->SetInputShape(i, shape));
  }
  TW_TRY(tensors->BindSizes());
  for (size_t i = 0; i < bound.size(); ++i) {
    if (bound[i]) continue;
    const runtime::TensorView input = tensors->input(i);
    const module::DType dtype = input.tensor->dtype;
    const int64_t count = static_cast<int64_t>(input.bytes) / module::DTypeBytes(dtype);
    TW_TRY(runtime::GenerateInput(dtype, count, runtime::DefaultDistribution(dtype),
                                  choice.seed + i, tensors->MutableInput(i)));
  }
  return minima;
}

std::string SizesText(const module::Sizes& sizes) {
  std::vector<std::string> parts;
  for (const auto& [name, size] : sizes) parts.push_back(support::StrCat(name, "=", size));
  return support::Join(parts, ", ");
}

void SayMinima(const module::Sizes& minima) {
  if (minima.empty()) return;
  PrintErr(support::StrCat("running at ", SizesText(minima),
                           ", the smallest sizes of the module (choose others with --shape)\n"));
}

}  // namespace tilewright::cli
