// Layouts: text, sizes, places in memory and packing agree with each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "compiler/ir/build.h"
#include "compiler/op/layout.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/test_seed.h"

namespace tilewright::op {
namespace {

TEST(Layout, SyntaxIsThatOfItsText) {
  for (const char* text : {"OIHW", "IHWO", "OIHW16o", "OIHW4i16o4i", "OHW8o", "HWIO", "O"}) {
    const auto layout = Layout::Parse(text, "OIHW");
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->ToText(), text);
  }
  for (const char* text : {"", "OIHH", "OIHWX", "OIHW16", "OIHWo", "OIHW0o", "16oOIHW", "OIHW16O",
                           "OIHW99999999o", "IHW16o"}) {
    const auto layout = Layout::Parse(text, "OIHW");
    ASSERT_FALSE(layout.ok()) << text;
    EXPECT_EQ(support::Slug(layout.status()), "op.layout.syntax");
  }
}

TEST(Layout, BlocksAndDimensions) {
  const Layout l = *Layout::Parse("OIHW4i16o4i", "OIHW");
  EXPECT_EQ(l.Blocks('I'), (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(l.Block('I'), 16);
  EXPECT_EQ(l.Block('H'), 1);
  EXPECT_EQ(l.Dimension('W'), 3u);
  EXPECT_TRUE(l.is_cut());
  EXPECT_EQ(l.Stored({20, 17, 3, 3}), (std::vector<int64_t>{2, 2, 3, 3, 4, 16, 4}));
  DimEqualities equal;
  EXPECT_EQ(*l.SizesOf({2, 2, 3, 3, 4, 16, 4}, &equal), (std::vector<Dim>{32, 32, 3, 3}));
  EXPECT_FALSE(l.SizesOf({2, 2, 3, 3, 4, 8, 4}, &equal).has_value());
  EXPECT_FALSE(l.SizesOf({2, 2, 3, 3}, &equal).has_value());
  EXPECT_TRUE(equal.empty());
  const Dim n = Dim::Variable("N");
  EXPECT_EQ(*l.SizesOf({n, 2, 3, 3, 4, n, 4}, &equal), (std::vector<Dim>{n * Dim(16), 32, 3, 3}));
  ASSERT_EQ(equal.size(), 1u);  // N is 16
  EXPECT_FALSE(Layout::Parse("OHW8o", "OIHW")->Has('I'));
}

// A random layout of three axes: each axis once, blocks behind it.
Layout RandomLayout(support::Rng* rng) {
  std::vector<std::string> pieces = {"A", "B", "C"};
  rng->Shuffle(&pieces);
  const int blocks = static_cast<int>(rng->UniformInt(0, 4));
  for (int i = 0; i < blocks; ++i) {
    const size_t axis = static_cast<size_t>(rng->UniformInt(0, 2));
    const std::string block =
        std::to_string(rng->UniformInt(1, 4)) + std::string(1, static_cast<char>('a' + axis));
    const auto at =
        std::find(pieces.begin(), pieces.end(), std::string(1, static_cast<char>('A' + axis)));
    const int64_t first = at - pieces.begin() + 1;
    pieces.insert(pieces.begin() + rng->UniformInt(first, std::ssize(pieces)), block);
  }
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return *Layout::Parse(text, "ABC");
}

std::vector<int64_t> RandomSizes(support::Rng* rng) {
  return {rng->UniformInt(1, 9), rng->UniformInt(1, 9), rng->UniformInt(1, 9)};
}

// Elements lie at places of their own, and come back.
TEST(Layout, PackingIsReversible) {
  for (uint64_t i = 0; i < 200; ++i) {
    support::Rng rng = support::Rng(tests::TestSeed(11)).Split(i);
    const Layout from = RandomLayout(&rng), to = RandomLayout(&rng), plain("ABC");
    const std::vector<int64_t> sizes = RandomSizes(&rng);
    SCOPED_TRACE(from.ToText() + " " + to.ToText());
    std::vector<double> values(static_cast<size_t>(sizes[0] * sizes[1] * sizes[2]));
    std::iota(values.begin(), values.end(), 1);
    const auto first = Repack(values, plain, from, sizes);
    const auto second = Repack(first, from, to, sizes);
    EXPECT_EQ(Repack(second, to, plain, sizes), values);
    EXPECT_EQ(second, Repack(values, plain, to, sizes));
    // All else is zeros.
    EXPECT_EQ(std::count(second.begin(), second.end(), 0), std::ssize(second) - std::ssize(values));
    std::string bytes;
    for (double value : values) bytes.push_back(static_cast<char>(static_cast<int>(value) % 251));
    EXPECT_EQ(Repack(Repack(bytes, plain, to, sizes, 1), to, plain, sizes, 1), bytes);
  }
}

// The value of an expression of constants.
int64_t ValueOf(const ir::Expr& e) {
  if (const auto value = ir::AsInt(e)) return *value;
  const int64_t a = ValueOf(e->args[0]), b = ValueOf(e->args[1]);
  switch (e->kind) {
    case ir::ExprKind::kAdd:
      return a + b;
    case ir::ExprKind::kMul:
      return a * b;
    case ir::ExprKind::kFloorDiv:
      return a / b;
    case ir::ExprKind::kFloorMod:
      return a % b;
    default:
      ADD_FAILURE() << "another expression";
      return 0;
  }
}

// An index leads to where packing puts the element, in whatever digits a place is given.
TEST(Layout, IndexIsWhereElementsLie) {
  for (uint64_t i = 0; i < 300; ++i) {
    support::Rng rng = support::Rng(tests::TestSeed(12)).Split(i);
    const Layout layout = RandomLayout(&rng);
    const std::vector<int64_t> sizes = RandomSizes(&rng);
    const std::vector<int64_t> stored = layout.Stored(sizes);
    const auto offsets = layout.Offsets(sizes);
    std::vector<Place> places;
    int64_t expected = 0;
    for (size_t axis = 0; axis < sizes.size(); ++axis) {
      int64_t at = rng.UniformInt(0, sizes[axis] - 1);
      expected += offsets[axis][static_cast<size_t>(at)];
      // The blocks of the layout, others, or one number.
      std::vector<int64_t> extents = layout.Blocks(static_cast<char>('A' + axis));
      if (rng.Bernoulli(0.5)) extents.clear();
      if (rng.Bernoulli(0.3)) extents.push_back(rng.UniformInt(1, 4));
      Place place;
      for (size_t d = extents.size(); d-- > 0; at /= extents[d]) {
        place.insert(place.begin(), {ir::Int(at % extents[d]), extents[d]});
      }
      place.insert(place.begin(), {ir::Int(at)});
      places.push_back(std::move(place));
    }
    int64_t found = 0;
    const std::vector<ir::Expr> index = layout.Index(places);
    for (size_t d = 0; d < stored.size(); ++d) found = found * stored[d] + ValueOf(index[d]);
    EXPECT_EQ(found, expected) << layout.ToText();
  }
}

// Digits that are those of the blocks go there as they are: programs have no quotients.
TEST(Layout, DigitsOfTheBlocksStayAsTheyAre) {
  ir::FunctionBuilder b("f");
  const ir::Expr outer = ir::Int(1), block = ir::Int(2), lane = ir::Int(3);
  const Layout weights = *Layout::Parse("OI4i8o2i", "OI"), data = *Layout::Parse("NC8c", "NC");
  const Place terms = {{outer}, {block, 4}, {lane, 2}};
  const Place weight[] = {{{ir::Int(0)}, {ir::Int(5), 8}}, terms};
  EXPECT_EQ(weights.Index(weight),
            (std::vector<ir::Expr>{weight[0][0].value, outer, block, weight[0][1].value, lane}));
  const Place image[] = {{{ir::Int(0)}}, terms};
  EXPECT_EQ(data.Index(image)[1], outer);
}

}  // namespace
}  // namespace tilewright::op
