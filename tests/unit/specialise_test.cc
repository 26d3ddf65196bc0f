// Models of open sizes with specialisations: at their sizes they are what a module of these sizes
// is, bit for bit, elsewhere the functions of all sizes compute; weights are stored once.
#include "compiler/driver/specialise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/driver/tasks.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/onnx/onnx_import.h"
#include "deploy/module/launch_names.h"
#include "deploy/module/module_file.h"
#include "deploy/module/size_plan.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/run_compiled.h"
#include "tests/support/test_seed.h"
#include "tests/unit/onnx_builder.h"
#include "tests/unit/packing_steps.h"
#include "tilewright_onnx.pb.h"

namespace tilewright::driver {
namespace {

using graph::Graph;
using graph::ImportOptions;
using tests::OnnxBuilder;

constexpr int64_t kInner = 48, kHidden = 96, kColumns = 10;

// y = relu(x W1) W2 of [batch, seq, 48], and the mean over seq. Dimensions 0 and 1 have names.
std::string OpenModel() {
  OnnxBuilder b;
  b.Input("x", {2, 3, kInner}).Weight("w1", {kInner, kHidden}, 0.2);
  b.Weight("w2", {kHidden, kColumns}, 0.2);
  b.Node("MatMul", {"x", "w1"}, "h");
  b.Node("Relu", {"h"}, "r");
  b.Node("MatMul", {"r", "w2"}, "y");
  OnnxBuilder::Attr(b.Node("ReduceMean", {"r"}, "mean"), "axes", std::vector<int64_t>{1});
  b.Output("y", {2, 3, kColumns}).Output("mean", {2, 1, kHidden});
  tilewright_onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(b.Bytes()));
  auto* x = model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type();
  x->mutable_shape()->mutable_dim(0)->set_dim_param("batch");
  x->mutable_shape()->mutable_dim(1)->set_dim_param("seq");
  for (auto& output : *model.mutable_graph()->mutable_output()) {
    output.mutable_type()->mutable_tensor_type()->clear_shape();
  }
  return model.SerializeAsString();
}

ImportOptions Ranges() {
  ImportOptions options;
  options.open = {{"batch", {1, 8}}, {"seq", {1, 40}}};
  return options;
}

absl::StatusOr<Graph> Passes(Graph imported) {
  return graph::RunGraphPasses(std::move(imported), PassContext(tests::WidestTarget()));
}

Graph Fused(const std::string& onnx, const ImportOptions& options) {
  auto g = graph::ImportOnnx(onnx, options);
  EXPECT_TRUE(g.ok()) << g.status();
  auto fused = Passes(*g);
  EXPECT_TRUE(fused.ok()) << fused.status();
  return *fused;
}

Graph FixedAt(const std::string& onnx, int64_t batch, int64_t seq) {
  ImportOptions options;
  options.shapes = {{"batch", {batch}}, {"seq", {seq}}};
  return Fused(onnx, options);
}

std::string Compiled(const Graph& fused, const std::vector<Graph>& specialised = {},
                     CompileReport* report = nullptr) {
  CompileOptions options;
  options.specialised = specialised;
  auto bytes = CompileModel(fused, tests::WidestTarget(), nullptr, options, report);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.ok() ? *bytes : "";
}

std::string Specialised(const std::string& onnx, const std::vector<SizePoint>& points,
                        CompileReport* report = nullptr) {
  Graph main = Fused(onnx, Ranges());
  auto graphs = SpecialiseModel(*graph::OnnxModel::Parse(onnx), Ranges(), points, Passes, &main);
  EXPECT_TRUE(graphs.ok()) << graphs.status();
  return Compiled(main, *graphs, report);
}

module::Manifest ManifestOf(const std::string& bytes) {
  auto file = module::ModuleFile::FromBytes(bytes);
  EXPECT_TRUE(file.ok()) << file.status();
  return file->manifest();
}

std::unique_ptr<runtime::Session> SessionOf(const std::string& bytes) {
  auto loaded = runtime::LoadedModule::Load(*module::ModuleFile::FromBytes(bytes));
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  runtime::SessionOptions options;
  options.num_threads = 2;
  options.guard_pages = true;
  auto session = runtime::Session::Create(*loaded, options);
  EXPECT_TRUE(session.ok()) << session.status();
  return *std::move(session);
}

// The outputs as bytes.
std::vector<std::string> Outputs(runtime::Session* session, int64_t batch, int64_t seq) {
  const int64_t shape[] = {batch, seq, kInner};
  EXPECT_TRUE(session->SetInputShape(0, shape).ok());
  EXPECT_TRUE(session->BindSizes().ok());
  support::Rng rng(static_cast<uint64_t>(batch * 100 + seq));
  auto* x = static_cast<float*>(session->MutableInput(0));
  for (int64_t i = 0; i < batch * seq * kInner; ++i) {
    x[i] = static_cast<float>(2 * rng.UniformDouble() - 1);
  }
  session->Poison(0xFF);
  const absl::Status status = session->Run();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(session->CheckGuards().ok());
  std::vector<std::string> outputs;
  for (size_t o = 0; o < session->num_outputs(); ++o) {
    const runtime::TensorView view = session->output(o);
    outputs.emplace_back(static_cast<const char*>(view.data), view.bytes);
  }
  return outputs;
}

void ExpectClose(const std::string& a, const std::string& b) {
  ASSERT_EQ(a.size(), b.size());
  const auto* x = reinterpret_cast<const float*>(a.data());
  const auto* y = reinterpret_cast<const float*>(b.data());
  for (size_t i = 0; i < a.size() / sizeof(float); ++i) ASSERT_NEAR(x[i], y[i], 1e-4) << i;
}

std::set<std::string> TaskHashes(const module::Function& function) {
  std::set<std::string> hashes;
  for (const module::Launch& launch : function.launches) hashes.insert(launch.task);
  return hashes;
}

TEST(Specialise, EachSizeComputesWhatItsOwnModuleDoes) {
  const std::string onnx = OpenModel();
  const std::string bytes =
      Specialised(onnx, {{{"batch", 1}, {"seq", 16}}, {{"batch", 8}, {"seq", 16}}, {{"batch", 1}}});
  const auto session = SessionOf(bytes);
  const std::map<std::pair<int64_t, int64_t>, std::string> runs = {{{1, 16}, "at_batch_1_seq_16"},
                                                                   {{8, 16}, "at_batch_8_seq_16"},
                                                                   {{1, 7}, "at_batch_1"},
                                                                   {{1, 40}, "at_batch_1"},
                                                                   {{2, 16}, "main"},
                                                                   {{8, 40}, "main"},
                                                                   {{3, 5}, "main"}};
  for (int round = 0; round < 2; ++round) {
    for (const auto& [sizes, name] : runs) {
      const auto [batch, seq] = sizes;
      SCOPED_TRACE(testing::Message() << name << " " << batch << " " << seq);
      const std::vector<std::string> found = Outputs(session.get(), batch, seq);
      EXPECT_EQ(session->function().name, name);
      const std::string fixed = Compiled(FixedAt(onnx, batch, seq));
      const std::vector<std::string> expected = Outputs(SessionOf(fixed).get(), batch, seq);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t o = 0; o < found.size(); ++o) ExpectClose(found[o], expected[o]);
      if (!name.ends_with("16")) continue;
      EXPECT_EQ(found, expected) << "the same kernels";
      EXPECT_EQ(TaskHashes(session->function()),
                TaskHashes(*ManifestOf(fixed).FindFunction("main")));
    }
  }
}

TEST(Specialise, EqualConstantsAndTasksAreOne) {
  const std::string onnx = OpenModel();
  const module::Manifest alone = ManifestOf(Specialised(onnx, {}));
  const module::Manifest fixed = ManifestOf(Compiled(FixedAt(onnx, 8, 16)));
  CompileReport report;
  const module::Manifest m = ManifestOf(Specialised(
      onnx, {{{"batch", 8}, {"seq", 16}}, {{"batch", 8}, {"seq", 32}}, {{"batch", 4}}}, &report));
  EXPECT_EQ(alone.functions.size(), 1u);
  ASSERT_EQ(m.functions.size(), 4u);
  EXPECT_EQ(m.functions[2].at, (module::Sizes{{"batch", 8}, {"seq", 32}}));
  EXPECT_EQ(m.constants_bytes, alone.constants_bytes);
  EXPECT_EQ(m.constants_bytes, fixed.constants_bytes);
  std::set<std::string> hashes;
  for (const CompileReport::Kernel& kernel : report.kernels) {
    EXPECT_TRUE(hashes.insert(kernel.task_hash).second) << kernel.task_name;
  }
  for (const module::Function& f : m.functions) {
    const auto names = module::ParseLaunchNames(m.provenance.at(module::LaunchNamesKey(f.name)));
    ASSERT_EQ(names.size(), f.launches.size()) << f.name;
    EXPECT_EQ(names[0].launch, f.launches[0].name);
  }
}

// Every schedule packs its weights: both points pack them alike, so one launch does it for both.
TEST(Specialise, PackedWeightsAreShared) {
  const std::string onnx = OpenModel();
  Graph main = Fused(onnx, Ranges());
  const auto graphs = SpecialiseModel(
      *graph::OnnxModel::Parse(onnx), Ranges(),
      std::vector<SizePoint>{{{"batch", 2}, {"seq", 4}}, {{"batch", 3}, {"seq", 5}}}, Passes,
      &main);
  ASSERT_TRUE(graphs.ok()) << graphs.status();
  class Packing final : public ScheduleProvider {
   public:
    std::map<std::string, Found> found;
    Found Find(const std::string& task, const target::Target&) override {
      const auto it = found.find(task);
      return it == found.end() ? Found{} : it->second;
    }
  } packing;
  const Graph* const fixed[] = {&(*graphs)[0], &(*graphs)[1]};
  const auto tasks = ExtractModelTasks(fixed);
  ASSERT_TRUE(tasks.ok()) << tasks.status();
  for (const Task& task : tasks->tasks) packing.found[task.hash] = tests::PackingSteps(task.text);
  CompileOptions options;
  options.specialised = *graphs;
  const auto bytes = CompileModel(main, tests::WidestTarget(), &packing, options, nullptr);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const module::Manifest m = ManifestOf(*bytes);
  ASSERT_EQ(m.functions.size(), 3u);
  EXPECT_TRUE(m.functions[0].prepare.empty());
  ASSERT_EQ(m.functions[1].prepare.size(), 2u) << "two products with weights";
  EXPECT_EQ(m.functions[1].prepare, m.functions[2].prepare);
  EXPECT_LT(module::PreparedBytes(m), 4 * (kInner * kHidden + kHidden * 16) + 128);
  const auto session = SessionOf(*bytes), plain = SessionOf(Specialised(onnx, {}));
  for (const auto& [batch, seq] :
       std::vector<std::pair<int64_t, int64_t>>{{3, 5}, {2, 4}, {4, 4}, {3, 5}, {2, 4}}) {
    const auto found = Outputs(session.get(), batch, seq);
    EXPECT_EQ(session->function().name == "main", batch == 4);
    const auto expected = Outputs(plain.get(), batch, seq);
    for (size_t o = 0; o < found.size(); ++o) ExpectClose(found[o], expected[o]);
  }
}

TEST(Specialise, SameInputsSameBytes) {
  const std::vector<SizePoint> points = {{{"seq", 4}}, {{"batch", 2}, {"seq", 4}}};
  EXPECT_EQ(Specialised(OpenModel(), points), Specialised(OpenModel(), points));
}

TEST(Specialise, GraphsOfAnotherModelAreRefused) {
  const std::string onnx = OpenModel();
  const Graph main = Fused(onnx, Ranges());
  const auto slug = [&](const Graph& other) {
    CompileOptions options;
    const std::vector<Graph> graphs = {other};
    options.specialised = graphs;
    const auto bytes = CompileModel(main, tests::WidestTarget(), nullptr, options, nullptr);
    return std::string(support::Slug(bytes.status()));
  };
  EXPECT_EQ(slug(FixedAt(onnx, 2, 3)), "");
  EXPECT_EQ(slug(main), "driver.specialise.ends") << "nothing is fixed";
  Graph renamed = FixedAt(onnx, 2, 3);
  renamed.values[renamed.outputs[0]].name = "other";
  EXPECT_EQ(slug(renamed), "driver.specialise.ends");
  Graph fewer = FixedAt(onnx, 2, 3);
  fewer.outputs.pop_back();
  EXPECT_EQ(slug(fewer), "driver.specialise.ends");
  EXPECT_EQ(slug(FixedAt(onnx, 9, 3)), "module.manifest.at") << "out of the range";
}

}  // namespace
}  // namespace tilewright::driver
