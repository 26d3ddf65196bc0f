// Copies of programs of the build tree in a folder that every user can enter: the tree itself may
// be in somebody's home (/root of a fresh Debian is closed).
#pragma once

#include <string>
#include <vector>

#include "deploy/support/file.h"

namespace tilewright::tests {

class StagedPrograms {
 public:
  // Copies `programs` of bin/, and all test libraries of lib/. Fails the test program if it cannot.
  explicit StagedPrograms(const std::vector<std::string>& programs);

  std::string Path(const std::string& program) const { return folder_.File("bin/" + program); }

 private:
  support::TempDir folder_;
};

}  // namespace tilewright::tests
