// A short form of modules with one function, each of whose launches takes all inputs and outputs of
// the function: candidates, self-tests, and modules of tests. The rest of the manifest follows from
// it. Pure functions.
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
  // The caller sets symbol, sizes, grid, task and so on. `args` (all inputs, then all outputs) and
  // `num_outputs` are set here.
  std::vector<Launch> launches;
  // A baseline needs it, because it has inputs of its own. Tensor ids count inputs, then outputs.
  std::optional<Measurement> measurement;
};

// Returns the bytes of the module; its function is "main". INVALID_ARGUMENT as ValidateManifest.
absl::StatusOr<std::string> SerializeKernelModule(const KernelModule& kernel);

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_KERNEL_MODULE_H_
