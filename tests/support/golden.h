// Golden files: texts that a change may alter only on purpose. A golden test gives a text and the
// name of its file under tests/golden/; the assertion fails with the first difference. With
// TILEWRIGHT_UPDATE_GOLDEN=1 in the environment it writes the file instead, to be read in the diff
// of the commit. Stateless; not for concurrent use of one file.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace tilewright::tests {

// EXPECT_TRUE(MatchesGolden("ir/matmul.tir", Print(function)));
testing::AssertionResult MatchesGolden(std::string_view name, std::string_view actual);

// The same against `expected`, a text in the test itself.
testing::AssertionResult SameText(std::string_view actual, std::string_view expected);

// The absolute path of a golden file.
std::string GoldenPath(std::string_view name);

}  // namespace tilewright::tests
