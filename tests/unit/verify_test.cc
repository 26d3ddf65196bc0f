// The verifier accepts what the builder makes and names each way to be wrong.
#include "compiler/ir/verify.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "compiler/ir/build.h"
#include "compiler/ir/ir_text.h"
#include "deploy/support/status.h"
#include "tests/support/random_ir.h"

namespace tilewright::ir {
namespace {

TEST(Verify, RandomProgramsAreWellFormed) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Function f = tests::RandomTe(seed).function, g = tests::RandomFlat(seed);
    EXPECT_TRUE(Verify(f).ok()) << Verify(f) << Print(f);
    EXPECT_TRUE(Verify(g).ok()) << Verify(g) << Print(g);
  }
}

// The text parses; the verifier has something to say about it.
struct TextRow {
  const char *slug, *text;
};
constexpr TextRow kTexts[] = {
    {"function_name", "fn F() stage=flat { }"},
    {"stage", "fn f() stage=flat { alloc c: f32[4] scope=local; }"},
    {"role", "fn f(c: f32[4] intermediate) stage=flat { }"},
    {"scope", "fn f(c: f32[4] input scope=local) stage=flat { }"},
    {"alignment", "fn f(c: f32[4] input align=3) stage=flat { }"},
    {"duplicate_buffer", "fn f(c: f32[4] input, c: f32[4] input) stage=flat { }"},
    {"duplicate_buffer",
     "fn f(y: f32[4] output) stage=flat { alloc c: f32[4] scope=local { } alloc c: f32[4] "
     "scope=local { } }"},
    {"shape", "fn f(c: f32[0] input) stage=flat { }"},
    {"index_count", "fn f(y: f32[4, 4] output) stage=loops { y[0] = 1.0f32; }"},
    {"index_count", "fn f(y: f32[4, 4] output) stage=flat { y[0, 0] = 1.0f32; }"},
    {"index_count", "fn f(x: f32[4, 4] input, y: f32[4] output) stage=loops { y[0] = x[0]; }"},
    {"read_only", "fn f(x: f32[4] input) stage=flat { x[0] = 1.0f32; }"},
    {"prefetch", "fn f(x: f32[4] input, y: f32[4] output) stage=flat { y[0] = prefetch(x[0]); }"},
    {"stage", "fn f(y: f32[8] output) stage=flat { for i in 0..8 vectorized { y[i] = 1.0f32; } }"},
    {"stage", "fn f(y: f32[8] output) stage=flat { for i in 0..8 unrolled { y[i] = 1.0f32; } }"},
    {"stage",
     "fn f(y: f32[8] output) stage=scheduled { y[ramp(0, 1, 8)] = broadcast(1.0f32, 8); }"},
    {"stage",
     "fn f(y: f32[8] output) stage=loops { for i in 0..8 { block b(v: spatial 0..8 = i) { writes "
     "y[v:1]; y[v] = 1.0f32; } } }"},
    {"range", "fn f(y: f32[8] output) stage=flat { for i in 0..-3 { y[i] = 1.0f32; } }"},
    {"load_position",
     "fn f(x: i64[8] input, y: f32[8] output) stage=flat { for i in 0..x[0] { y[i] = 1.0f32; } }"},
    {"duplicate_block",
     "fn f(y: f32[8] output) { for i in 0..8 { block b(v: spatial 0..8 = i) { writes y[v:1]; y[v] "
     "= 1.0f32; } } "
     "for i in 0..8 { block b(v: spatial 0..8 = i) { writes y[v:1]; y[v] = 1.0f32; } } }"},
    {"bound_range", "fn f(y: f32[9] output) { for i in 1..9 blockIdx.x { } }"},
    {"bound_nesting",
     "fn f(y: f32[9] output) { for i in 0..9 threadIdx.x { for j in 0..9 threadIdx.x { } } }"},
    {"bound_nesting",
     "fn f(y: f32[9] output) { for i in 0..9 threadIdx.x { for j in 0..9 blockIdx.x { } } }"},
    {"bound_nesting",
     "fn f(y: f32[9] output) { for i in 0..9 parallel { for j in 0..9 threadIdx.x { } } }"},
    {"async", "fn f(y: f32[9] output) stage=flat { async { sync barrier; } }"},
    {"stage", "fn f(y: f32[9] output) { sync barrier; }"},
    {"init",
     "fn f(y: f32[8] output) { for i in 0..8 { block b(v: spatial 0..8 = i) { writes y[v:1]; init "
     "{ y[v] = 0.0f32; } y[v] = 1.0f32; } } }"},
    {"undeclared_write",
     "fn f(y: f32[8] output) { for i in 0..8 { block b(v: spatial 0..8 = i) { y[v] = 1.0f32; } } "
     "}"},
    {"undeclared_read",
     "fn f(x: f32[8] input, y: f32[8] output) { for i in 0..8 { block b(v: spatial 0..8 = i) { "
     "writes y[v:1]; y[v] = x[v]; } } }"},
    {"var_scope",
     "fn f(y: i64[8] output) { for i in 0..8 { block b(v: spatial 0..8 = i) { writes y[v:1]; y[v] "
     "= i; } } }"},
    {"region",
     "fn f(y: f32[8] output) { for i in 0..8 { block b(v: spatial 0..8 = i) { writes y[v:1, v:1]; "
     "y[v] = 1.0f32; } } }"},
    {"read_only",
     "fn f(x: f32[8] input) { for i in 0..8 { block b(v: spatial 0..8 = i) { writes x[v:1]; } } }"},
    {"binding",
     "fn f(y: f32[8] output) { for i in 0..8 { block b(v: spatial 0i32..8i32 = i) { writes "
     "y[v:1i32]; y[v] = 1.0f32; } } }"},
    {"predicate",
     "fn f(y: f32[8] output) { for i in 0..8 { block b(v: spatial 0..8 = i) where (i) { writes "
     "y[v:1]; y[v] = 1.0f32; } } }"},
};

TEST(Verify, RejectsEachMistakeByName) {
  for (const TextRow& row : kTexts) {
    absl::StatusOr<Function> f = ParseFunction(row.text);
    ASSERT_TRUE(f.ok()) << f.status() << "\n" << row.text;
    absl::Status status = Verify(*f);
    EXPECT_EQ(support::Slug(status), std::string("ir.verify.") + row.slug) << status << "\n"
                                                                           << row.text;
  }
}

// What the parser cannot express or already refuses is built by hand.
class ByHand : public testing::Test {
 protected:
  ByHand() {
    f_.name = "f";
    f_.stage = Stage::kFlat;
    y_ = MakeBuffer("y", kI64, {Int(8)}, Role::kOutput);
    f_.params = {y_};
    store_ = MakeStore(y_, {Int(0)}, Int(1));
  }
  void Expect(const char* slug) {
    EXPECT_EQ(support::Slug(Verify(f_)), std::string("ir.verify.") + slug) << Verify(f_);
  }
  Stmt Edit(const Stmt& s, const std::function<void(StmtNode&)>& edit) {
    StmtNode node = *s;
    edit(node);
    return std::make_shared<const StmtNode>(node);
  }
  Function f_;
  Buffer y_;
  Stmt store_;
};

TEST_F(ByHand, NoBody) { Expect("no_body"); }
TEST_F(ByHand, NullStatement) {
  StmtNode seq{.kind = StmtKind::kSeq};
  seq.stmts = {nullptr};
  f_.body = std::make_shared<const StmtNode>(seq);
  Expect("null_stmt");
}
TEST_F(ByHand, NullExpression) {
  f_.body = Edit(store_, [](StmtNode& s) { s.kind = StmtKind::kEvaluate, s.value = nullptr; });
  Expect("null_expr");
}
TEST_F(ByHand, IllTypedNode) {
  auto node = std::make_shared<ExprNode>();
  node->kind = ExprKind::kAdd;
  node->dtype = kI64;
  node->args = {Int(1), Int(1, kI32)};
  f_.body = Edit(store_, [&](StmtNode& s) { s.value = node; });
  Expect("type");
}
TEST_F(ByHand, FreeVariable) {
  f_.body = MakeStore(y_, {MakeVar("i")}, Int(1));
  Expect("var_scope");
}
TEST_F(ByHand, VariableUsedAfterItsLoop) {
  Var i = MakeVar("i");
  f_.body = MakeSeq({MakeFor(i, Int(0), Int(8), store_), MakeStore(y_, {i}, Int(1))});
  Expect("var_scope");
}
TEST_F(ByHand, VariableBoundTwiceOnOnePath) {
  Var i = MakeVar("i");
  f_.body = MakeFor(i, Int(0), Int(8), MakeFor(i, Int(0), Int(8), store_));
  Expect("duplicate_var");
}
TEST_F(ByHand, SiblingLoopsMayShareAVariable) {
  Var i = MakeVar("i");
  f_.body = MakeSeq({MakeFor(i, Int(0), Int(8), store_), MakeFor(i, Int(0), Int(8), store_)});
  EXPECT_TRUE(Verify(f_).ok()) << Verify(f_);
}
TEST_F(ByHand, ForeignBuffer) {
  f_.body = MakeStore(MakeBuffer("z", kI64, {Int(8)}, Role::kOutput), {Int(0)}, Int(1));
  Expect("buffer_scope");
}
TEST_F(ByHand, BufferUsedOutsideItsAlloc) {
  Buffer c = MakeBuffer("c", kI64, {Int(8)});
  f_.body = MakeSeq({MakeAlloc(c, store_), MakeStore(c, {Int(0)}, Int(1))});
  Expect("buffer_scope");
}
TEST_F(ByHand, NegativeExtent) {
  f_.body = MakeFor(MakeVar("i"), Int(0), Int(-1), store_);
  Expect("range");
}
TEST_F(ByHand, RangeOfAnotherType) {
  f_.body = Edit(MakeFor(MakeVar("i"), Int(0), Int(4), store_),
                 [](StmtNode& s) { s.range.extent = Int(4, kI32); });
  Expect("range_type");
}
TEST_F(ByHand, ConditionThatIsNoBool) {
  f_.body = Edit(MakeIf(Bool(true), store_), [](StmtNode& s) { s.condition = Int(1); });
  Expect("condition");
}
TEST_F(ByHand, SizeParameterOfTheWrongType) {
  f_.size_params = {MakeVar("n", kI32)};
  f_.body = store_;
  Expect("size_param");
}
TEST_F(ByHand, BlockWithoutAName) {
  f_.stage = Stage::kScheduled;
  StmtNode block{.kind = StmtKind::kBlock};
  block.body = store_;
  block.writes = {{y_, {{Int(0), Int(1)}}}};
  f_.body = MakeBlock(block);
  Expect("block_name");
}
TEST_F(ByHand, BindingsMayNotUseTheBlocksOwnVariables) {
  f_.stage = Stage::kScheduled;
  StmtNode block{.kind = StmtKind::kBlock};
  block.name = "b";
  Var v = MakeVar("v"), w = MakeVar("w");
  block.iters = {{v, {Int(0), Int(8)}, IterType::kSpatial, Int(0)},
                 {w, {Int(0), Int(8)}, IterType::kSpatial, v}};
  block.body = store_;
  block.writes = {{y_, {{Int(0), Int(1)}}}};
  f_.body = MakeBlock(block);
  Expect("var_scope");
}

}  // namespace
}  // namespace tilewright::ir
