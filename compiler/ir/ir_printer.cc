// The printing half of ir_text.h. Names are made unique per scope while printing, so the text
// parses back whatever the nodes are called. The grammar is in compiler/ir/README.md.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/text_words.h"
#include "compiler/ir/type_rules.h"
#include "deploy/support/strings.h"

namespace tilewright::ir {
namespace {

class Printer {
 public:
  std::string Take() { return std::move(out_); }
  void Print(const Function& f);
  void Print(const Stmt& s);
  void Print(const Expr& e, int parent_precedence = 0);

 private:
  void Line() { out_.append(indent_ * 2, ' '); }
  std::string Fresh(std::string_view wanted);
  // Gives a symbol a name for as long as its scope lasts; returns the name.
  const std::string& Bind(const void* symbol, std::string_view wanted);
  void Unbind(const void* symbol);
  const std::string& NameOf(const void* symbol, std::string_view wanted);

  void PrintList(const std::vector<Expr>& list);
  void PrintOperator(const Expr& e, int parent_precedence);
  void PrintFloat(double value, DType type);
  void PrintInt(int64_t value, DType type);
  void PrintAccess(const Buffer& buffer, const std::vector<Expr>& indices, const Expr& mask);
  void PrintBuffer(const Buffer& b);
  void PrintRange(const Range& r);
  void PrintAnnotations(const Annotations& annotations);
  void PrintRegions(std::string_view word, const std::vector<BufferRegion>& regions);
  void PrintBlock(const StmtNode& s);
  void PrintCombine(const StmtNode& s);
  void PrintBody(const Stmt& s);

  std::string out_;
  int indent_ = 0;
  std::unordered_map<const void*, std::string> names_;
  std::unordered_set<std::string> taken_;
  std::unordered_set<std::string> blocks_;
};

std::string Printer::Fresh(std::string_view wanted) {
  std::string base = Sanitise(wanted), name = base;
  for (int n = 1; taken_.count(name) != 0; ++n) name = base + "_" + std::to_string(n);
  return name;
}

const std::string& Printer::Bind(const void* symbol, std::string_view wanted) {
  std::string name = Fresh(wanted);
  taken_.insert(name);
  return names_.insert_or_assign(symbol, std::move(name)).first->second;
}

void Printer::Unbind(const void* symbol) {
  auto it = names_.find(symbol);
  if (it == names_.end()) return;  // malformed: bound twice
  taken_.erase(it->second);
  names_.erase(it);
}

const std::string& Printer::NameOf(const void* symbol, std::string_view wanted) {
  auto it = names_.find(symbol);
  return it != names_.end()
             ? it->second
             : Bind(symbol, wanted);  // a free symbol: named for the rest of the text
}

void Printer::PrintList(const std::vector<Expr>& list) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out_ += ", ";
    Print(list[i]);
  }
}

void Printer::PrintInt(int64_t value, DType type) {
  if (type.is_bool()) {
    out_ += value != 0 ? "true" : "false";
    return;
  }
  bool is_unsigned = type.code == TypeCode::kUInt;
  out_ += is_unsigned ? std::to_string(static_cast<uint64_t>(value)) : std::to_string(value);
  if (type != kI64) out_ += TypeName(type);
}

void Printer::PrintFloat(double value, DType type) {
  if (!std::isfinite(value)) {
    out_ += std::isnan(value) ? "nan(" : value < 0 ? "-inf(" : "inf(";
    out_ += TypeName(type) + ")";
    return;
  }
  char text[40];
  // The shortest digits that give the value back in its own type; narrower types are exact in
  // float.
  auto end = type.bits == 64
                 ? std::to_chars(text, text + sizeof text, value).ptr
                 : std::to_chars(text, text + sizeof text, static_cast<float>(value)).ptr;
  std::string_view digits(text, end - text);
  out_ += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) out_ += ".0";
  out_ += TypeName(type);
}

void Printer::PrintAccess(const Buffer& buffer, const std::vector<Expr>& indices,
                          const Expr& mask) {
  out_ += NameOf(buffer.get(), buffer->name);
  out_ += '[';
  PrintList(indices);
  out_ += ']';
  if (mask == nullptr) return;
  out_ += " masked(";
  Print(mask);
  out_ += ')';
}

void Printer::PrintOperator(const Expr& e, int parent_precedence) {
  int precedence = PrecedenceOf(e->kind);
  bool parentheses = precedence <= parent_precedence;
  if (parentheses) out_ += '(';
  // Operators associate to the left: the right operand must bind tighter. Comparisons do not chain
  // at all.
  Print(e->args[0], IsComparison(e->kind) ? precedence : precedence - 1);
  out_.append(" ").append(KindText(e->kind)).append(" ");
  Print(e->args[1], precedence);
  if (parentheses) out_ += ')';
}

void Printer::Print(const Expr& e, int parent_precedence) {
  switch (e->kind) {
    case ExprKind::kVar:
      out_ += NameOf(e.get(), e->name);
      return;
    case ExprKind::kIntImm:
      return PrintInt(e->int_value, e->dtype);
    case ExprKind::kFloatImm:
      return PrintFloat(e->float_value, e->dtype);
    case ExprKind::kLoad:
      return PrintAccess(e->buffer, e->args, e->mask);
    case ExprKind::kNot:
      out_ += '!';
      return Print(e->args[0], kUnaryPrecedence);
    case ExprKind::kCast:
      out_ += TypeName(e->dtype);
      break;
    case ExprKind::kCall:
      out_ += IntrinsicText(e->intrinsic);
      break;
    default:
      if (PrecedenceOf(e->kind) > 0) return PrintOperator(e, parent_precedence);
      out_ += KindText(e->kind);
      break;
  }
  out_ += '(';
  PrintList(e->args);
  if (e->kind == ExprKind::kRamp || e->kind == ExprKind::kBroadcast)
    out_ += ", " + std::to_string(e->dtype.lanes);
  out_ += ')';
}

void Printer::PrintRange(const Range& r) {
  const int64_t* min = AsInt(r.min);
  const int64_t* extent = AsInt(r.extent);
  Print(r.min, kRangePrecedence);
  int64_t end = 0;
  if (min != nullptr && extent != nullptr && !__builtin_add_overflow(*min, *extent, &end) &&
      r.min->dtype == kI64) {
    out_ += ".." + std::to_string(end);
    return;
  }
  out_ += IsInt(r.min, 0) ? ".." : "..+";
  Print(r.extent, kRangePrecedence);
}

void Printer::PrintAnnotations(const Annotations& annotations) {
  out_ += '{';
  bool first = true;
  for (const auto& [key, value] : annotations) {
    if (!first) out_ += ", ";
    first = false;
    out_ += IsPlainWord(key) ? key : QuoteText(key);
    out_ += '=';
    if (const int64_t* number = std::get_if<int64_t>(&value)) {
      out_ += std::to_string(*number);
    } else {
      out_ += QuoteText(std::get<std::string>(value));
    }
  }
  out_ += '}';
}

void Printer::PrintBuffer(const Buffer& b) {
  out_ += NameOf(b.get(), b->name);
  out_ += ": " + TypeName(b->dtype) + "[";
  PrintList(b->shape);
  out_ += ']';
  if (b->role != Role::kIntermediate) out_.append(" ").append(RoleText(b->role));
  if (b->scope != Scope::kGlobal || b->role == Role::kIntermediate)
    out_.append(" scope=").append(ScopeText(b->scope));
  if (b->alignment != BufferNode().alignment) out_ += " align=" + std::to_string(b->alignment);
  if (const auto& rows = b->storage_align; rows.has_value()) {
    out_ += support::StrCat(" storage_align=", rows->inside, ",", rows->factor, ",", rows->offset);
  }
  if (const auto& rows = b->swizzle; rows.has_value())
    out_ += support::StrCat(" swizzle=", rows->inside, ",", rows->vector);
}

void Printer::PrintRegions(std::string_view word, const std::vector<BufferRegion>& regions) {
  if (regions.empty()) return;
  Line();
  out_ += word;
  for (size_t i = 0; i < regions.size(); ++i) {
    out_ += i > 0 ? ", " : " ";
    out_ += NameOf(regions[i].buffer.get(), regions[i].buffer->name);
    out_ += '[';
    for (size_t d = 0; d < regions[i].region.size(); ++d) {
      if (d > 0) out_ += ", ";
      Print(regions[i].region[d].min);
      out_ += ':';
      Print(regions[i].region[d].extent);
    }
    out_ += ']';
  }
  out_ += ";\n";
}

void Printer::PrintBlock(const StmtNode& s) {
  std::string base = Sanitise(s.name), name = base;
  for (int n = 1; blocks_.count(name) != 0; ++n) name = base + "_" + std::to_string(n);
  blocks_.insert(name);
  out_ += "block " + name + "(";
  // Bindings and the predicate stand outside the block's scope, but the iteration variables get
  // their names here, so that the text reads from left to right.
  for (size_t i = 0; i < s.iters.size(); ++i) {
    const IterVar& iter = s.iters[i];
    if (i > 0) out_ += ", ";
    out_ += Bind(iter.var.get(), iter.var->name);
    out_.append(": ").append(IterTypeText(iter.type)).append(" ");
    PrintRange(iter.domain);
    out_ += " = ";
    Print(iter.binding);
  }
  out_ += ')';
  if (s.predicate != nullptr) {
    out_ += " where (";
    Print(s.predicate);
    out_ += ')';
  }
  if (!s.annotations.empty()) {
    out_ += " @";
    PrintAnnotations(s.annotations);
  }
  out_ += " {\n";
  ++indent_;
  PrintRegions("reads", s.reads);
  PrintRegions("writes", s.writes);
  if (s.init != nullptr) {
    Line();
    out_ += "init ";
    PrintBody(s.init);
    out_ += '\n';
  }
  Print(s.body);
  --indent_;
  Line();
  out_ += "}\n";
  for (const IterVar& iter : s.iters) Unbind(iter.var.get());
}

void Printer::PrintCombine(const StmtNode& s) {
  const TupleCombiner& c = *s.combiner;
  out_ += c.ordered ? "combine ordered (" : "combine (";
  for (size_t i = 0; i < s.stmts.size(); ++i) {
    if (i > 0) out_ += ", ";
    PrintAccess(s.stmts[i]->buffer, s.stmts[i]->indices, nullptr);
  }
  out_ += ") with (";
  for (size_t i = 0; i < s.stmts.size(); ++i) {
    if (i > 0) out_ += ", ";
    Print(s.stmts[i]->value);
  }
  out_ += ") by (";
  for (const auto* vars : {&c.lhs, &c.rhs}) {
    if (vars == &c.rhs) out_ += "), (";
    for (size_t i = 0; i < vars->size(); ++i) {
      if (i > 0) out_ += ", ";
      out_ += Bind((*vars)[i].get(), (*vars)[i]->name);
    }
  }
  out_ += ") = (";
  PrintList(c.results);
  out_ += ");";
  for (const auto* vars : {&c.lhs, &c.rhs}) {
    for (const Var& v : *vars) Unbind(v.get());
  }
}

// "{", the statements, "}", without a line break at the end.
void Printer::PrintBody(const Stmt& s) {
  out_ += "{\n";
  ++indent_;
  Print(s);
  --indent_;
  Line();
  out_ += '}';
}

void Printer::Print(const Stmt& s) {
  if (s->kind == StmtKind::kSeq) {
    for (const Stmt& child : s->stmts) Print(child);
    return;
  }
  Line();
  switch (s->kind) {
    case StmtKind::kFor:
      out_ += "for ";
      out_ += Bind(s->var.get(), s->var->name);
      out_ += " in ";
      PrintRange(s->range);
      if (s->for_kind != ForKind::kSerial) out_.append(" ").append(ForKindText(s->for_kind));
      if (!s->annotations.empty()) {
        out_ += " @";
        PrintAnnotations(s->annotations);
      }
      out_ += ' ';
      PrintBody(s->body);
      Unbind(s->var.get());
      break;
    case StmtKind::kBlock:
      return PrintBlock(*s);
    case StmtKind::kStore:
      PrintAccess(s->buffer, s->indices, s->mask);
      out_ += " = ";
      Print(s->value);
      out_ += ';';
      break;
    case StmtKind::kIf:
      out_ += "if (";
      Print(s->condition);
      out_ += ") ";
      PrintBody(s->body);
      if (s->else_body != nullptr) {
        out_ += " else ";
        PrintBody(s->else_body);
      }
      break;
    case StmtKind::kLet:
      out_ += "let ";
      out_ += Fresh(s->var->name);  // not yet in scope in its own value
      out_ += " = ";
      Print(s->value);
      Bind(s->var.get(), s->var->name);
      out_ += ' ';
      PrintBody(s->body);
      Unbind(s->var.get());
      break;
    case StmtKind::kAlloc:
      out_ += "alloc ";
      Bind(s->buffer.get(), s->buffer->name);
      PrintBuffer(s->buffer);
      out_ += ' ';
      PrintBody(s->body);
      Unbind(s->buffer.get());
      break;
    case StmtKind::kEvaluate:
      out_ += "eval ";
      Print(s->value);
      out_ += ';';
      break;
    case StmtKind::kAsync:
      out_ += "async ";
      PrintBody(s->body);
      break;
    case StmtKind::kSync:
      out_.append("sync ").append(SyncText(s->sync));
      if (s->sync == SyncKind::kWait) out_ += " " + std::to_string(s->pending);
      out_ += ';';
      break;
    case StmtKind::kCombine:
      PrintCombine(*s);
      break;
    case StmtKind::kSeq:
      break;
  }
  out_ += '\n';
}

void Printer::Print(const Function& f) {
  out_ += "fn " + Sanitise(f.name) + "(";
  bool first = true;
  auto separate = [&] {
    if (!first) out_ += ", ";
    first = false;
  };
  for (const Var& v : f.size_params) {
    separate();
    out_ += Bind(v.get(), v->name) + ": size";
  }
  for (const Buffer& b : f.params) {
    separate();
    Bind(b.get(), b->name);
    PrintBuffer(b);
  }
  out_.append(") stage=").append(StageText(f.stage));
  if (!f.attrs.empty()) {
    out_ += " attrs ";
    PrintAnnotations(f.attrs);
  }
  out_ += " {\n";
  indent_ = 1;
  for (const Buffer& b : f.allocs) {
    Bind(b.get(), b->name);
    Line();
    out_ += "alloc ";
    PrintBuffer(b);
    out_ += ";\n";
  }
  if (f.body != nullptr) Print(f.body);
  out_ += "}\n";
}

}  // namespace

std::string Print(const Function& function) {
  Printer p;
  p.Print(function);
  return p.Take();
}

std::string Print(const Stmt& stmt) {
  if (stmt == nullptr) return "<null>";
  Printer p;
  p.Print(stmt);
  return p.Take();
}

std::string Print(const Expr& expr) {
  if (expr == nullptr) return "<null>";
  Printer p;
  p.Print(expr);
  return p.Take();
}

}  // namespace tilewright::ir
