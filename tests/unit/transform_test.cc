// Each lowering pass on a small text: the result against a golden file, valid for its stage, and
// computing the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "compiler/ir/interp.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/verify.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/count_text.h"
#include "tests/support/equivalence.h"
#include "tests/support/golden.h"
#include "tests/unit/pass_checks.h"

namespace tilewright::transform {
namespace {

// C[i, j] += A[i, k] * B[k, j] with j in ragged tiles of 8.
constexpr char kTiledMatmul[] = R"(
fn matmul(A: f32[3,5] input, B: f32[5,20] constant, C: f32[3,20] output) stage=scheduled {
  alloc T: f32[3,20] scope=local;
  for jo in 0..3 @{tail="peel"} {
    for i in 0..3 {
      for k in 0..5 {
        for ji in 0..8 vectorized {
          block T(vi: spatial 0..3 = i, vj: spatial 0..20 = jo * 8 + ji, vk: reduce 0..5 = k)
              where (jo * 8 + ji < 20) {
            reads A[vi:1, vk:1], B[vk:1, vj:1];
            writes T[vi:1, vj:1];
            init {
              T[vi, vj] = 0.0f32;
            }
            T[vi, vj] = T[vi, vj] + A[vi, vk] * B[vk, vj];
          }
        }
      }
    }
    for i in 0..3 unrolled {
      for ji in 0..8 vectorized {
        block C(vi: spatial 0..3 = i, vj: spatial 0..20 = jo * 8 + ji)
            where (jo * 8 + ji < 20) {
          reads T[vi:1, vj:1];
          writes C[vi:1, vj:1];
          C[vi, vj] = T[vi, vj];
        }
      }
    }
  }
}
)";

TEST(LowerBlocks, HoistsTheInitAndPlacesAllocations) {
  CheckGolden("lower_blocks", "lower_blocks", kTiledMatmul);
}

TEST(LowerBlocks, GuardsTheInitWhereOthersTouchTheBuffer) {
  // The second block reads T inside the reduction loop: the init has to stay there.
  CheckGolden("lower_blocks_guarded", "lower_blocks", R"(
fn prefix(X: f32[6] input, Y: f32[6] output) stage=scheduled {
  alloc T: f32[1] scope=global;
  for k in 0..6 {
    block T(v: spatial 0..1 = 0, vk: reduce 0..6 = k) {
      reads X[vk:1];
      writes T[v:1];
      init {
        T[v] = 0.0f32;
      }
      T[v] = T[v] + X[vk];
    }
    block Y(vk: spatial 0..6 = k) {
      reads T[0:1];
      writes Y[vk:1];
      Y[vk] = T[0];
    }
  }
}
)");
}

// n = 1 leaves nothing to add up, in steps of four or not.
TEST(LowerBlocks, AReductionOverNothingGivesItsIdentity) {
  const ir::Function sum = Parsed(R"(
fn sum(n: size, X: f32[n + -1] input, Y: f32[1] output) stage=scheduled {
  for k_0 in 0..floordiv(n + -1 + 3, 4) {
    for k_1 in 0..4 {
      block Y(v: spatial 0..1 = 0, vk: reduce 0..n + -1 = k_0 * 4 + k_1) where (k_0 * 4 + k_1 < n - 1) {
        reads X[vk:1];
        writes Y[v:1];
        init {
          Y[v] = 0.0f32;
        }
        Y[v] = Y[v] + X[vk];
      }
    }
  }
}
)");
  const absl::StatusOr<ir::Function> lowered = RunPipeline(sum, Rows("lower_blocks"), Context());
  ASSERT_TRUE(lowered.ok()) << support::StatusText(lowered.status());
  for (const int64_t n : {1, 2, 6}) {
    const std::vector<float> ones(static_cast<size_t>(n - 1), 1);
    ir::TensorData x, y;
    const auto* bytes = reinterpret_cast<const uint8_t*>(ones.data());
    x.bytes.assign(bytes, bytes + ones.size() * sizeof(float));
    y.bytes.assign(sizeof(float), 0x7F);
    const absl::Status run = ir::Interpret(*lowered, {n}, {&x, &y});
    ASSERT_TRUE(run.ok()) << support::StatusText(run);
    float found = -1;
    std::memcpy(&found, y.bytes.data(), sizeof found);
    EXPECT_EQ(found, static_cast<float>(n - 1));
  }
}

TEST(LowerBlocks, KeepsSharedValuesOutsideCarryingLoops) {
  CheckGolden("lower_blocks_sequential", "lower_blocks,compact_buffers", R"(
fn scan(X: f32[4] input, Y: f32[4] output) stage=scheduled {
  alloc H: f32[5] scope=global;
  for t in 0..4 {
    block H(vt: sequential 0..4 = t) {
      reads X[vt:1], H[vt:1];
      writes H[vt + 1:1];
      H[vt + 1] = X[vt] + select(vt > 0, H[vt], 0.0f32);
    }
    block Y(vt: sequential 0..4 = t) {
      reads H[vt + 1:1];
      writes Y[vt:1];
      Y[vt] = H[vt + 1];
    }
  }
}
)");
}

TEST(CompactBuffers, ShrinksToTheTileAndKeepsItsFullExtent) {
  CheckGolden("compact_buffers", "lower_blocks,compact_buffers", kTiledMatmul);
}

TEST(CompactBuffers, RowsOfVectorsAreWholeVectors) {
  CheckGolden("compact_buffers_rows", "lower_blocks,compact_buffers", R"(
fn rows(A: f32[8,12] input, C: f32[8,12] output) stage=scheduled {
  alloc T: f32[8,12] scope=local;
  for io in 0..2 {
    for i in 0..4 {
      for jo in 0..2 {
        for ji in 0..8 vectorized {
          block T(vi: spatial 0..8 = io * 4 + i, vj: spatial 0..12 = jo * 8 + ji) where (jo * 8 + ji < 12) {
            reads A[vi:1, vj:1];
            writes T[vi:1, vj:1];
            T[vi, vj] = A[vi, vj] * 2.0f32;
          }
        }
      }
    }
    for i in 0..4 {
      for jo in 0..2 {
        for ji in 0..8 vectorized {
          block C(vi: spatial 0..8 = io * 4 + i, vj: spatial 0..12 = jo * 8 + ji) where (jo * 8 + ji < 12) {
            reads T[vi:1, vj:1];
            writes C[vi:1, vj:1];
            C[vi, vj] = T[vi, vj] + 1.0f32;
          }
        }
      }
    }
  }
}
)");
}

// Sums of tiles of four rows, from a copy of these rows with zeros behind the last one. `mark` is
// that of the loop over tiles, `from` what the sums read, `at` the row that they lie in.
std::string OpenTiles(const std::string& mark, const std::string& from, const std::string& at) {
  const std::string sums = "S[" + at + ", j]";
  return R"(
fn tiles(n: size, A: f32[n,5] input, B: f32[5,8] constant, C: f32[n,8] output) stage=loops {
  for io in 0..floordiv(n + 3, 4))" +
         mark + R"( {
    alloc P: f32[4,5] scope=global {
      for r in 0..4 {
        for k in 0..5 {
          if (io * 4 + r < floordiv(n + 3, 4) * 4) {
            P[r, k] = select(io * 4 + r < n, A[io * 4 + r, k], 0.0f32);
          }
        }
      }
      alloc S: f32[4,8] scope=local {
        for r in 0..4 unrolled {
          for j in 0..8 vectorized {
            if (io * 4 + r < n) {
              )" +
         sums + R"( = 0.0f32;
            }
          }
        }
        for k in 0..5 {
          for r in 0..4 unrolled {
            for j in 0..8 vectorized {
              if (io * 4 + r < n && j < 7) {
                )" +
         sums + " = " + sums + " + " + from + R"( * B[k, j];
              }
            }
          }
        }
        for r in 0..4 unrolled {
          for j in 0..8 vectorized {
            if (io * 4 + r < n) {
              C[io * 4 + r, j] = )" +
         sums + R"(;
            }
          }
        }
      }
    }
  }
}
)";
}

// Conditions stay around results, around what is not there without them, around what would be
// written twice, and where they are those of a marked loop.
TEST(DropGuards, OfTilesThatTheFunctionKeeps) {
  struct Case {
    const char *mark, *from, *at;
    int conditions;
  };
  const Case cases[] = {{"", "P[r, k]", "r", 2},
                        {"", "A[io * 4 + r, k]", "r", 3},
                        {"", "P[r, floordiv(k * n, n + 1)]", "r", 3},
                        {"", "P[r, k]", "min(r, n - 1)", 3},
                        {" @{tail=\"peel\"}", "P[r, k]", "r", 3}};
  for (const Case& c : cases) {
    const ir::Function before = Parsed(OpenTiles(c.mark, c.from, c.at));
    const absl::StatusOr<ir::Function> after =
        RunPipeline(before, Rows("simplify,drop_guards"), Context());
    ASSERT_TRUE(after.ok()) << support::StatusText(after.status());
    const std::string text = ir::Print(*after);
    EXPECT_EQ(tests::CountOf(text, "if ("), c.conditions) << text;
    if (c.conditions == 2) {
      EXPECT_TRUE(tests::MatchesGolden("transform/drop_guards.tir", text));
    }
    for (int64_t n = 1; n <= 9; ++n) {
      const absl::Status same = tests::SameResults(before, *after, {.sizes = {n}});
      EXPECT_TRUE(same.ok()) << n << support::StatusText(same) << text;
    }
  }
}

TEST(PartitionLoops, PeelsRaggedTiles) {
  CheckGolden("partition_loops", "lower_blocks,compact_buffers,simplify,partition_loops",
              kTiledMatmul);
}

TEST(PartitionLoops, AsksInsideParallelAndFusedLoops) {
  CheckGolden("partition_loops_fused", "lower_blocks,simplify,partition_loops", R"(
fn add(X: f32[10,6] input, Y: f32[10,6] output) stage=scheduled {
  for f in 0..9 parallel @{tail="peel"} {
    for i in 0..4 {
      for j in 0..2 {
        block Y(vi: spatial 0..10 = floordiv(f, 3) * 4 + i, vj: spatial 0..6 = floormod(f, 3) * 2 + j)
            where (floordiv(f, 3) * 4 + i < 10) {
          reads X[vi:1, vj:1];
          writes Y[vi:1, vj:1];
          Y[vi, vj] = X[vi, vj] + 1.0f32;
        }
      }
    }
  }
}
)");
}

// C[i, j] += A[i, k] * B[k, j] for so many rows, in tiles of 4. `kind` is that of the loop over
// tiles.
std::string OpenRows(const std::string& kind, const std::string& rows) {
  return "fn rows(n: size, A: f32[n,5] input, B: f32[5,3] constant, C: f32[" + rows +
         ",3] output) stage=scheduled {\n  for io in 0..floordiv(n + 3, 4)" + kind +
         R"( @{tail="peel"} {
    for k in 0..5 {
      for ii in 0..4 unrolled {
        for j in 0..3 {
          block C(vi: spatial 0..n = io * 4 + ii, vj: spatial 0..3 = j, vk: reduce 0..5 = k)
              where (io * 4 + ii < )" +
         rows + R"() {
            reads A[vi:1, vk:1], B[vk:1, vj:1];
            writes C[vi:1, vj:1];
            init {
              C[vi, vj] = 0.0f32;
            }
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj];
          }
        }
      }
    }
  }
}
)";
}

TEST(PartitionLoops, CopiesRemaindersOfOpenLoopsByRows) {
  constexpr char kPasses[] = "lower_blocks,simplify,partition_loops";
  for (const char* kind : {"", " parallel"}) {
    // n - 1 rows leave two tiles unfinished at some sizes, so those keep their conditions.
    for (const char* rows : {"n", "n - 1"}) {
      const ir::Function before = Parsed(OpenRows(kind, rows));
      const absl::StatusOr<ir::Function> after = RunPipeline(before, Rows(kPasses), Context());
      ASSERT_TRUE(after.ok()) << support::StatusText(after.status());
      const std::string text = ir::Print(*after);
      if (std::string(rows) == "n" && *kind == 0) {
        EXPECT_TRUE(tests::MatchesGolden("transform/partition_loops_open_rows.tir", text));
      }
      for (int64_t n = 2; n <= 13; ++n) {
        const absl::Status same = tests::SameResults(before, *after, {.sizes = {n}});
        EXPECT_TRUE(same.ok()) << n << kind << " " << rows << support::StatusText(same) << text;
      }
    }
  }
}

// Rows that are a quotient themselves, as those of an image after convolutions with strides.
TEST(PartitionLoops, WholeTilesOfQuotientsHaveNoConditions) {
  const std::string rows = "floordiv(floordiv(n + 1, 2), 3)";
  std::string written = OpenRows("", rows);
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"(n + 3", "(" + rows + " + 3"},
                                 {"0..n =", "0.." + rows + " ="}}) {
    const size_t at = written.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    written.replace(at, from.size(), to);
  }
  const ir::Function before = Parsed(written);
  const absl::StatusOr<ir::Function> after =
      RunPipeline(before, Rows("lower_blocks,simplify,partition_loops"), Context());
  ASSERT_TRUE(after.ok()) << support::StatusText(after.status());
  const std::string text = ir::Print(*after);
  const size_t remainder = text.find("for io in floordiv(n + 1, 24)..+");
  ASSERT_NE(remainder, std::string::npos) << text;
  EXPECT_EQ(text.substr(0, remainder).find("if ("), std::string::npos) << text;
  for (int64_t n = 5; n <= 60; ++n) {
    const absl::Status same = tests::SameResults(before, *after, {.sizes = {n}});
    EXPECT_TRUE(same.ok()) << n << support::StatusText(same) << text;
  }
}

// Of a marked open loop that goes over blocks of four, only the last one asks what lies behind the
// end, also where another bound may end the loop.
TEST(PartitionLoops, CutsMarkedOpenLoopsByChoices) {
  for (const char* end : {"floordiv(n + 3, 4)", "min(floordiv(n + 3, 4), floordiv(n + 1, 2))"}) {
    const ir::Function before = Parsed(support::StrCat(R"(
fn blocks(n: size, A: f32[n] input, Y: f32[floordiv(n + 3, 4), 4] output) stage=scheduled {
  for t in 0..)",
                                                       end, R"( @{tail="peel"} {
    for k in 0..4 {
      block Y(vt: spatial 0..floordiv(n + 3, 4) = t, vk: spatial 0..4 = k) {
        reads A[min(vt * 4 + vk, n - 1):1];
        writes Y[vt:1, vk:1];
        Y[vt, vk] = select(vt * 4 + vk < n, A[min(vt * 4 + vk, n - 1)], 0.0f32);
      }
    }
  }
}
)"));
    const absl::StatusOr<ir::Function> after =
        RunPipeline(before, Rows("lower_blocks,simplify,partition_loops"), Context());
    ASSERT_TRUE(after.ok()) << support::StatusText(after.status());
    const std::string text = ir::Print(*after);
    if (*end == 'f') {
      EXPECT_TRUE(tests::MatchesGolden("transform/partition_loops_open_choice.tir", text));
    }
    EXPECT_NE(text.find("] = A[t * 4 + k];"), std::string::npos) << text;
    for (int64_t n = 1; n <= 13; ++n) {
      const absl::Status same = tests::SameResults(before, *after, {.sizes = {n}});
      EXPECT_TRUE(same.ok()) << n << " " << end << support::StatusText(same) << text;
    }
  }
}

// Of an open loop over a padded row, whatever its kind and the width of its tiles, only the first
// and the last iterations ask what is outside.
TEST(PartitionLoops, CutsBordersOffOpenLoops) {
  struct Case {
    const char *kind, *mark;
    int pad, tile;
  };
  const Case cases[] = {
      {"", "", 1, 1}, {" parallel", "", 1, 1},         {"", "", 3, 1},
      {"", "", 1, 4}, {"", " @{tail=\"peel\"}", 1, 4}, {" parallel", " @{tail=\"peel\"}", 2, 4}};
  for (const Case& c : cases) {
    const std::string x = support::StrCat("vi + vk - ", c.pad), tile = support::StrCat(c.tile);
    const ir::Function before = Parsed(support::StrCat(
        R"(
fn conv(n: size, X: f32[n,3] input, W: f32[7] constant, Y: f32[n] output) stage=scheduled {
  for io in 0..floordiv(n + )",
        c.tile - 1, ", ", tile, ")", c.kind, c.mark, R"( {
    for k in 0..)",
        2 * c.pad + 1, R"( {
      for ii in 0..)",
        tile, R"( unrolled {
        block Y(vi: spatial 0..n = io * )",
        tile, " + ii, vk: reduce 0..", 2 * c.pad + 1, R"( = k) where (io * )", tile, R"( + ii < n) {
          reads X[min(max()",
        x, ", 0), n - 1):1, 0:1], W[vk:1];\n          writes Y[vi:1];\n          init {\n",
        "            Y[vi] = 0.0f32;\n          }\n          Y[vi] = Y[vi] + select(", c.pad - 1,
        " < vi + vk && vi + vk < n + ", c.pad, ", X[", x, ", 0], 0.0f32) * W[vk];\n",
        "        }\n      }\n    }\n  }\n}\n"));
    const absl::StatusOr<ir::Function> after = RunPipeline(
        before, Rows("lower_blocks,compact_buffers,simplify,partition_loops"), Context());
    ASSERT_TRUE(after.ok()) << support::StatusText(after.status());
    const std::string text = ir::Print(*after);
    if (c.pad == 3) {
      EXPECT_TRUE(tests::MatchesGolden("transform/partition_loops_open_borders.tir", text));
    }
    // The iterations inside read what is there.
    const std::string inside =
        support::StrCat(" + X[", c.tile == 1 ? "io" : "io * 4 + ii", " + k - ");
    EXPECT_NE(text.find(inside), std::string::npos) << text;
    for (int64_t n = 1; n <= 22; ++n) {
      const absl::Status same = tests::SameResults(before, *after, {.sizes = {n}});
      EXPECT_TRUE(same.ok()) << n << c.kind << support::StatusText(same) << text;
    }
  }
}

TEST(PartitionLoops, CutsBordersOffPaddedImages) {
  CheckGolden("partition_loops_borders", "lower_blocks,simplify,partition_loops", R"(
fn conv(X: f32[12,12] input, Y: f32[12,12] output) stage=scheduled {
  for i in 0..12 {
    for j in 0..3 {
      for c in 0..4 unrolled {
        block Y(vi: spatial 0..12 = i, vj: spatial 0..12 = j * 4 + c) {
          reads X[0:12, 0:12];
          writes Y[vi:1, vj:1];
          Y[vi, vj] = select(1 <= vi && vi < 11 && 2 <= vj, X[vi + 1, vj - 2], 0.0f32)
                      + select(1 <= vi && vi < 11 && vj < 10, X[vi - 1, vj + 2], 0.0f32);
        }
      }
    }
  }
}
)");
}

TEST(DropZeroTerms, LeavesOutWhatLiesOutsideOfAnImage) {
  CheckGolden("drop_zero_terms", "drop_zero_terms", R"(
fn conv(X: f32[4] input, W: f32[2] constant, Y: f32[1] output) stage=loops {
  alloc S: f32[1] scope=local {
    S[0] = 0.0f32;
    for k in 0..2 {
      S[0] = S[0] + 0.0f32 * W[k];
    }
    S[0] = S[0] + X[1] * W[1];
    S[0] = S[0] + 0.0f32 * X[2];
    Y[0] = S[0];
  }
  alloc T: f32[1] scope=global {
    T[0] = X[0];
    T[0] = T[0] + 0.0f32 * W[0];
    Y[0] = T[0];
  }
  Y[0] = Y[0] + 0.0f32 * W[0];
}
)");
  CheckGolden("drop_zero_vectors", "drop_zero_terms", R"(
fn conv(X: f32[8] input, W: f32[2] constant, Y: f32[8] output) stage=flat {
  alloc S: f32[8] scope=local {
    S[ramp(0, 1, 8)] = broadcast(0.0f32, 8);
    for k in 0..2 {
      S[ramp(0, 1, 8)] = S[ramp(0, 1, 8)] + broadcast(0.0f32 * W[k], 8);
    }
    S[ramp(0, 1, 8)] = S[ramp(0, 1, 8)] + broadcast(2.0f32 * W[1], 8);
    S[ramp(0, 1, 8)] = S[ramp(0, 1, 8)] + X[ramp(0, 1, 8)] * broadcast(W[1], 8);
    Y[ramp(0, 1, 8)] = S[ramp(0, 1, 8)];
  }
}
)");
  CheckGolden("drop_zero_dots", "drop_zero_terms", R"(
fn conv(X: u8[8] input, W: i8[16] constant, Y: i32[4] output) stage=flat {
  Y[ramp(0, 1, 4)] = broadcast(0i32, 4);
  Y[ramp(0, 1, 4)] = dot4(Y[ramp(0, 1, 4)], broadcast(0u8, 4), W[ramp(0, 1, 16)]);
  Y[ramp(0, 1, 4)] = dot4(Y[ramp(0, 1, 4)], X[ramp(4, 1, 4)], W[ramp(0, 1, 16)]);
}
)");
}

TEST(NarrowArithmetic, ComputesInF16WhereResultsAreRoundedToIt) {
  const std::string text = R"(
fn f(X: f16[8] input, Y: f16[8] input, Z: f16[8] output) stage=loops {
  for i in 0..8 {
    Z[i] = f16(f32(X[i]) * 0.5f32);
    Z[i] = f16(sqrt(max(f32(f16(f32(Z[i]) + f32(Y[i]))), 0.0f32)));
    Z[i] = f16(select(f32(X[i]) < 1.0f32, abs(f32(Z[i])), f32(Y[i]) / 3.0f32));
    Z[i] = f16(f32(X[i]) * 0.1f32);
    Z[i] = f16(f32(X[i]) * f32(Y[i]) + f32(Z[i]));
    Z[i] = f16(fma(f32(X[i]), f32(Y[i]), f32(Z[i])));
  }
}
)";
  CheckGolden("narrow_arithmetic", "narrow_arithmetic,contract_fma", text,
              Context("sapphirerapids"));
  CheckGolden("narrow_arithmetic_without", "narrow_arithmetic,contract_fma", text,
              Context("znver4"));
}

// The program of keep_sums: a loop over k with this body, on sums S that are set before it and
// copied to the result behind it.
std::string Summing(std::string_view body, std::string_view turns = "0..32") {
  return support::StrCat(
      "fn f(W: f32[1024] constant, Z: f32[20] output, Y: f32[20] output) stage=loops {\n"
      "  alloc S: f32[20] scope=global {\n    for i in 0..20 {\n      S[i] = 0.5f32;\n      Z[i] = "
      "0.0f32;\n    }\n    for k in ",
      turns, " {\n", body, "    }\n    for i in 0..20 {\n      Y[i] = S[i];\n    }\n  }\n}\n");
}

TEST(KeepSums, AreInRegistersWhileALoopAddsToThem) {
  CheckGolden("keep_sums", "keep_sums",
              Summing("S[ramp(0, 1, 8)] = S[ramp(0, 1, 8)] + W[ramp(k * 20, 1, 8)];\n"
                      "S[ramp(8, 1, 8)] = S[ramp(8, 1, 8)] + W[ramp(k * 20 + 8, 1, 8)] * "
                      "S[ramp(0, 1, 8)];\n"
                      "S[16] = S[16] + W[k * 20 + 16] * W[k];\n"
                      "S[16] = S[16] * 0.5f32;\n"));
}

TEST(KeepSums, OnlyWhereALoopTouchesNothingElseOfTheBuffer) {
  const std::pair<const char*, std::string> bodies[] = {
      {"kept", "S[0] = S[0] + W[k];\n"},
      {"moves with the loop", "S[min(k, 19)] = S[min(k, 19)] + W[k];\n"},
      {"a neighbour is read", "S[0] = S[0] + S[1];\n"},
      {"places overlap",
       "S[ramp(0, 1, 8)] = S[ramp(0, 1, 8)] + W[ramp(k, 1, 8)];\n"
       "S[ramp(4, 1, 8)] = S[ramp(4, 1, 8)] + W[ramp(k, 1, 8)];\n"},
      {"of several widths",
       "S[ramp(0, 1, 8)] = S[ramp(0, 1, 8)] + W[ramp(k, 1, 8)];\n"
       "S[3] = S[3] + W[k];\n"},
      {"every other element", "S[ramp(0, 2, 8)] = S[ramp(0, 2, 8)] + W[ramp(k, 1, 8)];\n"},
      {"another buffer, too", "S[0] = S[0] + W[k];\nZ[min(k, 19)] = S[0];\n"},
      {"an output, whose storage may be an operand's", "Z[0] = Z[0] + W[k];\n"},
      {"nothing is read", "S[0] = W[k];\n"},
      {"a choice", "if (k < 3) {\nS[0] = S[0] + W[k];\n}\n"},
  };
  for (const auto& [what, body] : bodies) {
    const ir::Function before = Parsed(Summing(body));
    const auto after = RunPipeline(before, Rows("keep_sums"), Context());
    ASSERT_TRUE(after.ok()) << what << after.status();
    EXPECT_EQ(tests::CountOf(ir::Print(*after), "alloc"), std::string_view(what) == "kept" ? 2 : 1)
        << what << ir::Print(*after);
    const absl::Status same = tests::SameResults(before, *after);
    EXPECT_TRUE(same.ok()) << what << support::StatusText(same);
  }
  // Sums that do not fit the registers, and a loop of one turn, gain nothing.
  std::string many;
  for (int i = 0; i < 20; ++i) many += support::StrCat("S[", i, "] = S[", i, "] + W[k];\n");
  PassContext context = Context();
  for (const auto& [registers, turns] : {std::pair(32, "0..32"), {16, "0..32"}, {32, "0..1"}}) {
    context.target.machine.vector_registers = registers;
    const auto after = RunPipeline(Parsed(Summing(many, turns)), Rows("keep_sums"), context);
    ASSERT_TRUE(after.ok()) << after.status();
    const bool kept = registers == 32 && std::string_view(turns) == "0..32";
    EXPECT_EQ(tests::CountOf(ir::Print(*after), "alloc"), kept ? 2 : 1) << registers << turns;
  }
}

TEST(PrefetchConstants, AsksAheadForLargeWeightsThatAreUsedOften) {
  // W is far away and used eight times, V as often but small, U only once.
  std::string body;
  for (int row = 0; row < 8; ++row) {
    const std::string at = "Y[ramp(" + std::to_string(row * 16) + ", 1, 16)]";
    body += "    " + at + " = " + at + " + W[ramp(k * 16, 1, 16)] * V[ramp(0, 1, 16)];\n";
  }
  CheckGolden("prefetch_constants", "prefetch_constants",
              "fn f(W: f32[131072] constant, V: f32[16] constant, U: f32[131072] constant, "
              "Y: f32[128] output) stage=loops {\n  for i in 0..128 {\n    Y[i] = 0.0f32;\n  }\n  "
              "for k in 0..8192 {\n" +
                  body + "  }\n  for k in 0..8192 {\n    Y[ramp(0, 1, 16)] = Y[ramp(0, 1, 16)] + " +
                  "U[ramp(k * 16, 1, 16)];\n  }\n}\n");
}

// Neighbours along a cache line are asked for once, and how far ahead the machine says.
TEST(PrefetchConstants, AsksForEachLineOnce) {
  std::string body;
  for (int row = 0; row < 8; ++row) {
    for (int part = 0; part < 4; ++part) {
      body += support::StrCat("    Y[ramp(", row * 16 + part * 4, ", 1, 4)] = W[ramp(k * 16 + ",
                              part * 4, ", 1, 4)];\n");
    }
  }
  const auto f = ir::ParseFunction(
      support::StrCat("fn f(W: f32[131072] constant, Y: f32[128] output) stage=loops {\n",
                      "  for k in 0..8192 {\n", body, "  }\n}\n"));
  ASSERT_TRUE(f.ok()) << f.status();
  const auto prefetches = [&](int64_t line_bytes, int64_t from_bytes) {
    PassContext context;
    context.target.machine.l1.line_bytes = line_bytes;
    context.target.machine.prefetch.from_bytes = from_bytes;
    const auto result = PrefetchConstants(*f, context);
    EXPECT_TRUE(result.ok()) << result.status();
    int count = 0;
    ir::VisitStmts(result->body, [&](const ir::Stmt& s) {
      count += s->kind == ir::StmtKind::kEvaluate;
      return true;
    });
    return count;
  };
  EXPECT_EQ(prefetches(64, 1 << 10), 1);
  EXPECT_EQ(prefetches(32, 1 << 10), 2);
  EXPECT_EQ(prefetches(16, 1 << 10), 4);
  EXPECT_EQ(prefetches(64, 1 << 20), 0) << "near";
}

// Each use of words of four bytes is as much work as four uses of a vector of floats.
TEST(PrefetchConstants, WordsOfADotProductCountFourTimes) {
  const auto prefetches = [](int dots) {
    std::string body;
    for (int i = 0; i < dots; ++i) {
      const std::string at = support::StrCat("Y[ramp(", 16 * i, ", 1, 16)]");
      body += support::StrCat("    ", at, " = dot4(", at,
                              ", X[ramp(0, 1, 4)], bit_and(W[ramp(k * 16, 1, 16)], "
                              "broadcast(252645135i32, 16)));\n");
    }
    const auto f = ir::ParseFunction(
        support::StrCat("fn f(X: i8[4] input, W: i32[131072] constant, Y: i32[32] output) "
                        "stage=flat {\n  for k in 0..8192 {\n",
                        body, "  }\n}\n"));
    EXPECT_TRUE(f.ok()) << f.status();
    const auto result = PrefetchConstants(*f, PassContext());
    EXPECT_TRUE(result.ok()) << result.status();
    int count = 0;
    ir::VisitStmts(result->body, [&](const ir::Stmt& s) {
      count += s->kind == ir::StmtKind::kEvaluate;
      return true;
    });
    return count;
  };
  EXPECT_EQ(prefetches(2), 1);
  EXPECT_EQ(prefetches(1), 0);
}

TEST(FlattenBuffers, RowMajor) {
  CheckGolden("flatten_buffers", "lower_blocks,compact_buffers,simplify,flatten_buffers,simplify",
              kTiledMatmul);
}

TEST(VectorizeLoops, RampsMasksAndBroadcasts) {
  CheckGolden("vectorize_loops",
              "lower_blocks,compact_buffers,simplify,flatten_buffers,simplify,vectorize_loops",
              kTiledMatmul);
}

constexpr char kVectorCases[] = R"(
fn cases(X: f32[64] input, K: i32[8] constant, Y: f32[64] output, Z: f32[8] output) stage=loops {
  for i in 0..64 {
    Y[i] = 0.0f32;
  }
  for v in 0..8 vectorized {
    Y[v * 3] = X[63 - v] * X[5];
    Y[v + 24] = select(v + 2 < 6, X[v + 60], X[0]);
    if (v + 1 < 7) {
      Y[floormod(v * 5, 8) + 32] = X[v] + f32(v);
    }
    for k in 0..2 {
      Y[v + 40] = Y[v + 40] + X[v * 4 + k];
    }
  }
  for v in 0..8 vectorized {
    Z[v] = f32(K[v]);
  }
}
)";

TEST(VectorizeLoops, StridesGathersAndConditions) {
  CheckGolden("vectorize_loops_cases", "vectorize_loops,simplify", kVectorCases);
}

// A lane that a mask leaves out is +0, so the choice between a load and that is the load.
TEST(VectorizeLoops, AChoiceOfZeroIsAMask) {
  CheckGolden("vectorize_loops_zero", "vectorize_loops,simplify", R"(
fn padded(X: f32[64] input, Y: f32[48] output) stage=loops {
  for v in 0..8 vectorized {
    Y[v] = select(0 < v, X[v + 7], 0.0f32);
    Y[v + 8] = select(v < 5, 0.0f32, X[v + 7]);
    Y[v + 16] = select(0 < v, X[v + 7], -0.0f32);
    Y[v + 24] = select(0 < v, X[v + 7] * 2.0f32, 0.0f32);
    Y[v + 32] = select(0 < v, 0.0f32, 0.0f32);
    Y[v + 40] = X[v];
    if (v < 6) {
      Y[v + 40] = select(0 < v, X[3], 0.0f32);
    }
  }
}
)");
}

// The simplifier knows the lane below such a condition, so that nothing there is a vector.
TEST(VectorizeLoops, OneLaneIsNoVector) {
  CheckGolden("vectorize_loops_one_lane", "vectorize_loops,simplify", R"(
fn one(X: f32[33] input, Y: f32[1] output) stage=loops {
  for u in 0..2 unrolled {
    for v in 0..8 vectorized {
      if (u * 8 + v < 1) {
        Y[0] = X[32] * 2.0f32;
      }
    }
  }
}
)");
}

TEST(VectorizeLoops, KeepsWhatHasNoVectorForm) {
  // A loop bound that depends on the lane.
  CheckGolden("vectorize_loops_serial", "vectorize_loops", R"(
fn serial(X: f32[8] input, Y: f32[8] output) stage=loops {
  for v in 0..8 vectorized {
    Y[v] = 0.0f32;
    for k in 0..v {
      Y[v] = Y[v] + X[k];
    }
  }
}
)");
}

TEST(UnrollLoops, ReplicatesMarkedLoopsAndLoopsOverRegisters) {
  CheckGolden("unroll_loops",
              "lower_blocks,compact_buffers,simplify,partition_loops,flatten_buffers,simplify,"
              "vectorize_loops,unroll_loops,simplify",
              kTiledMatmul);
}

TEST(UnrollLoops, HonoursUnrollMax) {
  CheckGolden("unroll_loops_max", "unroll_loops,simplify", R"(
fn fill(Y: f32[24] output) stage=loops {
  for i in 0..2 @{unroll_max=6} {
    for j in 0..4 {
      for k in 0..3 {
        Y[i * 12 + j * 3 + k] = 1.0f32;
      }
    }
  }
}
)");
}

// Masks that a short loop changes are the same in the loops around it once it is written out.
TEST(UnrollLoops, WritesOutLoopsThatChangeMasks) {
  CheckGolden("unroll_loops_masks", "unroll_loops,simplify", R"(
fn rows(X: f32[256] input, W: f32[12] constant, Y: f32[8] output) stage=flat {
  alloc S: f32[8] scope=local {
    S[ramp(0, 1, 8)] = broadcast(0.0f32, 8);
    for c in 0..4 {
      for k in 0..3 {
        S[ramp(0, 1, 8)] = S[ramp(0, 1, 8)] + X[ramp(c * 8 + k - 1, 1, 8)] masked(broadcast(0, 8) < ramp(k, 1, 8)) * broadcast(W[c * 3 + k], 8);
      }
      for k in 0..200 {
        S[ramp(0, 1, 8)] = S[ramp(0, 1, 8)] + X[ramp(c * 8 + k - 1, 1, 8)] masked(broadcast(0, 8) < ramp(k, 1, 8));
      }
      for k in 0..3 {
        S[ramp(0, 1, 8)] = S[ramp(0, 1, 8)] + X[ramp(c * 8 + k, 1, 8)] masked(broadcast(c, 8) < ramp(0, 1, 8));
      }
    }
    Y[ramp(0, 1, 8)] = S[ramp(0, 1, 8)];
  }
}
)");
}

TEST(ContractFma, OnlyWhereTheTargetHasIt) {
  constexpr char kText[] = R"(
fn axpy(X: f32[4] input, Y: f32[4] output) stage=loops {
  for i in 0..4 {
    Y[i] = 2.0f32 * X[i] + 1.0f32;
  }
}
)";
  CheckGolden("contract_fma", "contract_fma", kText);
  absl::StatusOr<ir::Function> same = ContractFma(Parsed(kText), Context("x86-64"));
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(ir::Print(*same), ir::Print(Parsed(kText)));
}

// ------------------------------------------------------------------------------------------------

TEST(Pipeline, LowersToFlat) {
  absl::StatusOr<ir::Function> flat = RunPipeline(Parsed(kTiledMatmul), CpuPipeline(), Context());
  ASSERT_TRUE(flat.ok()) << support::StatusText(flat.status());
  EXPECT_EQ(flat->stage, ir::Stage::kFlat);
  absl::StatusOr<ir::Function> loops = LowerToLoops(Parsed(kTiledMatmul), Context());
  ASSERT_TRUE(loops.ok()) << support::StatusText(loops.status());
  EXPECT_EQ(loops->stage, ir::Stage::kLoops);
}

TEST(Pipeline, ErrorsNameThePassAndTheCommand) {
  PassContext ctx = Context();
  auto folder = support::TempDir::Create();
  ASSERT_TRUE(folder.ok());
  ctx.dump_dir = folder->path();
  ir::Function loops = *LowerToLoops(Parsed(kTiledMatmul), Context());
  absl::StatusOr<ir::Function> result = RunPipeline(loops, CpuPipeline(), ctx);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(support::Slug(result.status()), "transform.lower_blocks.stage");
  std::string text = support::StatusText(result.status());
  EXPECT_THAT(text, testing::HasSubstr("pass lower_blocks on matmul"));
  EXPECT_THAT(text, testing::HasSubstr("tilewright-opt " + folder->path() +
                                       "/failed_01_lower_blocks.tir --passes=lower_blocks"));
  EXPECT_TRUE(support::FileExists(folder->File("failed_01_lower_blocks.tir")));
}

TEST(Pipeline, MalformedResultsAreCaughtBetweenPasses) {
  PassRow breaks{"breaks", [](const Function& f, const PassContext&) {
                   Function broken = f;
                   ir::Var stranger = ir::MakeVar("stranger");
                   broken.body = ir::MakeStore(f.params[2], {stranger, stranger}, ir::Float(0));
                   return absl::StatusOr<Function>(broken);
                 }};
  std::vector<PassRow> rows = {Rows("lower_blocks")[0], breaks};
  absl::StatusOr<ir::Function> result = RunPipeline(Parsed(kTiledMatmul), rows, Context());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(support::Slug(result.status()), "transform.pass.malformed");
}

TEST(Pipeline, DumpsEveryPass) {
  PassContext ctx = Context();
  auto folder = support::TempDir::Create();
  ASSERT_TRUE(folder.ok());
  ctx.dump_dir = folder->path();
  ASSERT_TRUE(RunPipeline(Parsed(kTiledMatmul), CpuPipeline(), ctx).ok());
  std::vector<std::string> names = *support::ListDir(folder->path());
  EXPECT_EQ(names.size(), CpuPipeline().size() + 1);
  EXPECT_EQ(names[0], "00_input.tir");
  EXPECT_EQ(names[1], "01_lower_blocks.tir");
}

// The faults that prove that measurements check results must show on every kernel they apply to.
TEST(Miscompile, ChangesResults) {
  for (const char* kind : {"tail", "init"}) {
    PassContext ctx = Context();
    ctx.test_miscompile = kind;
    ir::Function f = Parsed(kTiledMatmul);
    absl::StatusOr<ir::Function> broken = RunPipeline(f, CpuPipeline(), ctx);
    ASSERT_TRUE(broken.ok()) << support::StatusText(broken.status());
    EXPECT_FALSE(tests::SameResults(f, *broken).ok()) << kind;
  }
  PassContext ctx = Context();
  ctx.test_miscompile = "tail";
  ir::Function even = Parsed(R"(
fn copy(X: f32[8] input, Y: f32[8] output) stage=scheduled {
  for i in 0..8 {
    block Y(v: spatial 0..8 = i) {
      reads X[v:1];
      writes Y[v:1];
      Y[v] = X[v];
    }
  }
}
)");
  absl::StatusOr<ir::Function> broken = RunPipeline(even, CpuPipeline(), ctx);
  ASSERT_TRUE(broken.ok()) << support::StatusText(broken.status());
  EXPECT_FALSE(tests::SameResults(even, *broken).ok());
}

}  // namespace
}  // namespace tilewright::transform
