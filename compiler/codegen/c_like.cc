// Statements and kernels of c_like.
#include "compiler/codegen/c_like.h"

#include <array>
#include <set>

#include "compiler/codegen/c_like_expr.h"
#include "compiler/codegen/index_width.h"
#include "compiler/codegen/sub_group_sums.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtKind;
using support::StrCat;

std::string Replaced(std::string text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

class CEmitter {
 public:
  CEmitter(const CDialect& dialect, bool sub_groups)
      : dialect_(dialect),
        expr_(dialect),
        sub_groups_(sub_groups && !dialect.sub_groups.reduce.empty()) {}

  absl::Status AddKernel(const ir::Function& f);
  CText Text() const;

 private:
  void Line(std::string_view text) {
    out_.append(static_cast<size_t>(indent_) * 2, ' ').append(text).append("\n");
  }
  void Signature(const ir::Function& f, const std::set<const ir::BufferNode*>& read_back);
  void SharedBuffers(const Stmt& body);
  void Emit(const Stmt& s);
  void EmitBraced(std::string_view head, const Stmt& body);
  std::string LoopHead(const Stmt& s, bool in_turn);
  void EmitFor(const Stmt& s);
  void EmitSubGroupSum(const Stmt& s, const SubGroupSum& sum);
  void EmitStore(const Stmt& s);
  void LoadRuns(const Expr& value);
  std::vector<std::string> LanesOf(const Expr& value);
  void EmitAlloc(const Stmt& s);
  std::string Array(const ir::Buffer& b);

  const CDialect& dialect_;
  CExpressions expr_;
  const bool sub_groups_;
  std::string out_;
  int indent_ = 0;
  SubGroupSums sums_;  // of the kernel
  bool uses_sub_groups_ = false;
  std::string_view barrier_;  // of the kernel
};

bool IsBarrier(const Stmt& s) {
  return s->kind == StmtKind::kSync && s->sync == ir::SyncKind::kBarrier;
}
bool StoresGlobal(const Stmt& s) {
  return s->kind == StmtKind::kStore && s->buffer->scope == ir::Scope::kGlobal;
}

// Whether a barrier may follow a store to global memory, in the order of the program or in the next
// iteration of a loop. Then another thread may store to the same element behind the barrier.
bool StoresBeforeBarrier(const Stmt& body) {
  bool stored = false, found = false;
  ir::VisitStmts(body, [&](const Stmt& s) {
    stored = stored || StoresGlobal(s);
    found = found || (stored && IsBarrier(s));
    if (s->kind == StmtKind::kFor && !ir::IsBound(s->for_kind)) {
      bool stores = false, meets = false;
      ir::VisitStmts(s->body, [&](const Stmt& inner) {
        stores = stores || StoresGlobal(inner);
        meets = meets || IsBarrier(inner);
        return true;
      });
      found = found || (stores && meets);
    }
    return !found;
  });
  return found;
}

// Global buffers through which a thread may get what another thread of its group wrote: both
// written and read by a kernel with barriers.
std::set<const ir::BufferNode*> ReadBack(const ir::Function& f) {
  std::set<const ir::BufferNode*> written, both;
  bool meets = false;
  ir::VisitStmts(f.body, [&](const Stmt& s) {
    meets = meets || IsBarrier(s);
    if (StoresGlobal(s)) written.insert(s->buffer.get());
    return true;
  });
  if (!meets) return {};
  ir::VisitExprsIn(f.body, [&](const Expr& e) {
    if (e->kind == ir::ExprKind::kLoad && written.contains(e->buffer.get()))
      both.insert(e->buffer.get());
    return true;
  });
  return both;
}

std::string HelperText(std::string_view helper) {
  size_t colon = helper.find(':');
  std::string name(helper.substr(0, colon)), type(helper.substr(colon + 1));
  std::string head =
      StrCat("static inline ", type, " tw_", name, "_", type, "(", type, " a, ", type, " b) {\n");
  if (name == "floordiv")
    return head + "  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));\n}\n";
  return head + "  return a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);\n}\n";
}

CText CEmitter::Text() const {
  CText result{std::string(dialect_.prologue), {}};
  const auto add = [&result](const OptionalFeature& used) {
    result.text += used.prologue;
    if (!used.feature.empty()) result.features.emplace_back(used.feature);
  };
  if (expr_.uses_wide()) result.text += dialect_.wide_text;
  if (expr_.uses_dot4()) result.text += dialect_.dot4_text;
  if (expr_.uses_half()) add(dialect_.half);
  if (expr_.uses_double()) add(dialect_.float64);
  if (uses_sub_groups_) add(dialect_.sub_groups.feature);
  std::sort(result.features.begin(), result.features.end());
  for (const std::string& helper : expr_.helpers()) result.text += HelperText(helper);
  result.text += out_;
  return result;
}

// `float name[n]`, for a buffer of constant size.
std::string CEmitter::Array(const ir::Buffer& b) {
  int64_t elements = 1;
  for (const Expr& e : b->shape) {
    const int64_t* n = ir::AsInt(e);
    if (n == nullptr) expr_.Fail(StrCat("buffer ", b->name, " of symbolic size"));
    elements *= n == nullptr ? 1 : *n;
  }
  return StrCat(expr_.MemoryOf(b->dtype), " ", expr_.Declare(b.get(), b->name), "[", elements, "]");
}

void CEmitter::Signature(const ir::Function& f, const std::set<const ir::BufferNode*>& read_back) {
  std::array<int64_t, 3> group = {1, 1, 1};
  ir::VisitStmts(f.body, [&](const Stmt& s) {
    if (s->kind == StmtKind::kFor && ir::IsThreadAxis(s->for_kind)) {
      const int64_t* n = ir::AsInt(s->range.extent);
      if (n == nullptr) expr_.Fail("a group of symbolic size");
      group[static_cast<size_t>(ir::AxisOf(s->for_kind))] = n == nullptr ? 1 : *n;
    }
    return true;
  });
  std::string attribute(dialect_.group_size);
  for (size_t a = 0; a < 3; ++a) {
    attribute = Replaced(attribute, std::string("%") + "xyz"[a], std::to_string(group[a]));
  }
  std::string params;
  for (const ir::Var& v : f.size_params)
    params += StrCat(params.empty() ? "" : ", ", "long ", expr_.Declare(v.get(), v->name));
  for (const ir::Buffer& b : f.params) {
    // A compiler takes it that no one else writes through a restrict pointer, not even across a
    // barrier: a thread would keep what it read before another thread wrote.
    const std::string_view pointer = read_back.contains(b.get()) ? "* " : "* restrict ";
    params += StrCat(params.empty() ? "" : ", ", dialect_.global,
                     b->role == ir::Role::kOutput ? "" : "const ", expr_.MemoryOf(b->dtype),
                     pointer, expr_.Declare(b.get(), b->name));
  }
  out_ += StrCat(out_.empty() ? "" : "\n", dialect_.kernel, attribute, "void ", f.name, "(", params,
                 ") {\n");
}

void CEmitter::SharedBuffers(const Stmt& body) {
  ir::VisitStmts(body, [&](const Stmt& s) {
    if (s->kind == StmtKind::kAlloc && s->buffer->scope == ir::Scope::kShared)
      Line(StrCat(dialect_.shared, Array(s->buffer), ";"));
    return true;
  });
}

absl::Status CEmitter::AddKernel(const ir::Function& f) {
  if (f.stage != ir::Stage::kFlat) {
    return support::FailedPrecondition(StrCat("codegen.", dialect_.name, ".not_flat"),
                                       StrCat("expected a function of stage flat, found ", f.name));
  }
  expr_.StartKernel(FitsInt32(f));
  const std::set<const ir::BufferNode*> read_back = ReadBack(f);
  Signature(f, read_back);
  const bool global = !read_back.empty() || StoresBeforeBarrier(f.body);
  barrier_ = global ? dialect_.global_barrier : dialect_.barrier;
  if (sub_groups_) sums_ = FindSubGroupSums(f);
  indent_ = 1;
  SharedBuffers(f.body);
  Emit(f.body);
  indent_ = 0;
  out_ += "}\n";
  if (expr_.error().empty()) return absl::OkStatus();
  return support::Unimplemented(
      StrCat("codegen.", dialect_.name, ".unsupported"),
      StrCat("expected what the language has, found ", expr_.error(), " in ", f.name));
}

void CEmitter::EmitBraced(std::string_view head, const Stmt& body) {
  Line(StrCat(head, "{"));
  ++indent_;
  Emit(body);
  --indent_;
  Line("}");
}

// Opens a loop and declares its variable. `in_turn`: the threads of a sub-group take its iterations
// in turn.
std::string CEmitter::LoopHead(const Stmt& s, bool in_turn) {
  const std::string type = expr_.TypeOf(s->var->dtype);
  std::string min = expr_.Lane(s->range.min, 0);
  Expr end = ir::IsInt(s->range.min, 0)
                 ? s->range.extent
                 : ir::Binary(ir::ExprKind::kAdd, s->range.min, s->range.extent);
  std::string last = expr_.Lane(end, 0);
  std::string name = expr_.Declare(s->var.get(), s->var->name), step = StrCat("++", name);
  if (in_turn) {
    min = StrCat(ir::IsInt(s->range.min, 0) ? "" : min + " + ", "(", type, ")",
                 dialect_.sub_groups.lane);
    step = StrCat(name, " += (", type, ")", dialect_.sub_groups.lanes);
  }
  return StrCat("for (", type, " ", name, " = ", min, "; ", name, " < ", last, "; ", step, ") ");
}

// Each thread adds its terms up, beginning with the identity. The language's function adds up the
// parts of a sub-group and gives every thread the whole.
void CEmitter::EmitSubGroupSum(const Stmt& s, const SubGroupSum& sum) {
  uses_sub_groups_ = true;
  const ir::DType type = sum.value()->dtype;
  const ir::Var part = ir::MakeVar("part", type), whole = ir::MakeVar("whole", type);
  const std::string text = expr_.TypeOf(type);
  const std::string name = expr_.Declare(part.get(), part->name);
  Line("{");
  ++indent_;
  Line(StrCat(text, " ", name, " = ", expr_.Lane(ir::IdentityOf(sum.op(), type), 0), ";"));
  Line(StrCat(LoopHead(s, /*in_turn=*/true), "{"));
  ++indent_;
  Line(StrCat(name, " = ", expr_.Lane(ir::Binary(sum.op(), part, sum.value()), 0), ";"));
  --indent_;
  Line("}");
  const char* op = sum.op() == ir::ExprKind::kAdd   ? "add"
                   : sum.op() == ir::ExprKind::kMin ? "min"
                                                    : "max";
  Line(StrCat("const ", text, " ", expr_.Declare(whole.get(), whole->name), " = ",
              Replaced(std::string(dialect_.sub_groups.reduce), "%", op), "(", name, ");"));
  const Expr value = sum.accumulator_first ? ir::Binary(sum.op(), sum.accumulator(), whole)
                                           : ir::Binary(sum.op(), whole, sum.accumulator());
  Emit(ir::MakeStore(sum.store->buffer, sum.store->indices, value));
  --indent_;
  Line("}");
}

void CEmitter::EmitFor(const Stmt& s) {
  expr_.SetRange(s->var, s->range);
  if (ir::IsBound(s->for_kind)) {  // no loop: the launch has the iterations
    const std::string type = expr_.TypeOf(s->var->dtype);
    std::string_view form =
        ir::IsBlockAxis(s->for_kind) ? dialect_.block_index : dialect_.thread_index;
    std::string axis(1, dialect_.axis_names[static_cast<size_t>(ir::AxisOf(s->for_kind))]);
    std::string name = expr_.Declare(s->var.get(), s->var->name);
    Line(StrCat("const ", type, " ", name, " = (", type, ")",
                Replaced(std::string(form), "%", axis), ";"));
    return Emit(s->body);
  }
  if (s->for_kind == ir::ForKind::kVectorized || s->for_kind == ir::ForKind::kUnrolled)
    expr_.Fail(StrCat("the loop ", s->var->name, ", which should have been expanded"));
  const auto sum = sums_.find(s.get());
  if (sum != sums_.end()) return EmitSubGroupSum(s, sum->second);
  EmitBraced(LoopHead(s, /*in_turn=*/false), s->body);
}

// Makes one access of each run that all lanes of a value load: not of those that a choice or a mask
// may leave out.
void CEmitter::LoadRuns(const Expr& value) {
  using ir::ExprKind;
  if (value->dtype.lanes == 1 || value->kind == ExprKind::kSelect ||
      value->kind == ExprKind::kAnd || value->kind == ExprKind::kOr)
    return;
  if (value->kind != ExprKind::kLoad) {
    for (const Expr& operand : value->args) LoadRuns(operand);
    return;
  }
  if (value->mask != nullptr) return;
  const auto run = expr_.WideRun(value->buffer, value->args[0], /*read_only=*/true);
  if (run.has_value()) Line(StrCat("const auto ", expr_.NameRun(value), " = ", *run, ";"));
}

// Declares variables for the lanes of a value; returns what they are called.
std::vector<std::string> CEmitter::LanesOf(const Expr& value) {
  std::vector<std::string> lanes;
  const int count = value->dtype.lanes;
  if (const auto vector = expr_.Vector(value)) {
    const std::string all = expr_.Temporary("lanes");
    Line(StrCat("const ", expr_.TypeOf(value->dtype), " ", all, " = ", *vector, ";"));
    for (int i = 0; i < count; ++i) lanes.push_back(StrCat(all, Component(i)));
    return lanes;
  }
  LoadRuns(value);
  const std::string type = expr_.TypeOf(value->dtype.Element());
  for (int i = 0; i < count; ++i) {
    lanes.push_back(expr_.Lane(value, i));
    if (expr_.IsNamedRun(value)) continue;
    const std::string name = expr_.Temporary("lane");
    Line(StrCat("const ", type, " ", name, " = ", lanes.back(), ";"));
    lanes.back() = name;
  }
  return lanes;
}

void CEmitter::EmitStore(const Stmt& s) {
  const Expr& index = s->indices[0];
  int lanes = s->value->dtype.lanes;
  if (lanes == 1) {
    std::string store =
        StrCat(expr_.Element(s->buffer, index, 0), " = ", expr_.Lane(s->value, 0), ";");
    return Line(s->mask == nullptr ? store : StrCat("if (", expr_.Lane(s->mask, 0), ") ", store));
  }
  const std::optional<std::string> value = expr_.Vector(s->value);
  if (s->mask == nullptr && value.has_value()) {
    if (const auto whole = expr_.Register(s->buffer, index))
      return Line(StrCat(*whole, " = ", *value, ";"));
    if (const auto run = expr_.Run(s->buffer, index))
      return Line(StrCat("vstore", lanes, "(", *value, ", 0, ", *run, ");"));
  }
  // All values before the first store.
  Line("{");
  ++indent_;
  const std::vector<std::string> values = LanesOf(s->value);
  const auto wide =
      s->mask == nullptr ? expr_.WideRun(s->buffer, index, /*read_only=*/false) : std::nullopt;
  if (wide.has_value()) {
    Line(StrCat(*wide, " = {{", support::Join(values, ", "), "}};"));
    lanes = 0;
  }
  for (int i = 0; i < lanes; ++i) {
    std::string store = StrCat(expr_.Element(s->buffer, index, i), " = ", values[i], ";");
    Line(s->mask == nullptr ? store : StrCat("if (", expr_.Lane(s->mask, i), ") ", store));
  }
  expr_.ForgetRuns();
  --indent_;
  Line("}");
}

void CEmitter::EmitAlloc(const Stmt& s) {
  switch (s->buffer->scope) {
    case ir::Scope::kShared:  // declared at the top of the kernel
      return Emit(s->body);
    case ir::Scope::kLocal:
      Line("{");
      ++indent_;
      if (const auto variables = expr_.Promote(s->buffer, s->body)) {
        for (const std::string& variable : *variables) Line(variable + ";");
      } else {
        Line(StrCat(Array(s->buffer), ";"));
      }
      Emit(s->body);
      --indent_;
      return Line("}");
    default:
      return expr_.Fail(StrCat("a buffer of its own in scope of ", s->buffer->name));
  }
}

void CEmitter::Emit(const Stmt& s) {
  switch (s->kind) {
    case StmtKind::kFor:
      return EmitFor(s);
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) Emit(child);
      return;
    case StmtKind::kStore:
      return EmitStore(s);
    case StmtKind::kIf:
      EmitBraced(StrCat("if (", expr_.Lane(s->condition, 0), ") "), s->body);
      if (s->else_body != nullptr) EmitBraced("else ", s->else_body);
      return;
    case StmtKind::kLet: {
      std::string value = expr_.Lane(s->value, 0), type = expr_.TypeOf(s->var->dtype);
      expr_.SetValue(s->var, s->value);
      Line("{");
      ++indent_;
      Line(StrCat("const ", type, " ", expr_.Declare(s->var.get(), s->var->name), " = ", value,
                  ";"));
      Emit(s->body);
      --indent_;
      return Line("}");
    }
    case StmtKind::kAlloc:
      return EmitAlloc(s);
    case StmtKind::kEvaluate:  // prefetches only: a hint
      return;
    case StmtKind::kAsync:  // done at once: early is allowed, so commit and wait say nothing
      return Emit(s->body);
    case StmtKind::kSync:
      if (s->sync == ir::SyncKind::kBarrier) Line(barrier_);
      return;
    default:
      return expr_.Fail("a statement that should have been lowered");
  }
}

}  // namespace

absl::StatusOr<CText> EmitC(const std::vector<ir::Function>& kernels, const CDialect& dialect,
                            bool sub_groups) {
  CEmitter emitter(dialect, sub_groups);
  for (const ir::Function& f : kernels) TW_TRY(emitter.AddKernel(f));
  return emitter.Text();
}

}  // namespace tilewright::codegen
