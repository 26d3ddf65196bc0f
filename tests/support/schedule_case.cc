#include "tests/support/schedule_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "deploy/support/status.h"
#include "tests/support/golden.h"
#include "tests/support/race_check.h"

namespace tilewright::tests {

using schedule::ParseSteps;
using schedule::Schedule;
using schedule::ToText;

Schedule Applied(const ir::Function& f, std::string_view steps) {
  Schedule s(f);
  s.set_verify_each(true);
  auto parsed = ParseSteps(steps);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  if (!parsed.ok()) return s;
  for (const schedule::Step& step : *parsed) {
    absl::Status status = s.Apply(step);
    EXPECT_TRUE(status.ok()) << ToText(step) << ": " << status;
    if (!status.ok()) break;
  }
  return s;
}

Schedule Scheduled(const ir::Function& f, std::string_view steps,
                   const EquivalenceOptions& options) {
  Schedule s = Applied(f, steps);
  absl::Status same = SameResults(f, s.function(), options);
  EXPECT_TRUE(same.ok()) << same << "\n" << s.Describe();
  absl::Status races = CheckRaces(s.function(), options.sizes);
  EXPECT_TRUE(races.ok()) << races << "\n" << s.Describe();
  auto again = ir::ParseFunction(ir::Print(s.function()));
  EXPECT_TRUE(again.ok()) << again.status();
  return s;
}

void ExpectRefused(const ir::Function& f, std::string_view steps, std::string_view slug,
                   std::string_view says) {
  Schedule s(f);
  s.set_verify_each(true);
  auto parsed = ParseSteps(steps);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  for (size_t i = 0; i + 1 < parsed->size(); ++i) {
    absl::Status status = s.Apply((*parsed)[i]);
    ASSERT_TRUE(status.ok()) << ToText((*parsed)[i]) << ": " << status;
  }
  std::string before = s.Describe();
  for (bool verify : {true, false}) {
    s.set_verify_each(verify);
    absl::Status refused = s.Apply(parsed->back());
    EXPECT_EQ(support::Slug(refused), slug) << steps << "\n" << refused << "\n" << s.Describe();
    EXPECT_THAT(support::StatusText(refused), testing::HasSubstr(std::string(says))) << steps;
    EXPECT_EQ(s.Describe(), before) << steps;
    EXPECT_EQ(s.steps().size() + 1, parsed->size());
    // Names and handles of later steps do not depend on refused ones.
    auto replayed = schedule::Replay(f, ToText(s.steps()));
    ASSERT_TRUE(replayed.ok()) << replayed.status();
    EXPECT_TRUE(ir::StructuralEqual(*replayed, s.function())) << steps;
  }
}

void ExpectGolden(const Schedule& s, std::string_view name) {
  EXPECT_TRUE(MatchesGolden("schedule/" + std::string(name) + ".txt", s.Describe()));
}

}  // namespace tilewright::tests
