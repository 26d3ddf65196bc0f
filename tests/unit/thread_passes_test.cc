// The passes between scheduled loops and threads, on small texts: results against golden files,
// valid and computing the same (the interpreter reports races and reads of what has not landed),
// and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/verify.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/golden.h"

namespace tilewright::transform {
namespace {

using support::StatusText;

ir::Function Parsed(const std::string& text) {
  absl::StatusOr<ir::Function> f = ir::ParseFunction(text);
  EXPECT_TRUE(f.ok()) << StatusText(f.status());
  EXPECT_TRUE(ir::Verify(*f).ok()) << StatusText(ir::Verify(*f));
  return *f;
}

absl::StatusOr<ir::Function> RunPasses(const std::string& passes, const ir::Function& f) {
  PassContext ctx;
  ctx.verify_each = true;
  std::vector<PassRow> rows;
  for (const std::string& name : support::Split(passes, ',')) rows.push_back(*FindPass(name));
  return RunPipeline(f, rows, ctx);
}

// Each pass keeps the meaning; the result is tests/golden/transform/<name>.tir.
ir::Function CheckGolden(const std::string& name, const std::string& passes,
                         const std::string& text) {
  SCOPED_TRACE(name);
  ir::Function before = Parsed(text), f = before;
  for (const std::string& pass : support::Split(passes, ',')) {
    absl::StatusOr<ir::Function> after = RunPasses(pass, f);
    EXPECT_TRUE(after.ok()) << StatusText(after.status());
    if (!after.ok()) return f;
    f = *after;
    absl::Status same = tests::SameResults(before, f);
    EXPECT_TRUE(same.ok()) << pass << ": " << StatusText(same) << "\n" << ir::Print(f);
  }
  EXPECT_TRUE(tests::MatchesGolden("transform/" + name + ".tir", ir::Print(f)));
  return f;
}

std::string Refusal(const std::string& passes, const std::string& text) {
  absl::Status status = RunPasses(passes, Parsed(text)).status();
  EXPECT_THAT(StatusText(status), testing::HasSubstr("expected"));
  return support::Slug(status);
}

std::string Pipelined(const std::string& marks, int last) {
  return "fn pipe(X: f32[6,4] input, Y: f32[6,4] output) stage=loops { for i in 0..6 @{" + marks +
         "} { alloc S: f32[4] scope=shared { for j in 0..4 @{pipeline_stage=0} { S[j] = X[i, j]; } "
         "for j in 0..4 @{pipeline_stage=" +
         std::to_string(last) + "} { Y[i, j] = S[j] + 1.0f32; } } } }";
}

TEST(InjectSoftwarePipeline, OverlapsIterations) {
  CheckGolden("pipeline_program", "inject_software_pipeline,simplify",
              Pipelined("pipeline=\"program\"", 1));
  CheckGolden("pipeline_consumers", "inject_software_pipeline,simplify",
              Pipelined("pipeline=\"consumers\"", 1));
  CheckGolden("pipeline_async", "inject_software_pipeline,simplify",
              Pipelined("pipeline=\"program\", pipeline_async=1", 2));
  CheckGolden("pipeline_async_consumers", "inject_software_pipeline,simplify",
              Pipelined("pipeline=\"consumers\", pipeline_async=1", 2));
}

TEST(InjectSoftwarePipeline, HasRingsForEveryDistance) {
  CheckGolden("pipeline_three_stages", "inject_software_pipeline,simplify", R"(
fn chain(X: f32[5,2] input, Y: f32[5,2] output) stage=loops {
  for i in 0..5 @{pipeline="program"} {
    alloc S: f32[2] scope=shared {
      alloc T: f32[2] scope=local {
        for j in 0..2 @{pipeline_stage=0} { S[j] = X[i, j]; }
        T[0] = 0.0f32;
        for j in 0..2 @{pipeline_stage=1} { T[j] = S[j] * 2.0f32; }
        for j in 0..2 @{pipeline_stage=2} { Y[i, j] = T[j] + S[j]; }
      }
    }
  }
}
)");
}

TEST(InjectSoftwarePipeline, OverlappingCopiesAreNotAsynchronous) {
  // Element 3 is stored twice, by two threads once these are merged.
  auto f = RunPasses("inject_software_pipeline", Parsed(R"(
fn overlap(X: f32[4,5] input, Y: f32[4,5] output) stage=loops {
  for i in 0..4 @{pipeline="program", pipeline_async=1} {
    alloc S: f32[5] scope=shared {
      for j in 0..2 @{pipeline_stage=0} {
        for t in 0..3 threadIdx.x { S[min(j * 3, 2) + t] = X[i, min(j * 3, 2) + t]; }
      }
      for j in 0..5 @{pipeline_stage=1} { Y[i, j] = S[j]; }
    }
  }
}
)"));
  ASSERT_TRUE(f.ok()) << StatusText(f.status());
  EXPECT_EQ(ir::Print(*f).find("async"), std::string::npos) << ir::Print(*f);
}

TEST(MarkDoubleBuffers, WorksOneIterationAhead) {
  CheckGolden("double_buffer", "mark_double_buffers,lower_blocks,inject_software_pipeline,simplify",
              R"(
fn double_buffer(X: f32[6,4] input, Y: f32[6,4] output) stage=scheduled {
  alloc S: f32[6,4] scope=shared;
  for i in 0..6 {
    for j in 0..4 {
      block S(vi: spatial 0..6 = i, vj: spatial 0..4 = j) @{double_buffer=1} {
        reads X[vi:1, vj:1];
        writes S[vi:1, vj:1];
        S[vi, vj] = X[vi, vj];
      }
    }
    for j in 0..4 {
      block Y(vi: spatial 0..6 = i, vj: spatial 0..4 = j) {
        reads S[vi:1, 0:4];
        writes Y[vi:1, vj:1];
        Y[vi, vj] = S[vi, 3 - vj] + S[vi, vj];
      }
    }
  }
}
)");
}

TEST(InjectSoftwarePipeline, LeavesLoopsThatCarryValues) {
  // S is not the iteration's own: what stage 0 writes, an earlier iteration's stage 1 still reads.
  ir::Function f = CheckGolden("pipeline_carried", "inject_software_pipeline", R"(
fn carried(X: f32[6] input, Y: f32[6] output) stage=loops {
  alloc S: f32[1] scope=shared {
    for i in 0..6 @{pipeline="program"} {
      for j in 0..1 @{pipeline_stage=0} { S[j] = X[i]; }
      for j in 0..1 @{pipeline_stage=1} { Y[i] = S[j]; }
    }
  }
}
)");
  EXPECT_EQ(ir::Print(f).find("pipeline=\""), std::string::npos);
}

TEST(InjectVirtualThreads, InterleavesStatements) {
  CheckGolden("virtual_threads", "inject_virtual_threads,simplify", R"(
fn two(X: f32[2,3,4] input, Y: f32[2,4] output) stage=loops {
  for v in 0..2 virtual {
    alloc S: f32[4] scope=local {
      for k in 0..3 {
        for j in 0..4 { S[j] = X[v, k, j] + select(k == 0, 0.0f32, S[j]); }
        if (k == 2) { for j in 0..4 { Y[v, j] = S[j]; } }
      }
    }
  }
}
)");
}

// Each of the passes that renames a buffer or puts a dimension in front of it, on rows of 3 whose
// stride becomes 8: two versions of 2 rows, padded, are 32 elements where 12 are used.
TEST(StorageAlign, StaysWithTheRowsThroughEveryPass) {
  const std::string rows = "alloc S: f32[2,3] scope=shared storage_align=1,8,0 {";
  const std::string fill = "for r in 0..2 { for c in 0..3 { S[r, c] = X[i, r, c]; } }";
  const std::string use = "for r in 0..2 { for c in 0..3 { Y[i, r, c] = S[r, 2 - c]; } }";
  auto flat = [](const std::string& passes, const std::string& body) {
    ir::Function before =
        Parsed("fn rows(X: f32[4,2,3] input, Y: f32[4,2,3] output) stage=loops {" + body + "}");
    auto after = RunPasses(passes + ",simplify,flatten_buffers", before);
    EXPECT_TRUE(after.ok()) << StatusText(after.status());
    if (!after.ok()) return std::string();
    EXPECT_TRUE(tests::SameResults(before, *after).ok()) << ir::Print(*after);
    return ir::Print(*after);
  };
  EXPECT_THAT(flat("inject_virtual_threads", "for i in 0..4 virtual {" + rows + fill + use + "} }"),
              testing::HasSubstr("S: f32[64]"));
  EXPECT_THAT(flat("inject_software_pipeline",
                   "for i in 0..4 @{pipeline=\"program\"} {" + rows +
                       "for r in 0..2 @{pipeline_stage=0} { for c in 0..3 { S[r, c] = X[i, r, c]; "
                       "} } for r in 0..2 @{pipeline_stage=1} { for c in 0..3 { Y[i, r, c] = S[r, "
                       "2 - c]; } } } }"),
              testing::HasSubstr("S: f32[32]"));
  EXPECT_THAT(flat("merge_threads", "for i in 0..4 threadIdx.x {" + rows + fill + use + "} }"),
              testing::HasSubstr("S: f32[64]"));
  // Clones have names of their own.
  EXPECT_THAT(flat("unroll_loops", "for i in 0..4 unrolled {" + rows + fill + use + "} }"),
              testing::AllOf(testing::HasSubstr("S: f32[16]"), testing::HasSubstr("S_3: f32[16]")));
}

// One operation on the elements of a fragment stays a loop; the annotation means nothing elsewhere.
TEST(FragmentMap, OnlyTwoSerialLoopsAroundNoOtherAreOne) {
  const auto unrolled = [](const std::string& loops) {
    auto after =
        RunPasses("unroll_loops", Parsed("fn sums(X: f32[6] input, Y: f32[4] output) stage=loops {"
                                         "alloc S: f32[4] scope=wmma.acc {" +
                                         loops + "} }"));
    EXPECT_TRUE(after.ok()) << StatusText(after.status());
    return after.ok() ? ir::Print(*after) : std::string();
  };
  const std::string row = "for i in 0..4 @{fragment=1} { ";
  const std::string store = "S[i] = S[i] + X[k]; ";
  EXPECT_THAT(unrolled(row + "for k in 0..6 {" + store + "} }"),
              testing::AllOf(testing::HasSubstr("for i"), testing::HasSubstr("for k")));
  EXPECT_THAT(unrolled(row + "for k in 0..6 unrolled {" + store + "} }"),
              testing::Not(testing::HasSubstr("for ")));
  EXPECT_THAT(unrolled(row + "for k in 0..6 { for l in 0..2 unrolled {" + store + "} } }"),
              testing::Not(testing::HasSubstr("unrolled")));
  EXPECT_THAT(unrolled(row + "S[i] = 0.0f32; }"), testing::Not(testing::HasSubstr("for ")));
}

TEST(StorageAlign, OnlyRowsOfIntermediatesHaveOne) {
  for (const char* buffer : {"alloc S: f32[4] scope=shared storage_align=1,8,0",
                             "alloc S: f32[4,4] scope=shared storage_align=0,8,0",
                             "alloc S: f32[4,4] scope=shared storage_align=1,8,8"}) {
    absl::StatusOr<ir::Function> f = ir::ParseFunction(
        std::string("fn rows(Y: f32[4] output) stage=loops {") + buffer + "{ Y[0] = 0.0f32; } }");
    ASSERT_TRUE(f.ok()) << StatusText(f.status());
    EXPECT_EQ(support::Slug(ir::Verify(*f)), "ir.verify.storage_align") << buffer;
  }
}

// Rows of four vectors of two, turned, then read along columns.
TEST(Swizzle, StaysWithTheRowsThroughEveryPass) {
  const std::string rows = "alloc S: f32[4,8] scope=shared swizzle=1,2 {";
  const std::string fill = "for r in 0..4 { for c in 0..8 { S[r, c] = X[i, r, c]; } }";
  const std::string use = "for r in 0..4 { for c in 0..8 { Y[i, r, c] = S[3 - r, c]; } }";
  auto flat = [](const std::string& passes, const std::string& body) {
    ir::Function before =
        Parsed("fn rows(X: f32[4,4,8] input, Y: f32[4,4,8] output) stage=loops {" + body + "}");
    auto after = RunPasses(passes + ",simplify,flatten_buffers", before);
    EXPECT_TRUE(after.ok()) << StatusText(after.status());
    if (!after.ok()) return std::string();
    EXPECT_TRUE(tests::SameResults(before, *after).ok()) << ir::Print(*after);
    return ir::Print(*after);
  };
  const auto turned = testing::HasSubstr("floormod(floordiv(c, 2) + r, 4) * 2");
  EXPECT_THAT(flat("simplify", "for i in 0..4 {" + rows + fill + use + "} }"), turned);
  EXPECT_THAT(flat("inject_virtual_threads", "for i in 0..4 virtual {" + rows + fill + use + "} }"),
              turned);
  EXPECT_THAT(flat("inject_software_pipeline",
                   "for i in 0..4 @{pipeline=\"program\"} {" + rows +
                       "for r in 0..4 @{pipeline_stage=0} { for c in 0..8 { S[r, c] = X[i, r, c]; "
                       "} } for r in 0..4 @{pipeline_stage=1} { for c in 0..8 { Y[i, r, c] = S[3 - "
                       "r, c]; } } } }"),
              turned);
  EXPECT_THAT(flat("merge_threads", "for i in 0..4 threadIdx.x {" + rows + fill + use + "} }"),
              turned);
  EXPECT_THAT(flat("unroll_loops", "for i in 0..4 unrolled {" + rows + fill + use + "} }"), turned);
  // Rows of one vector lie as they are.
  const std::string one = "alloc S: f32[4,8] scope=shared swizzle=1,8 {";
  EXPECT_THAT(flat("simplify", "for i in 0..4 {" + one + fill + use + "} }"),
              testing::Not(testing::HasSubstr("floormod")));
}

TEST(Swizzle, OnlyRowsOfIntermediatesHaveOne) {
  for (const char* buffer :
       {"alloc S: f32[4] scope=shared swizzle=1,2", "alloc S: f32[4,4] scope=shared swizzle=0,2",
        "alloc S: f32[4,4] scope=shared swizzle=1,3"}) {
    absl::StatusOr<ir::Function> f = ir::ParseFunction(
        std::string("fn rows(Y: f32[4] output) stage=loops {") + buffer + "{ Y[0] = 0.0f32; } }");
    ASSERT_TRUE(f.ok()) << StatusText(f.status());
    EXPECT_EQ(support::Slug(ir::Verify(*f)), "ir.verify.swizzle") << buffer;
  }
}

// Threads fill a tile together, then each works on its own part of what all brought.
constexpr char kTile[] = R"(
fn tile(X: f32[3,16] input, Y: f32[3,4,2] output) stage=loops {
  for b in 0..3 blockIdx.x {
    alloc A: f32[4,2] scope=local {
      for t in 0..4 threadIdx.x { for i in 0..2 { A[t, i] = 0.0f32; } }
      for k in 0..2 {
        alloc S: f32[8] scope=shared {
          for t in 0..8 threadIdx.x { S[t] = X[b, k * 8 + t]; }
          for t in 0..4 threadIdx.x {
            for i in 0..2 { A[t, i] = A[t, i] + S[7 - t * 2] * S[t + i]; }
          }
        }
      }
      for t in 0..4 threadIdx.x { for i in 0..2 { Y[b, t, i] = A[t, i]; } }
    }
  }
}
)";

TEST(MergeThreads, MakesOneNestOfThreads) {
  CheckGolden("merge_threads", "merge_threads", kTile);
  CheckGolden("prune_sync", "merge_threads,simplify,compact_buffers,prune_sync,simplify", kTile);
}

// Seven tiles through shared memory. Five groups or fewer do their share of them: barriers stand in
// a loop whose extent a group's number decides.
std::string Tiles(const std::string& mark) {
  return R"(
fn tiles(X: f32[7,8] input, Y: f32[7,8] output) stage=loops {
  for b in 0..7 blockIdx.x )" +
         mark + R"( {
    alloc S: f32[8] scope=shared {
      for t in 0..8 threadIdx.x { S[t] = X[b, t] * 2.0f32; }
      for t in 0..8 threadIdx.x { Y[b, t] = S[7 - t]; }
    }
  }
}
)";
}

TEST(ShareTiles, GroupsDoTheirShare) {
  const std::string threads = ",merge_threads,simplify,compact_buffers,prune_sync,simplify";
  CheckGolden("share_tiles", "share_tiles" + threads, Tiles("@{groups=5}"));
  for (const char* mark : {"@{groups=1}", "@{groups=2}", "@{groups=6}"}) {
    const ir::Function before = Parsed(Tiles(mark));
    auto after = RunPasses("share_tiles" + threads, before);
    ASSERT_TRUE(after.ok()) << StatusText(after.status());
    EXPECT_TRUE(tests::SameResults(before, *after).ok()) << mark;
  }
}

TEST(ShareTiles, AsManyGroupsAsTilesStay) {
  for (const char* mark : {"", "@{groups=7}", "@{groups=100}"}) {
    const ir::Function before = Parsed(Tiles(mark));
    auto after = RunPasses("share_tiles", before);
    ASSERT_TRUE(after.ok()) << StatusText(after.status());
    EXPECT_EQ(ir::Print(*after), ir::Print(before));
  }
}

// Two launches. The second writes `out`, and reads `from`.
std::string TwoLaunches(const std::string& out, const std::string& from) {
  return R"(
fn launches(X: f32[7,8] input, Y: f32[3,8] output, Z: f32[2,8] output) stage=loops {
  for b in 0..3 blockIdx.x @{with_next=1} {
    alloc S: f32[8] scope=shared {
      for t in 0..8 threadIdx.x { S[t] = X[b, t] * 2.0f32; }
      for t in 0..8 threadIdx.x { Y[b, t] = S[7 - t]; }
    }
  }
  alloc W: f32[2,8] scope=global {
    for c in 0..2 blockIdx.x {
      for k in 0..2 {
        alloc R: f32[8] scope=shared {
          for t in 0..8 threadIdx.x { R[t] = )" +
         from + R"([c + k, t]; }
          for t in 0..8 threadIdx.x { )" +
         out + R"([c, t] = R[(t + 3) % 8]; }
        }
      }
    }
    for c in 0..2 blockIdx.x { for t in 0..8 threadIdx.x { Z[c, t] = W[c, t]; } }
  }
}
)";
}

TEST(MergeLaunches, GroupsDoEither) {
  const std::string threads = ",merge_threads,simplify,compact_buffers,prune_sync,simplify";
  CheckGolden("merge_launches", "merge_launches" + threads, TwoLaunches("W", "X"));
  // All groups share out the work of both.
  std::string shared = TwoLaunches("W", "X");
  shared.replace(shared.find("with_next=1"), 11, "groups=2, with_next=1");
  const ir::Function before = Parsed(shared);
  auto after = RunPasses("merge_launches,share_tiles" + threads, before);
  ASSERT_TRUE(after.ok()) << StatusText(after.status());
  EXPECT_TRUE(tests::SameResults(before, *after).ok());
  const std::string text = ir::Print(*after);
  EXPECT_THAT(text, testing::HasSubstr("in 0..2 blockIdx.x"));
  EXPECT_EQ(text.find("alloc R"), std::string::npos);  // it lies where S does
}

TEST(MergeLaunches, WhatDependsStaysApart) {
  for (const auto& [out, from] : {std::pair("W", "Y"), std::pair("Y", "X")}) {
    std::string text = TwoLaunches(out, from);
    if (std::string_view(out) == "Y") text.replace(text.find("= W[c, t]"), 9, "= X[c, t]");
    const ir::Function before = Parsed(text);
    auto after = RunPasses("merge_launches", before);
    ASSERT_TRUE(after.ok()) << StatusText(after.status());
    EXPECT_EQ(ir::Print(*after), ir::Print(before)) << out << from;
  }
}

TEST(MergeThreads, KeepsBuffersOfIterationsApart) {
  // G is global, one for each block; S is shared, one for each thread below t; r is private.
  CheckGolden("merge_threads_lifted", "merge_threads,simplify,prune_sync", R"(
fn lifted(X: f32[2,4] input, Y: f32[2,4,3] output) stage=loops {
  for b in 0..2 blockIdx.x {
    alloc G: f32[4] scope=global {
      for i in 0..4 { G[i] = X[b, i] * 2.0f32; }
      for t in 0..4 threadIdx.x {
        alloc S: f32[3] scope=shared {
          alloc r: f32[1] scope=local {
            r[0] = G[3 - t];
            for u in 0..3 threadIdx.y { S[u] = r[0] + f32(u); }
            for u in 0..3 threadIdx.y { Y[b, t, u] = S[2 - u]; }
          }
        }
      }
    }
  }
}
)");
}

// The same, but some of the threads bring the tile in rounds, each two elements.
constexpr char kRounds[] = R"(
fn rounds(X: f32[3,2,24] input, Y: f32[3,8] output) stage=loops {
  for b in 0..3 blockIdx.x {
    for k in 0..2 {
      alloc S: f32[3,8] scope=shared {
        for r in 0..4 {
          for t in 0..3 threadIdx.x {
            for i in 0..2 {
              S[(r * 6 + t * 2 + i) / 8, (r * 6 + t * 2 + i) % 8] = X[b, k, r * 6 + t * 2 + i];
            }
          }
        }
        for t in 0..8 threadIdx.x { Y[b, t] = S[0, t] + S[1, 7 - t] * S[2, t]; }
      }
    }
  }
}
)";

void ExpectTwoBarriersThatAreNeeded(const char* text) {
  auto f = RunPasses("merge_threads,simplify,compact_buffers,prune_sync", Parsed(text));
  ASSERT_TRUE(f.ok()) << StatusText(f.status());
  std::vector<const ir::StmtNode*> barriers;
  ir::VisitStmts(f->body, [&](const ir::Stmt& s) {
    if (s->kind == ir::StmtKind::kSync) barriers.push_back(s.get());
    // Of the loops only that over steps has any.
    if (s->kind == ir::StmtKind::kFor && s->var->name == "r") {
      ir::VisitStmts(s->body, [](const ir::Stmt& inside) {
        EXPECT_NE(inside->kind, ir::StmtKind::kSync);
        return true;
      });
    }
    return true;
  });
  ASSERT_EQ(barriers.size(), 2u) << ir::Print(*f);
  for (const ir::StmtNode* left_out : barriers) {
    class Without : public ir::Rewriter {
     public:
      explicit Without(const ir::StmtNode* gone) : gone_(gone) {}
      ir::Stmt RewriteStmt(const ir::Stmt& s) override {
        return s.get() == gone_ ? ir::MakeSeq({}) : RewriteChildren(s);
      }

     private:
      const ir::StmtNode* gone_;
    };
    ir::Function fewer = *f;
    fewer.body = Without(left_out).RewriteStmt(f->body);
    absl::Status status = tests::SameResults(Parsed(text), fewer);
    EXPECT_THAT(StatusText(status), testing::HasSubstr("ir.interp.race")) << ir::Print(fewer);
  }
}

TEST(PruneSync, EveryBarrierThatIsLeftIsNeeded) {
  ExpectTwoBarriersThatAreNeeded(kTile);
  ExpectTwoBarriersThatAreNeeded(kRounds);
}

// Rounds that use what the rounds before brought keep theirs.
TEST(PruneSync, KeepsBarriersOfRoundsThatNeedThem) {
  auto f = RunPasses("merge_threads,simplify,compact_buffers,prune_sync", Parsed(R"(
fn scan(X: f32[8] input, Y: f32[8] output) stage=loops {
  alloc S: f32[2,8] scope=shared {
    for t in 0..8 threadIdx.x { S[0, t] = X[t]; }
    for r in 0..3 {
      for t in 0..8 threadIdx.x { S[(r + 1) % 2, t] = S[r % 2, 7 - t] * 2.0f32; }
    }
    for t in 0..8 threadIdx.x { Y[t] = S[1, 7 - t]; }
  }
}
)"));
  ASSERT_TRUE(f.ok()) << StatusText(f.status());
  size_t inside = 0;
  ir::VisitStmts(f->body, [&](const ir::Stmt& s) {
    if (s->kind == ir::StmtKind::kFor && s->var->name == "r") {
      ir::VisitStmts(s->body, [&](const ir::Stmt& part) {
        inside += part->kind == ir::StmtKind::kSync;
        return true;
      });
    }
    return true;
  });
  EXPECT_EQ(inside, 1) << ir::Print(*f);
}

// Every thread keeps a copy of what one of them wrote: elements without indices count, too.
TEST(PruneSync, KeepsTheBarrierBeforeScalarsOfOthers) {
  CheckGolden("prune_sync_scalar", "merge_threads,simplify,prune_sync", R"(
fn scalar(X: f32[4] input, Y: f32[4] output, Z: f32[] output) stage=loops {
  alloc S: f32[] scope=shared {
    alloc r: f32[] scope=local {
      for t in 0..4 threadIdx.z { Y[t] = X[t]; }
      S[] = X[0] + X[1];
      r[] = S[];
      Z[] = r[];
    }
  }
}
)");
}

// What has one thread only comes last, narrower loops keep their conditions.
TEST(MergeThreads, UsesTheFirstAxes) {
  const ir::Function f = CheckGolden("merge_threads_axes", "merge_threads,simplify", R"(
fn axes(X: f32[3,4] input, Y: f32[3,4] output, Z: f32[2] output) stage=loops {
  for b in 0..1 threadIdx.x {
    for i in 0..3 threadIdx.y {
      for j in 0..4 threadIdx.z { Y[b + i, j] = X[i, j]; }
    }
  }
  for i in 0..2 threadIdx.y { Z[i] = X[i, 1]; }
}
)");
  const auto plan = codegen::SplitHostDevice(f);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto& group = plan->launches.at(0).group;
  EXPECT_TRUE(ir::IsInt(group[0], 3) && ir::IsInt(group[1], 4) && ir::IsInt(group[2], 1));
}

// Each of 256 threads has 64 elements in boxes that lie apart, and the unrolled steps of a sum use
// each box again and again.
TEST(MergeThreads, KnowsTheOwnersOfMuchThatIsWrittenOut) {
  const auto merged = RunPasses("merge_threads", Parsed(R"(
fn f(X: f32[16] input, Y: f32[128,128] output) stage=loops {
  alloc A: f32[128,128] scope=local {
    for t in 0..256 threadIdx.x { for k in 0..16 unrolled { for m in 0..4 unrolled {
      for j in 0..4 unrolled { for n in 0..4 vectorized {
        A[floordiv(t, 8) * 4 + m, floormod(t, 8) * 4 + n + j * 32] = X[k];
      } }
    } } }
    for t in 0..256 threadIdx.x { for m in 0..4 unrolled { for j in 0..4 unrolled {
      for n in 0..4 vectorized {
        Y[floordiv(t, 8) * 4 + m, floormod(t, 8) * 4 + n + j * 32] =
          A[floordiv(t, 8) * 4 + m, floormod(t, 8) * 4 + n + j * 32];
      }
    } } }
  }
}
)"));
  EXPECT_TRUE(merged.ok()) << merged.status();
}

TEST(MergeThreads, RefusesByName) {
  // One scalar for all threads, in a buffer that each would have to itself.
  EXPECT_EQ(Refusal("merge_threads", R"(
fn f(X: f32[4] input, Y: f32[4] output) stage=loops {
  alloc A: f32[] scope=local {
    for t in 0..4 threadIdx.x { if (t == 2) { A[] = X[t]; } }
    for t in 0..4 threadIdx.x { Y[t] = A[]; }
  }
}
)"),
            "transform.merge_threads.passes_between_threads");
  // What one thread leaves in a private buffer, another one reads.
  EXPECT_EQ(Refusal("merge_threads", R"(
fn f(X: f32[4] input, Y: f32[4] output) stage=loops {
  alloc A: f32[4] scope=local {
    for t in 0..4 threadIdx.x { A[t] = X[t]; }
    for t in 0..4 threadIdx.x { Y[t] = A[3 - t]; }
  }
}
)"),
            "transform.merge_threads.passes_between_threads");
  EXPECT_EQ(Refusal("merge_threads", R"(
fn f(X: f32[4] input, Y: f32[2,4] output) stage=loops {
  for b in 0..2 {
    for t in 0..4 blockIdx.x { Y[b, t] = X[t]; }
  }
}
)"),
            "transform.merge_threads.block_axes");
  EXPECT_EQ(Refusal("merge_threads", R"(
fn f(X: f32[4] input, Y: f32[4,4] output) stage=loops {
  for t in 0..4 threadIdx.x { for k in 0..t { for u in 0..4 threadIdx.y { Y[t, u] = X[k]; } } }
}
)"),
            "transform.merge_threads.divergent");
  EXPECT_EQ(Refusal("merge_threads", R"(
fn f(n: size, X: f32[n] input, Y: f32[n] output) stage=loops {
  for t in 0..n threadIdx.x { Y[t] = X[t]; }
}
)"),
            "transform.merge_threads.extent");
}

TEST(SplitHostDevice, CutsLaunchesWithSymbolicGrids) {
  ir::Function f = Parsed(R"(
fn steps(n: size, X: f32[n * 4] input, Y: f32[n * 4] output) stage=loops {
  alloc T: f32[n * 4] scope=global {
    for b in 0..n blockIdx.x { for t in 0..4 threadIdx.x { T[b * 4 + t] = X[b * 4 + t] * 2.0f32; } }
    for b in 0..n blockIdx.y {
      alloc S: f32[4] scope=shared {
        for t in 0..4 threadIdx.x { S[t] = T[b * 4 + t]; }
        for t in 0..4 threadIdx.x { Y[b * 4 + t] = S[3 - t]; }
      }
    }
  }
}
)");
  auto merged = RunPasses("merge_threads,prune_sync,flatten_buffers,unroll_loops", f);
  ASSERT_TRUE(merged.ok()) << StatusText(merged.status());
  auto plan = codegen::SplitHostDevice(*merged);
  ASSERT_TRUE(plan.ok()) << StatusText(plan.status());
  ASSERT_EQ(plan->launches.size(), 2u);
  ASSERT_EQ(plan->buffers.size(), 3u);
  EXPECT_EQ(plan->num_params, 2u);
  EXPECT_EQ(plan->buffers[2]->name, "T");
  const codegen::Launch& first = plan->launches[0];
  const codegen::Launch& second = plan->launches[1];
  EXPECT_EQ(first.kernel.name, "steps_k0");
  EXPECT_EQ(first.arguments, (std::vector<int>{0, 2}));
  EXPECT_EQ(second.arguments, (std::vector<int>{2, 1}));  // what it writes comes last
  EXPECT_EQ(second.num_outputs, 1);
  EXPECT_EQ(ir::Print(first.grid[0]), "n");
  EXPECT_EQ(ir::Print(second.grid[1]), "n");
  EXPECT_TRUE(ir::IsInt(second.group[0], 4));
  EXPECT_EQ(first.shared_bytes, 0);
  EXPECT_EQ(second.shared_bytes, 16);
  for (const codegen::Launch& l : plan->launches) EXPECT_TRUE(ir::Verify(l.kernel).ok());
  const auto checked = [&](int64_t threads, int64_t bytes) {
    return codegen::CheckLaunchLimits(*plan, {.group_threads = threads, .shared_bytes = bytes});
  };
  EXPECT_TRUE(checked(4, 16).ok());
  EXPECT_EQ(support::Slug(checked(3, 16)), "codegen.launch_limits.threads");
  EXPECT_EQ(support::Slug(checked(4, 15)), "codegen.launch_limits.shared_bytes");
  EXPECT_EQ(
      support::Slug(codegen::SplitHostDevice(f = Parsed("fn f(y: f32[1] output) { }")).status()),
      "codegen.split_host_device.stage");
}

}  // namespace
}  // namespace tilewright::transform
