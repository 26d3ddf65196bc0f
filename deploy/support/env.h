// The environment, read in one place. Pure reads; safe from any thread unless some code calls
// setenv.
#pragma once

#include <optional>
#include <string>

namespace tilewright::support {

// The variable's value, or nullopt when it is not set.
std::optional<std::string> GetEnv(const char* name);

}  // namespace tilewright::support
