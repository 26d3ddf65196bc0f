// The values of --input and --expect: files of tensors by name, for commands that run a module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/runtime/runtime.h"
#include "deploy/runtime/tensor_io.h"
#include "deploy/support/status.h"

namespace tilewright::cli {

struct NamedFile {
  std::string name;
  std::string path;
};
// NAME=FILE, each; cli.usage.named_file for anything else.
absl::StatusOr<std::vector<NamedFile>> ParseNamedFiles(const std::vector<std::string>& texts,
                                                       std::string_view flag);
std::vector<int64_t> StaticShape(const module::Tensor& tensor);
// Position of the named tensor among a session's inputs or outputs (cli.input.name).
absl::StatusOr<size_t> FindTensor(const std::vector<runtime::TensorView>& views,
                                  const std::string& name, std::string_view kind);
// The tensor in a file, which must have the type and the shape of `wanted` (cli.input.shape). NumPy
// has no bfloat16: its float32 is rounded.
absl::StatusOr<runtime::HostTensor> ReadTensorLike(const std::string& path,
                                                   const module::Tensor& wanted);
// Fills all inputs: from NAME=FILE where given, else with numbers drawn from the seed.
absl::Status FillInputs(const std::vector<std::string>& named, uint64_t seed,
                        runtime::BoundTensors* tensors);

}  // namespace tilewright::cli
