#include "tuner_server/log/model_sizes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tilewright::log {
namespace {

ModelSizes Sizes() {
  ModelSizes sizes;
  sizes.shapes = {{"x", {1, 64}}, {"heads", {8}}};
  sizes.open = {{"batch", {1, 32}}, {"seq", {0, 128}}};
  sizes.points = {{{"batch", 8}, {"seq", 16}}, {{"batch", 1}, {"seq", 16}}};
  return sizes;
}

TEST(ModelSizesTest, TextIsReadBackAndIsEqualForEqualSizes) {
  ModelSizes sizes = Sizes();
  sizes.states = {{"past", "present"}};
  sizes.known_states = true;
  const auto parsed = ParseSizesText(sizes.ToText());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, sizes);
  EXPECT_EQ(parsed->ToText(), sizes.ToText());
  EXPECT_EQ(ModelSizes{}.ToText(), "");
  EXPECT_TRUE(ParseSizesText("")->empty());
  EXPECT_NE(Sizes().ToText(), sizes.ToText());
}

TEST(ModelSizesTest, TextOfOthersIsRefused) {
  for (const char* bad : {"{", "[]", "7", R"({"shapes": 1})", R"({"shapes": {"x": ["1"]}})",
                          R"({"open": {"batch": 3}})", R"({"open": {"batch": [1]}})",
                          R"({"points": [1]})", R"({"known_states": "yes"})"}) {
    EXPECT_EQ(support::Slug(ParseSizesText(bad).status()), "log.sizes.bad") << bad;
  }
}

TEST(ModelSizesTest, WordsAreForPeopleAndTheirTerminals) {
  ModelSizes sizes = Sizes();
  sizes.known_states = true;
  EXPECT_EQ(sizes.Words(),
            "heads=8, x=1x64, batch=1..32, seq=0..128, specialised at batch=8,seq=16; "
            "batch=1,seq=16, state known");
  sizes = {};
  sizes.shapes = {{"\x1b[2Jx", {1}}};
  EXPECT_EQ(sizes.Words().find('\x1b'), std::string::npos);
}

TEST(ModelSizesTest, NonsenseIsRefused) {
  const auto slug = [](const ModelSizes& sizes) {
    return std::string(support::Slug(CheckJobSizes(sizes)));
  };
  EXPECT_EQ(slug({}), "");
  EXPECT_EQ(slug(Sizes()), "");
  EXPECT_EQ(slug({.shapes = {{"x", {0}}}}), "job.shape.bad");
  EXPECT_EQ(slug({.open = {{"n", {3, 2}}}}), "job.shape.bad");
  EXPECT_EQ(slug({.open = {{"n", {-1, 2}}}}), "job.shape.bad");
  EXPECT_EQ(slug({.open = {{"n", {0, 0}}}}), "job.shape.bad");
  EXPECT_EQ(slug({.open = {{"n", {1, int64_t{1} << 40}}}}), "job.shape.bad");
  EXPECT_EQ(slug({.open = {{"n", {0, 4}}}}), "") << "kernels without n may have fixed sizes";
  EXPECT_EQ(slug({.points = {{{"n", 4}}}}), "driver.specialise.fixed");
  EXPECT_EQ(slug({.open = {{"n", {0, 4}}}, .points = {{{"n", 5}}}}), "driver.specialise.size");
  EXPECT_EQ(slug({.open = {{"n", {0, 4}}}, .points = {{{"n", 4}}}, .known_states = true}), "");
}

TEST(ModelSizesTest, AModuleTakesWhatIsWithinItsSizes) {
  const ModelSizes has = Sizes();
  const auto shape = [&](const std::string& name, std::vector<int64_t> dims) {
    return FitOf(has, {.shapes = {{name, std::move(dims)}}});
  };
  EXPECT_EQ(shape("x", {1, 64}), SizeFit::kTuned);
  EXPECT_EQ(shape("x", {1, 65}), SizeFit::kNone);
  EXPECT_EQ(shape("heads", {8}), SizeFit::kTuned);
  EXPECT_EQ(shape("width", {8}), SizeFit::kNone) << "not known to be so";
  EXPECT_EQ(shape("batch", {8}), SizeFit::kOpen) << "seq may be anything";
  EXPECT_EQ(shape("batch", {33}), SizeFit::kNone);
  EXPECT_EQ(shape("batch", {8, 1}), SizeFit::kNone) << "an input of that name";
  EXPECT_EQ(FitOf(has, {.shapes = {{"batch", {8}}, {"seq", {16}}}}), SizeFit::kTuned);
  EXPECT_EQ(FitOf(has, {.shapes = {{"batch", {8}}, {"seq", {17}}}}), SizeFit::kOpen);

  EXPECT_EQ(FitOf(has, {.open = {{"batch", {2, 32}}}}), SizeFit::kOpen);
  EXPECT_EQ(FitOf(has, {.open = {{"batch", {1, 33}}}}), SizeFit::kNone);
  EXPECT_EQ(FitOf(has, {.open = {{"x", {1, 2}}}}), SizeFit::kNone);
  EXPECT_EQ(FitOf(has, {.points = {{{"seq", 16}, {"batch", 1}}}}), SizeFit::kTuned);
  EXPECT_EQ(FitOf(has, {.points = {{{"batch", 1}}}}), SizeFit::kNone);
  EXPECT_EQ(FitOf(has, has), SizeFit::kTuned);
}

TEST(ModelSizesTest, StatesMustBeEqualWhereSomeAreWanted) {
  const ModelSizes keeps = {.open = {{"past", {0, 8}}}, .known_states = true};
  EXPECT_EQ(FitOf(keeps, {.known_states = true}), SizeFit::kTuned);
  EXPECT_EQ(FitOf(keeps, {.shapes = {{"past", {4}}}}), SizeFit::kOpen);
  EXPECT_EQ(FitOf(keeps, {.states = {{"a", "b"}}}), SizeFit::kNone);
  EXPECT_EQ(FitOf(Sizes(), {.known_states = true}), SizeFit::kNone);
}

}  // namespace
}  // namespace tilewright::log
