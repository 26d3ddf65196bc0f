// Kernels that the compiler makes for all sizes, in a module of open sizes, run by a session: one
// piece of code for every batch, intermediates in an arena that is planned for all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/ir/ir_text.h"
#include "deploy/module/module_file.h"
#include "deploy/module/module_writer.h"
#include "deploy/module/size_plan.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/status.h"
#include "tests/support/run_compiled.h"

namespace tilewright::runtime {
namespace {

using module::Dim;
using module::Tensor;
using module::TensorKind;

constexpr int64_t kIn = 24, kOut = 40, kMostBatch = 50;

constexpr char kDense[] = R"(
fn dense(batch: size, A: f32[batch, 24] input, B: f32[24, 40] constant, Z: f32[batch, 40] output) stage=scheduled {
  for i in 0..batch parallel {
    for j in 0..40 {
      for k in 0..24 {
        block Z(vi: spatial 0..batch = i, vj: spatial 0..40 = j, vk: reduce 0..24 = k) {
          reads A[vi:1, vk:1], B[vk:1, vj:1];
          writes Z[vi:1, vj:1];
          init {
            Z[vi, vj] = 0.0f32;
          }
          Z[vi, vj] = Z[vi, vj] + A[vi, vk] * B[vk, vj];
        }
      }
    }
  }
}
)";

// Rows in reverse order, so that every row of the result needs another one of the operand.
constexpr char kTurn[] = R"(
fn turn(n: size, X: f32[n, 40] input, Y: f32[n, 40] output) stage=scheduled {
  for i in 0..n {
    for j in 0..40 {
      block Y(vi: spatial 0..n = i, vj: spatial 0..40 = j) {
        reads X[n - 1 - vi:1, vj:1];
        writes Y[vi:1, vj:1];
        Y[vi, vj] = max(X[n - 1 - vi, vj], 0.0f32);
      }
    }
  }
}
)";

absl::StatusOr<codegen::Artifact> Compile() {
  const target::Target target = tests::WidestTarget();
  std::vector<ir::Function> flat;
  for (const char* text : {kDense, kTurn}) {
    TW_ASSIGN(const ir::Function f, ir::ParseFunction(text));
    TW_ASSIGN(ir::Function lowered, tests::LowerChecked(f, target));
    flat.push_back(std::move(lowered));
  }
  return codegen::Generate(flat, target);
}

float Weight(int64_t k, int64_t n) { return static_cast<float>((k * 5 + n * 3) % 11) - 5; }

// x -> dense -> turn -> turn -> y.
module::ModuleParts Parts(const codegen::Artifact& artifact) {
  module::ModuleParts parts;
  module::Manifest& m = parts.manifest;
  m.name = "compiled";
  m.size_vars = {{"N", 1, kMostBatch}};
  const Dim n = Dim::Variable("N");
  const auto add = [&](std::string name, std::vector<Dim> shape, TensorKind kind) {
    Tensor& t = m.tensors.emplace_back();
    t.id = static_cast<int64_t>(m.tensors.size()) - 1;
    t.name = std::move(name);
    t.bytes = module::NumElements(shape).value_or(0) * 4;
    t.shape = std::move(shape);
    t.kind = kind;
    return t.id;
  };
  const int64_t x = add("x", {n, kIn}, TensorKind::kInput);
  const int64_t w = add("w", {kIn, kOut}, TensorKind::kConstant);
  const int64_t product = add("", {n, kOut}, TensorKind::kIntermediate);
  const int64_t turned = add("", {n, kOut}, TensorKind::kIntermediate);
  m.tensors.back().after = {product};
  const int64_t y = add("y", {n, kOut}, TensorKind::kOutput);
  const auto launch = [&](size_t program, std::vector<int64_t> args) {
    module::Launch l;
    l.symbol = artifact.programs[program].calls[0].symbol;
    l.args = std::move(args);
    l.sizes = {n};
    l.workspace_bytes = artifact.programs[program].workspace_bytes;
    return l;
  };
  module::Function main;
  main.name = "main";
  main.inputs = {x};
  main.outputs = {y};
  main.launches = {launch(0, {x, w, product}), launch(1, {product, turned}),
                   launch(1, {turned, y})};
  m.functions = {main};
  const absl::Status complete = module::SetNeedsAtMaxima(&m);
  EXPECT_TRUE(complete.ok()) << complete;
  for (int64_t k = 0; k < kIn; ++k) {
    for (int64_t j = 0; j < kOut; ++j) {
      const float value = Weight(k, j);
      parts.constants.Append(
          absl::string_view(reinterpret_cast<const char*>(&value), sizeof(value)));
    }
  }
  m.code.push_back({artifact.format, 1, 0, ""});
  parts.code = {artifact.bytes};
  return parts;
}

TEST(OpenCompiledTest, OneModuleForEveryBatch) {
  const auto artifact = Compile();
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  const auto bytes = module::SerializeModule(Parts(*artifact));
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  auto file = module::ModuleFile::FromBytes(*bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  auto module = LoadedModule::Load(*std::move(file));
  ASSERT_TRUE(module.ok()) << module.status();
  const auto session = Session::Create(*module, {.num_threads = 2, .guard_pages = true});
  ASSERT_TRUE(session.ok()) << session.status();
  for (const int64_t batch : {1, 50, 3, 16, 17, 49, 2, 8}) {
    SCOPED_TRACE(batch);
    const int64_t shape[] = {batch, kIn};
    ASSERT_TRUE((*session)->SetInputShape(0, shape).ok());
    auto* x = static_cast<float*>((*session)->MutableInput(0));
    for (int64_t i = 0; i < batch * kIn; ++i) x[i] = static_cast<float>((i * 7 + batch) % 13) - 6;
    std::vector<float> expected;  // whole numbers, so sums are exact; turned twice
    for (int64_t i = 0; i < batch; ++i) {
      for (int64_t j = 0; j < kOut; ++j) {
        float sum = 0;
        for (int64_t k = 0; k < kIn; ++k) sum += x[i * kIn + k] * Weight(k, j);
        expected.push_back(std::max(sum, 0.0F));
      }
    }
    (*session)->Poison(0xFF);
    const absl::Status ran = (*session)->Run();
    ASSERT_TRUE(ran.ok()) << ran;
    const TensorView y = (*session)->output(0);
    EXPECT_EQ(y.shape, (std::vector<int64_t>{batch, kOut}));
    ASSERT_EQ(y.bytes, expected.size() * 4);
    EXPECT_EQ(std::memcmp(y.data, expected.data(), y.bytes), 0);
    EXPECT_TRUE((*session)->CheckGuards().ok());
  }
}

}  // namespace
}  // namespace tilewright::runtime
