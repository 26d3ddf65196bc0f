// Packing of constants moves into a function of its own; running both computes what the whole did.
#include "compiler/transform/split_prepare.h"

#include <gtest/gtest.h>

#include "compiler/ir/build.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/verify.h"
#include "compiler/schedule/schedule.h"
#include "deploy/support/status.h"
#include "tests/support/equivalence.h"
#include "tests/support/te_programs.h"

namespace tilewright::transform {
namespace {

ir::Function Scheduled(const ir::Function& f, std::string_view steps) {
  auto scheduled = schedule::Replay(f, steps);
  EXPECT_TRUE(scheduled.ok()) << scheduled.status();
  return scheduled.ok() ? *scheduled : f;
}

PreparedFunction SplitOf(const ir::Function& f) {
  auto split = SplitPrepare(f);
  EXPECT_TRUE(split.ok()) << split.status();
  EXPECT_TRUE(ir::Verify(split->main).ok()) << ir::Print(split->main);
  if (split->prepare.has_value()) {
    EXPECT_TRUE(ir::Verify(*split->prepare).ok()) << ir::Print(*split->prepare);
  }
  return *split;
}

// Runs `prepare` with the constants, then `main` with all; the function's outputs are in `args`.
absl::Status RunBoth(const ir::Function& f, const PreparedFunction& split,
                     const std::vector<int64_t>& sizes, std::vector<ir::TensorData*> args) {
  auto argument = [&](const std::string& name) {
    for (size_t i = 0; i < f.params.size(); ++i) {
      if (f.params[i]->name == name) return args[i];
    }
    return static_cast<ir::TensorData*>(nullptr);
  };
  std::vector<ir::TensorData> prepared(split.prepared.size());
  auto bind = [&](const ir::Function& half) {
    std::vector<ir::TensorData*> bound;
    for (const ir::Buffer& p : half.params) {
      ir::TensorData* data = argument(p->name);
      for (size_t i = 0; i < prepared.size(); ++i) {
        if (split.prepared[i]->name == p->name) data = &prepared[i];
      }
      bound.push_back(data);
    }
    return bound;
  };
  TW_TRY(ir::Interpret(*split.prepare, {}, bind(*split.prepare)));
  return ir::Interpret(split.main, sizes, bind(split.main));
}

void ExpectSame(const ir::Function& f, const PreparedFunction& split,
                const std::vector<int64_t>& sizes = {}) {
  ASSERT_TRUE(split.prepare.has_value());
  tests::EquivalenceOptions options;
  options.sizes = sizes;
  options.run_other = [&](const ir::Function& whole, const std::vector<int64_t>& at,
                          std::vector<ir::TensorData*> args) {
    return RunBoth(whole, split, at, std::move(args));
  };
  absl::Status same = tests::SameResults(f, f, options);
  EXPECT_TRUE(same.ok()) << same << ir::Print(*split.prepare) << ir::Print(split.main);
}

TEST(SplitPrepareTest, PackedConstants) {
  ir::Function f = Scheduled(tests::MatmulProgram(6, 20, 7),
                             "cache_read %3 read=1 scope=global; split %6 [?,8] tail=pad;"
                             "transform_layout %4 (1/8,0,1%8)");
  PreparedFunction split = SplitOf(f);
  ExpectSame(f, split);
  EXPECT_EQ(split.prepare->name, "matmul_prepare");
  ASSERT_EQ(split.prepare->params.size(), 2u);
  EXPECT_EQ(split.prepare->params[0]->name, "B");
  EXPECT_EQ(split.prepare->params[1]->role, ir::Role::kOutput);
  ASSERT_EQ(split.main.params.size(), 4u);  // A B B_global Y: outputs stay last
  EXPECT_EQ(split.main.params[2]->name, "B_global");
  EXPECT_EQ(split.main.params[2]->role, ir::Role::kConstant);
  EXPECT_EQ(split.main.params[3]->role, ir::Role::kOutput);
  EXPECT_TRUE(split.main.allocs.empty());
}

// What only the packing uses stays with it.
TEST(SplitPrepareTest, ChainsOfConstants) {
  ir::FunctionBuilder b("scaled");
  auto shape = std::vector<ir::Expr>{ir::Int(4), ir::Int(6)};
  ir::Buffer x = b.Input("X", ir::kF32, shape), w = b.Constant("W", ir::kF32, shape);
  ir::Buffer twice = b.Compute("twice", ir::kF32, shape, {"i", "j"}, [&](const auto& v) {
    return ir::Load(w, {v[0], v[1]}) * ir::Float(2);
  });
  ir::Buffer flipped = b.Compute("flipped", ir::kF32, shape, {"i", "j"}, [&](const auto& v) {
    return ir::Load(twice, {ir::Int(3) - v[0], v[1]});
  });
  ir::Buffer y = b.Compute("Y", ir::kF32, shape, {"i", "j"}, [&](const auto& v) {
    return ir::Load(x, {v[0], v[1]}) * ir::Load(flipped, {v[0], v[1]});
  });
  ir::Function f = b.Finish({y});
  PreparedFunction split = SplitOf(f);
  ExpectSame(f, split);
  ASSERT_EQ(split.prepared.size(), 1u);
  EXPECT_EQ(split.prepared[0]->name, "flipped");
  EXPECT_EQ(split.prepare->allocs.size(), 1u);
}

// Weights have fixed sizes, whatever the batch is.
TEST(SplitPrepareTest, PackedConstantsOfOpenSizes) {
  ir::Function f =
      Scheduled(tests::SymbolicDenseProgram(5, 6), "cache_read %3 read=1 scope=global");
  PreparedFunction split = SplitOf(f);
  ExpectSame(f, split, {7});
  EXPECT_TRUE(split.prepare->size_params.empty());
  EXPECT_EQ(split.main.size_params.size(), 1u);
  ASSERT_EQ(split.prepared.size(), 1u);
  EXPECT_EQ(split.prepared[0]->name, "B_global");
}

TEST(SplitPrepareTest, WhatStaysWhole) {
  const std::string pack = "cache_read %3 read=1 scope=global; ";
  for (const std::string& steps : {
           std::string("cache_read %3 read=1 scope=local"),   // private to a thread
           std::string("cache_read %3 read=0 scope=global"),  // depends on an input
           pack + "compute_at %4 %0",                         // inside the loops that use it
           pack + "storage_align %4 dim=0 factor=32",         // larger than its shape says
       }) {
    ir::Function f = Scheduled(tests::MatmulProgram(6, 20, 7), steps);
    PreparedFunction split = SplitOf(f);
    EXPECT_FALSE(split.prepare.has_value()) << steps << ir::Print(f);
    EXPECT_EQ(ir::Print(split.main), ir::Print(f));
  }
  EXPECT_FALSE(SplitOf(tests::SymbolicDenseProgram(5, 6)).prepare.has_value());
  ir::Function lowered = tests::MatmulProgram(6, 20, 7);
  lowered.stage = ir::Stage::kLoops;
  EXPECT_EQ(support::Slug(SplitPrepare(lowered).status()), "transform.split_prepare.stage");
}

}  // namespace
}  // namespace tilewright::transform
