// How often one text stands in another. Pure; thread-safe.
#pragma once

#include <string_view>

namespace tilewright::tests {

// Occurrences of `part`, none of which overlap. REQUIRES: `part` is not empty.
inline int CountOf(std::string_view text, std::string_view part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) {
    ++count;
  }
  return count;
}

}  // namespace tilewright::tests
