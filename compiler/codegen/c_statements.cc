// Statements as C text: loops, stores, copies, conditions, synchronisation.
#include <optional>

#include "compiler/codegen/c_emitter.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtKind;
using support::StrCat;

// A vector that is copied from global to shared memory, or zeros where `condition` (null: always)
// does not hold.
struct WideCopy {
  Expr load, condition;
};
std::optional<WideCopy> WideCopyOf(const Stmt& s) {
  if (s->kind != StmtKind::kStore || s->mask != nullptr || s->value->dtype.lanes == 1 ||
      s->buffer->scope != ir::Scope::kShared)
    return std::nullopt;
  WideCopy copy{s->value, nullptr};
  if (s->value->kind == ir::ExprKind::kSelect) {
    const Expr &choice = s->value->args[0], &other = s->value->args[2];
    const bool whole = choice->dtype.lanes == 1 || choice->kind == ir::ExprKind::kBroadcast;
    const bool zeros = other->kind == ir::ExprKind::kBroadcast &&
                       ir::StructuralEqual(other->args[0], ir::Zero(s->value->dtype.Element()));
    if (!whole || !zeros) return std::nullopt;
    copy = {s->value->args[1], choice};
  }
  if (copy.load->kind != ir::ExprKind::kLoad || copy.load->buffer->scope != ir::Scope::kGlobal)
    return std::nullopt;
  const Expr& mask = copy.load->mask;
  const bool read =
      mask == nullptr || (copy.condition != nullptr && ir::StructuralEqual(mask, copy.condition));
  return read ? std::optional(copy) : std::nullopt;
}

// The condition of one lane that is the condition of all; null where lanes differ.
Expr OfAllLanes(const Expr& condition) {
  if (condition->dtype.lanes == 1) return condition;
  return condition->kind == ir::ExprKind::kBroadcast ? condition->args[0] : nullptr;
}

}  // namespace

std::string Replaced(std::string text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

bool HasWideAsync(const Stmt& body) {
  bool found = false;
  ir::VisitStmts(body, [&](const Stmt& s) {
    if (s->kind != StmtKind::kAsync) return !found;
    ir::VisitStmts(s->body, [&](const Stmt& part) {
      found = found || WideCopyOf(part).has_value();
      return !found;
    });
    return false;
  });
  return found;
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
  if (IsSharedProduct(s)) return EmitSharedProducts({&s, 1});
  if (!ir::TensorNameOf(*s).empty()) {
    EmitTensor(s);
    return;
  }
  if (ir::IsFragmentMap(s)) return EmitFragmentMap(s);
  if (EmitBulkCopy(s)) return;
  expr_.SetRange(s->var, s->range);
  const bool of_fragments = s->for_kind == ir::ForKind::kThreadX && !dialect_.fragments.row.empty();
  if (of_fragments && ir::IsInt(s->range.extent, fragments_.threads)) warp_thread_ = s->var;
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
  if (sum != sums_.end() && sum->second.value()->dtype.bits <= dialect_.sub_groups.most_bits)
    return EmitSubGroupSum(s, sum->second);
  EmitBraced(LoopHead(s, /*in_turn=*/false), s->body);
}

// Makes one access of each run that all lanes of a value load where `condition` (null: always)
// holds. Runs that a choice or a mask leaves out for some lanes stay accesses of elements.
void CEmitter::LoadRuns(const Expr& value, const Expr& condition) {
  using ir::ExprKind;
  if (value->dtype.lanes == 1 || value->kind == ExprKind::kAnd || value->kind == ExprKind::kOr)
    return;
  const auto both = [&](const Expr& more) {
    return condition == nullptr ? more : condition && more;
  };
  if (value->kind == ExprKind::kSelect) {
    const Expr choice = OfAllLanes(value->args[0]);
    if (choice == nullptr) return;
    LoadRuns(value->args[1], both(choice));
    LoadRuns(value->args[2], both(ir::Not(choice)));
    return;
  }
  if (value->kind != ExprKind::kLoad) {
    for (const Expr& operand : value->args) LoadRuns(operand, condition);
    return;
  }
  Expr reads = condition;
  if (value->mask != nullptr) {
    const Expr mask = OfAllLanes(value->mask);
    if (mask == nullptr) return;
    const bool known = condition != nullptr && ir::StructuralEqual(condition, mask);
    reads = known ? condition : both(mask);
  }
  const auto run = expr_.WideRunOf(value->buffer, value->args[0], /*read_only=*/true);
  if (run.parts.empty()) return;
  const std::vector<std::string> names = expr_.NameRun(value, run);
  for (size_t i = 0; i < names.size(); ++i) {
    if (reads == nullptr) {
      Line(StrCat("const auto ", names[i], " = ", run.parts[i], ";"));
      continue;
    }
    Line(StrCat(run.type, " ", names[i], " = {};"));
    Line(StrCat("if (", expr_.Lane(reads, 0), ") ", names[i], " = ", run.parts[i], ";"));
  }
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
  LoadRuns(value, nullptr);
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

// Starts the copy of a run. False: it is no copy that the language can start; stores do it at once,
// which is allowed, too.
bool CEmitter::CopyAsync(const Stmt& s) {
  if (!in_async_ || !async_) return false;
  const std::optional<WideCopy> copy = WideCopyOf(s);
  if (!copy.has_value()) return false;
  const auto to = expr_.WideRunOf(s->buffer, s->indices[0], /*read_only=*/false);
  const auto from = expr_.WideRunOf(copy->load->buffer, copy->load->args[0], /*read_only=*/true);
  if (to.parts.size() != 1 || from.parts.size() != 1) return false;
  const std::string condition = copy->condition == nullptr ? "1" : expr_.Lane(copy->condition, 0);
  Line(StrCat(dialect_.async.copy, "(&", to.parts[0], ", &", from.parts[0], ", ", condition, ");"));
  return true;
}

void CEmitter::EmitStore(const Stmt& s) {
  if (CopyAsync(s)) return;
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
  if (s->mask == nullptr) {
    const auto run = expr_.WideRunOf(s->buffer, index, /*read_only=*/false);
    for (size_t part = 0; part < run.parts.size(); ++part) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(part) * run.lanes;
      const std::string wide = expr_.Temporary("wide");
      Line(StrCat("const ", run.type, " ", wide, " = {{",
                  support::Join(std::vector<std::string>(first, first + run.lanes), ", "), "}};"));
      Line(StrCat(run.parts[part], " = ", wide, ";"));
    }
    if (!run.parts.empty()) lanes = 0;
  }
  for (int i = 0; i < lanes; ++i) {
    std::string store = StrCat(expr_.Element(s->buffer, index, i), " = ", values[i], ";");
    Line(s->mask == nullptr ? store : StrCat("if (", expr_.Lane(s->mask, i), ") ", store));
  }
  expr_.ForgetRuns();
  --indent_;
  Line("}");
}

// What one thread of a warp does with fragments, which all have, is done by the warp.
void CEmitter::EmitIf(const Stmt& s) {
  Expr condition = s->condition;
  const bool of_threads = warp_thread_ != nullptr && ir::UsesVar(s->condition, warp_thread_);
  if (fragments_.threads > 0 && of_threads && ir::TouchesFragments(s)) {
    if (!HasOnlyFragments(s) && s->body->kind == StmtKind::kSeq && s->else_body == nullptr) {
      for (const Stmt& child : s->body->stmts) EmitIf(ir::MakeIf(s->condition, child, nullptr));
      return;
    }
    if (!HasOnlyFragments(s)) expr_.Fail("fragments and other statements under one condition");
    condition = nullptr;
    for (const Expr& part : ir::Conjuncts(s->condition)) {
      const bool of_one = part->kind == ir::ExprKind::kEq && part->args[0] == warp_thread_ &&
                          ir::IsInt(part->args[1], 0);
      if (of_one && s->else_body == nullptr) continue;
      if (ir::UsesVar(part, warp_thread_))
        expr_.Fail("fragments under a condition that differs between the threads of a warp");
      condition = condition == nullptr ? part : condition && part;
    }
    if (condition == nullptr) return Emit(s->body);
  }
  EmitBraced(StrCat("if (", expr_.Lane(condition, 0), ") "), s->body);
  if (s->else_body != nullptr) EmitBraced("else ", s->else_body);
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
    case ir::Scope::kWmmaA:
    case ir::Scope::kWmmaB:
    case ir::Scope::kWmmaAcc:
      Line("{");
      ++indent_;
      Line(StrCat(FragmentArray(s->buffer), ";"));
      Emit(s->body);
      --indent_;
      return Line("}");
    default:
      return expr_.Fail(StrCat("a buffer of its own in scope of ", s->buffer->name));
  }
}

// Without copies in flight, commit and wait say nothing.
void CEmitter::EmitSync(const Stmt& s) {
  if (s->sync == ir::SyncKind::kBarrier) return Line(barrier_);
  const auto say = [&](std::string_view commit, std::string_view wait) {
    const bool commits = s->sync == ir::SyncKind::kCommit;
    Line(commits ? std::string(commit)
                 : Replaced(std::string(wait), "@", std::to_string(s->pending)));
  };
  if (async_) say(dialect_.async.commit, dialect_.async.wait);
  uses_async_ = uses_async_ || async_;
  if (!bulk_maps_.empty()) say(dialect_.bulk.commit, dialect_.bulk.wait);
}

void CEmitter::Emit(const Stmt& s) {
  switch (s->kind) {
    case StmtKind::kFor:
      return EmitFor(s);
    case StmtKind::kSeq:
      return EmitSequence(s->stmts);
    case StmtKind::kStore:
      return EmitStore(s);
    case StmtKind::kIf:
      return EmitIf(s);
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
    case StmtKind::kAsync:
      in_async_ = true;
      Emit(s->body);
      in_async_ = false;
      return;
    case StmtKind::kSync:
      return EmitSync(s);
    default:
      return expr_.Fail("a statement that should have been lowered");
  }
}

}  // namespace tilewright::codegen
