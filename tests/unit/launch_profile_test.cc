// What `tilewright run --profile` says of each launch and layer, and the bound that they are
// compared with.
#include "tuner_server/cli/launch_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "deploy/module/launch_names.h"
#include "tuner_server/cli/layer_view.h"

namespace tilewright::cli {
namespace {

using peaks::Bound;
using peaks::KernelWork;
using peaks::Roofline;
using testing::HasSubstr;

constexpr double kKiB = 1024;

// 100 GFLOP/s; 200 GB/s up to 32 KiB, 50 up to 1 MiB, then 10.
Roofline Known() { return {100, 400, {{32 << 10, 200}, {1 << 20, 50}, {64 << 20, 10}}}; }

TEST(RooflineTest, TheSlowerOfArithmeticAndMemoryIsTheBound) {
  const Roofline roofline = Known();
  const KernelWork compute = {1e6, 16 * kKiB, module::DType::kFloat32};
  EXPECT_DOUBLE_EQ(roofline.LeastNs(compute), 1e6 / 100);
  EXPECT_EQ(roofline.BoundOf(compute), Bound::kCompute);
  const KernelWork memory = {1e3, 16 * kKiB, module::DType::kFloat32};
  EXPECT_DOUBLE_EQ(roofline.LeastNs(memory), 16 * kKiB / 200);
  EXPECT_EQ(roofline.BoundOf(memory), Bound::kMemory);
}

TEST(RooflineTest, AWorkingSetCountsAsTheNextSmallerThatWasMeasured) {
  const Roofline roofline = Known();
  const auto least = [&](double bytes) { return roofline.LeastNs({0, bytes}); };
  EXPECT_DOUBLE_EQ(least(32 * kKiB), 32 * kKiB / 200);
  EXPECT_DOUBLE_EQ(least(512 * kKiB), 512 * kKiB / 200);
  EXPECT_DOUBLE_EQ(least(1024 * kKiB), 1024 * kKiB / 50);
  EXPECT_DOUBLE_EQ(least(1e9), 1e9 / 10);
}

TEST(RooflineTest, EachTypeHasItsPeakAndOthersAreBoundByMemoryAlone) {
  const Roofline roofline = Known();
  EXPECT_DOUBLE_EQ(roofline.LeastNs({4e6, 0, module::DType::kUInt8}), 1e4);
  EXPECT_DOUBLE_EQ(roofline.LeastNs({1e6, 0, module::DType::kFloat64}), 2e4);
  EXPECT_DOUBLE_EQ(roofline.LeastNs({1e9, 20, module::DType::kInt64}), .1);
  EXPECT_EQ(roofline.BoundOf({1e9, 0, module::DType::kInt64}), Bound::kUnknown);
  // 16-bit floats compute in f32 where they have no peak of their own.
  EXPECT_DOUBLE_EQ(roofline.PeakOf(module::DType::kFloat16), 100);
  EXPECT_DOUBLE_EQ(roofline.PeakOf(module::DType::kBFloat16), 100);
  EXPECT_DOUBLE_EQ(Roofline(100, 400, roofline.reads(), 200).PeakOf(module::DType::kBFloat16), 200);
}

TEST(RooflineTest, ThisMachineHasOne) {
  const Roofline roofline = Roofline::Measure(1);
  EXPECT_GT(roofline.PeakOf(module::DType::kFloat32), .1);
  EXPECT_GT(roofline.PeakOf(module::DType::kBFloat16), .1);
  ASSERT_GE(roofline.reads().size(), 4u);
  EXPECT_GT(roofline.reads().front().gb_s, .1);
  EXPECT_GT(roofline.reads().front().gb_s, roofline.reads().back().gb_s)
      << "caches are faster than memory";
}

// y = f(x, w), z = g(y, y): the second on a device of its own.
module::Manifest TwoLaunches() {
  module::Manifest manifest;
  manifest.name = "net";
  for (int64_t id = 0; id < 4; ++id) {
    module::Tensor& tensor = manifest.tensors.emplace_back();
    tensor.id = id;
    tensor.shape = {250 * (id + 1)};
    tensor.bytes = 1000 * (id + 1);
  }
  manifest.code.resize(2);
  manifest.code[1].device = "opencl";
  module::Function& main = manifest.functions.emplace_back();
  main.name = "main";
  main.launches.resize(2);
  main.launches[0].name = "f";
  main.launches[0].args = {0, 1, 2};
  main.launches[0].flops = 3e6;
  main.launches[0].task = "0123456789abcdef";
  main.launches[1].symbol = "tw_kernel_g";
  main.launches[1].code = 1;
  main.launches[1].args = {2, 2, 3};
  manifest.provenance[module::LaunchNamesKey("main")] =
      module::LaunchNamesText({{"", "f", {"Conv_0", "Relu_1"}}, {"t1-g", "g", {}}});
  return manifest;
}

std::vector<LaunchProfile> Profile(const std::vector<double>& medians,
                                   const std::optional<peaks::Roofline>& roofline) {
  const module::Manifest manifest = TwoLaunches();
  return ProfileLaunches(manifest, medians, roofline, manifest.functions[0]);
}

TEST(LaunchProfileTest, CountsOpenSizesAsTheyAreInTheRun) {
  module::Manifest manifest = TwoLaunches();
  manifest.size_vars = {{"N", 1, 100}};
  const module::Dim n = module::Dim::Variable("N");
  manifest.tensors[0].shape = {n, 5};
  manifest.functions[0].launches[0].flops = 0;
  manifest.functions[0].launches[0].open_flops = n * 1000;
  const std::vector<LaunchProfile> rows =
      ProfileLaunches(manifest, {100, 100}, {}, manifest.functions[0], {{"N", 7}});
  EXPECT_DOUBLE_EQ(rows[0].gflop_s, 70);
  EXPECT_DOUBLE_EQ(rows[0].gb_s, (7 * 5 * 4 + 2000 + 3000) / 100.0);
}

TEST(LaunchProfileTest, TellsWhatEachLaunchReachedAndWhatItCould) {
  const std::vector<LaunchProfile> rows = Profile({60'000, 20'000}, Known());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_DOUBLE_EQ(rows[0].share, .75);
  EXPECT_DOUBLE_EQ(rows[0].gflop_s, 50);
  EXPECT_DOUBLE_EQ(rows[0].gb_s, .1);
  EXPECT_DOUBLE_EQ(rows[0].of_limit, .5);
  EXPECT_EQ(rows[0].bound, Bound::kCompute);
  EXPECT_THAT(rows[0].nodes, testing::ElementsAre("Conv_0", "Relu_1"));
  EXPECT_EQ(rows[1].name, "tw_kernel_g");
  EXPECT_DOUBLE_EQ(rows[1].gb_s, 7000.0 / 20'000) << "an operand that is given twice counts once";
  EXPECT_EQ(rows[1].of_limit, 0) << "the processor's limit says nothing about another device";
}

TEST(LaunchProfileTest, IsATableAndADocument) {
  const std::vector<LaunchProfile> rows = Profile({60'000, 20'000}, Known());
  const std::string table = ProfileTable(rows);
  EXPECT_THAT(table, HasSubstr("50.0%  compute  Conv_0, Relu_1"));
  EXPECT_THAT(table, HasSubstr("01234567")) << "a task without a name shows its hash";
  EXPECT_THAT(table, HasSubstr("t1-g"));
  const nlohmann::json json = ProfileJson(rows);
  EXPECT_EQ(json[0]["bound"], "compute");
  EXPECT_EQ(json[0]["median_us"], 60);
  EXPECT_FALSE(json[1].contains("of_limit"));
  const std::vector<LaunchProfile> unknown = Profile({60'000, 20'000}, {});
  EXPECT_FALSE(ProfileJson(unknown)[0].contains("of_limit")) << "a board behind a bridge";
}

TEST(LaunchProfileTest, TheTraceHasTheLaunchesOneAfterTheOther) {
  const nlohmann::json trace = ProfileTrace(Profile({60'000, 20'000}, Known()), "net");
  const nlohmann::json& events = trace["traceEvents"];
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["args"]["name"], "net");
  EXPECT_EQ(events[1]["ph"], "X");
  EXPECT_EQ(events[1]["ts"], 0);
  EXPECT_EQ(events[1]["dur"], 60);
  EXPECT_EQ(events[2]["ts"], 60);
  EXPECT_EQ(events[2]["dur"], 20);
  EXPECT_EQ(events[1]["args"]["onnx_nodes"][1], "Relu_1");
}

// A node of two kernels joins them; a kernel without nodes is a layer of its own.
TEST(LayerViewTest, LayersAreNodesAndTheKernelsThatComputeThem) {
  const auto launch = [](std::string name, std::vector<std::string> nodes, double ns,
                         double of_limit) {
    LaunchProfile row;
    row.name = std::move(name);
    row.nodes = std::move(nodes);
    row.median_ns = ns;
    row.gflop_s = 2;
    row.gb_s = 1;
    row.of_limit = of_limit;
    row.bound = of_limit > .4 ? Bound::kCompute : Bound::kMemory;
    return row;
  };
  const std::vector<LaunchProfile> launches = {
      launch("transform", {"Conv_0"}, 10, .2), launch("pack", {}, 20, 0),
      launch("sigmoid", {"Sigmoid_2"}, 40, .5), launch("products", {"Conv_0", "Relu_1"}, 30, .6)};
  const std::vector<Layer> layers = LayersOf(launches);
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_THAT(layers[0].nodes, testing::ElementsAre("Conv_0", "Relu_1"));
  EXPECT_THAT(layers[0].kernels, testing::ElementsAre("transform", "products"));
  EXPECT_DOUBLE_EQ(layers[0].ns, 40);
  EXPECT_DOUBLE_EQ(layers[0].share, .4);
  EXPECT_DOUBLE_EQ(layers[0].operations, 80);
  EXPECT_DOUBLE_EQ(layers[0].of_limit, (.2 * 10 + .6 * 30) / 40);
  EXPECT_EQ(layers[0].bound, Bound::kCompute) << "of the longer kernel";
  EXPECT_THAT(layers[1].nodes, testing::IsEmpty());
  EXPECT_EQ(layers[1].of_limit, 0);
  EXPECT_THAT(layers[2].kernels, testing::ElementsAre("sigmoid"));
}

// Over a chain of kernels that share nodes pairwise.
TEST(LayerViewTest, KernelsAreJoinedOverOthers) {
  std::vector<LaunchProfile> launches(3);
  launches[0].nodes = {"a"};
  launches[1].nodes = {"b"};
  launches[2].nodes = {"b", "a"};
  for (LaunchProfile& launch : launches) launch.median_ns = 1;
  const std::vector<Layer> layers = LayersOf(launches);
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_DOUBLE_EQ(layers[0].ns, 3);
}

TEST(LayerViewTest, ThePageHoldsEveryLayerAndNothingFromElsewhere) {
  std::vector<LaunchProfile> launches = Profile({60'000, 20'000}, Known());
  launches[0].nodes.push_back("<script>");
  const std::string page = LayerPage("net, 1 threads", launches, Known());
  for (const char* part : {"<title>net, 1 threads</title>", "Conv_0, Relu_1, &lt;script&gt;",
                           "tw_kernel_g", "60.0 µs", "75.0%", "50.0%", "compute", "Roofline"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  for (const char* outside : {"http:", "https:", "<script", "src=", "url("}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_EQ(LayerPage("net", launches, {}).find("Roofline"), std::string::npos);
}

}  // namespace
}  // namespace tilewright::cli
