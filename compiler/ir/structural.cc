#include "compiler/ir/structural.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "deploy/support/hash.h"

namespace tilewright::ir {
namespace {

// kNone stands behind the rows of nodes.def; stored hashes know it as 12, so rows from there on are
// one further.
uint64_t HashedIntrinsic(Intrinsic intrinsic) {
  constexpr uint64_t kStoredNone = 12;
  if (intrinsic == Intrinsic::kNone) return kStoredNone;
  const uint64_t row = uint64_t(intrinsic);
  return row < kStoredNone ? row : row + 1;
}

// Writes a tree as a sequence of numbers in which variables and buffers are numbered in order of
// first appearance. Two trees are equal up to renaming exactly when the sequences are, so equality
// and hash cannot disagree. The numbering is injective because every list is preceded by its length
// and every optional part by a flag.
class Encoder {
 public:
  // With `free_by_address`, variables and buffers that are not bound inside are encoded by identity
  // (equality in one process); otherwise they are numbered like bound ones.
  explicit Encoder(bool free_by_address) : free_by_address_(free_by_address) {}
  // For a program, not an expression.
  void Reserve() {
    bound_.reserve(128);
    words_.reserve(2048);
  }

  void Encode(const Function& f);
  void Encode(const Stmt& s);
  void Encode(const Expr& e);
  void EncodeOptional(const Expr& e) {
    Put(e != nullptr);
    if (e != nullptr) Encode(e);
  }
  void Put(uint64_t word) { words_.push_back(word); }
  const std::vector<uint64_t>& words() const { return words_; }

 private:
  void PutType(DType t) { Put(uint64_t(t.code) << 32 | uint64_t(t.bits) << 16 | t.lanes); }
  void PutText(std::string_view text);
  void PutDouble(double v) {
    uint64_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    Put(bits);
  }
  void Bind(const Expr& var) {
    bound_.insert_or_assign(var.get(), next_++);
    PutType(var->dtype);
  }
  void Declare(const Buffer& b);
  void Use(const void* symbol);
  void Encode(const Range& r) {
    EncodeOptional(r.min);
    EncodeOptional(r.extent);
  }
  void Encode(const Annotations& annotations);
  void EncodeBlock(const StmtNode& s);
  void EncodeRegions(const std::vector<BufferRegion>& regions);
  void EncodeChild(const Stmt& s) {
    Put(s != nullptr);
    if (s != nullptr) Encode(s);
  }

  const bool free_by_address_;
  uint64_t next_ = 0;
  std::unordered_map<const void*, uint64_t> bound_;
  std::vector<uint64_t> words_;
};

void Encoder::PutText(std::string_view text) {
  Put(text.size());
  uint64_t word = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    word = word << 8 | static_cast<uint8_t>(text[i]);
    if (i % 8 == 7 || i + 1 == text.size()) {
      Put(word);
      word = 0;
    }
  }
}

void Encoder::Use(const void* symbol) {
  auto it = bound_.find(symbol);
  if (it == bound_.end() && free_by_address_) {
    Put(1);
    Put(reinterpret_cast<uintptr_t>(symbol));
    return;
  }
  if (it == bound_.end()) it = bound_.emplace(symbol, next_++).first;
  Put(0);
  Put(it->second);
}

void Encoder::Declare(const Buffer& b) {
  bound_.insert_or_assign(b.get(), next_++);
  PutType(b->dtype);
  Put(b->shape.size());
  for (const Expr& extent : b->shape) Encode(extent);
  Put(uint64_t(b->swizzle.has_value()) << 17 | uint64_t(b->storage_align.has_value()) << 16 |
      uint64_t(b->scope) << 8 | uint64_t(b->role));
  Put(b->alignment);
  if (const auto& rows = b->storage_align; rows.has_value()) {
    Put(rows->inside);
    Put(rows->factor);
    Put(rows->offset);
  }
  if (const auto& rows = b->swizzle; rows.has_value()) {
    Put(rows->inside);
    Put(rows->vector);
  }
}

void Encoder::Encode(const Annotations& annotations) {
  Put(annotations.size());
  for (const auto& [key, value] : annotations) {
    PutText(key);
    Put(value.index());
    if (const int64_t* number = std::get_if<int64_t>(&value)) {
      Put(*number);
    } else {
      PutText(std::get<std::string>(value));
    }
  }
}

void Encoder::Encode(const Expr& e) {
  Put(uint64_t(e->kind) << 8 | HashedIntrinsic(e->intrinsic));
  switch (e->kind) {
    case ExprKind::kVar:
      Use(e.get());
      return;
    case ExprKind::kIntImm:
      PutType(e->dtype);
      Put(e->int_value);
      return;
    case ExprKind::kFloatImm:
      PutType(e->dtype);
      PutDouble(e->float_value);
      return;
    case ExprKind::kLoad:
      Use(e->buffer.get());
      Put(e->args.size());
      for (const Expr& a : e->args) Encode(a);
      EncodeOptional(e->mask);
      return;
    case ExprKind::kCast:
    case ExprKind::kRamp:
    case ExprKind::kBroadcast:
      PutType(e->dtype);
      break;
    default:
      break;  // the type follows from the operands
  }
  for (const Expr& a : e->args) Encode(a);  // the kind fixes how many
}

void Encoder::EncodeRegions(const std::vector<BufferRegion>& regions) {
  Put(regions.size());
  for (const BufferRegion& r : regions) {
    Use(r.buffer.get());
    Put(r.region.size());
    for (const Range& dim : r.region) Encode(dim);
  }
}

void Encoder::EncodeBlock(const StmtNode& s) {
  Put(s.iters.size());
  for (const IterVar& iter :
       s.iters) {  // all bindings belong to the outside: encode them before binding
    EncodeOptional(iter.binding);
    Encode(iter.domain);
    Put(uint64_t(iter.type));
  }
  EncodeOptional(s.predicate);
  for (const IterVar& iter : s.iters) Bind(iter.var);
  Encode(s.annotations);
  EncodeRegions(s.reads);
  EncodeRegions(s.writes);
  EncodeChild(s.init);
  Encode(s.body);
}

void Encoder::Encode(const Stmt& s) {
  Put(0x100 + uint64_t(s->kind));
  switch (s->kind) {
    case StmtKind::kFor:
      Encode(s->range);
      Bind(s->var);
      Put(uint64_t(s->for_kind));
      Encode(s->annotations);
      Encode(s->body);
      return;
    case StmtKind::kBlock:
      EncodeBlock(*s);
      return;
    case StmtKind::kStore:
      Use(s->buffer.get());
      Put(s->indices.size());
      for (const Expr& i : s->indices) Encode(i);
      EncodeOptional(s->mask);
      Encode(s->value);
      return;
    case StmtKind::kSeq:
      Put(s->stmts.size());
      for (const Stmt& child : s->stmts) Encode(child);
      return;
    case StmtKind::kIf:
      Encode(s->condition);
      Encode(s->body);
      EncodeChild(s->else_body);
      return;
    case StmtKind::kLet:
      Encode(s->value);
      Bind(s->var);
      Encode(s->body);
      return;
    case StmtKind::kAlloc:
      Declare(s->buffer);
      Encode(s->body);
      return;
    case StmtKind::kEvaluate:
      Encode(s->value);
      return;
    case StmtKind::kAsync:
      Encode(s->body);
      return;
    case StmtKind::kSync:
      Put(uint64_t(s->sync));
      Put(s->pending);
      return;
    case StmtKind::kCombine:
      Put(s->stmts.size());
      for (const Stmt& store : s->stmts) Encode(store);
      for (const auto* vars : {&s->combiner->lhs, &s->combiner->rhs}) {
        for (const Var& v : *vars) Bind(v);
      }
      Put(s->combiner->ordered);
      for (const Expr& r : s->combiner->results) Encode(r);
      return;
  }
}

void Encoder::Encode(const Function& f) {
  Put(uint64_t(f.stage));
  Put(f.size_params.size());
  for (const Var& v : f.size_params) Bind(v);
  Put(f.params.size());
  for (const Buffer& b : f.params) Declare(b);
  Put(f.allocs.size());
  for (const Buffer& b : f.allocs) Declare(b);
  Encode(f.attrs);
  EncodeChild(f.body);
}

}  // namespace

bool StructuralEqual(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::ranges::equal(a, b,
                            [](const Expr& x, const Expr& y) { return StructuralEqual(x, y); });
}

bool StructuralEqual(const Expr& a, const Expr& b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr) return false;
  if (a->kind != b->kind || a->dtype != b->dtype || a->args.size() != b->args.size()) return false;
  switch (a->kind) {
    case ExprKind::kVar:
      return false;  // by address
    case ExprKind::kIntImm:
      return a->int_value == b->int_value;
    case ExprKind::kFloatImm:  // by bits: -0 differs from 0, and the one NaN equals itself
      return std::memcmp(&a->float_value, &b->float_value, sizeof(double)) == 0;
    default:
      break;
  }
  if (a->buffer != b->buffer || a->intrinsic != b->intrinsic) return false;
  for (size_t i = 0; i < a->args.size(); ++i) {
    if (!StructuralEqual(a->args[i], b->args[i])) return false;
  }
  return StructuralEqual(a->mask, b->mask);
}

bool StructuralEqual(const Stmt& a, const Stmt& b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr) return false;
  Encoder ea(/*free_by_address=*/true), eb(/*free_by_address=*/true);
  ea.Encode(a);
  eb.Encode(b);
  return ea.words() == eb.words();
}

bool StructuralEqual(const Function& a, const Function& b) {
  Encoder ea(/*free_by_address=*/false), eb(/*free_by_address=*/false);
  ea.Encode(a);
  eb.Encode(b);
  return ea.words() == eb.words();
}

uint64_t StructuralHash(const Function& f) {
  Encoder encoder(/*free_by_address=*/false);
  encoder.Reserve();
  encoder.Encode(f);
  support::Hasher64 hasher;
  for (uint64_t word : encoder.words()) hasher.Add(word);
  return hasher.Finish();
}

std::string ProgramHash(const Function& f) {
  static constexpr char kDigits[] = "0123456789abcdef";
  uint64_t hash = StructuralHash(f);
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, hash >>= 4) text[i] = kDigits[hash & 15];
  return text;
}

}  // namespace tilewright::ir
