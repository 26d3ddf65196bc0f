// Lowering passes on programs of open sizes: what they make of remainders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "compiler/ir/ir_text.h"
#include "deploy/support/strings.h"
#include "tests/support/count_text.h"
#include "tests/support/golden.h"
#include "tests/unit/pass_checks.h"

namespace tilewright::transform {
namespace {

// What lies wholly behind an open size takes no iterations, and a remainder of few rows is known.
TEST(PartitionLoops, LoopsEndWhereAnOpenSizeLeavesThemNothing) {
  const ir::Function before = Parsed(R"(
fn f(n: size, X: f32[n] input, Y: f32[n] output) stage=loops {
  for o in 0..floordiv(n + 31, 32) @{tail="peel"} {
    for i in 0..8 {
      alloc S: f32[4] scope=local {
        for j in 0..4 unrolled {
          if (o * 32 + i * 4 + j < n) {
            S[j] = 0.0f32;
          }
        }
        for k in 0..3 {
          for j in 0..4 unrolled {
            if (o * 32 + i * 4 + j < n) {
              S[j] = S[j] + X[o * 32 + i * 4 + j] * 2.0f32;
            }
          }
        }
        for j in 0..4 unrolled {
          if (o * 32 + i * 4 + j < n) {
            Y[o * 32 + i * 4 + j] = S[j];
          }
        }
      }
    }
  }
}
)");
  const ir::Function after = CheckSizes("partition_loops", before, 70);
  EXPECT_TRUE(tests::MatchesGolden("transform/partition_loops_open_ends.tir", ir::Print(after)));
}

// What an inner loop can be cut by is no reason to copy the outer one, and an iteration of an inner
// loop that is long chooses once.
TEST(PartitionLoops, InnerLoopsTakeTheirConditions) {
  const ir::Function before = Parsed(R"(
fn f(n: size, X: f32[n, n] input, Y: f32[n, n] output) stage=loops {
  alloc P: f32[6, n] scope=global {
    for o in 0..floordiv(n + 3, 4) {
      for r in 0..6 {
        for w in 0..n {
          P[r, w] = select(0 < o * 4 + r && o * 4 + r < n + 1, X[o * 4 + r - 1, w], 0.0f32);
        }
      }
      for i in 0..4 {
        for w in 0..n {
          if (o * 4 + i < n) {
            Y[o * 4 + i, w] = P[i, w] + P[i + 2, w];
          }
        }
      }
    }
  }
}
)");
  const ir::Function after = CheckSizes("partition_loops", before, 20);
  EXPECT_TRUE(tests::MatchesGolden("transform/partition_loops_open_inside.tir", ir::Print(after)));
}

// A tile that is larger than what it covers does no more than that.
TEST(ShortenLoops, EndWhereNothingIsDone) {
  const ir::Function before = Parsed(R"(
fn f(X: f32[8, 6] input, Y: f32[8, 6] output) stage=loops {
  for i in 0..12 unrolled {
    for j in 0..2 {
      for k in 0..4 unrolled {
        if (i < 8 && j * 4 + k < 6) {
          Y[i, j * 4 + k] = X[i, j * 4 + k];
        }
      }
    }
  }
}
)");
  const auto after = ShortenLoops(before, Context());
  ASSERT_TRUE(after.ok()) << support::StatusText(after.status());
  const absl::Status same = tests::SameResults(before, *after);
  EXPECT_TRUE(same.ok()) << support::StatusText(same) << ir::Print(*after);
  const std::string text = ir::Print(*after);
  EXPECT_NE(text.find("for i in 0..8 unrolled"), std::string::npos) << text;
  EXPECT_NE(text.find("if (j * 4 + k < 6)"), std::string::npos) << text;
}

// A choice by what the iteration itself writes is made where it stands.
TEST(PartitionLoops, ChoicesByMemoryStayInside) {
  CheckSizes("partition_loops", Parsed(R"(
fn f(n: size, X: f32[n] input, I: i64[n] input, Y: f32[n, n] output) stage=loops {
  alloc P: i64[1] scope=global {
    P[0] = 0i64;
    for o in 0..n {
      for r in 0..2 {
        P[0] = max(I[o], 2i64) - P[0];
        for w in 0..n {
          Y[o, w] = select(P[0] < r + o, X[w], 2.0f32);
        }
      }
    }
  }
}
)"),
             20);
  CheckSizes("partition_loops", Parsed(R"(
fn f(n: size, X: f32[n] input, I: i64[n] input, Y: f32[n] output) stage=loops {
  alloc P: i64[1] scope=global {
    P[0] = n - 1;
    for o in 0..n {
      Y[o] = 0.0f32;
    }
    for o in 0..n {
      if (o < P[0]) {
        Y[o] = X[o];
        P[0] = P[0] - 1;
      }
    }
  }
}
)"),
             20);
}

// A remainder of vectors has code of its own for each number of them.
TEST(PartitionLoops, RemaindersOfVectorsAreKnownByTheirNumber) {
  const ir::Function before = Parsed(R"(
fn f(n: size, X: f32[n] input, Y: f32[n] output) stage=loops {
  for o in 0..floordiv(n + 23, 24) @{tail="peel"} {
    alloc S: f32[24] scope=local {
      for k in 0..3 {
        for i in 0..3 unrolled {
          for j in 0..8 vectorized {
            if (o * 24 + i * 8 + j < n) {
              S[i * 8 + j] = X[o * 24 + i * 8 + j] * 2.0f32;
            }
          }
        }
      }
      for i in 0..3 unrolled {
        for j in 0..8 vectorized {
          if (o * 24 + i * 8 + j < n) {
            Y[o * 24 + i * 8 + j] = S[i * 8 + j];
          }
        }
      }
    }
  }
}
)");
  const ir::Function after = CheckSizes("partition_loops", before, 80);
  EXPECT_TRUE(tests::MatchesGolden("transform/partition_loops_open_vectors.tir", ir::Print(after)));
  // Of one vector, the others are not there, once they are written out.
  const ir::Function flat =
      CheckSizes("partition_loops,vectorize_loops,unroll_loops,simplify", before, 80);
  EXPECT_EQ(tests::CountOf(ir::Print(flat), "for k"), 4);
  EXPECT_EQ(tests::CountOf(ir::Print(flat), " = X["), 3 + 3 + 2 + 1) << ir::Print(flat);
}

// The sums of a tile of 16 columns, of which an open size leaves some out: its second vector may
// have none at all. `more` is what else a step of the sum does.
std::string MaskedSums(std::string_view more = "", std::string_view scope = "local") {
  const std::string first = "masked(ramp(t * 16, 1, 8) < broadcast(n, 8))";
  const std::string next = "masked(ramp(t * 16 + 8, 1, 8) < broadcast(n, 8))";
  const auto pair = [&](std::string_view of_first, std::string_view of_next) {
    return support::StrCat(of_first, "if (t * 16 < n - 8) {\n", of_next, "}\n");
  };
  const std::string a = "S[ramp(0, 1, 8)]", b = "S[ramp(8, 1, 8)]";
  const std::string x = "X[ramp(t * 16, 1, 8)] ", y = "X[ramp(t * 16 + 8, 1, 8)] ";
  const auto store = [](const std::string& place, const std::string& mask,
                        const std::string& value) {
    return support::StrCat(place, " ", mask, " = ", value, ";\n");
  };
  const std::string zero = "broadcast(0.0f32, 8)", w = " * broadcast(W[k], 8)";
  return support::StrCat(
      "fn f(n: size, X: f32[n] input, W: f32[4] constant, Y: f32[n] output) stage=flat {\n"
      "for t in 0..floordiv(n + 15, 16) {\nalloc S: f32[16] scope=",
      scope, " {\n", pair(store(a, first, zero), store(b, next, zero)), "for k in 0..4 {\n",
      pair(store(a, first, a + " " + first + " + " + x + first + w),
           store(b, next, b + " " + next + " + " + y + next + w)),
      more, "}\n",
      pair(store("Y[ramp(t * 16, 1, 8)]", first, a + " " + first),
           store("Y[ramp(t * 16 + 8, 1, 8)]", next, b + " " + next)),
      "}\n}\n}\n");
}

TEST(DropMasks, WritesVectorsOfALocalBufferWhole) {
  const ir::Function after = CheckSizes("drop_masks", Parsed(MaskedSums()), 40);
  EXPECT_TRUE(tests::MatchesGolden("transform/drop_masks.tir", ir::Print(after)));
}

TEST(DropMasks, OnlyWhereNothingElseIsWrittenToThem) {
  const std::string mask = " masked(ramp(t * 16, 1, 8) < broadcast(n, 8))";
  const std::pair<const char*, std::string> programs[] = {
      {"goes", MaskedSums()},
      {"a store of all lanes", MaskedSums("S[ramp(0, 1, 8)] = broadcast(1.0f32, 8);\n")},
      {"of other lanes", MaskedSums("S[ramp(4, 1, 4)] masked(ramp(t * 16, 1, 4) < "
                                    "broadcast(n, 4)) = broadcast(1.0f32, 4);\n")},
      {"a mask that changes",
       MaskedSums("S[ramp(0, 1, 8)] masked(ramp(t * 16 + k, 1, 8) < broadcast(n, 8)) = "
                  "broadcast(1.0f32, 8);\n")},
      {"a condition that changes",
       MaskedSums("if (k < 2) {\nS[ramp(0, 1, 8)]" + mask + " = broadcast(1.0f32, 8);\n}\n")},
      {"places that move", MaskedSums("S[ramp(k, 1, 8)]" + mask + " = broadcast(1.0f32, 8);\n")},
      {"memory", MaskedSums("", "global")},
  };
  for (const auto& [what, text] : programs) {
    const auto after = RunPipeline(Parsed(text), Rows("drop_masks"), Context());
    ASSERT_TRUE(after.ok()) << what << after.status();
    EXPECT_EQ(ir::Print(*after) == ir::Print(Parsed(text)), std::string_view(what) != "goes")
        << what << ir::Print(*after);
  }
}

// Nor is anything divided by a size that may be zero.
TEST(DropMasks, DivisionsKeepTheirCondition) {
  const auto text = [](std::string_view divisor) {
    return support::StrCat(
        "fn f(n: size, X: i32[4] input, Y: i32[4] output) stage=flat {\nfor t in 0..4 {\n"
        "alloc S: i32[1] scope=local {\nif (t < n) {\nS[0] = X[0] / ",
        divisor, ";\n}\nY[t] = 1i32;\nif (t < n) {\nY[t] = S[0];\n}\n}\n}\n}\n");
  };
  const ir::Function by_seven = CheckSizes("drop_masks", Parsed(text("7i32")), 5);
  EXPECT_EQ(tests::CountOf(ir::Print(by_seven), "if ("), 1);
  const ir::Function by_size = CheckSizes("drop_masks", Parsed(text("i32(n - t)")), 5);
  EXPECT_EQ(tests::CountOf(ir::Print(by_size), "if ("), 2);
}

// A row that is not there is not read, whatever the mask says of its columns.
TEST(DropMasks, LoadsGetTheConditionThatTheirMaskDoesNotImply) {
  const std::string mask = "masked(ramp(0, 1, 8) < broadcast(n, 8))";
  const std::string text =
      "fn f(n: size, X: f32[n * n] input, Y: f32[n] output) stage=flat {\nfor i in 0..4 {\n"
      "alloc S: f32[8] scope=local {\nif (i < n) {\nS[ramp(0, 1, 8)] " +
      mask + " = X[ramp(i * n, 1, 8)] " + mask + ";\n}\nif (i < n) {\nY[ramp(0, 1, 8)] " + mask +
      " = S[ramp(0, 1, 8)] " + mask + ";\n}\n}\n}\n}\n";
  const ir::Function after = CheckSizes("drop_masks", Parsed(text), 8);
  EXPECT_NE(ir::Print(after).find("masked(broadcast(i < n, 8) && ramp"), std::string::npos)
      << ir::Print(after);
}

// Sums of a tile of four that goes along the rows of an open length, one row after the other.
// `init` and `update` are what the two nests ask for, `mark` what the loop says.
std::string TiledSums(std::string_view mark, std::string_view init, std::string_view update,
                      std::string_view places = "floordiv(t * 4 + i, n), floormod(t * 4 + i, n)") {
  const std::string s = support::StrCat("S[", places, "]");
  return support::StrCat(
      "fn f(n: size, X: f32[3 * n] input, W: f32[5] constant, Y: f32[3, n] output) stage=loops {\n"
      "alloc S: f32[3, n] scope=global {\nfor t in 0..floordiv(3 * n + 3, 4)",
      mark, " {\nfor i in 0..4 unrolled {\nif (", init, ") {\n", s,
      " = 0.5f32;\n}\n}\nfor k in 0..5 {\nfor i in 0..4 unrolled {\nif (", update, ") {\n", s,
      " = ", s,
      " + X[t * 4 + i] * W[k];\n}\n}\n}\n}\nfor r in 0..3 {\nfor c in 0..n {\n"
      "Y[r, c] = S[r, c];\n}\n}\n}\n}\n");
}

TEST(LocalSums, AreNumberedByTheLoopsOverThem) {
  const std::string inside = "t * 4 + i < 3 * n";
  const ir::Function before = Parsed(TiledSums(" @{local_sums=1}", inside, inside));
  const ir::Function after = CheckSizes("local_sums", before, 12);
  EXPECT_TRUE(tests::MatchesGolden("transform/local_sums.tir", ir::Print(after)));
}

TEST(LocalSums, OnlyOfMarkedReductionsWhoseSumsLieApart) {
  const std::string inside = "t * 4 + i < 3 * n", mark = " @{local_sums=1}";
  const std::pair<const char*, std::string> programs[] = {
      {"moves", TiledSums(mark, inside, inside)},
      {"no mark", TiledSums("", inside, inside)},
      {"not all that is added to was set", TiledSums(mark, inside + " && i < 2", inside)},
      {"two in one place",
       TiledSums(mark, inside, inside,
                 "floordiv(t * 4 + floordiv(i, 2), n), floormod(t * 4 + floordiv(i, 2), n)")},
  };
  for (const auto& [what, text] : programs) {
    const auto after = RunPipeline(Parsed(text), Rows("local_sums"), Context());
    ASSERT_TRUE(after.ok()) << what << after.status();
    EXPECT_EQ(ir::Print(*after) == ir::Print(Parsed(text)), std::string_view(what) != "moves")
        << what << ir::Print(*after);
  }
}

TEST(LocalSums, OneSumHasNoPlace) {
  const ir::Function before = Parsed(
      "fn f(X: f32[3] input, Y: f32[] output) stage=loops {\nalloc S: f32[] scope=global {\n"
      "for t in 0..1 @{local_sums=1} {\nS[] = 0.0f32;\nfor k in 0..3 {\nS[] = S[] + X[k];\n}\n}\n"
      "Y[] = S[];\n}\n}\n");
  const auto after = RunPipeline(before, Rows("local_sums"), Context());
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_THAT(ir::Print(*after), testing::HasSubstr("scope=local"));
  const absl::Status same = tests::SameResults(before, *after);
  EXPECT_TRUE(same.ok()) << support::StatusText(same) << ir::Print(*after);
}

TEST(HoistOpenBuffers, CopiesThatDoNotLiveTogetherAreOne) {
  const std::string use =
      "alloc S#: f32[n, 2] scope=global {\nS#[0, 1] = X[0];\nY[#] = S#[0, 1];\n";
  const auto of = [&](std::string_view number) {
    std::string text = use;
    for (size_t at; (at = text.find('#')) != std::string::npos;) text.replace(at, 1, number);
    return text;
  };
  const std::string head =
      "fn f(n: size, X: f32[n] input, Y: f32[4] output) stage=loops {\nY[0] = 0.0f32;\n"
      "Y[3] = 0.0f32;\n";
  const ir::Function apart =
      CheckSizes("hoist_open_buffers", Parsed(head + of("1") + "}\n" + of("2") + "}\n}\n"), 4);
  EXPECT_EQ(tests::CountOf(ir::Print(apart), "alloc"), 1);
  const ir::Function together = CheckSizes(
      "hoist_open_buffers", Parsed(head + of("1") + of("2") + "Y[3] = S1[0, 1];\n}\n}\n}\n"), 4);
  EXPECT_EQ(tests::CountOf(ir::Print(together), "alloc"), 2);
}

// Rows are padded also where their length is open.
TEST(FlattenBuffers, RowsOfAnOpenLengthArePadded) {
  const ir::Function after = CheckSizes("flatten_buffers", Parsed(R"(
fn f(n: size, X: f32[3, n] input, Y: f32[3, n] output) stage=loops {
  alloc S: f32[3, n] scope=global storage_align=1,32,16 {
    for i in 0..3 {
      for j in 0..n {
        S[i, j] = X[i, j];
      }
    }
    for i in 0..3 {
      for j in 0..n {
        Y[i, j] = S[i, j];
      }
    }
  }
}
)"),
                                        70);
  EXPECT_NE(ir::Print(after).find("S[i * (floordiv(n + 15, 32) * 32 + 16) + j]"), std::string::npos)
      << ir::Print(after);
}

// A tile that goes along the rows of a block of them needs these rows only, though what its last
// iteration says of itself is more.
TEST(CompactBuffers, RowsOfANumberThatHasAnEnd) {
  const ir::Function after = CheckSizes("compact_buffers", Parsed(R"(
fn f(n: size, X: f32[6 * n] input, Y: f32[6, n] output) stage=loops {
  for r in 0..3 {
    alloc S: f32[6, n] scope=global {
      for t in 0..floordiv(2 * n + 3, 4) {
        for i in 0..4 {
          if (t * 4 + i < 2 * n) {
            S[r * 2 + floordiv(t * 4 + i, n), floormod(t * 4 + i, n)] = X[r * 2 * n + t * 4 + i];
          }
        }
      }
      for i in 0..2 {
        for j in 0..n {
          Y[r * 2 + i, j] = S[r * 2 + i, j];
        }
      }
    }
  }
}
)"),
                                        9);
  EXPECT_NE(ir::Print(after).find("alloc S: f32[2, n]"), std::string::npos) << ir::Print(after);
}

}  // namespace
}  // namespace tilewright::transform
