// A candidate module for a device, of code as it is: one launch of a kernel over x and y, n floats
// each, which gets n as its only size. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace tilewright::tests {

struct TextModuleSpec {
  std::string target, format;
  std::string kernel, code;
  int64_t elements = 1024;
  int64_t threads = 64;  // of a group
};
std::string TextModule(const TextModuleSpec& spec);

}  // namespace tilewright::tests
