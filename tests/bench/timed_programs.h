// A file of timed programs, JSON lines: {"task", "text"} describes a task, {"task", "steps", "ns"}
// is a program of it, 0 ns if it does not run right.
#pragma once

#include <map>
#include <string>

namespace tilewright::bench {

struct TimedPrograms {
  std::map<std::string, std::string> texts;                 // of tasks, by name
  std::map<std::string, std::map<std::string, double>> ns;  // of programs, by task and steps
};

// Returns what the file has; nothing if there is none.
TimedPrograms ReadTimedPrograms(const std::string& path);

}  // namespace tilewright::bench
