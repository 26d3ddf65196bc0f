// The compiler of CUDA C texts: NVRTC, found at run time. Nothing of the toolkit is needed to
// build this, and no driver to compile. Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/codegen/c_artifact.h"

namespace tilewright::cuda {

// Compiles a text to a cubin for one instruction set ("sm_90"). FAILED_PRECONDITION
// `codegen.device_compiler.missing` where the library is not installed, or too old for the
// instruction set; INTERNAL `codegen.cuda.compile` with the compiler's messages.
absl::StatusOr<codegen::DeviceCode> CompileText(const std::string& text, const std::string& arch);

// The resources in the log of a compilation.
std::vector<codegen::KernelResources> ResourcesOf(std::string_view log);

// "nvrtc-13.0", or "nvrtc-none".
std::string NvrtcName();

}  // namespace tilewright::cuda
