#include "deploy/module/kernel_module.h"

#include <algorithm>
#include <utility>

#include "deploy/module/module_writer.h"
#include "deploy/support/status.h"

namespace tilewright::module {
namespace {

absl::StatusOr<Tensor> TensorOf(const KernelTensor& from, TensorKind kind, size_t id) {
  Tensor tensor;
  tensor.id = static_cast<int64_t>(id);
  tensor.name = from.name;
  tensor.dtype = from.dtype;
  tensor.kind = kind;
  tensor.shape.assign(from.shape.begin(), from.shape.end());
  const auto elements = NumElements(tensor.shape);
  if (!elements.has_value() ||
      __builtin_mul_overflow(*elements, DTypeBytes(from.dtype), &tensor.bytes)) {
    return support::InvalidArgument(
        "module.manifest.shape", "expected extents of a tensor, found " + ShapeText(tensor.shape) +
                                     " for '" + from.name + "'");
  }
  return tensor;
}

}  // namespace

absl::StatusOr<std::string> SerializeKernelModule(const KernelModule& kernel) {
  ModuleParts parts;
  Manifest& manifest = parts.manifest;
  manifest.name = kernel.name;
  manifest.target = kernel.target;
  Function function;
  function.name = "main";
  std::vector<int64_t> args;
  const auto add = [&](const std::vector<KernelTensor>& tensors, TensorKind kind,
                       std::vector<int64_t>* ids) {
    for (const KernelTensor& from : tensors) {
      TW_ASSIGN(Tensor tensor, TensorOf(from, kind, manifest.tensors.size()));
      ids->push_back(tensor.id);
      args.push_back(tensor.id);
      manifest.tensors.push_back(std::move(tensor));
    }
    return absl::OkStatus();
  };
  TW_TRY(add(kernel.inputs, TensorKind::kInput, &function.inputs));
  TW_TRY(add(kernel.outputs, TensorKind::kOutput, &function.outputs));
  for (const Launch& given : kernel.launches) {
    Launch& launch = function.launches.emplace_back(given);
    launch.args = args;
    launch.num_outputs = static_cast<int64_t>(function.outputs.size());
    manifest.workspace_bytes = std::max(manifest.workspace_bytes, launch.workspace_bytes.value());
  }
  manifest.functions = {std::move(function)};
  manifest.measurement = kernel.measurement;
  CodeObject code;
  code.format = kernel.format;
  manifest.code = {std::move(code)};
  parts.code = {kernel.code};
  return SerializeModule(parts);
}

}  // namespace tilewright::module
