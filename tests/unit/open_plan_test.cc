// Memory plans for all sizes at once: random programs whose tensors share an arena by `after`,
// against the same arithmetic with a buffer for each tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "deploy/module/memory_need.h"
#include "deploy/module/module_file.h"
#include "deploy/module/module_writer.h"
#include "deploy/module/size_plan.h"
#include "deploy/runtime/runtime.h"
#include "deploy/runtime/size_binding.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/test_seed.h"
#include "tests/unit/module_fixture.h"

namespace tilewright::runtime {
namespace {

using module::Dim;
using module::ModuleParts;
using module::SizePlan;
using module::Tensor;
using module::TensorKind;

constexpr int64_t kMost = 40;

// Launch i makes tensor results[i] of operands[i]; the last one is the output.
struct Program {
  ModuleParts parts;
  std::vector<std::pair<int64_t, int64_t>> operands;
  std::vector<int64_t> results;
  // Pairs of intermediates that live at once, by id.
  std::vector<std::pair<int64_t, int64_t>> conflicts;
};

Dim RandomExtent(support::Rng* rng) {
  const Dim n = Dim::Variable("N"), m = Dim::Variable("M");
  switch (rng->UniformInt(0, 5)) {
    case 0:
      return n;
    case 1:
      return n * m;
    case 2:
      return (n + 1).FloorDiv(2);
    case 3:
      return m * 3 + 1;
    case 4:
      return n + m - 1;
    default:
      return rng->UniformInt(1, 70);
  }
}

int64_t AddTensor(module::Manifest* m, std::string name, std::vector<Dim> shape, TensorKind kind) {
  Tensor t;
  t.id = static_cast<int64_t>(m->tensors.size());
  t.name = std::move(name);
  t.bytes = module::NumElements(shape).value_or(0) * 4;
  t.shape = std::move(shape);
  t.kind = kind;
  m->tensors.push_back(t);
  return t.id;
}

// For any order of the tensors this plan is right: each begins after those before it in the order
// that live when it does.
void PlanPlaces(support::Rng* rng, Program* program) {
  std::vector<int64_t> rank(program->parts.manifest.tensors.size());
  std::iota(rank.begin(), rank.end(), 0);
  for (size_t i = rank.size(); i > 1; --i) {
    std::swap(rank[i - 1],
              rank[static_cast<size_t>(rng->UniformInt(0, static_cast<int64_t>(i) - 1))]);
  }
  for (auto [a, b] : program->conflicts) {
    if (rank[static_cast<size_t>(a)] > rank[static_cast<size_t>(b)]) std::swap(a, b);
    program->parts.manifest.tensors[static_cast<size_t>(b)].after.push_back(a);
  }
}

Program RandomProgram(support::Rng* rng) {
  Program program;
  program.parts = test::OneKernelModule("tw_kernel_mix", 1);
  module::Manifest& m = program.parts.manifest;
  m.tensors.clear();
  m.size_vars = {{"N", 1, kMost}, {"M", 2, kMost}};
  module::Function main;
  main.name = "main";
  main.inputs = {AddTensor(&m, "n", {Dim::Variable("N")}, TensorKind::kInput),
                 AddTensor(&m, "m", {Dim::Variable("M")}, TensorKind::kInput)};
  std::vector<int64_t> usable = main.inputs;
  const int64_t launches = rng->UniformInt(3, 12);
  std::vector<int64_t> last_use(static_cast<size_t>(launches) + 2, -1);
  for (int64_t i = 0; i < launches; ++i) {
    const auto pick = [&] {
      return usable[static_cast<size_t>(
          rng->UniformInt(0, static_cast<int64_t>(usable.size()) - 1))];
    };
    const int64_t a = i + 1 == launches ? usable.back() : pick(), b = pick();
    const bool last = i + 1 == launches;
    const int64_t out = AddTensor(&m, last ? "y" : "", {RandomExtent(rng)},
                                  last ? TensorKind::kOutput : TensorKind::kIntermediate);
    module::Launch launch;
    launch.symbol = "tw_kernel_mix";
    launch.args = {a, b, out};
    for (const int64_t id : {out, a, b}) {
      launch.sizes.push_back(m.tensors[static_cast<size_t>(id)].shape[0]);
    }
    main.launches.push_back(launch);
    last_use[static_cast<size_t>(a)] = last_use[static_cast<size_t>(b)] = i;
    program.operands.emplace_back(a, b);
    program.results.push_back(out);
    usable.push_back(out);
  }
  main.outputs = {program.results.back()};
  // Tensor i + 2 is made by launch i.
  for (int64_t i = 0; i + 1 < launches; ++i) {
    for (int64_t j = i + 1; j + 1 < launches; ++j) {
      if (j <= last_use[static_cast<size_t>(i) + 2]) program.conflicts.emplace_back(i + 2, j + 2);
    }
  }
  m.functions = {main};
  PlanPlaces(rng, &program);
  const absl::Status complete = module::SetNeedsAtMaxima(&m);
  EXPECT_TRUE(complete.ok()) << complete;
  return program;
}

void CheckNoOverlap(const Program& program, const SizePlan& plan) {
  for (const auto& [a, b] : program.conflicts) {
    const SizePlan::Place &x = plan.tensors[static_cast<size_t>(a)],
                          &y = plan.tensors[static_cast<size_t>(b)];
    EXPECT_TRUE(x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset)
        << a << " at " << x.offset << "+" << x.bytes << ", " << b << " at " << y.offset;
    EXPECT_EQ(x.offset % module::kTensorAlignment, 0);
    EXPECT_LE(x.offset + x.bytes, plan.arena_bytes);
  }
}

// Each tensor in a vector of its own.
std::vector<uint32_t> Plain(const Program& program, const SizePlan& plan,
                            std::vector<std::vector<uint32_t>> values) {
  values.resize(plan.tensors.size());
  for (size_t i = 0; i < program.results.size(); ++i) {
    const auto& a = values[static_cast<size_t>(program.operands[i].first)];
    const auto& b = values[static_cast<size_t>(program.operands[i].second)];
    const auto out = static_cast<size_t>(program.results[i]);
    for (size_t e = 0; e < static_cast<size_t>(plan.tensors[out].shape[0]); ++e) {
      values[out].push_back(3 * a[e % a.size()] + b[e % b.size()] + static_cast<uint32_t>(e));
    }
  }
  return values[static_cast<size_t>(program.results.back())];
}

TEST(OpenPlanTest, RandomPlansKeepWhatLivesApart) {
  support::Rng rng(tests::TestSeed(11));
  for (int round = 0; round < 60; ++round) {
    const Program program = RandomProgram(&rng);
    const module::Manifest& manifest = program.parts.manifest;
    const auto bytes = module::SerializeModule(program.parts);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    auto file = module::ModuleFile::FromBytes(*bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    auto module = LoadedModule::Load(*std::move(file));
    ASSERT_TRUE(module.ok()) << module.status();
    auto session = Session::Create(*module, {.guard_pages = round % 2 == 0});
    ASSERT_TRUE(session.ok()) << session.status();
    const module::SizePlanner planner(manifest, manifest.functions[0]);
    for (int call = 0; call < 12; ++call) {
      const int64_t n = rng.UniformInt(1, kMost), m = rng.UniformInt(2, kMost);
      SCOPED_TRACE(testing::Message() << "round " << round << " N=" << n << " M=" << m);
      SizePlan plan;
      const int64_t sizes[] = {n, m};
      ASSERT_TRUE(planner.Plan(sizes, &plan).ok());
      CheckNoOverlap(program, plan);
      EXPECT_LE(plan.arena_bytes, manifest.arena_bytes);
      std::vector<std::vector<uint32_t>> values(2);
      for (size_t i = 0; i < 2; ++i) {
        for (int64_t e = 0; e < sizes[i]; ++e) {
          values[i].push_back(static_cast<uint32_t>(rng.UniformInt(0, 1 << 30)));
        }
        const int64_t shape[] = {sizes[i]};
        ASSERT_TRUE((*session)->SetInputShape(i, shape).ok());
        std::memcpy((*session)->MutableInput(i), values[i].data(), values[i].size() * 4);
      }
      if (call % 3 == 0) (*session)->Poison(0xFF);
      const absl::Status ran = (*session)->Run();
      ASSERT_TRUE(ran.ok()) << ran;
      const std::vector<uint32_t> expected = Plain(program, plan, values);
      const TensorView y = (*session)->output(0);
      ASSERT_EQ(y.bytes, expected.size() * 4);
      EXPECT_EQ(std::memcmp(y.data, expected.data(), y.bytes), 0);
      EXPECT_TRUE((*session)->CheckGuards().ok());
    }
  }
}

TEST(OpenPlanTest, NeedIsThatOfTheMaxima) {
  const module::Manifest m = test::OpenRowsModule().manifest;
  const module::MemoryNeed need = module::NeedOf(m);
  const int64_t tensor = test::kMostRows * test::kColumns * 4;  // a multiple of the alignment
  const int64_t packed = test::kInner * test::kColumns * 4;
  EXPECT_EQ(need.arena, 2 * tensor + packed);
  EXPECT_EQ(need.workspace, tensor);
  EXPECT_EQ(need.ends, test::kMostRows * (test::kInner + test::kColumns) * 4);
}

// Inputs [N], [N,3], [2*N - M] and [M].
module::Manifest BindingManifest() {
  module::Manifest m;
  m.size_vars = {{"N", 1, 16}, {"M", 0, 8}};
  const Dim n = Dim::Variable("N"), k = Dim::Variable("M");
  module::Function main;
  main.name = "main";
  main.inputs = {AddTensor(&m, "a", {n}, TensorKind::kInput),
                 AddTensor(&m, "b", {n, 3}, TensorKind::kInput),
                 AddTensor(&m, "c", {n * 2 - k}, TensorKind::kInput),
                 AddTensor(&m, "d", {k}, TensorKind::kInput)};
  m.functions = {main};
  return m;
}

TEST(SizeBindingTest, ShapesBindVariables) {
  const module::Manifest m = BindingManifest();
  const SizeBinding binding(m, m.functions[0]);
  const auto bind = [&](const std::vector<Shape>& shapes) { return binding.Bind(shapes); };
  const auto good = bind({{5}, {5, 3}, {8}, {2}});
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(*good, (std::vector<int64_t>{5, 2}));
  EXPECT_TRUE(bind({{1}, {1, 3}, {2}, {0}}).ok());
  const std::pair<std::vector<Shape>, std::string> wrong[] = {
      {{{17}, {17, 3}, {34}, {0}}, "input 'a': dimension 0 (N): expected 1 to 16, found 17"},
      {{{5}, {6, 3}, {10}, {0}}, "input 'b': dimension 0 (N): expected 5 as in input 'a', found 6"},
      {{{5}, {5, 3}, {9}, {2}},
       "input 'c': dimension 0 (-M + 2*N): expected 8 at M=2,N=5, found 9"},
      {{{5}, {5, 3}, {8}, {9}}, "input 'd': dimension 0 (M): expected 0 to 8, found 9"},
      {{{5}, {5, 4}, {8}, {2}}, "input 'b': expected Nx3, found 5x4"},
      {{{5}, {5}, {8}, {2}}, "input 'b': expected Nx3, found 5"},
      {{{5}, {5, 3}, {-8}, {2}}, "input 'c': expected (-M+2*N), found -8"},
  };
  for (const auto& [shapes, text] : wrong) {
    EXPECT_EQ(support::Detail(bind(shapes).status()), text);
  }
}

}  // namespace
}  // namespace tilewright::runtime
