// A toolchain's text: what generated the code ("llvm-19.1.7"). Where the device's driver
// compiles it, its compiler follows: "opencl-c-1.2+pocl-3.1". Measurements compare within one
// toolchain only. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace tilewright::log {

// Returns the toolchain of code that the generator of `toolchain` made and `compiler` compiled.
// The compiler is what an agent reports: what does not belong into a word becomes '-', and it is
// cut at 80 characters. An empty one gives the generator.
std::string WithCompiler(std::string_view toolchain, std::string_view compiler);
// Returns the compiler; empty if the toolchain names none.
std::string_view CompilerOf(std::string_view toolchain);
// Returns whether a record of the toolchain `found` counts where `wanted` is asked for. A wanted
// toolchain without a compiler leaves the compiler open.
bool ToolchainFits(std::string_view wanted, std::string_view found);

}  // namespace tilewright::log
