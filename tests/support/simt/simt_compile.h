// Kernel texts of GPU languages, compiled for the emulator (simt.h): all texts of a test as one
// shared object, by the compiler that built the tests. Objects stay loaded. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/support/simt/simt.h"

namespace tilewright::simt {

enum class Language { kCuda, kOpenCl, kHip, kMetal };

struct Text {
  Language language = Language::kCuda;
  std::string text;
  std::vector<std::string> kernels;  // names of those that will be run
  uint32_t warp = 32;                // threads of a warp
};

// Returns the kernels of each text, in the order of its names. INVALID_ARGUMENT `simt.compile`
// with the compiler's messages.
absl::StatusOr<std::vector<std::vector<Kernel>>> Compile(const std::vector<Text>& texts);

// Returns the names of the kernels that a text defines.
std::vector<std::string> KernelNames(std::string_view text);

}  // namespace tilewright::simt
