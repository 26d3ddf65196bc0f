#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "tests/support/golden.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Sets a variable for one test and puts the old state back.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name), before_(support::GetEnv(name)) {
    setenv(name, value, 1);
  }
  ~ScopedEnv() {
    if (before_.has_value()) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(GoldenTest, DifferenceIsShownInItsLine) {
  EXPECT_TRUE(SameText("a\nb\n", "a\nb\n"));
  const testing::AssertionResult other = SameText("a\nb\nX\n", "a\nb\nc\n");
  EXPECT_FALSE(other);
  EXPECT_THAT(other.message(), AllOf(HasSubstr("line 3"), HasSubstr("- c"), HasSubstr("+ X")));
  EXPECT_FALSE(SameText("a\n", "a\nb\n"));
  EXPECT_FALSE(SameText("a\nb", "a"));
  EXPECT_FALSE(SameText("a", "a\n"));
}

TEST(GoldenTest, MissingFileFailsAndUpdateWritesIt) {
  const support::TempDir dir = *support::TempDir::Create("golden-test");
  const std::string path = dir.File("sub/a.txt");
  {
    const ScopedEnv off("TILEWRIGHT_UPDATE_GOLDEN", "0");
    const testing::AssertionResult missing = MatchesGolden(path, "text\n");
    EXPECT_FALSE(missing);
    EXPECT_THAT(missing.message(), HasSubstr("TILEWRIGHT_UPDATE_GOLDEN=1"));
  }
  {
    const ScopedEnv on("TILEWRIGHT_UPDATE_GOLDEN", "1");
    EXPECT_TRUE(MatchesGolden(path, "text\n"));
  }
  const ScopedEnv off("TILEWRIGHT_UPDATE_GOLDEN", "0");
  EXPECT_TRUE(MatchesGolden(path, "text\n"));
  EXPECT_FALSE(MatchesGolden(path, "texts\n"));
}

TEST(SeedTest, EnvironmentReplaysASeed) {
  const ScopedEnv seed("TILEWRIGHT_SEED", "77");
  EXPECT_EQ(TestSeed(5), 77u);
  const ScopedEnv rounds("TILEWRIGHT_ROUNDS", "9");
  EXPECT_EQ(TestRounds(5), 9);
}

}  // namespace
}  // namespace tilewright::tests
