// When a session's launches become a graph, on a plug-in that only counts: after they were queued
// once, where the plug-in has graphs and they are wanted, and never again after it could not.
#include "deploy/runtime/launch_graphs.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::runtime {
namespace {

// What the plug-in was asked for: L of a launch, C, G and D of a graph's creation, launch and end.
std::string& Calls() {
  static auto* const calls = new std::string;
  return *calls;
}
TwDeviceResult create_result = TW_DEVICE_OK;

TwDevicePlugin Counting() {
  TwDevicePlugin table = {};
  table.struct_bytes = sizeof(table);
  table.kind = "counting";
  table.last_error = [](TwDevice*) { return "device.counting.error: as planned"; };
  table.launch = [](TwDevice*, const TwDeviceLaunch*) {
    Calls() += 'L';
    return TW_DEVICE_OK;
  };
  table.graph_create = [](TwDevice*, const TwDeviceLaunch* const*, int64_t count,
                          TwDeviceGraph** graph) {
    Calls() += 'C' + std::to_string(count);
    static char made = 0;
    if (create_result == TW_DEVICE_OK) *graph = reinterpret_cast<TwDeviceGraph*>(&made);
    return create_result;
  };
  table.graph_launch = [](TwDevice*, TwDeviceGraph*) {
    Calls() += 'G';
    return TW_DEVICE_OK;
  };
  table.graph_destroy = [](TwDevice*, TwDeviceGraph*) { Calls() += 'D'; };
  return table;
}

class LaunchGraphsTest : public testing::Test {
 protected:
  void SetUp() override {
    Calls().clear();
    create_result = TW_DEVICE_OK;
  }
  // The calls of `times` runs of `count` launches.
  std::string Run(int times, size_t count, bool wanted = true) {
    {
      LaunchGraphs graphs(table_, nullptr, wanted);
      std::vector<const TwDeviceLaunch*> launches;
      for (size_t i = 0; i < count; ++i) launches.push_back(&all_[i]);
      for (int i = 0; i < times; ++i) {
        status_ = graphs.Queue(launches);
        if (!status_.ok()) break;
      }
    }
    return Calls();
  }

  TwDevicePlugin table_ = Counting();
  std::array<TwDeviceLaunch, 3> all_{};
  absl::Status status_ = absl::OkStatus();
};

TEST_F(LaunchGraphsTest, TheSecondRunMakesAGraphThatLaterRunsLaunch) {
  EXPECT_EQ(Run(4, 3), "LLLC3GGGD");
}

TEST_F(LaunchGraphsTest, OneRunMakesNone) { EXPECT_EQ(Run(1, 3), "LLL"); }

TEST_F(LaunchGraphsTest, OneLaunchIsNoGraph) { EXPECT_EQ(Run(3, 1), "LLL"); }

TEST_F(LaunchGraphsTest, NoneIsMadeWhereTheyAreNotWanted) {
  EXPECT_EQ(Run(3, 2, /*wanted=*/false), "LLLLLL");
}

TEST_F(LaunchGraphsTest, ADeviceThatCannotIsAskedOnce) {
  for (const TwDeviceResult cannot : {TW_DEVICE_UNSUPPORTED, TW_DEVICE_OUT_OF_MEMORY}) {
    Calls().clear();
    create_result = cannot;
    EXPECT_EQ(Run(3, 2), "LLC2LLLL");
    EXPECT_EQ(status_, absl::OkStatus());
  }
}

TEST_F(LaunchGraphsTest, OtherErrorsAreTheRuns) {
  create_result = TW_DEVICE_LOST;
  EXPECT_EQ(Run(3, 2), "LLC2");
  EXPECT_EQ(support::Slug(status_), "runtime.device.lost");
}

// A table of before graphs ends before their functions.
TEST_F(LaunchGraphsTest, OlderPluginsHaveNone) {
  table_.struct_bytes = offsetof(TwDevicePlugin, graph_create);
  EXPECT_EQ(Run(3, 2), "LLLLLL");
}

TEST_F(LaunchGraphsTest, EachListHasAGraphOfItsOwn) {
  const std::vector<const TwDeviceLaunch*> one = {&all_[0], &all_[1]}, two = {&all_[2], &all_[2]};
  {
    LaunchGraphs graphs(table_, nullptr, true);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(graphs.Queue(one), absl::OkStatus());
      ASSERT_EQ(graphs.Queue(two), absl::OkStatus());
    }
  }
  EXPECT_EQ(Calls(), "LLLLC2GC2GGGDD");
}

}  // namespace
}  // namespace tilewright::runtime
