#include "tests/support/golden.h"

#include <algorithm>
#include <vector>

#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {
namespace {

constexpr uint64_t kMaxGoldenBytes = 64 << 20;
constexpr size_t kContextLines = 3;

// "line 7" with the lines before it, what was expected and what was found there.
std::string FirstDifference(std::string_view actual, std::string_view expected) {
  const std::vector<std::string> found = support::Split(actual, '\n');
  const std::vector<std::string> wanted = support::Split(expected, '\n');
  size_t at = 0;
  while (at < found.size() && at < wanted.size() && found[at] == wanted[at]) ++at;
  std::string text = support::StrCat("first difference in line ", at + 1, ":\n");
  for (size_t i = at - std::min(at, kContextLines); i < at; ++i) text += "    " + found[i] + "\n";
  for (size_t i = at; i < std::min(at + kContextLines, wanted.size()); ++i) {
    text += "  - " + wanted[i] + "\n";
  }
  for (size_t i = at; i < std::min(at + kContextLines, found.size()); ++i) {
    text += "  + " + found[i] + "\n";
  }
  return text;
}

}  // namespace

std::string GoldenPath(std::string_view name) {
  return support::PathJoin(TILEWRIGHT_SOURCE_DIR "/tests/golden", name);
}

testing::AssertionResult SameText(std::string_view actual, std::string_view expected) {
  if (actual == expected) return testing::AssertionSuccess();
  return testing::AssertionFailure() << FirstDifference(actual, expected);
}

testing::AssertionResult MatchesGolden(std::string_view name, std::string_view actual) {
  const std::string path = GoldenPath(name);
  if (support::GetEnv("TILEWRIGHT_UPDATE_GOLDEN") == "1") {
    absl::Status written = support::MakeDirs(support::DirName(path));
    if (written.ok()) written = support::WriteFileAtomic(path, actual);
    if (!written.ok()) return testing::AssertionFailure() << support::StatusText(written);
    return testing::AssertionSuccess();
  }
  const absl::StatusOr<std::string> expected = support::ReadFile(path, kMaxGoldenBytes);
  if (!expected.ok()) {
    return testing::AssertionFailure()
           << support::StatusText(expected.status())
           << "\nTILEWRIGHT_UPDATE_GOLDEN=1 writes it; what was found:\n"
           << actual;
  }
  testing::AssertionResult same = SameText(actual, *expected);
  if (!same) same << "in " << path << " (TILEWRIGHT_UPDATE_GOLDEN=1 accepts the change)";
  return same;
}

}  // namespace tilewright::tests
