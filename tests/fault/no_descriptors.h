// A running process that can open nothing more. One owner.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <filesystem>

#include "deploy/support/strings.h"

namespace tilewright::tests {

// No descriptor beyond those that it has, until the object goes.
class NoDescriptors {
 public:
  explicit NoDescriptors(pid_t pid) : pid_(pid) {
    namespace fs = std::filesystem;
    const fs::path folder = support::StrCat("/proc/", pid, "/fd");
    EXPECT_EQ(prlimit(pid, RLIMIT_NOFILE, nullptr, &old_), 0);
    rlimit none = old_;
    none.rlim_cur = static_cast<rlim_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
    EXPECT_EQ(prlimit(pid, RLIMIT_NOFILE, &none, nullptr), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(prlimit(pid_, RLIMIT_NOFILE, &old_, nullptr), 0); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  const pid_t pid_;
  rlimit old_{};
};

}  // namespace tilewright::tests
