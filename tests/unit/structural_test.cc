// Structural equality and hash.
#include "compiler/ir/structural.h"

#include <gtest/gtest.h>

#include <map>

#include "compiler/ir/build.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/visit.h"
#include "deploy/support/rng.h"
#include "tests/support/random_ir.h"

namespace tilewright::ir {
namespace {

constexpr char kText[] =
    R"(fn f(n: size, X: f32[n, 8] input, Y: f32[n] output) stage=scheduled attrs {a=1} {
  alloc C: f32[n, 8] scope=global;
  for i in 0..n parallel {
    for j in 0..8 {
      block c(vi: spatial 0..n = i, vj: spatial 0..8 = j) where (j < 7) {
        reads X[vi:1, vj:1];
        writes C[vi:1, vj:1];
        C[vi, vj] = X[vi, vj] * 2.0f32;
      }
    }
  }
  for i in 0..n {
    block y(vi: spatial 0..n = i) {
      reads C[vi:1, 0:1];
      writes Y[vi:1];
      Y[vi] = C[vi, 0] - C[vi, 1];
    }
  }
}
)";

Function Parse(std::string text) {
  absl::StatusOr<Function> f = ParseFunction(text);
  EXPECT_TRUE(f.ok()) << f.status() << text;
  return *f;
}

std::string Replace(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Structural, NamesDoNotCount) {
  Function f = Parse(kText);
  std::string renamed = kText;
  for (auto [from, to] : std::map<std::string, std::string>{
           {"vj", "q"}, {"C", "Z"}, {"block y", "block other"}, {"X", "source"}, {"Y", "target"}}) {
    for (size_t at = 0; (at = renamed.find(from, at)) != std::string::npos; at += to.size())
      renamed.replace(at, from.size(), to);
  }
  Function g = Parse(renamed);
  EXPECT_TRUE(StructuralEqual(f, g));
  EXPECT_EQ(ProgramHash(f), ProgramHash(g));
  EXPECT_EQ(ProgramHash(f).size(), 16u);
}

TEST(Structural, EverythingElseCounts) {
  Function f = Parse(kText);
  const std::pair<std::string, std::string> changes[] = {
      {"parallel", "unrolled"},
      {"0..8 {", "0..4 {"},
      {"where (j < 7) ", ""},
      {"j < 7", "j < 6"},
      {"* 2.0f32", "+ 2.0f32"},
      {"2.0f32", "-2.0f32"},
      {"C[vi, 0] - C[vi, 1]", "C[vi, 1] - C[vi, 0]"},
      {"scope=global", "scope=local"},
      {"attrs {a=1}", "attrs {a=2}"},
      {"attrs {a=1}", "attrs {a=\"1\"}"},
      {"reads C[vi:1, 0:1]", "reads C[vi:1, 0:2]"},
      {"vi: spatial 0..n = i, vj", "vi: opaque 0..n = i, vj"},
      {"X: f32[n, 8] input", "X: f32[n, 8] constant"},
      {"for i in 0..n parallel", "for i in 0..n parallel @{k=1}"},
      {"scope=global;", "scope=global align=32;"},
      {"= X[vi, vj]", "= X[vj, vi]"},
  };
  for (const auto& [from, to] : changes) {
    Function g = Parse(Replace(kText, from, to));
    EXPECT_FALSE(StructuralEqual(f, g)) << from << " -> " << to;
    EXPECT_NE(StructuralHash(f), StructuralHash(g)) << from << " -> " << to;
  }
}

TEST(Structural, ParameterOrderCounts) {
  Function f = Parse(
      "fn f(a: f32[4] input, b: f32[4] input, y: f32[4] output) stage=flat { y[0] = a[0] - b[0]; "
      "}");
  Function g = Parse(
      "fn f(b: f32[4] input, a: f32[4] input, y: f32[4] output) stage=flat { y[0] = a[0] - b[0]; "
      "}");
  EXPECT_FALSE(StructuralEqual(f, g));
}

TEST(Structural, ZeroAndMinusZeroDiffer) {
  EXPECT_FALSE(StructuralEqual(Float(0.0), Float(-0.0)));
  EXPECT_TRUE(StructuralEqual(Float(std::nan("")), Float(-std::nan(""))));
}

// Stored in logs: this value must never change without a new version of the hash.
TEST(Structural, HashIsPinned) { EXPECT_EQ(ProgramHash(Parse(kText)), "3620fa0b10b0a1a2"); }

TEST(Structural, ClonesAreEqualAndDifferentProgramsAreNot) {
  std::map<uint64_t, std::string> seen;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Function f = tests::RandomTe(seed).function;
    Function g = f;
    g.body = CloneWithFreshVars(f.body);
    EXPECT_TRUE(StructuralEqual(f, g));
    EXPECT_EQ(StructuralHash(f), StructuralHash(g));
    auto [it, fresh] = seen.emplace(StructuralHash(f), Print(f));
    if (!fresh) {
      EXPECT_TRUE(StructuralEqual(f, *ParseFunction(it->second)));
    }
  }
  EXPECT_GT(seen.size(), 350u);
}

TEST(Structural, FreeVariablesOfStatementsAreAddresses) {
  Buffer b = MakeBuffer("b", kI64, {Int(8)}, Role::kOutput);
  Var i = MakeVar("i"), j = MakeVar("j"), free1 = MakeVar("n"), free2 = MakeVar("n");
  Stmt x = MakeFor(i, Int(0), Int(8), MakeStore(b, {i}, free1));
  EXPECT_TRUE(StructuralEqual(x, MakeFor(j, Int(0), Int(8), MakeStore(b, {j}, free1))));
  EXPECT_FALSE(StructuralEqual(x, MakeFor(j, Int(0), Int(8), MakeStore(b, {j}, free2))));
}

}  // namespace
}  // namespace tilewright::ir
