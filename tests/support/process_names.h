// Processes of this machine, by the name that they gave themselves.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {

// How many there are now, zombies included.
inline int ProcessesCalled(const std::string& name) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string comm = support::PathJoin(entry.path().string(), "comm");
    count += support::Trim(support::ReadFile(comm, 100).value_or("")) == name ? 1 : 0;
  }
  return count;
}

}  // namespace tilewright::tests
