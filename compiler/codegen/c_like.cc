// Statements and kernels of c_like.
#include "compiler/codegen/c_like.h"

#include <array>
#include <set>

#include "compiler/analysis/simplify.h"
#include "compiler/codegen/c_like_expr.h"
#include "compiler/codegen/fragments.h"
#include "compiler/codegen/index_width.h"
#include "compiler/codegen/sub_group_sums.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/structural.h"
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
    if (e->kind != ir::ExprKind::kLoad || !IsFragmentScope(e->buffer->scope))
      return RewriteChildren(e);
    return ir::Load(Registers(e->buffer, e->args[0]), {Index(e->args[0])});
  }
  Stmt RewriteStmt(const Stmt& s) override {
    const Stmt r = RewriteChildren(s);
    if (r->kind != StmtKind::kStore || !IsFragmentScope(r->buffer->scope)) return r;
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
  // An array of a group, and where it begins in all of its shared memory, whose end comes last.
  struct SharedArray {
    ir::Buffer buffer;
    int64_t elements, offset;
  };
  static std::vector<SharedArray> SharedArraysOf(const Stmt& body);
  void SharedBuffers(const std::vector<SharedArray>& arrays, bool dynamic);
  void Emit(const Stmt& s);
  void EmitBraced(std::string_view head, const Stmt& body);
  std::string LoopHead(const Stmt& s, bool in_turn);
  void EmitFor(const Stmt& s);
  void EmitSubGroupSum(const Stmt& s, const SubGroupSum& sum);
  void EmitIf(const Stmt& s);
  void EmitTensor(const Stmt& s);
  void EmitFragmentMap(const Stmt& s);
  std::string Fragment(const ir::Buffer& buffer, const FragmentLayout& layout, const Expr& base);
  std::string FragmentArray(const ir::Buffer& buffer);
  void EmitStore(const Stmt& s);
  void EmitSync(const Stmt& s);
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
  bool CopyAsync(const Stmt& s);

  bool uses_sub_groups_ = false, uses_fragments_ = false, uses_async_ = false,
       uses_dynamic_ = false;
  bool async_ = false;         // of the kernel: it has copies that no thread waits for
  bool in_async_ = false;      // of the statement
  std::string_view barrier_;   // of the kernel
  FragmentLayouts fragments_;  // of the kernel
  ir::Var warp_thread_;        // of the kernel: the thread along x, if those are one warp
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
  if (uses_fragments_) result.text += dialect_.fragments.prologue;
  if (uses_async_) result.text += dialect_.async.prologue;
  if (uses_dynamic_) result.text += dialect_.dynamic_shared.prologue;
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

std::vector<CEmitter::SharedArray> CEmitter::SharedArraysOf(const Stmt& body) {
  constexpr int64_t kAlignment = 16;
  std::vector<SharedArray> arrays;
  int64_t offset = 0;
  ir::VisitStmts(body, [&](const Stmt& s) {
    if (s->kind != StmtKind::kAlloc || s->buffer->scope != ir::Scope::kShared) return true;
    int64_t elements = 1;
    for (const Expr& e : s->buffer->shape) elements *= ir::AsInt(e) == nullptr ? 0 : *ir::AsInt(e);
    const int64_t bytes = elements * s->buffer->dtype.bytes();
    arrays.push_back({s->buffer, elements, offset});
    offset += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return true;
  });
  arrays.push_back({nullptr, 0, offset});  // the end
  return arrays;
}

void CEmitter::SharedBuffers(const std::vector<SharedArray>& arrays, bool dynamic) {
  if (dynamic) Line(dialect_.dynamic_shared.memory);
  for (const SharedArray& a : arrays) {
    if (a.buffer == nullptr) continue;
    if (dynamic) {
      const std::string type = expr_.MemoryOf(a.buffer->dtype);
      Line(StrCat(dialect_.dynamic_shared.array, "(", type, ", ",
                  expr_.Declare(a.buffer.get(), a.buffer->name), ", ", a.elements, ", ", a.offset,
                  ");"));
    } else {
      Line(StrCat(dialect_.shared, Array(a.buffer), ";"));
    }
  }
}

absl::Status CEmitter::AddKernel(const ir::Function& f) {
  if (f.stage != ir::Stage::kFlat) {
    return support::FailedPrecondition(StrCat("codegen.", dialect_.name, ".not_flat"),
                                       StrCat("expected a function of stage flat, found ", f.name));
  }
  expr_.StartKernel(FitsInt32(f));
  const std::set<const ir::BufferNode*> read_back = ReadBack(f);
  const std::vector<SharedArray> shared = SharedArraysOf(f.body);
  const DynamicSharedWords& words = dialect_.dynamic_shared;
  const bool dynamic = words.above > 0 && shared.back().offset > words.above;
  uses_dynamic_ = uses_dynamic_ || dynamic;
  if (dynamic) {
    const std::string kib = std::to_string((shared.back().offset + 1023) / 1024);
    out_ += StrCat(Replaced(Replaced(std::string(words.size), "@", f.name), "#", kib), "\n");
  }
  Signature(f, read_back);
  const bool global = !read_back.empty() || StoresBeforeBarrier(f.body);
  barrier_ = global ? dialect_.global_barrier : dialect_.barrier;
  if (sub_groups_) sums_ = FindSubGroupSums(f);
  TW_ASSIGN(fragments_, FindFragments(f));
  async_ = !dialect_.async.copy.empty() && HasWideAsync(f.body);
  warp_thread_ = nullptr;
  indent_ = 1;
  SharedBuffers(shared, dynamic);
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
  if (!ir::TensorNameOf(*s).empty()) return EmitTensor(s);
  if (FragmentMapOf(s) != nullptr) return EmitFragmentMap(s);
  expr_.SetRange(s->var, s->range);
  if (s->for_kind == ir::ForKind::kThreadX &&
      ir::IsInt(s->range.extent, dialect_.fragments.threads)) {
    warp_thread_ = s->var;
  }
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

// Starts the copy of a run. False: it is no copy that the language can start; stores do it at once,
// which is allowed, too.
bool CEmitter::CopyAsync(const Stmt& s) {
  if (!in_async_ || !async_) return false;
  const std::optional<WideCopy> copy = WideCopyOf(s);
  if (!copy.has_value()) return false;
  const auto to = expr_.WideRun(s->buffer, s->indices[0], /*read_only=*/false);
  const auto from = expr_.WideRun(copy->load->buffer, copy->load->args[0], /*read_only=*/true);
  if (!to.has_value() || !from.has_value()) return false;
  const std::string condition = copy->condition == nullptr ? "1" : expr_.Lane(copy->condition, 0);
  Line(StrCat(dialect_.async.copy, "(&", *to, ", &", *from, ", ", condition, ");"));
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

// What one thread of a warp does with fragments, which all have, is done by the warp.
void CEmitter::EmitIf(const Stmt& s) {
  Expr condition = s->condition;
  if (!fragments_.empty() && HasFragments(s)) {
    if (!HasOnlyFragments(s)) expr_.Fail("fragments and other statements under one condition");
    condition = nullptr;
    for (const Expr& part : ir::Conjuncts(s->condition)) {
      const bool of_one = part->kind == ir::ExprKind::kEq && part->args[0] == warp_thread_ &&
                          ir::IsInt(part->args[1], 0);
      if (of_one && s->else_body == nullptr) continue;
      if (warp_thread_ != nullptr && ir::UsesVar(part, warp_thread_))
        expr_.Fail("fragments under a condition that differs between the threads of a warp");
      condition = condition == nullptr ? part : condition && part;
    }
    if (condition == nullptr) return Emit(s->body);
  }
  EmitBraced(StrCat("if (", expr_.Lane(condition, 0), ") "), s->body);
  if (s->else_body != nullptr) EmitBraced("else ", s->else_body);
}

// `float name[fragments][registers]`
std::string CEmitter::FragmentArray(const ir::Buffer& buffer) {
  const FragmentWords& words = dialect_.fragments;
  const auto layout = fragments_.find(buffer.get());
  if (layout == fragments_.end() || words.threads == 0) {
    expr_.Fail(StrCat("fragments of ", buffer->name));
    return "";
  }
  const bool sums = buffer->scope == ir::Scope::kWmmaAcc;
  const int registers = sums ? words.sums : buffer->scope == ir::Scope::kWmmaA ? words.a : words.b;
  uses_fragments_ = true;
  return StrCat(expr_.TypeOf(sums ? buffer->dtype : ir::kU32), " ",
                expr_.Declare(buffer.get(), buffer->name), "[", layout->second.count, "][",
                registers, "]");
}

std::string CEmitter::Fragment(const ir::Buffer& buffer, const FragmentLayout& layout,
                               const Expr& base) {
  const auto known = fragments_.find(buffer.get());
  const std::optional<int64_t> number = layout.NumberOf(analysis::Simplify(base));
  if (known == fragments_.end() || known->second != layout || !number.has_value()) {
    expr_.Fail(
        StrCat("fragments of ", buffer->name, " that lie in another way than their product's"));
    return "";
  }
  return StrCat(expr_.NameOf(buffer.get()), "[", *number, "]");
}

void CEmitter::EmitTensor(const Stmt& s) {
  const auto match = ir::MatchTensor(s, ir::TensorNameOf(*s));
  const bool fragments = match.ok() && (match->intrinsic->op == ir::TensorOp::kMma ||
                                        match->intrinsic->op == ir::TensorOp::kFragmentLoad);
  if (!fragments || fragments_.empty() || dialect_.fragments.threads == 0)
    return expr_.Fail(StrCat("the intrinsic ", ir::TensorNameOf(*s)));
  if (warp_thread_ == nullptr)
    return expr_.Fail(StrCat("fragments without ", dialect_.fragments.threads, " threads along x"));
  const std::string function = StrCat("tw_", Replaced(match->intrinsic->name, ".", "_"));
  const auto operand = [&](size_t i, size_t rows, size_t columns) {
    return Fragment(match->operands[i].buffer, LayoutOf(*match, i, rows, columns),
                    match->operands[i].base);
  };
  if (match->reset) return Line(StrCat(function, "_reset(", operand(0, 0, 1), ");"));
  if (match->intrinsic->op == ir::TensorOp::kMma) {
    return Line(StrCat(function, "(", operand(0, 0, 1), ", ", operand(1, 0, 2), ", ",
                       operand(2, 2, 1), ");"));
  }
  // Squares may have been matched with rows for columns; the product knows which are which.
  const auto known = fragments_.find(match->operands[0].buffer.get());
  const bool turned = known != fragments_.end() && known->second != LayoutOf(*match, 0, 0, 1);
  const size_t rows = turned ? 1 : 0, columns = 1 - rows;
  const ir::TensorOperandMatch& from = match->operands[1];
  const int64_t step = from.strides[from.strides[columns] == 1 ? rows : columns];
  Line(StrCat(function, "<", from.strides[rows], ", ", from.strides[columns], ", ",
              expr_.AlignedBytes(from.buffer, from.base, step), ", ",
              from.buffer->scope == ir::Scope::kShared ? "true" : "false", ">(",
              operand(0, rows, columns), ", ", expr_.NameOf(from.buffer.get()), " + ",
              expr_.Lane(from.base, 0), ");"));
}

// for i, j: S(sums[i, j])   →   for each of the thread's elements, or runs: S(sums[element])
void CEmitter::EmitFragmentMap(const Stmt& s) {
  const Stmt& inner = s->body;
  const FragmentWords& words = dialect_.fragments;
  const int64_t *rows = ir::AsInt(s->range.extent), *columns = ir::AsInt(inner->range.extent);
  if (warp_thread_ == nullptr || fragments_.empty() || rows == nullptr || columns == nullptr ||
      !ir::IsInt(s->range.min, 0) || !ir::IsInt(inner->range.min, 0))
    return expr_.Fail("a map of fragments without their threads");
  const ir::Var element = ir::MakeVar("element");
  ElementsOfThread elements({s->var, inner->var}, {.extents = {*rows, *columns}}, element,
                            words.neighbours);
  const Stmt body = elements.RewriteStmt(inner->body);
  for (ElementsOfThread::Access access : elements.accesses()) {
    const auto known = fragments_.find(access.buffer.get());
    if (known != fragments_.end()) access.layout.count = known->second.count;
    expr_.SetName(access.registers.get(), Fragment(access.buffer, access.layout, access.base));
  }
  // The product's fragments are so wide: fewer columns are runs.
  int64_t width = *columns;
  if (!elements.accesses().empty()) width = elements.accesses()[0].layout.extents[1];
  const bool runs = width != *columns;
  const int count = runs ? words.sums / words.neighbours : words.sums;
  const std::string e = expr_.Declare(element.get(), element->name);
  const std::string n = std::to_string(words.neighbours);
  Line("#pragma unroll");
  Line(StrCat("for (int ", e, " = 0; ", e, " < ", count, "; ++", e, ") {"));
  ++indent_;
  const std::string row = Replaced(std::string(words.row), "@", runs ? e : StrCat(e, " / ", n));
  const std::string column =
      runs ? std::string(words.run) : StrCat(words.run, " * ", n, " + ", e, " % ", n);
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
  if (!async_) return;
  uses_async_ = true;
  const bool commits = s->sync == ir::SyncKind::kCommit;
  Line(commits ? std::string(dialect_.async.commit)
               : Replaced(std::string(dialect_.async.wait), "@", std::to_string(s->pending)));
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

}  // namespace

absl::StatusOr<CText> EmitC(const std::vector<ir::Function>& kernels, const CDialect& dialect,
                            bool sub_groups) {
  CEmitter emitter(dialect, sub_groups);
  for (const ir::Function& f : kernels) TW_TRY(emitter.AddKernel(f));
  return emitter.Text();
}

}  // namespace tilewright::codegen
