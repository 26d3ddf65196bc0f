// Which device's records a job's many ones mostly are. A pure function.
#pragma once

#include <map>
#include <string>

namespace tilewright::jobs {

// The name counted most often, of equals the first by name; empty where there is none.
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
