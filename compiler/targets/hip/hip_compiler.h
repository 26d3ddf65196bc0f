// The compiler of HIP texts: clang with the target amdgcn, a program that is found at run time.
// Nothing of ROCm is needed to build this. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/c_artifact.h"

namespace tilewright::hip {

// Compiles a text to a code object (an ELF file with the metadata of its kernels) for one
// instruction set ("gfx90a"). A text that calls ROCm's device libraries is linked with those that
// clang finds. FAILED_PRECONDITION `codegen.device_compiler.missing` where there is no clang, or it
// does not know the instruction set, `codegen.device_library.missing` where the libraries are not
// installed; INTERNAL `codegen.hip.compile` with the compiler's messages.
absl::StatusOr<codegen::DeviceCode> CompileText(const std::string& text, const std::string& arch);

// The resources in the compiler's remarks. Registers are those of vectors and of accumulators.
std::vector<codegen::KernelResources> ResourcesOf(std::string_view remarks);

// "clang-19.1.7", or "clang-none".
std::string ClangName();

}  // namespace tilewright::hip
