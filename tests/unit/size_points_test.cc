#include "deploy/module/size_points.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::module {
namespace {

TEST(SizePoints, BadOnesHaveTheirErrors) {
  const std::map<std::string, SizeRange> open = {{"batch", {1, 8}}, {"seq", {1, 40}}};
  const auto slug = [&](const std::vector<SizePoint>& points) {
    return std::string(support::Slug(CheckSizePoints(open, points)));
  };
  EXPECT_EQ(slug({}), "");
  EXPECT_EQ(slug({{{"batch", 8}}, {{"seq", 8}}, {{"batch", 8}, {"seq", 8}}}), "");
  EXPECT_EQ(slug({{{"width", 8}}}), "driver.specialise.name");
  EXPECT_EQ(slug({{{"batch", 9}}}), "driver.specialise.size");
  EXPECT_EQ(slug({{{"seq", 8}, {"batch", 0}}}), "driver.specialise.size");
  EXPECT_EQ(slug({{}}), "driver.specialise.empty");
  EXPECT_EQ(slug({{{"batch", 8}}, {{"batch", 8}}}), "driver.specialise.twice");
  std::vector<SizePoint> many;
  for (int64_t seq = 1; seq <= 40; ++seq) many.push_back({{"seq", seq}});
  for (int64_t seq = 1; seq <= 23; ++seq) many.push_back({{"batch", 1}, {"seq", seq}});
  EXPECT_EQ(slug(many), "");
  many.push_back({{"batch", 2}});
  EXPECT_EQ(slug(many), "driver.specialise.too_many");
  const absl::Status fixed = CheckSizePoints({}, std::vector<SizePoint>{{{"batch", 8}}});
  EXPECT_EQ(support::Slug(fixed), "driver.specialise.fixed");
  EXPECT_TRUE(CheckSizePoints({}, {}).ok());
}

TEST(SizePoints, AreTextForPeople) {
  EXPECT_EQ(PointText({{"seq", 128}, {"batch", 1}}), "batch=1,seq=128");
}

}  // namespace
}  // namespace tilewright::module
