// The values of --input and --expect: files of tensors by name, for commands that run a module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/module/manifest.h"
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
// Position of the named tensor among a session's inputs or outputs (cli.input.name).
absl::StatusOr<size_t> FindTensor(const std::vector<runtime::TensorView>& views,
                                  const std::string& name, std::string_view kind);
// The tensor in a file, which must have the type of `wanted` and the shape (cli.input.shape). NumPy
// has no bfloat16: its float32 is rounded.
absl::StatusOr<runtime::HostTensor> ReadTensorLike(const std::string& path,
                                                   const module::Tensor& wanted,
                                                   const std::vector<int64_t>& shape);

// What the inputs of a run are made of.
struct InputChoice {
  std::vector<std::string> files;   // NAME=FILE
  std::vector<std::string> shapes;  // N=7: sizes of variables, for modules of open sizes
  uint64_t seed = 0;                // of inputs without a file
};
// Fills all inputs: from files where given, else with numbers drawn from the seed. In a module of
// open sizes the files and `shapes` bind the variables, the others get their minima, and the
// outputs have their shapes then. cli.input.shape, cli.input.size, cli.usage.shape for what does
// not fit. Returns the variables that got their minima.
absl::StatusOr<module::Sizes> FillInputs(const InputChoice& choice,
                                         const module::Manifest& manifest,
                                         runtime::BoundTensors* tensors);
// "N=7, M=2".
std::string SizesText(const module::Sizes& sizes);
// Says on stderr which variables have their minima; nothing where none has.
void SayMinima(const module::Sizes& minima);

}  // namespace tilewright::cli
