// What a task inherits from relatives: who is one, how decisions are carried over, and that a
// search begins with them.
#include "tuner_server/search/transfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "compiler/driver/tasks.h"
#include "compiler/ir/structural.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/te_programs.h"
#include "tuner_server/search/search_task.h"
#include "tuner_server/search/task_kind.h"

namespace tilewright::search {
namespace {

using support::StrCat;

const target::Target& Cpu() {
  static const auto* const target =
      new target::Target(*target::ParseTarget("cpu,arch=x86_64,cpu=znver3,threads=2"));
  return *target;
}

std::unique_ptr<Space> DenseSpace(int64_t m, int64_t n, int64_t k) {
  auto space = Space::Create(tests::DenseReluProgram(m, n, k), Cpu());
  TW_CHECK(space.ok()) << support::StatusText(space.status());
  return *std::move(space);
}

std::unique_ptr<SearchTask> DenseTask(int64_t m, int64_t n, int64_t k,
                                      const SearchOptions& options = {}) {
  auto task = SearchTask::Create({{"direct", tests::DenseReluProgram(m, n, k)}},
                                 2.0 * static_cast<double>(m * n * k), Cpu(), options);
  TW_CHECK(task.ok()) << support::StatusText(task.status());
  return *std::move(task);
}

std::string HashOf(const Space& space, const Point& point) {
  const auto schedule = space.Apply(point);
  TW_CHECK(schedule.ok()) << support::StatusText(schedule.status());
  return ir::ProgramHash(schedule->function());
}

std::string DenseText(int64_t m, int64_t n, int64_t k) {
  return StrCat("graph {\n  input %0: f32[", m, ",", k, "]\n  weight %1: f32[", n / 16, ",", k,
                ",16]\n  %2: f32[", m, ",", n, "] = dense(%0, %1) {units=", n,
                ", weight_layout=\"NK16n\"}\n  output %2\n}\n");
}

TEST(TaskKindTest, ExtentsAreTakenOutOfTheTextAndAttributesStay) {
  const TaskKind kind = KindOf(
      "%3: f32[1,20,14] = conv2d(%0, %1) {pads=[1,1], strides=[2,2], units=1000} pow(%4, f32[7])");
  EXPECT_EQ(kind.skeleton,
            "%3: f32[#,#,#] = conv2d(%0, %1) {pads=[1,1], strides=[2,2], units=} pow(%4, f32[#])");
  EXPECT_EQ(kind.extents, (std::vector<int64_t>{1, 20, 14, 7}));
  EXPECT_TRUE(KindOf("").extents.empty());
  EXPECT_EQ(KindOf("f32[1,").extents, std::vector<int64_t>{1}) << "no text is refused";
}

TEST(TaskKindTest, NearExtentsAreNearAndOtherKindsAreNoRelatives) {
  const auto distance = [](const std::string& a, const std::string& b) {
    return KindDistance(KindOf(a), KindOf(b));
  };
  const std::string text = DenseText(64, 128, 256);
  EXPECT_EQ(distance(text, text), 0);
  EXPECT_LT(*distance(text, DenseText(72, 128, 256)), *distance(text, DenseText(128, 128, 256)));
  EXPECT_EQ(distance(text, DenseText(128, 128, 256)), distance(DenseText(128, 128, 256), text));
  EXPECT_EQ(distance(text, DenseText(1, 128, 256)), std::nullopt) << "a vector is no matrix";
  EXPECT_EQ(distance(text, DenseText(64 * 9, 128, 256)), std::nullopt) << "too far";
  std::string strided = text;
  strided.replace(strided.find("dense"), 5, "gemm_");
  EXPECT_EQ(distance(text, strided), std::nullopt);
}

// Most points of a space have a counterpart in that of other extents, and it is a legal program.
TEST(TransferTest, DecisionsAreCarriedOverAndMadeLegal) {
  const auto from = DenseSpace(64, 96, 128), to = DenseSpace(60, 112, 40);
  support::Rng rng(7);
  int carried = 0, same_values = 0;
  constexpr int kPoints = 60;
  for (int i = 0; i < kPoints; ++i) {
    Point point;
    ASSERT_TRUE(from->Sample(&rng, &point));
    EXPECT_EQ(TransferPoint(*from, point, *from), point) << "to itself";
    const std::optional<Point> made = TransferPoint(*from, point, *to);
    EXPECT_EQ(TransferPoint(*from, point, *to), made) << "each time the same";
    if (!made.has_value()) continue;
    ++carried;
    ASSERT_TRUE(to->Contains(*made));
    EXPECT_TRUE(to->Apply(*made).ok());
    const Sketch& before = *from->sketches()[static_cast<size_t>(point.sketch)];
    const Sketch& after = *to->sketches()[static_cast<size_t>(made->sketch)];
    EXPECT_EQ(before.name(), after.name());
    for (size_t k = 0; k < before.knobs().size(); ++k) {
      ASSERT_EQ(before.knobs()[k].name, after.knobs()[k].name);
      same_values += before.Value(point, k) == after.Value(*made, k);
    }
  }
  EXPECT_GE(carried, kPoints * 9 / 10);
  EXPECT_GT(same_values, carried * 8) << "of some fifteen knobs each";
}

TEST(TransferTest, WhatIsNotTheRelativesProgramIsLeftOut) {
  const auto from = DenseSpace(64, 96, 128), to = DenseSpace(60, 112, 40);
  support::Rng rng(3);
  Point point;
  ASSERT_TRUE(from->Sample(&rng, &point));
  const std::string hash = HashOf(*from, point), text = PointText(point);
  EXPECT_EQ(InheritedPoints(*from, {{hash, text}, {hash, text}}, *to).size(), 1U);
  EXPECT_TRUE(InheritedPoints(*from, {{"0123", text}}, *to).empty()) << "of another space";
  EXPECT_TRUE(InheritedPoints(*from, {{hash, "99:1"}, {hash, "none"}}, *to).empty());
}

// A quarter of the first picks are inherited, each once, the most promising first; the model may
// pick more of them.
TEST(TransferTest, ASearchBeginsWithWhatItInherited) {
  const auto from = DenseSpace(64, 96, 128);
  auto task = DenseTask(60, 112, 40);
  support::Rng rng(5);
  std::vector<Point> points;
  std::set<std::string> hashes;
  while (hashes.size() < 4) {
    Point point;
    ASSERT_TRUE(from->Sample(&rng, &point));
    const std::optional<Point> made = TransferPoint(*from, point, task->space());
    if (!made.has_value() || !hashes.insert(HashOf(task->space(), *made)).second) continue;
    points.push_back(*made);
  }
  task->Inherit(points);
  auto model = cost_model::MakePriorModel();
  std::vector<std::string> inherited;
  const auto ask = [&](const std::string& batch) {
    const auto result = task->Ask(8, batch, model.get());
    TW_CHECK(result.ok()) << support::StatusText(result.status());
    EXPECT_EQ(result->picks.size(), 8U);
    int count = 0;
    for (const Pick& pick : result->picks) {
      if (pick.candidate.origin != Origin::kTransfer) continue;
      ++count;
      inherited.push_back(pick.candidate.program_hash);
      EXPECT_EQ(OriginText(pick.candidate.origin), "transfer");
    }
    return count;
  };
  const int first = ask("b1");
  EXPECT_GE(first, 2);
  for (int i = 0; i < 2; ++i) {
    const std::string hash = HashOf(task->space(), points[static_cast<size_t>(i)]);
    EXPECT_EQ(std::count(inherited.begin(), inherited.end(), hash), 1) << "the most promising";
  }
  EXPECT_EQ(first + ask("b2"), 4);
  EXPECT_EQ(ask("b3"), 0);
  EXPECT_EQ(std::set<std::string>(inherited.begin(), inherited.end()), hashes);
}

TEST(SearchPartsTest, PartsAreSwitchedAndNonsenseIsRefused) {
  EXPECT_EQ(*ParseSearchParts({}), SearchParts());
  const auto parts = ParseSearchParts({"transfer=off", "annealing=on", "quota=off", "quota=on"});
  ASSERT_TRUE(parts.ok());
  EXPECT_FALSE(parts->transfer);
  EXPECT_TRUE(parts->annealing);
  EXPECT_TRUE(parts->quota);
  for (const char* bad : {"transfer", "transfer=no", "luck=on", "=on", ""}) {
    EXPECT_EQ(support::Slug(ParseSearchParts({bad}).status()), "search.part") << bad;
  }
}

// Each switch changes what a search does, and switched back it is the product's.
TEST(SearchPartsTest, EverySwitchOfATaskChangesItsDrafts) {
  const auto drafts = [](const std::vector<std::string>& switches) {
    SearchOptions options;
    UseParts(*ParseSearchParts(switches), &options);
    auto task = DenseTask(64, 96, 128, options);
    auto model = cost_model::MakePriorModel();
    std::vector<std::string> hashes;
    for (int b = 0; b < 4; ++b) {
      const auto result = task->Ask(8, StrCat("b", b), model.get());
      TW_CHECK(result.ok()) << support::StatusText(result.status());
      for (const Pick& pick : result->picks) {
        const Candidate& c = pick.candidate;
        const auto time = static_cast<double>(1000 + hashes.size() * 37 % 101);
        hashes.push_back(c.program_hash);
        task->Tell({c.program_hash, v1::OK, time, false}, c.steps, PointText(c.point));
      }
    }
    return hashes;
  };
  const auto product = drafts({});
  EXPECT_EQ(drafts({"annealing=off"}), product);
  for (const char* part :
       {"quota=off", "adapt=off", "evolution=off", "annealing=on", "descent=on"}) {
    EXPECT_NE(drafts({part}), product) << part;
  }
}

}  // namespace
}  // namespace tilewright::search
