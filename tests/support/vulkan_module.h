// Candidate modules for Vulkan devices, of a kernel as IR text or of code as it is. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace tilewright::tests {

// A kernel KERNEL(n: size, X: f32[n], Y: f32[n]) of stage flat over n = `elements`, in groups of
// `threads`.
std::string VulkanModule(const std::string& kernel, const std::string& text,
                         int64_t elements = 1024, int64_t threads = 64);

// The same of a code object that may be none.
std::string VulkanCodeModule(const std::string& kernel, const std::string& code,
                             int64_t elements = 1024, int64_t threads = 64);

}  // namespace tilewright::tests
