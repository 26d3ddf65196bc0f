#include "compiler/ir/verify.h"

#include <string>
#include <unordered_set>
#include <vector>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/type_rules.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::ir {
namespace {

using support::StrCat;

constexpr size_t kShownBytes = 400;  // of the offending text

std::string Shown(std::string text) {
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

class Verifier {
 public:
  explicit Verifier(const Function& f) : f_(f) {}

  absl::Status Run() {
    CheckSignature();
    if (f_.body == nullptr) {
      Fail("no_body", "function " + f_.name + " without a body");
    } else if (ok()) {
      Check(f_.body);
    }
    return ok() ? absl::OkStatus() : support::InvalidArgument("ir.verify." + slug_, detail_);
  }

 private:
  bool ok() const { return slug_.empty(); }
  void Fail(std::string slug, std::string detail) {
    if (!ok()) return;
    slug_ = std::move(slug);
    detail_ = std::move(detail);
  }
  void FailIn(std::string slug, std::string detail, const Stmt& s) {
    if (ok()) Fail(std::move(slug), detail + " in:\n" + Shown(Print(s)));
  }

  void CheckSignature();
  void CheckBuffer(const Buffer& b, bool is_param);
  void Check(const Expr& e, bool allow_loads = true);
  void Check(const Range& r, const Var& var, const Stmt& in);
  void Check(const Stmt& s);
  void CheckFor(const Stmt& s);
  void CheckBoundLoop(const Stmt& s);
  void CheckAsync(const Stmt& s);
  void CheckBlock(const Stmt& s);
  void CheckIters(const Stmt& s);
  void CheckRegions(const Stmt& s, const std::vector<BufferRegion>& regions, bool is_write);
  void CheckRegionsCover(const Stmt& s);
  void CollectAccesses(const Stmt& s, std::unordered_set<const BufferNode*>* loads,
                       std::unordered_set<const BufferNode*>* stores);
  void CollectLoads(const Expr& e, std::unordered_set<const BufferNode*>* loads);
  void CheckAlloc(const Stmt& s);
  void CheckCombine(const Stmt& s);
  void CheckAccess(const Buffer& b, size_t indices, const std::string& text);
  // Binds for the duration of `body`. A variable may be bound once on each path from the root.
  template <typename Walk>
  void Bound(const Var& var, const Stmt& in, const Walk& walk);

  const Function& f_;
  std::string slug_, detail_;
  std::unordered_set<const ExprNode*> vars_;
  std::unordered_set<const BufferNode*> buffers_;
  std::unordered_set<std::string> buffer_names_, block_names_;
  std::vector<ForKind> loop_kinds_;  // of the loops around
};

void Verifier::CheckSignature() {
  bool word = !f_.name.empty();
  for (char c : f_.name) word &= (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  if (!word) Fail("function_name", "expected [a-z0-9_]+, found " + support::Quote(f_.name, 60));
  for (const Var& v : f_.size_params) {
    if (v == nullptr || v->kind != ExprKind::kVar || v->dtype != kI64) {
      return Fail("size_param", "expected variables of i64 as size parameters");
    }
    if (!vars_.insert(v.get()).second)
      return Fail("duplicate_var", "size parameter " + v->name + " given twice");
  }
  for (const Buffer& b : f_.params) CheckBuffer(b, /*is_param=*/true);
  if (f_.stage != Stage::kScheduled && !f_.allocs.empty()) {
    Fail("stage", "expected Alloc statements at this stage, found function-level buffer " +
                      f_.allocs[0]->name);
  }
  for (const Buffer& b : f_.allocs) CheckBuffer(b, /*is_param=*/false);
}

void Verifier::CheckBuffer(const Buffer& b, bool is_param) {
  if (b == nullptr) return Fail("null_buffer", "null buffer");
  if (b->dtype.is_vector())
    Fail("buffer_type", b->name + ": expected an element type, found " + TypeName(b->dtype));
  if (is_param == (b->role == Role::kIntermediate)) {
    Fail("role",
         b->name + ": expected " + (is_param ? "input, constant or output" : "an intermediate"));
  }
  if (is_param && b->scope != Scope::kGlobal)
    Fail("scope", b->name + ": expected parameters in scope global");
  bool power_of_two = b->alignment > 0 && (b->alignment & (b->alignment - 1)) == 0;
  if (!power_of_two)
    Fail("alignment", b->name + ": expected a power of two, found " + std::to_string(b->alignment));
  if (const auto& rows = b->storage_align; rows.has_value()) {
    bool fits = !is_param && rows->inside >= 1 &&
                static_cast<size_t>(rows->inside) < b->shape.size() && rows->factor >= 1 &&
                rows->factor <= kMaxAlignFactor && rows->offset >= 0 && rows->offset < rows->factor;
    if (!fits) {
      Fail("storage_align",
           b->name +
               ": expected an intermediate, a dimension with others inside it and an offset "
               "below the factor");
    }
  }
  if (const auto& rows = b->swizzle; rows.has_value()) {
    const bool fits = !is_param && rows->inside >= 1 &&
                      static_cast<size_t>(rows->inside) < b->shape.size() && rows->vector >= 1 &&
                      rows->vector <= kMaxAlignFactor && (rows->vector & (rows->vector - 1)) == 0;
    if (!fits) {
      Fail("swizzle",
           b->name +
               ": expected an intermediate, a dimension with others inside it and a power of "
               "two of elements");
    }
  }
  if (!buffer_names_.insert(b->name).second)
    Fail("duplicate_buffer", "buffer name " + b->name + " used twice");
  if (!buffers_.insert(b.get()).second)
    Fail("duplicate_buffer", "buffer " + b->name + " declared twice");
  for (const Expr& extent : b->shape) {
    if (extent == nullptr || extent->dtype != kI64)
      return Fail("shape", b->name + ": expected extents of i64");
    if (const int64_t* n = AsInt(extent); n != nullptr && *n < 1) {
      Fail("shape", b->name + ": expected extents of at least 1, found " + std::to_string(*n));
    }
    Check(extent, /*allow_loads=*/false);
  }
}

void Verifier::CheckAccess(const Buffer& b, size_t indices, const std::string& text) {
  if (buffers_.count(b.get()) == 0)
    return Fail("buffer_scope", "buffer " + b->name + " is not in scope: " + Shown(text));
  size_t expected = f_.stage == Stage::kFlat ? 1 : b->shape.size();
  if (indices != expected) {
    Fail("index_count",
         StrCat(b->name, ": expected ", expected, " indices, found ", indices, ": ", Shown(text)));
  }
}

void Verifier::Check(const Expr& e, bool allow_loads) {
  if (!ok()) return;
  if (e == nullptr) return Fail("null_expr", "null expression");
  std::string error = TypeErrorOf(*e);
  if (!error.empty()) return Fail("type", error);
  if (e->kind == ExprKind::kVar && vars_.count(e.get()) == 0) {
    return Fail("var_scope", "variable " + e->name + " is not in scope");
  }
  if (e->kind == ExprKind::kLoad) {
    if (!allow_loads) return Fail("load_position", "expected no loads here: " + Shown(Print(e)));
    CheckAccess(e->buffer, e->args.size(), Print(e));
  }
  if (e->kind == ExprKind::kCall && e->intrinsic == Intrinsic::kPrefetch) {
    return Fail("prefetch", "expected prefetch as a statement of its own only");
  }
  if (e->dtype.is_vector() && f_.stage == Stage::kScheduled) {
    return Fail("stage", "expected scalars before lowering, found " + Shown(Print(e)));
  }
  for (const Expr& a : e->args) Check(a, allow_loads);
  if (e->mask != nullptr) Check(e->mask, allow_loads);
}

void Verifier::Check(const Range& r, const Var& var, const Stmt& in) {
  Check(r.min, /*allow_loads=*/false);
  Check(r.extent, /*allow_loads=*/false);
  if (!ok()) return;
  bool types = var->dtype.is_int() && !var->dtype.is_vector() && r.min->dtype == var->dtype &&
               r.extent->dtype == var->dtype;
  if (!types)
    FailIn("range_type",
           "range of " + var->name + ": expected " + TypeName(var->dtype) + ", found " +
               TypeName(r.extent->dtype),
           in);
  if (const int64_t* n = AsInt(r.extent); n != nullptr && *n < 0)
    FailIn("range", var->name + ": negative extent " + std::to_string(*n), in);
}

template <typename Walk>
void Verifier::Bound(const Var& var, const Stmt& in, const Walk& walk) {
  if (!ok()) return;
  if (var == nullptr || var->kind != ExprKind::kVar)
    return FailIn("var", "expected a variable to bind", in);
  if (!vars_.insert(var.get()).second)
    return FailIn("duplicate_var", "variable " + var->name + " is already bound", in);
  walk();
  vars_.erase(var.get());
}

void Verifier::CheckFor(const Stmt& s) {
  if (s->var == nullptr || s->body == nullptr)
    return Fail("null_stmt", "loop without variable or body");
  Check(s->range, s->var, s);
  bool lowered = f_.stage == Stage::kFlat &&
                 (s->for_kind == ForKind::kVectorized || s->for_kind == ForKind::kUnrolled);
  if (lowered) FailIn("stage", "expected no vectorized or unrolled loops in flat code", s);
  if (auto mark = s->annotations.find(kTensorKey); ok() && mark != s->annotations.end()) {
    auto match = MatchTensor(s, TensorNameOf(*s));
    if (!match.ok()) return Fail("tensor", support::StatusText(match.status()));
  }
  if (IsBound(s->for_kind)) CheckBoundLoop(s);
  loop_kinds_.push_back(s->for_kind);
  Bound(s->var, s, [&] { Check(s->body); });
  loop_kinds_.pop_back();
}

void Verifier::CheckBoundLoop(const Stmt& s) {
  if (!IsInt(s->range.min, 0)) FailIn("bound_range", s->var->name + ": expected a range from 0", s);
  for (ForKind outer : loop_kinds_) {
    if (outer == s->for_kind)
      FailIn("bound_nesting", s->var->name + ": expected each axis once on a path", s);
    if (IsBlockAxis(s->for_kind) && IsThreadAxis(outer))
      FailIn("bound_nesting", s->var->name + ": expected block axes around thread axes", s);
    if (outer == ForKind::kVectorized || outer == ForKind::kParallel)
      FailIn("bound_nesting", s->var->name + ": expected no parallel or vectorized loop around", s);
  }
}

// Stores under loops and conditions only: what a copy engine can do.
void Verifier::CheckAsync(const Stmt& s) {
  if (s == nullptr) return Fail("null_stmt", "async without a body");
  switch (s->kind) {
    case StmtKind::kFor:
    case StmtKind::kIf:
    case StmtKind::kLet:
      CheckAsync(s->body);
      if (s->else_body != nullptr) CheckAsync(s->else_body);
      return;
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) CheckAsync(child);
      return;
    case StmtKind::kStore:
      return;
    default:
      return FailIn("async", "expected stores under loops and conditions", s);
  }
}

void Verifier::CheckIters(const Stmt& s) {
  std::unordered_set<const ExprNode*> own;
  for (const IterVar& iter : s->iters) {
    if (iter.var == nullptr || iter.binding == nullptr)
      return FailIn("binding", "iteration variable without a binding", s);
    Check(iter.domain, iter.var, s);
    Check(iter.binding, /*allow_loads=*/false);
    if (!ok()) return;
    if (iter.binding->dtype != iter.var->dtype) {
      FailIn("binding",
             iter.var->name + ": expected a binding of " + TypeName(iter.var->dtype) + ", found " +
                 TypeName(iter.binding->dtype),
             s);
    }
    if (vars_.count(iter.var.get()) != 0 || !own.insert(iter.var.get()).second) {
      return FailIn("duplicate_var", "variable " + iter.var->name + " is already bound", s);
    }
  }
  if (s->predicate != nullptr) {
    Check(s->predicate, /*allow_loads=*/false);
    if (ok() && s->predicate->dtype != kBool)
      FailIn("predicate", "expected bool, found " + TypeName(s->predicate->dtype), s);
  }
}

void Verifier::CheckRegions(const Stmt& s, const std::vector<BufferRegion>& regions,
                            bool is_write) {
  for (const BufferRegion& r : regions) {
    if (r.buffer == nullptr) return FailIn("region", "region of a null buffer", s);
    if (buffers_.count(r.buffer.get()) == 0)
      return FailIn("buffer_scope", "buffer " + r.buffer->name + " is not in scope", s);
    if (r.region.size() != r.buffer->shape.size()) {
      return FailIn("region",
                    StrCat(r.buffer->name, ": expected ", r.buffer->shape.size(), " ranges, found ",
                           r.region.size()),
                    s);
    }
    for (const Range& dim : r.region) {
      Check(dim.min);
      Check(dim.extent, /*allow_loads=*/false);
      if (ok() && !(dim.min->dtype.is_int() && dim.min->dtype == dim.extent->dtype))
        FailIn("region", r.buffer->name + ": expected integer ranges", s);
    }
    bool read_only = r.buffer->role == Role::kInput || r.buffer->role == Role::kConstant;
    if (is_write && read_only) FailIn("read_only", "block writes " + r.buffer->name, s);
  }
}

void Verifier::CollectLoads(const Expr& e, std::unordered_set<const BufferNode*>* loads) {
  if (e->kind == ExprKind::kLoad) loads->insert(e->buffer.get());
  for (const Expr& a : e->args) CollectLoads(a, loads);
  if (e->mask != nullptr) CollectLoads(e->mask, loads);
}

void Verifier::CollectAccesses(const Stmt& s, std::unordered_set<const BufferNode*>* loads,
                               std::unordered_set<const BufferNode*>* stores) {
  if (s->kind == StmtKind::kStore) stores->insert(s->buffer.get());
  for (const Expr* e : {&s->value, &s->mask, &s->condition}) {
    if (*e != nullptr) CollectLoads(*e, loads);
  }
  for (const Expr& i : s->indices) CollectLoads(i, loads);
  for (const Stmt* child : {&s->init, &s->body, &s->else_body}) {
    if (*child != nullptr) CollectAccesses(*child, loads, stores);
  }
  for (const Stmt& child : s->stmts) CollectAccesses(child, loads, stores);
}

// Every buffer that the body touches is declared; which points is for the interpreter
// (check_regions) to say.
void Verifier::CheckRegionsCover(const Stmt& s) {
  std::unordered_set<const BufferNode*> loads, stores, reads, writes;
  CollectAccesses(s->body, &loads, &stores);
  if (s->init != nullptr) CollectAccesses(s->init, &loads, &stores);
  for (const BufferRegion& r : s->reads) reads.insert(r.buffer.get());
  for (const BufferRegion& r : s->writes) writes.insert(r.buffer.get());
  std::string missing;
  auto demand = [&](const std::unordered_set<const BufferNode*>& used, bool is_write) {
    for (const BufferNode* b : used) {
      if (buffers_.count(b) == 0) continue;  // allocated inside
      bool declared = writes.count(b) != 0 || (!is_write && reads.count(b) != 0);
      if (!declared && (missing.empty() || b->name < missing)) missing = b->name;
    }
  };
  demand(stores, true);
  if (!missing.empty())
    return FailIn("undeclared_write",
                  "block " + s->name + " writes " + missing + " without declaring it", s);
  demand(loads, false);
  if (!missing.empty())
    FailIn("undeclared_read", "block " + s->name + " reads " + missing + " without declaring it",
           s);
}

void Verifier::CheckBlock(const Stmt& s) {
  if (f_.stage != Stage::kScheduled) return FailIn("stage", "expected no blocks after lowering", s);
  if (s->body == nullptr) return Fail("null_stmt", "block " + s->name + " without a body");
  if (s->name.empty()) FailIn("block_name", "expected a name", s);
  if (!block_names_.insert(s->name).second)
    FailIn("duplicate_block", "block name " + s->name + " used twice", s);
  CheckIters(s);
  if (!ok()) return;
  if (s->init != nullptr) {
    bool reduces = false;
    for (const IterVar& iter : s->iters) reduces |= iter.type == IterType::kReduce;
    if (!reduces)
      FailIn("init", "block " + s->name + ": expected a reduce variable where there is an init", s);
  }
  // Inside, a block knows its own variables and the sizes only: what it does never depends on the
  // loops that drive it.
  std::unordered_set<const ExprNode*> outside = std::move(vars_);
  vars_.clear();
  for (const Var& v : f_.size_params) vars_.insert(v.get());
  for (const IterVar& iter : s->iters) vars_.insert(iter.var.get());
  CheckRegions(s, s->reads, /*is_write=*/false);
  CheckRegions(s, s->writes, /*is_write=*/true);
  if (ok() && s->init != nullptr) Check(s->init);
  if (ok()) Check(s->body);
  if (ok()) CheckRegionsCover(s);
  vars_ = std::move(outside);
}

void Verifier::CheckAlloc(const Stmt& s) {
  CheckBuffer(s->buffer, /*is_param=*/false);
  if (!ok()) return;
  if (s->body == nullptr) return Fail("null_stmt", "alloc without a body");
  Check(s->body);
  buffers_.erase(s->buffer.get());  // its name stays taken: names are unique in a function
}

void Verifier::CheckCombine(const Stmt& s) {
  if (f_.stage != Stage::kScheduled)
    return FailIn("stage", "expected no combine after lowering", s);
  std::string error = CombineErrorOf(*s);
  if (!error.empty()) return FailIn("type", error, s);
  for (const Stmt& store : s->stmts) Check(store);
  if (!ok()) return;
  // The combiner is a closed function: it knows its own variables only.
  std::unordered_set<const ExprNode*> outside = std::move(vars_);
  vars_.clear();
  for (const auto* side : {&s->combiner->lhs, &s->combiner->rhs}) {
    for (const Var& v : *side) {
      if (v->kind != ExprKind::kVar || !vars_.insert(v.get()).second)
        FailIn("combiner", "expected different variables in a combiner", s);
    }
  }
  for (const Expr& r : s->combiner->results) Check(r, /*allow_loads=*/false);
  vars_ = std::move(outside);
}

void Verifier::Check(const Stmt& s) {
  if (!ok()) return;
  if (s == nullptr) return Fail("null_stmt", "null statement");
  switch (s->kind) {
    case StmtKind::kFor:
      return CheckFor(s);
    case StmtKind::kBlock:
      return CheckBlock(s);
    case StmtKind::kStore: {
      std::string error = StoreErrorOf(*s);
      if (!error.empty()) return FailIn("type", error, s);
      CheckAccess(s->buffer, s->indices.size(), Print(s));
      if (s->buffer->role == Role::kInput || s->buffer->role == Role::kConstant)
        FailIn("read_only", "store to " + s->buffer->name, s);
      for (const Expr& i : s->indices) Check(i);
      Check(s->value);
      if (s->mask != nullptr) Check(s->mask);
      return;
    }
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) Check(child);
      return;
    case StmtKind::kIf:
      Check(s->condition);
      if (ok() && s->condition->dtype != kBool)
        FailIn("condition", "expected bool, found " + TypeName(s->condition->dtype), s);
      Check(s->body);
      if (s->else_body != nullptr) Check(s->else_body);
      return;
    case StmtKind::kLet:
      Check(s->value);
      if (ok() && (s->var == nullptr || s->var->dtype != s->value->dtype))
        return FailIn("type", "let: variable and value differ in type", s);
      return Bound(s->var, s, [&] { Check(s->body); });
    case StmtKind::kAlloc:
      return CheckAlloc(s);
    case StmtKind::kEvaluate:
      if (s->value != nullptr && s->value->kind == ExprKind::kCall &&
          s->value->intrinsic == Intrinsic::kPrefetch) {
        std::string error = TypeErrorOf(*s->value);
        return error.empty() ? Check(s->value->args[0]) : FailIn("type", error, s);
      }
      return Check(s->value);
    case StmtKind::kAsync:
      if (f_.stage == Stage::kScheduled) FailIn("stage", "expected no async before lowering", s);
      CheckAsync(s->body);
      return Check(s->body);
    case StmtKind::kSync:
      if (f_.stage == Stage::kScheduled) FailIn("stage", "expected no sync before lowering", s);
      if (s->pending < 0 || (s->pending != 0 && s->sync != SyncKind::kWait))
        FailIn("sync", "expected a number of groups for wait only", s);
      return;
    case StmtKind::kCombine:
      return CheckCombine(s);
  }
}

}  // namespace

absl::Status Verify(const Function& function) { return Verifier(function).Run(); }

}  // namespace tilewright::ir
