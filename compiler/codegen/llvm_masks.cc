// Masks: which lanes are active, and the loads and stores that have one.
//
// A mask has a power of two of lanes, those behind its own off. LLVM 19 has to make masks of other
// widths wider when it selects instructions. Where it finds there that a mask is constant, it takes
// lanes of any value for lanes that are off (with AVX2, loads brought elements that no lane asks
// for), or stops (`LLVM ERROR: Invalid size request`).
#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "compiler/codegen/llvm_emitter.h"
#include "compiler/codegen/llvm_scope.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"

namespace tilewright::codegen {

using ir::Expr;
using ir::ExprKind;
using llvm::Value;
using StatusOrValue = absl::StatusOr<llvm::Value*>;

namespace {

int LanesOf(const Value* value) {
  return static_cast<int>(llvm::cast<llvm::FixedVectorType>(value->getType())->getNumElements());
}

int PowerOfTwo(int lanes) { return static_cast<int>(std::bit_ceil(static_cast<unsigned>(lanes))); }

// The expression with more lanes, which continue its own; null where they are not known.
Expr WithMoreLanes(const Expr& e, int lanes) {
  if (e->kind == ExprKind::kRamp) return ir::Ramp(e->args[0], e->args[1], lanes);
  if (e->kind == ExprKind::kBroadcast) return ir::Broadcast(e->args[0], lanes);
  const bool is_sum = e->kind == ExprKind::kAdd || e->kind == ExprKind::kSub;
  const bool is_logical =
      e->kind == ExprKind::kAnd || e->kind == ExprKind::kOr || e->kind == ExprKind::kNot;
  if (!is_sum && !is_logical && !ir::IsComparison(e->kind)) return nullptr;
  std::vector<Expr> args;
  for (const Expr& arg : e->args) {
    args.push_back(WithMoreLanes(arg, lanes));
    if (args.back() == nullptr) return nullptr;
  }
  return ir::WithArgs(e, std::move(args));
}

}  // namespace

StatusOrValue FunctionEmitter::EmitMask(const Expr& mask) {
  const int lanes = mask->dtype.lanes, wide = PowerOfTwo(lanes);
  if (lanes == wide) return Emit(mask);
  const Expr wider = WithMoreLanes(mask, wide);
  TW_ASSIGN(Value * value, Emit(wider != nullptr ? wider : mask));
  std::vector<int> own(static_cast<size_t>(lanes));
  std::iota(own.begin(), own.end(), 0);
  return PickMask(own, value);
}

Value* FunctionEmitter::PickMask(const std::vector<int>& lanes, Value* mask) {
  const int wide = PowerOfTwo(static_cast<int>(lanes.size()));
  const int has = mask == nullptr ? wide : LanesOf(mask);
  std::vector<int> from;
  std::vector<llvm::Constant*> active;
  bool moves = has != wide;
  for (int i = 0; i < wide; ++i) {
    const int lane = i < static_cast<int>(lanes.size()) ? lanes[static_cast<size_t>(i)] : kNoLane;
    active.push_back(builder_.getInt1(lane != kNoLane));
    from.push_back(lane != kNoLane ? lane : i < has ? i : 0);
    moves = moves || from.back() != i;
  }
  llvm::Constant* all = llvm::ConstantVector::get(active);
  if (mask == nullptr) return all;
  return builder_.CreateAnd(moves ? builder_.CreateShuffleVector(mask, from) : mask, all);
}

// The lanes of a value, then some of these again. That is no shuffle with zeros: see above.
Value* FunctionEmitter::AsWideAs(const Value* mask, Value* value) {
  const int lanes = LanesOf(value), wide = LanesOf(mask);
  if (lanes == wide) return value;
  std::vector<int> from;
  for (int i = 0; i < wide; ++i) from.push_back(i % lanes);
  return builder_.CreateShuffleVector(value, from);
}

Value* FunctionEmitter::FirstLanes(Value* value, int lanes) {
  if (lanes == LanesOf(value)) return value;
  std::vector<int> from(static_cast<size_t>(lanes));
  std::iota(from.begin(), from.end(), 0);
  return builder_.CreateShuffleVector(value, from);
}

Value* FunctionEmitter::MaskedLoad(const Address& address, int lanes, llvm::Type* element,
                                   Value* mask) {
  llvm::Type* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(LanesOf(mask)));
  Value* loaded = builder_.CreateMaskedLoad(type, address.pointer, address.align, mask,
                                            llvm::Constant::getNullValue(type));
  return FirstLanes(loaded, lanes);
}

void FunctionEmitter::MaskedStore(Value* value, const Address& address, Value* mask) {
  builder_.CreateMaskedStore(AsWideAs(mask, value), address.pointer, address.align, mask);
}

Value* FunctionEmitter::MaskedGather(Value* pointers, llvm::Type* element, llvm::Align align,
                                     Value* mask) {
  llvm::Type* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(LanesOf(mask)));
  Value* loaded = builder_.CreateMaskedGather(type, AsWideAs(mask, pointers), align, mask,
                                              llvm::Constant::getNullValue(type));
  return FirstLanes(loaded, LanesOf(pointers));
}

void FunctionEmitter::MaskedScatter(Value* value, Value* pointers, llvm::Align align, Value* mask) {
  builder_.CreateMaskedScatter(AsWideAs(mask, value), AsWideAs(mask, pointers), align, mask);
}

// How many lanes there are before an end, or where the first lane behind a beginning is, as a small
// number that all lanes' own numbers are compared with. Where an operand is a mask in a loop, LLVM
// compares in that loop, and vectors of 64-bit indices would be several registers.
//   base + ramp(0, 1, L) < broadcast(end, L)   →   lanes < min(max(end - base, 0), L)
//   broadcast(begin, L) < base + ramp(0, 1, L)   →   min(max(begin - base, -1), L) < lanes
StatusOrValue FunctionEmitter::EmitLaneLimit(const Expr& e) {
  RampForm a, b;
  const bool indices =
      e->kind == ExprKind::kLt && e->dtype.is_vector() && e->args[0]->dtype.Element() == ir::kI64;
  if (!indices || !AsRampForm(e->args[0], &a) || !AsRampForm(e->args[1], &b))
    return static_cast<Value*>(nullptr);
  const int64_t step = a.stride - b.stride;
  if (step != 1 && step != -1) return static_cast<Value*>(nullptr);
  const Expr limit = step > 0 ? b.base - a.base : a.base - b.base;
  return EmitHoisted(e, table_.Number(e),
                     [&] { return CompareLanes(e->dtype.lanes, limit, /*below=*/step > 0); });
}

// lanes < limit with `below`, else limit < lanes. Of a constant limit it is a constant.
StatusOrValue FunctionEmitter::CompareLanes(int lanes, const Expr& limit, bool below) {
  TW_ASSIGN(Value * bound, Emit(limit));
  const int64_t least = below ? 0 : -1;
  if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(bound)) {
    bound = builder_.getInt64(std::clamp<int64_t>(known->getSExtValue(), least, lanes));
  } else {
    bound = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, bound, builder_.getInt64(least));
    bound = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, bound, builder_.getInt64(lanes));
  }
  // As wide as what the mask is for, if that fills a vector.
  const int64_t bytes = module_.target().machine.vector_bytes / lanes;
  llvm::Type* type = builder_.getIntNTy(bytes >= 4 ? 32 : bytes >= 2 || lanes > 127 ? 16 : 8);
  std::vector<llvm::Constant*> numbers;
  for (int i = 0; i < lanes; ++i) numbers.push_back(llvm::ConstantInt::get(type, i));
  Value* own = llvm::ConstantVector::get(numbers);
  Value* all = builder_.CreateVectorSplat(lanes, builder_.CreateTrunc(bound, type));
  return below ? builder_.CreateICmpSLT(own, all) : builder_.CreateICmpSLT(all, own);
}

}  // namespace tilewright::codegen
