#include "deploy/support/env.h"

#include <cstdlib>

namespace tilewright::support {

std::optional<std::string> GetEnv(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

}  // namespace tilewright::support
