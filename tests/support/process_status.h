// Numbers of /proc/PID/status, for tests and benchmarks that look at memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {

// A field in kB, such as VmRSS, or VmHWM: its peak since the program began, which what getrusage
// says is not. 0 where the process is gone.
inline int64_t StatusKb(std::string_view field, const std::string& process = "self") {
  const std::string text =
      support::ReadFile(support::StrCat("/proc/", process, "/status"), 1 << 16).value_or("");
  const size_t at = text.find(support::StrCat("\n", field, ":"));
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + field.size() + 2);
}

}  // namespace tilewright::tests
