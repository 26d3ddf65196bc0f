// A module of one function whose launches all take the function's inputs and outputs, written down
// in a few lines: candidates, self-tests and what tests measure. The rest of the manifest follows
// from it. Pure.
#ifndef DEPLOY_MODULE_KERNEL_MODULE_H_
#define DEPLOY_MODULE_KERNEL_MODULE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/module/manifest.h"

namespace tilewright::module {

struct KernelTensor {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
};

struct KernelModule {
  std::string name;    // of the model
  std::string target;  // "cpu,arch=x86_64,threads=1", "opencl"
  std::string format;  // of the code object
  std::string code;    // its bytes
  std::vector<KernelTensor> inputs;
  std::vector<KernelTensor> outputs;
  // Symbol, sizes, grid, task … of each; `args` and `num_outputs` are filled in: all inputs, then
  // all outputs.
  std::vector<Launch> launches;
  // Needed of a baseline, which brings its own inputs; tensor ids count inputs, then outputs.
  std::optional<Measurement> measurement;
};

// The bytes of its model.tw; the function is called "main". INVALID_ARGUMENT as ValidateManifest.
absl::StatusOr<std::string> SerializeKernelModule(const KernelModule& kernel);

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_KERNEL_MODULE_H_
