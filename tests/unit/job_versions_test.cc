#include "tuner_server/jobs/job_versions.h"

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/support/rng.h"
#include "deploy/support/strings.h"
#include "gtest/gtest.h"

namespace tilewright::jobs {
namespace {

TEST(JobVersionsTest, EachChangeOfAJobIsSeenAndOthersAreNot) {
  JobVersions versions;
  EXPECT_EQ(versions.Of("a"), 0);
  versions.Rise("a");
  const int64_t first = versions.Of("a");
  EXPECT_GT(first, 0);
  versions.Rise("b");
  EXPECT_EQ(versions.Of("a"), first) << "news of b are none of a";
  versions.Rise("a");
  EXPECT_GT(versions.Of("a"), first);
}

// Whoever watches sees every change, however many jobs come between; memory does not grow.
TEST(JobVersionsTest, ManyJobsTakeNoMoreRoomAndNoChangeIsMissed) {
  constexpr size_t kMost = 50;
  constexpr int kJobs = 200;
  JobVersions versions(kMost);
  support::Rng rng(1);
  std::vector<int64_t> seen(kJobs, 0);
  for (int round = 0; round < 20'000; ++round) {
    const auto job = static_cast<size_t>(rng.Uniform(kJobs));
    const std::string name = support::StrCat("jobs/", job);
    const int64_t before = versions.Of(name);
    ASSERT_GE(before, seen[job]) << name << " went back";
    versions.Rise(name);
    ASSERT_GT(versions.Of(name), before) << "a watcher of " << name << " sees nothing";
    seen[job] = versions.Of(name);
    ASSERT_LE(versions.size(), kMost);
  }
}

}  // namespace
}  // namespace tilewright::jobs
