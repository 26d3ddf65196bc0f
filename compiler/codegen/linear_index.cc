#include "compiler/codegen/linear_index.h"

#include <bit>

#include "compiler/ir/expr_parts.h"
#include "compiler/ir/numeric.h"

namespace tilewright::codegen {

using ir::Expr;
using ir::ExprKind;

int IndexTable::Number(const Expr& e) {
  auto found = by_node_.find(e.get());
  if (found != by_node_.end()) return found->second;
  std::vector<int64_t> key = {static_cast<int64_t>(e->kind), static_cast<int64_t>(e->dtype.code),
                              e->dtype.bits, e->dtype.lanes, static_cast<int64_t>(e->intrinsic)};
  auto address = [](const void* p) { return static_cast<int64_t>(reinterpret_cast<intptr_t>(p)); };
  bool load = e->kind == ExprKind::kLoad;
  if (e->kind == ExprKind::kVar || (load && !immutable_.contains(e->buffer.get()))) {
    key.push_back(address(e.get()));
  } else {
    if (load) key.push_back(address(e->buffer.get()));
    if (load) key.push_back(e->mask == nullptr ? -1 : Number(e->mask));
    key.push_back(e->int_value);
    key.push_back(std::bit_cast<int64_t>(e->float_value));
    for (const Expr& a : e->args) key.push_back(Number(a));
  }
  int id =
      by_structure_.emplace(std::move(key), static_cast<int>(by_structure_.size())).first->second;
  by_node_.emplace(e.get(), id);
  kept_.push_back(e);
  return id;
}

bool IndexTable::IsVolatile(const Expr& e) const {
  if (e->kind == ExprKind::kLoad) {
    if (!immutable_.contains(e->buffer.get())) return true;
    if (e->mask != nullptr && IsVolatile(e->mask)) return true;
  }
  for (const Expr& a : e->args) {
    if (IsVolatile(a)) return true;
  }
  return false;
}

LinearIndex IndexTable::Decompose(const Expr& e) {
  ir::SumTerms sum = ir::TermsOf(e);
  std::map<int, LinearTerm> terms;
  for (const auto& [atom, coefficient] : sum.terms) {
    const int id = Number(*atom);
    LinearTerm& term = terms[id];
    term = {*atom, id, term.coefficient + coefficient};
  }
  LinearIndex result;
  result.constant = sum.constant;
  for (auto& [id, term] : terms) {
    if (term.coefficient != 0) result.terms.push_back(std::move(term));
  }
  return result;
}

namespace {

Expr Plus(const Expr& a, const Expr& b) {
  if (ir::IsInt(a, 0)) return b;
  if (ir::IsInt(b, 0)) return a;
  return a + b;
}

}  // namespace

bool AsRampForm(const Expr& index, RampForm* form) {
  if (!index->dtype.is_vector()) {
    *form = {index, 0};
    return true;
  }
  switch (index->kind) {
    case ExprKind::kBroadcast:
      *form = {index->args[0], 0};
      return true;
    case ExprKind::kRamp: {
      const int64_t* stride = ir::AsInt(index->args[1]);
      if (stride == nullptr) return false;
      *form = {index->args[0], *stride};
      return true;
    }
    case ExprKind::kAdd:
    case ExprKind::kSub: {
      RampForm a, b;
      if (!AsRampForm(index->args[0], &a) || !AsRampForm(index->args[1], &b)) return false;
      bool add = index->kind == ExprKind::kAdd;
      *form = {add ? Plus(a.base, b.base) : a.base - b.base,
               add ? a.stride + b.stride : a.stride - b.stride};
      return true;
    }
    case ExprKind::kMul: {
      RampForm a, b;
      if (!AsRampForm(index->args[0], &a) || !AsRampForm(index->args[1], &b)) return false;
      if (a.stride != 0) std::swap(a, b);
      const int64_t* factor = ir::AsInt(a.base);
      if (a.stride != 0 || factor == nullptr) return false;
      *form = {b.base * a.base, b.stride * *factor};
      return true;
    }
    default:
      return false;
  }
}

std::optional<OpenRamp> AsOpenRamp(const Expr& index) {
  if (index->kind != ExprKind::kRamp || ir::AsInt(index->args[1]) != nullptr) return std::nullopt;
  return OpenRamp{index->args[0], index->args[1]};
}

namespace {

bool RampElements(const Expr& index, std::vector<int64_t>* elements) {
  RampForm form;
  if (!AsRampForm(index, &form)) return false;
  const int64_t* base = ir::AsInt(form.base);
  if (base == nullptr) return false;
  elements->clear();
  for (int lane = 0; lane < index->dtype.lanes; ++lane)
    elements->push_back(*base + lane * form.stride);
  return true;
}

}  // namespace

bool ConstantElements(const Expr& index, std::vector<int64_t>* elements) {
  if (RampElements(index, elements)) return true;
  if (index->args.size() != 2 || !index->dtype.is_vector()) return false;
  std::vector<int64_t> right;
  if (!ConstantElements(index->args[0], elements) || !ConstantElements(index->args[1], &right)) {
    return false;
  }
  const ir::DType type = index->dtype.Element();
  for (size_t lane = 0; lane < elements->size(); ++lane) {
    int64_t& value = (*elements)[lane];
    if (!ir::EvalIntBinary(index->kind, type, value, right[lane], &value)) return false;
  }
  return true;
}

}  // namespace tilewright::codegen
