// Loads that are the same for all virtual threads happen once, to versions that the iterations take
// turns with. What others load stays their own.
#include "compiler/targets/vta/vta_shared_loads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/verify.h"
#include "compiler/transform/passes.h"
#include "tests/support/count_text.h"
#include "tests/support/equivalence.h"

namespace tilewright::vta {
namespace {

using testing::HasSubstr;
using testing::Not;

// Two threads of sums of products; each thread has weights of its own, and SOURCE is what it loads
// as inputs in step k.
std::string Products(std::string_view source, std::string_view also = "") {
  std::string text = R"(
fn products(A: i8[2,6,16] input, W: i8[4,3,16,16] constant, Y: i8[2,4,16] output) stage=loops {
  for n in 0..2 {
    for v in 0..2 virtual {
      alloc C: i32[2,16] scope=vta.acc {
        for m in 0..2 { for o in 0..16 @{tensor="vta.gemm.reset"} { C[m,o] = 0i32; } }
        for k in 0..3 {
          alloc X: i8[2,16] scope=vta.inp { alloc V: i8[1,16,16] scope=vta.wgt {
            for m in 0..2 @{tensor="vta.load.inp"} { for l in 0..16 { X[m,l] = SOURCE; } }
            ALSO
            for y in 0..1 @{tensor="vta.load.wgt"} { for o in 0..16 { for l in 0..16 {
              V[y,o,l] = W[n * 2 + v + y,k,o,l]; } } }
            for m in 0..2 { for o in 0..16 @{tensor="vta.gemm"} { for i in 0..16 {
              C[m,o] = C[m,o] + i32(X[m,i]) * i32(V[0,o,i]); } } }
          } }
        }
        for m in 0..2 @{tensor="vta.store"} { for o in 0..16 {
          Y[m,n * 2 + v,o] = i8(C[m,o]); } }
      }
    }
  }
}
)";
  text.replace(text.find("SOURCE"), 6, source);
  text.replace(text.find("ALSO"), 4, also);
  return text;
}

// What the passes up to interleaved threads make of a program; they keep its meaning.
std::string Interleaved(const std::string& text) {
  auto before = ir::ParseFunction(text);
  EXPECT_TRUE(before.ok()) << before.status();
  EXPECT_TRUE(ir::Verify(*before).ok()) << ir::Verify(*before);
  auto shared = ShareLoads(*before, {});
  EXPECT_TRUE(shared.ok()) << shared.status();
  EXPECT_TRUE(ir::Verify(*shared).ok()) << ir::Verify(*shared) << ir::Print(*shared);
  EXPECT_TRUE(tests::SameResults(*before, *shared).ok()) << ir::Print(*shared);
  auto after = transform::InjectVirtualThreads(*shared, {});
  EXPECT_TRUE(after.ok()) << after.status();
  auto simple = transform::SimplifyFunction(*after, {});
  EXPECT_TRUE(simple.ok()) << simple.status();
  const absl::Status same = tests::SameResults(*before, *simple);
  EXPECT_TRUE(same.ok()) << same << ir::Print(*simple);
  return ir::Print(*simple);
}

TEST(VtaSharedLoadsTest, ThreadsLoadTheSameInputsOnce) {
  const std::string text = Interleaved(Products("A[m,n * 3 + k,l]"));
  EXPECT_EQ(tests::CountOf(text, "vta.load.inp"), 1) << text;
  EXPECT_EQ(tests::CountOf(text, "vta.load.wgt"), 2) << text;
  // As much space as two threads of their own have, and the steps of the sum take turns.
  EXPECT_THAT(text, HasSubstr("alloc X: i8[2, 2, 16]"));
  EXPECT_THAT(text, HasSubstr("floormod(n + k, 2)"));
}

TEST(VtaSharedLoadsTest, OtherLoadsStayTheThreadsOwn) {
  const std::string own = Interleaved(Products("A[m,v * 3 + k,l]"));
  EXPECT_EQ(tests::CountOf(own, "vta.load.inp"), 2) << own;
  EXPECT_THAT(own, Not(HasSubstr("floormod")));
  // A second load of the same buffer that depends on the thread.
  const std::string both = Interleaved(Products(
      "A[m,n * 3 + k,l]",
      "for m in 0..2 @{tensor=\"vta.load.inp\"} { for l in 0..16 { X[m,l] = A[m,v,l]; } }"));
  EXPECT_EQ(tests::CountOf(both, "vta.load.inp"), 4) << both;
}

}  // namespace
}  // namespace tilewright::vta
