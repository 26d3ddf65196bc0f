// Fragments of matrices as C text: arrays of registers that the threads of a warp have together.
#include <array>

#include "compiler/analysis/simplify.h"
#include "compiler/codegen/c_emitter.h"
#include "compiler/codegen/group_memory.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/visit.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtKind;
using support::StrCat;

// Accesses of a fragment's sums at rows and columns, or at runs of neighbours: those of the thread
// that runs, as elements of a private array.
class ElementsOfThread : public ir::Rewriter {
 public:
  ElementsOfThread(std::array<ir::Var, 2> loops, FragmentLayout fragment, ir::Var element,
                   int neighbours)
      : loops_(std::move(loops)),
        fragment_(fragment),
        element_(std::move(element)),
        neighbours_(neighbours) {}

  Expr RewriteExpr(const Expr& e) override {
    if (e->kind != ir::ExprKind::kLoad || !ir::IsFragmentScope(e->buffer->scope))
      return RewriteChildren(e);
    return ir::Load(Registers(e->buffer, e->args[0]), {Index(e->args[0])});
  }
  Stmt RewriteStmt(const Stmt& s) override {
    const Stmt r = RewriteChildren(s);
    if (r->kind != StmtKind::kStore || !ir::IsFragmentScope(r->buffer->scope)) return r;
    return ir::MakeStore(Registers(r->buffer, r->indices[0]), {Index(r->indices[0])}, r->value,
                         r->mask);
  }
  // One for each access: whose fragment lies so, and begins where.
  struct Access {
    ir::Buffer registers, buffer;
    FragmentLayout layout;
    Expr base;
  };
  const std::vector<Access>& accesses() const { return accesses_; }

 private:
  Expr Index(const Expr& index) const {
    if (index->kind != ir::ExprKind::kRamp) return element_;
    return ir::Ramp(element_ * ir::Int(neighbours_), ir::Int(1), neighbours_);
  }
  ir::Buffer Registers(const ir::Buffer& buffer, const Expr& index) {
    const bool run = index->kind == ir::ExprKind::kRamp;
    const Expr at = run ? index->args[0] : index;
    const int64_t wide = run ? neighbours_ : 1;
    FragmentLayout layout = fragment_;
    layout.extents[1] *= wide;
    const auto strides = ir::CoefficientsOf(at, loops_);
    const bool whole = !run || (ir::IsInt(index->args[1], 1) && index->dtype.lanes == neighbours_);
    if (strides.has_value() && whole && (*strides)[1] % wide == 0)
      layout.strides = {(*strides)[0], (*strides)[1] / wide};
    const ir::VarMap first = {{loops_[0].get(), ir::Int(0, loops_[0]->dtype)},
                              {loops_[1].get(), ir::Int(0, loops_[1]->dtype)}};
    accesses_.push_back({ir::MakeBuffer(buffer->name, buffer->dtype, {ir::Int(1)},
                                        ir::Role::kIntermediate, ir::Scope::kLocal),
                         buffer, layout, ir::Substitute(at, first)});
    return accesses_.back().registers;
  }

  const std::array<ir::Var, 2> loops_;
  const FragmentLayout fragment_;  // of the loops
  const ir::Var element_;
  const int neighbours_;
  std::vector<Access> accesses_;
};

}  // namespace

// `float name[fragments][registers]`
std::string CEmitter::FragmentArray(const ir::Buffer& buffer) {
  const auto layout = fragments_.layouts.find(buffer.get());
  if (layout == fragments_.layouts.end() || dialect_.fragments.row.empty()) {
    expr_.Fail(StrCat("fragments of ", buffer->name));
    return "";
  }
  constexpr int64_t kRegisterBytes = 4;
  const bool sums = buffer->scope == ir::Scope::kWmmaAcc;
  const int64_t bytes =
      layout->second.extents[0] * layout->second.extents[1] * buffer->dtype.bytes();
  const int64_t registers = bytes / kRegisterBytes / fragments_.threads;
  (fragments_.placed.empty() ? uses_fragments_ : uses_shared_factors_) = true;
  return StrCat(expr_.TypeOf(sums ? buffer->dtype : ir::kU32), " ",
                expr_.Declare(buffer.get(), buffer->name), "[", layout->second.count, "][",
                registers, "]");
}

std::string CEmitter::Fragment(const ir::Buffer& buffer, const FragmentLayout& layout,
                               const Expr& base) {
  const auto known = fragments_.layouts.find(buffer.get());
  const std::optional<int64_t> number = layout.NumberOf(analysis::Simplify(base));
  if (known == fragments_.layouts.end() || known->second != layout || !number.has_value()) {
    expr_.Fail(
        StrCat("fragments of ", buffer->name, " that lie in another way than their product's"));
    return "";
  }
  return StrCat(expr_.NameOf(buffer.get()), "[", *number, "]");
}

// `A + place(first element)`, of a factor that a product reads where it is.
std::string CEmitter::SharedFactor(const ir::TensorOperandMatch& factor, size_t rows,
                                   size_t columns) {
  const SharedFactorWords& words = dialect_.fragments.shared;
  const int64_t row = RowOf(factor, rows, columns).value_or(0);
  const bool begins_block = row > 0 && row % words.columns == 0 &&
                            expr_.IsAtStart(factor.base, row, words.rows * row) &&
                            expr_.IsAtStart(factor.base, 1, words.columns);
  if (!begins_block) {
    expr_.Fail(StrCat("factors of ", factor.buffer->name, " that begin within blocks of ",
                      words.rows, " x ", words.columns));
  }
  return StrCat(expr_.NameOf(factor.buffer.get()), " + ",
                expr_.PlaceOf(factor.buffer.get(), expr_.Lane(factor.base, 0)));
}

// Returns the sums of a product.
std::string CEmitter::EmitTensor(const Stmt& s) {
  const auto match = ir::MatchTensor(s, ir::TensorNameOf(*s));
  const bool fragments = match.ok() && (match->intrinsic->op == ir::TensorOp::kMma ||
                                        match->intrinsic->op == ir::TensorOp::kFragmentLoad);
  const bool threads = warp_thread_ != nullptr && fragments_.threads == match->intrinsic->threads;
  if (!fragments || !threads || dialect_.fragments.row.empty()) {
    expr_.Fail(StrCat("the intrinsic ", ir::TensorNameOf(*s), " without its threads along x"));
    return "";
  }
  const std::string function = StrCat("tw_", Replaced(match->intrinsic->name, ".", "_"));
  const auto operand = [&](size_t i, size_t rows, size_t columns) {
    return Fragment(match->operands[i].buffer, LayoutOf(*match, i, rows, columns),
                    match->operands[i].base);
  };
  if (match->reset) {
    Line(StrCat(function, "_reset(", operand(0, 0, 1), ");"));
    return "";
  }
  if (match->intrinsic->op == ir::TensorOp::kMma) {
    const std::string sums = operand(0, 0, 1);
    const ir::TensorOperandMatch &a = match->operands[1], &b = match->operands[2];
    if (fragments_.placed.empty()) {
      Line(StrCat(function, "(", sums, ", ", operand(1, 0, 2), ", ", operand(2, 2, 1), ");"));
    } else {
      const auto rows = [&](const ir::TensorOperandMatch& factor) {
        return fragments_.placed.at(factor.buffer.get()).rows;
      };
      Line(StrCat(function, "<", a.strides[0], ", ", a.strides[2], ", ", rows(a), ", ",
                  b.strides[2], ", ", b.strides[1], ", ", rows(b), ">(", sums, ", ",
                  SharedFactor(a, 0, 2), ", ", SharedFactor(b, 2, 1), ");"));
    }
    return sums;
  }
  // Squares may have been matched with rows for columns; the product knows which are which.
  const auto known = fragments_.layouts.find(match->operands[0].buffer.get());
  const bool turned =
      known != fragments_.layouts.end() && known->second != LayoutOf(*match, 0, 0, 1);
  const size_t rows = turned ? 1 : 0, columns = 1 - rows;
  const ir::TensorOperandMatch& from = match->operands[1];
  const int64_t step = from.strides[from.strides[columns] == 1 ? rows : columns];
  Line(StrCat(function, "<", from.strides[rows], ", ", from.strides[columns], ", ",
              expr_.AlignedBytes(from.buffer, from.base, step), ", ",
              from.buffer->scope == ir::Scope::kShared ? "true" : "false", ">(",
              operand(0, rows, columns), ", ", expr_.NameOf(from.buffer.get()), " + ",
              expr_.Lane(from.base, 0), ");"));
  return "";
}

// A kernel whose products read shared memory has no other tensor intrinsics.
bool CEmitter::IsSharedProduct(const Stmt& s) const {
  const std::string_view name = ir::TensorNameOf(*s);
  return !fragments_.placed.empty() && !name.empty() && !name.ends_with(ir::kResetSuffix);
}

// Products that follow each other are under way at the same time.
void CEmitter::EmitSharedProducts(std::span<const Stmt> products) {
  const SharedFactorWords& words = dialect_.fragments.shared;
  if (words.prologue.empty()) return expr_.Fail("products of factors in shared memory");
  Line(words.before);
  std::set<std::string> sums;
  for (const Stmt& product : products) sums.insert(EmitTensor(product));
  Line(words.behind);
  for (const std::string& landed : sums) Line(Replaced(std::string(words.landed), "@", landed));
}

void CEmitter::EmitSequence(std::span<const Stmt> stmts) {
  while (!stmts.empty()) {
    size_t count = 0;
    while (count < stmts.size() && IsSharedProduct(stmts[count])) ++count;
    if (count > 0) {
      EmitSharedProducts(stmts.first(count));
    } else {
      Emit(stmts[count++]);
      const bool condition = stmts.size() > 1 && stmts[1]->kind == StmtKind::kIf;
      if (dialect_.barrier_behind_loops && condition && IsLoopWithBarriers(stmts[0]))
        Line(barrier_);
    }
    stmts = stmts.subspan(count);
  }
}

// for i, j: S(sums[i, j])   →   for each of the thread's elements, or runs: S(sums[element])
void CEmitter::EmitFragmentMap(const Stmt& s) {
  const Stmt& inner = s->body;
  const FragmentWords& words = dialect_.fragments;
  const int64_t *rows = ir::AsInt(s->range.extent), *columns = ir::AsInt(inner->range.extent);
  if (warp_thread_ == nullptr || rows == nullptr || columns == nullptr ||
      !ir::IsInt(s->range.min, 0) || !ir::IsInt(inner->range.min, 0))
    return expr_.Fail("a map of fragments without their threads");
  const ir::Var element = ir::MakeVar("element");
  ElementsOfThread elements({s->var, inner->var}, {.extents = {*rows, *columns}}, element,
                            words.neighbours);
  const Stmt body = elements.RewriteStmt(inner->body);
  for (ElementsOfThread::Access access : elements.accesses()) {
    const auto known = fragments_.layouts.find(access.buffer.get());
    if (known != fragments_.layouts.end()) access.layout.count = known->second.count;
    expr_.SetName(access.registers.get(), Fragment(access.buffer, access.layout, access.base));
  }
  // The product's fragments are so wide: fewer columns are runs.
  int64_t width = *columns;
  if (!elements.accesses().empty()) width = elements.accesses()[0].layout.extents[1];
  const bool runs = width != *columns;
  const int64_t sums = *rows * width / fragments_.threads;  // of a thread
  const int64_t count = runs ? sums / words.neighbours : sums;
  const std::string e = expr_.Declare(element.get(), element->name);
  const std::string n = std::to_string(words.neighbours);
  Line("#pragma unroll");
  Line(StrCat("for (int ", e, " = 0; ", e, " < ", count, "; ++", e, ") {"));
  ++indent_;
  const std::string number = runs ? e : StrCat(e, " / ", n);
  const std::string row = Replaced(std::string(words.row), "@", number);
  const std::string run = Replaced(std::string(words.run), "@", number);
  const std::string column = runs ? run : StrCat("(", run, ") * ", n, " + ", e, " % ", n);
  for (const Stmt& loop : {s, inner}) {
    expr_.SetRange(loop->var, loop->range);
    const std::string type = expr_.TypeOf(loop->var->dtype);
    Line(StrCat("const ", type, " ", expr_.Declare(loop->var.get(), loop->var->name), " = (", type,
                ")(", loop == s ? row : column, ");"));
  }
  Emit(body);
  --indent_;
  Line("}");
}

}  // namespace tilewright::codegen
