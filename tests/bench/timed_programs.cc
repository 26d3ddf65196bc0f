#include "tests/bench/timed_programs.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace tilewright::bench {

TimedPrograms ReadTimedPrograms(const std::string& path) {
  TimedPrograms programs;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    if (row.contains("text")) {
      programs.texts[row["task"]] = row["text"];
    } else {
      programs.ns[row["task"]][row["steps"]] = row["ns"];
    }
  }
  return programs;
}

}  // namespace tilewright::bench
