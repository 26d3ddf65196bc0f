// What a SPIR-V module says of its kernel: what the plug-in must know to make a pipeline and to
// check a launch. Reads the words and believes none of them: a module that is cut short, or refers
// to what is not there, is refused. It does not check the code itself; drivers take that as it is.
// Pure.
#ifndef DEPLOY_RUNTIME_VULKAN_KERNEL_H_
#define DEPLOY_RUNTIME_VULKAN_KERNEL_H_

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tilewright::vulkan {

struct KernelFacts {
  std::string name;
  std::array<uint32_t, 3> group = {0, 0, 0};
  std::vector<int64_t> buffers;  // bytes of each binding; 0: of open size
  int64_t size_bytes = 0;        // of push constants
  // Push constants are specialisation constants of the same numbers, too, unless these are 0.
  bool specialises = false;
  int64_t shared_bytes = 0;
  std::set<uint32_t> capabilities;
};

// Returns an empty text and the facts, or what is wrong: "expected …, found …".
std::string ReadKernel(const uint32_t* words, size_t count, KernelFacts* facts);

}  // namespace tilewright::vulkan

#endif  // DEPLOY_RUNTIME_VULKAN_KERNEL_H_
