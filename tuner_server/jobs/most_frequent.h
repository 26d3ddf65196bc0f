// The device or device class that most records come from. A pure function.
#pragma once

#include <map>
#include <string>

namespace tilewright::jobs {

// Returns the name with the highest count, the first by name among equals. Empty without counts.
inline std::string MostFrequent(const std::map<std::string, int>& counts) {
  std::string found;
  int most = 0;
  for (const auto& [name, count] : counts) {
    if (count <= most) continue;
    most = count;
    found = name;
  }
  return found;
}

}  // namespace tilewright::jobs
