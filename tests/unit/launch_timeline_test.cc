// What `tilewright run --timeline` says of launches whose device said what it did.
#include "tuner_server/cli/launch_timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "deploy/support/file.h"

namespace tilewright::cli {
namespace {

using runtime::LaunchTrace;
using testing::HasSubstr;

// The first launch runs on the processor. Of the others one is bound by its work, one by its bytes.
module::Function ThreeLaunches() {
  module::Function function;
  function.launches.resize(3);
  function.launches[1].name = "conv/1 relu";
  return function;
}
std::vector<LaunchTrace> TwoTraces() {
  LaunchTrace trace{.launch = 1,
                    .program = "conv",
                    .unit = "simulated_cycles",
                    .time = 1000,
                    .picture = "<svg first/>",
                    .events = "{}",
                    .work_name = "products",
                    .work = 800,
                    .bytes = 1600,
                    .peak_work = 2,
                    .peak_bytes = 8};
  std::vector<LaunchTrace> traces = {trace, trace};
  traces[1].launch = 2;
  traces[1].program = "dense";
  traces[1].bytes = 7200;
  return traces;
}

TEST(LaunchTimelineTest, TheSlowerOfWorkAndBytesIsTheLimit) {
  const std::vector<LaunchTimeline> rows = Timelines(ThreeLaunches(), TwoTraces());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "conv/1 relu");
  EXPECT_EQ(rows[0].file, "01-conv_1_relu");
  EXPECT_EQ(rows[1].file, "02-dense");
  EXPECT_DOUBLE_EQ(rows[0].of_peak, 0.4);   // 800 at 2 a cycle
  EXPECT_DOUBLE_EQ(rows[0].of_limit, 0.4);  // its bytes take 200 cycles
  EXPECT_FALSE(rows[0].by_bytes);
  EXPECT_DOUBLE_EQ(rows[1].of_peak, 0.4);
  EXPECT_DOUBLE_EQ(rows[1].of_limit, 0.9);  // 7200 at 8 a cycle
  EXPECT_TRUE(rows[1].by_bytes);
  const nlohmann::json json = TimelineJson(rows);
  EXPECT_EQ(json["time"], 2000);
  EXPECT_EQ(json["unit"], "simulated_cycles");
  EXPECT_EQ(json["launches"][1]["bound"], "memory");
}

TEST(LaunchTimelineTest, TheRoofBendsWhereMemoryFeedsTheWork) {
  const std::vector<LaunchTrace> traces = TwoTraces();
  const Chart chart = RooflineChart(Timelines(ThreeLaunches(), traces), traces);
  ASSERT_EQ(chart.series.size(), 2u);
  const std::vector<ChartPoint>& roof = chart.series[0].points;
  ASSERT_EQ(roof.size(), 3u);
  EXPECT_DOUBLE_EQ(roof[0].y, roof[0].x * 8);
  EXPECT_DOUBLE_EQ(roof[1].x, 0.25);
  EXPECT_DOUBLE_EQ(roof[1].y, 2);
  EXPECT_DOUBLE_EQ(roof[2].y, 2);
  const std::vector<ChartPoint>& found = chart.series[1].points;
  ASSERT_EQ(found.size(), 2u);
  EXPECT_DOUBLE_EQ(found[0].x, 800.0 / 7200);
  EXPECT_DOUBLE_EQ(found[1].x, 0.5);
  EXPECT_DOUBLE_EQ(found[1].y, 0.8);
  EXPECT_LT(roof[0].x, found[0].x);
  EXPECT_GT(roof[2].x, found[1].x);
}

TEST(LaunchTimelineTest, EachLaunchHasItsFiles) {
  const support::TempDir dir = *support::TempDir::Create("timeline");
  const std::string folder = dir.File("new/pictures");
  const std::vector<LaunchTrace> traces = TwoTraces();
  const absl::Status written = WriteTimelines(folder, Timelines(ThreeLaunches(), traces), traces);
  ASSERT_TRUE(written.ok()) << written;
  const auto text = [&](const std::string& name) {
    return support::ReadFile(support::PathJoin(folder, name), 1 << 20).value_or("none");
  };
  EXPECT_EQ(text("01-conv_1_relu.svg"), "<svg first/>");
  EXPECT_EQ(text("02-dense.json"), "{}");
  EXPECT_THAT(text("roofline.svg"), HasSubstr("products per byte of memory"));
}

}  // namespace
}  // namespace tilewright::cli
