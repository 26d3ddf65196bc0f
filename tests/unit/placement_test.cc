// Which tasks of a model run on the processor next to a device.
#include "compiler/driver/placement.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "compiler/driver/compile.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/module/module_file.h"
#include "deploy/support/status.h"

namespace tilewright::driver {
namespace {

// A product in a loop, counted by numbers; then one of an open size.
constexpr char kModel[] = R"(graph "sides" {
  input %0 "x": f32[8,8]
  input %1 "n": i64[]
  input %2 "z": f32[N,8]
  constant %3 "zero": i64[] = hex:0000000000000000
  constant %4 "one": i64[] = hex:0100000000000000
  %5 "some": bool[] = less(%3, %1) "some"
  %6 "going": bool[] = loop_value(%5) {index=0, loop=0} "going"
  %7 "i": i64[] = loop_value(%3) {index=1, loop=0} "i"
  %8 "v": f32[8,8] = loop_value(%0) {index=2, loop=0} "v"
  %9 "p": f32[8,8] = matmul(%8, %0) "p"
  %10 "j": i64[] = add(%7, %4) "j"
  %11 "more": bool[] = less(%10, %1) "more"
  %12 "end": bool[] = loop_end(%11, %10, %9, %6, %7, %8) {carried=3, loop=0} "end"
  %13 "last": f32[8,8] = loop_result(%12, %8) "last"
  %14 "y": f32[N,8] = matmul(%2, %13) "y"
  output %14
}
)";

graph::Graph Fused(const target::Target& target) {
  auto parsed = graph::ParseGraph(kModel);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  parsed->size_ranges["N"] = {1, 16};
  auto fused = graph::RunGraphPasses(*parsed, PassContext(target));
  EXPECT_TRUE(fused.ok()) << fused.status();
  return *std::move(fused);
}

TEST(Placement, OpenSizesAndWhatCountsAreTheProcessors) {
  for (const char* kind : {"opencl", "vulkan", "metal"}) {
    const target::Target target = *target::ParseTarget(kind);
    const graph::Graph fused = Fused(target);
    CompileReport report;
    const auto bytes = CompileModel(fused, target, nullptr, {}, &report);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    std::map<std::string, std::string> reasons;  // of the kernels here
    int there = 0;
    for (const CompileReport::Kernel& kernel : report.kernels) {
      there += kernel.on_host ? 0 : 1;
      if (kernel.on_host) reasons[kernel.task_name] = kernel.host_reason;
      const bool open = kernel.task_name.find('N') != std::string::npos;
      EXPECT_EQ(kernel.open_sizes, open ? std::set<std::string>{"N"} : std::set<std::string>());
    }
    EXPECT_EQ(there, 2) << "the product of a trip, and what is before the loop";
    EXPECT_EQ(reasons.size(), 3u);
    EXPECT_TRUE(reasons.contains("add scalar → scalar"));
    const auto file = module::ModuleFile::FromBytes(*bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    const module::Manifest& manifest = file->manifest();
    ASSERT_EQ(manifest.code.size(), 2u);
    EXPECT_EQ(manifest.code[0].device, kind);
    EXPECT_EQ(manifest.code[1].device, "");
    const module::Function& main = manifest.functions[0];
    ASSERT_EQ(main.loops.size(), 1u);
    bool in_loop = false;
    for (int64_t i = main.loops[0].first; i < main.loops[0].end; ++i)
      in_loop = in_loop || main.launches[static_cast<size_t>(i)].code == 0;
    EXPECT_TRUE(in_loop);
  }
}

TEST(Placement, OnAProcessorAllIsTheTargets) {
  const target::Target target = *target::ParseTarget("cpu,arch=x86_64");
  const graph::Graph fused = Fused(target);
  const std::vector<const graph::Graph*> graphs = {&fused};
  const auto model = ExtractModelTasks(graphs);
  ASSERT_TRUE(model.ok()) << model.status();
  for (const Placement& placement : PlaceTasks(graphs, *model, target))
    EXPECT_EQ(placement.host_reason, "");
  const std::vector<bool> on_device = TasksOnHost(graphs, *model, *target::ParseTarget("opencl"));
  EXPECT_EQ(std::count(on_device.begin(), on_device.end(), true), 3);
}

}  // namespace
}  // namespace tilewright::driver
