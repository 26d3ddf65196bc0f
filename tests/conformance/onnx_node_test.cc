// ONNX's own node tests, from the folder of public test data beside the repository. Every case that
// the importer accepts must give the expected outputs twice: by the graph interpreter, and compiled
// with default schedules and run by the runtime. Cases it refuses are listed by reason; the number
// of accepted ones may not fall.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "compiler/driver/compile.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/onnx/onnx_import.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/compare.h"
#include "deploy/runtime/runtime.h"
#include "deploy/runtime/tensor_io.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/run_compiled.h"
#include "tests/support/test_seed.h"
#include "tilewright_onnx.pb.h"

namespace tilewright {
namespace {

using runtime::HostTensor;
using support::PathJoin;
using support::StrCat;

constexpr uint64_t kMaxFile = uint64_t{1} << 28;
constexpr int kFoundFloor = 108;
constexpr int kAcceptedFloor = 1055;
// Cases of a device's sample, spread over all.
constexpr int kDeviceCases = 200;
// ONNX's own rule for its node tests, with an absolute part for values near zero.
constexpr module::Tolerance kTolerance = {1e-6, 1e-3};

std::string DataFolder() {
  const char* given = std::getenv("TILEWRIGHT_SHARED");
  return PathJoin(given != nullptr ? given : PathJoin(TILEWRIGHT_SOURCE_DIR, "../shared"), "onnx");
}

std::vector<std::string> Cases(const std::string& root) {
  std::vector<std::string> cases;
  for (const char* part :
       {"node", "node_legacy/v1.4.1", "node_legacy/v1.5.0", "node_legacy/v1.7.0",
        "node_legacy/v1.12.0", "pytorch-converted", "pytorch-operator", "simple"}) {
    auto names = support::ListDir(PathJoin(root, part));
    if (!names.ok()) continue;
    for (const std::string& name : *names) cases.push_back(StrCat(part, "/", name));
  }
  return cases;
}

// input_0.pb, input_1.pb, … as far as they exist.
absl::StatusOr<std::vector<HostTensor>> Tensors(const std::string& folder,
                                                const std::string& stem) {
  std::vector<HostTensor> tensors;
  for (int i = 0;; ++i) {
    const std::string path = PathJoin(folder, StrCat(stem, "_", i, ".pb"));
    if (!support::FileExists(path)) return tensors;
    TW_ASSIGN(HostTensor tensor, runtime::ReadTensorFile(path));
    tensors.push_back(std::move(tensor));
  }
}

std::string Compare(const HostTensor& expected, const void* actual, size_t bytes,
                    const std::vector<int64_t>& shape) {
  if (bytes != expected.data.size() || shape != expected.shape) return "another type or shape";
  auto result = runtime::CompareTensors(
      expected.dtype, actual, expected.data.data(),
      static_cast<int64_t>(bytes) / module::DTypeBytes(expected.dtype), kTolerance);
  return result.ok() ? "" : runtime::CompareText(result);
}

std::string Interpreted(const graph::Graph& g, const std::vector<HostTensor>& inputs,
                        const std::vector<HostTensor>& outputs) {
  std::vector<op::RefTensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto value = op::FromBytes(g.values[g.inputs[i]].type, inputs[i].data);
    if (!value.ok()) return support::StatusText(value.status());
    values.push_back(*std::move(value));
  }
  auto results = graph::Interpret(g, values);
  if (!results.ok()) return support::StatusText(results.status());
  for (size_t o = 0; o < outputs.size(); ++o) {
    const std::string bytes = op::ToBytes((*results)[o]);
    std::string problem =
        Compare(outputs[o], bytes.data(), bytes.size(), (*results)[o].type.sizes());
    if (!problem.empty()) return problem;
  }
  return "";
}

std::string CompiledAndRun(const graph::Graph& g, const target::Target& target,
                           const std::vector<HostTensor>& inputs,
                           const std::vector<HostTensor>& outputs) {
  auto fused = graph::RunGraphPasses(g);
  if (!fused.ok()) return support::StatusText(fused.status());
  auto bytes = driver::CompileModel(*fused, target, nullptr, {}, nullptr);
  if (!bytes.ok()) return support::StatusText(bytes.status()).substr(0, 600);
  runtime::LoadOptions allowed;
  allowed.libraries = {TILEWRIGHT_IMAGES_LIBRARY};
  auto loaded = runtime::LoadedModule::Load(*module::ModuleFile::FromBytes(*bytes), allowed);
  if (!loaded.ok()) return support::StatusText(loaded.status());
  runtime::SessionOptions options;
  options.guard_pages = true;
  auto session = runtime::Session::Create(*loaded, options);
  if (!session.ok()) return support::StatusText(session.status());
  for (size_t i = 0; i < inputs.size(); ++i) {
    absl::Status set = (*session)->SetInput(i, inputs[i].data.data(), inputs[i].data.size());
    if (!set.ok()) return support::StatusText(set);
  }
  (*session)->Poison(0xFF);
  if (absl::Status run = (*session)->Run(); !run.ok()) return support::StatusText(run);
  if (absl::Status guards = (*session)->CheckGuards(); !guards.ok())
    return support::StatusText(guards);
  for (size_t o = 0; o < outputs.size(); ++o) {
    const runtime::TensorView view = (*session)->output(o);
    std::vector<int64_t> shape;
    shape = view.shape;
    std::string problem = Compare(outputs[o], view.data, view.bytes, shape);
    if (!problem.empty()) return problem;
  }
  return "";
}

// Of ImageDecoder: the interpreter has no functions of libraries, and devices run none.
bool CallsLibrary(const graph::Graph& g) {
  return std::ranges::any_of(g.nodes, [](const graph::Node& n) { return n.op == "external"; });
}

// Runs `check` on every case that the importer accepts; what it refuses, by reason.
using Check = std::function<void(const std::string& name, const graph::Graph& g,
                                 const std::vector<HostTensor>& inputs,
                                 const std::vector<HostTensor>& outputs)>;
using Import = std::function<absl::StatusOr<graph::Graph>(std::string_view bytes)>;
absl::StatusOr<graph::Graph> AsItIs(std::string_view bytes) { return graph::ImportOnnx(bytes); }
// For devices, which run no loops.
absl::StatusOr<graph::Graph> Unrolled(std::string_view bytes) {
  graph::ImportOptions options;
  options.loops = false;
  return graph::ImportOnnx(bytes, options);
}

// A model with results whose shape depends on data, without the numbers that it states for them: a
// run finds them. What no operator bounds has a bound by --shape.
absl::StatusOr<graph::Graph> WithoutStatedShapes(std::string_view bytes) {
  constexpr int64_t kMostSize = 40;
  TW_ASSIGN(const graph::Graph stated, graph::ImportOnnx(bytes));
  if (stated.checks.empty()) return support::NotFound("test.case.other", "");
  tilewright_onnx::ModelProto model;
  TW_CHECK(model.ParseFromString(std::string(bytes)));
  for (auto* values :
       {model.mutable_graph()->mutable_output(), model.mutable_graph()->mutable_value_info()}) {
    for (auto& value : *values) {
      if (!value.type().has_tensor_type()) continue;
      auto* shape = value.mutable_type()->mutable_tensor_type()->mutable_shape();
      for (auto& dim : *shape->mutable_dim()) dim.clear_value();
    }
  }
  const std::string text = model.SerializeAsString();
  graph::ImportOptions options;
  while (true) {
    absl::StatusOr<graph::Graph> g = graph::ImportOnnx(text, options);
    if (support::Slug(g.status()) != "graph.onnx.size_bound") return g;
    const std::string message(g.status().message());
    const size_t from = message.find("--shape ") + 8;
    const std::string name = message.substr(from, message.find("=0..N") - from);
    TW_CHECK(options.open.try_emplace(name, graph::SizeRange{0, kMostSize}).second) << message;
  }
}

void ForEachCase(const std::string& root, const Check& check,
                 std::map<std::string, std::vector<std::string>>* refused,
                 const Import& import = AsItIs) {
  for (const std::string& name : Cases(root)) {
    const std::string folder = PathJoin(root, name);
    auto bytes = support::ReadFile(PathJoin(folder, "model.onnx"), kMaxFile);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    auto g = import(*bytes);
    if (support::Slug(g.status()) == "test.case.other") continue;
    if (!g.ok()) {
      EXPECT_FALSE(support::Slug(g.status()).empty()) << name << g.status();
      (*refused)[support::Slug(g.status())].push_back(name);
      continue;
    }
    auto inputs = Tensors(PathJoin(folder, "test_data_set_0"), "input");
    auto outputs = Tensors(PathJoin(folder, "test_data_set_0"), "output");
    ASSERT_TRUE(inputs.ok() && outputs.ok()) << name;
    ASSERT_EQ(inputs->size(), g->inputs.size()) << name;
    ASSERT_EQ(outputs->size(), g->outputs.size() - g->checks.size()) << name;
    if (CallsLibrary(*g) && std::string_view(TILEWRIGHT_IMAGES_LIBRARY).empty()) {
      std::fprintf(stderr, "[SKIP] %s: built without TILEWRIGHT_BUILD_IMAGES\n", name.c_str());
      continue;
    }
    check(name, *g, *inputs, *outputs);
  }
}

class OnnxNodes : public testing::Test {
 protected:
  void SetUp() override {
    if (support::IsDirectory(PathJoin(root_, "node"))) return;
    std::fprintf(stderr, "[SKIP] %s is not there: ONNX's node tests are NOT run\n", root_.c_str());
    GTEST_SKIP();
  }
  // Prints how many cases ran, and which did not.
  void TearDown() override {
    if (IsSkipped()) return;
    std::printf("%d cases run; refused:", ran_);
    for (const auto& [slug, names] : refused_) {
      std::printf("\n  %s: %s", slug.c_str(), support::Join(names, ", ").c_str());
    }
    std::printf("\n");
  }

  const std::string root_ = DataFolder();
  std::map<std::string, std::vector<std::string>> refused_;
  int ran_ = 0;
};

TEST_F(OnnxNodes, EveryAcceptedCaseGivesTheExpectedOutputs) {
  const auto check = [&](const std::string& name, const graph::Graph& g, const auto& inputs,
                         const auto& outputs) {
    ++ran_;
    if (!CallsLibrary(g)) {
      EXPECT_EQ(Interpreted(g, inputs, outputs), "") << name << " interpreted";
    }
    EXPECT_EQ(CompiledAndRun(g, tests::WidestTarget(), inputs, outputs), "") << name << " compiled";
  };
  ForEachCase(root_, check, &refused_);
  EXPECT_GE(ran_, kAcceptedFloor);
}

TEST_F(OnnxNodes, SizesThatNoModelStatesAreFound) {
  const auto check = [&](const std::string& name, const graph::Graph& g, const auto& inputs,
                         const auto& outputs) {
    ++ran_;
    if (!CallsLibrary(g)) {
      EXPECT_EQ(Interpreted(g, inputs, outputs), "") << name << " interpreted";
    }
    EXPECT_EQ(CompiledAndRun(g, tests::WidestTarget(), inputs, outputs), "") << name << " compiled";
  };
  ForEachCase(root_, check, &refused_, WithoutStatedShapes);
  EXPECT_GE(ran_, kFoundFloor);
}

// A sample of the cases; TILEWRIGHT_ROUNDS=2000 takes all.
TEST_F(OnnxNodes, TheSameOnAVulkanDevice) {
  bool device = true;
  int seen = 0;
  const auto stride =
      static_cast<int>(std::max<int64_t>(1, kAcceptedFloor / tests::TestRounds(kDeviceCases)));
  const auto check = [&](const std::string& name, const graph::Graph& g, const auto& inputs,
                         const auto& outputs) {
    if (!device || CallsLibrary(g) || seen++ % stride != 0) return;
    const std::string error = CompiledAndRun(g, *target::ParseTarget("vulkan"), inputs, outputs);
    device =
        !error.starts_with("runtime.device.none") && !error.starts_with("runtime.device.missing");
    if (!device) return;
    ++ran_;
    EXPECT_EQ(error, "") << name;
  };
  ForEachCase(root_, check, &refused_, Unrolled);
  if (!device) GTEST_SKIP() << "[SKIP] no Vulkan device";
  EXPECT_GE(ran_, kAcceptedFloor / stride);
}

}  // namespace
}  // namespace tilewright
