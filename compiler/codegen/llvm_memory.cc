// Memory: addresses, loads and stores of buffers in memory and of buffers held in slots.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>

#include "compiler/codegen/llvm_emitter.h"
#include "compiler/codegen/llvm_scope.h"
#include "deploy/support/status.h"

namespace tilewright::codegen {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using llvm::Value;
using StatusOrValue = absl::StatusOr<llvm::Value*>;

namespace {

// The lanes for which a constant mask is true; false when the mask is not constant.
bool ConstantMask(Value* mask, std::vector<bool>* lanes) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(mask);
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(mask->getType());
  if (constant == nullptr || type == nullptr) return false;
  for (unsigned i = 0; i < type->getNumElements(); ++i) {
    auto* element = llvm::dyn_cast_or_null<llvm::ConstantInt>(constant->getAggregateElement(i));
    if (element == nullptr) return false;
    lanes->push_back(!element->isZero());
  }
  return true;
}

}  // namespace

FunctionEmitter::Binding& FunctionEmitter::BindingOf(const ir::Buffer& buffer) {
  auto it = buffers_.find(buffer.get());
  TW_CHECK(it != buffers_.end()) << "codegen: buffer " << buffer->name << " is not in scope";
  return it->second;
}

Value* FunctionEmitter::FromMemory(Value* value, DType type) {
  if (!type.is_bool()) return value;
  return builder_.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
}

Value* FunctionEmitter::ToMemory(Value* value, DType type) {
  if (!type.is_bool()) return value;
  llvm::Type* byte = module_.ElementMemoryType(type);
  if (type.is_vector()) byte = llvm::FixedVectorType::get(byte, type.lanes);
  return builder_.CreateZExt(value, byte);
}

// ------------------------------------------------------------------------------------------------
// addresses

Value* FunctionEmitter::NewInduction(Scope& scope, int level, Value* start_base,
                                     int64_t byte_step) {
  Value* start = start_base;
  {
    AtLevel at(*this, level - 1);
    if (scope.min_value != nullptr) {
      Value* offset =
          builder_.CreateNSWMul(scope.min_value, llvm::ConstantInt::getSigned(I64(), byte_step));
      start = builder_.CreatePtrAdd(start_base, offset);
    } else if (scope.min != 0) {
      start = builder_.CreatePtrAdd(start_base,
                                    llvm::ConstantInt::getSigned(I64(), scope.min * byte_step));
    }
  }
  llvm::IRBuilderBase::InsertPointGuard guard(builder_);
  builder_.SetInsertPoint(scope.header, scope.header->begin());
  llvm::PHINode* phi = builder_.CreatePHI(start->getType(), 2);
  phi->addIncoming(start, scope.preheader);
  scope.inductions.push_back({phi, llvm::ConstantInt::getSigned(I64(), byte_step)});
  return phi;
}

// The pointer that follows `terms` up to the variables of scope `level`: a phi node of each loop
// that moves it.
StatusOrValue FunctionEmitter::PointerAt(const Access& access, const std::vector<LinearTerm>& terms,
                                         int level) {
  if (level < 0) return access.binding->base;
  std::vector<LinearTerm> lower, here;
  const LinearTerm* own = nullptr;  // the loop variable of this scope
  bool is_volatile = false;
  for (const LinearTerm& term : terms) {
    if (LevelOf(term.atom) < level) {
      lower.push_back(term);
    } else if (scopes_[level].var == term.atom) {
      own = &term;
    } else {
      here.push_back(term);
      is_volatile = is_volatile || table_.IsVolatile(term.atom);
    }
  }
  if (here.empty() && own == nullptr) return PointerAt(access, lower, level - 1);
  std::vector<int64_t> key = {access.binding->id};
  for (const LinearTerm& term : terms) key.insert(key.end(), {term.id, term.coefficient});
  auto it = scopes_[level].pointers.find(key);
  if (it != scopes_[level].pointers.end()) return it->second;
  int64_t element_bytes = (*access.buffer)->dtype.bytes();
  Value* pointer = nullptr;
  if (own != nullptr && !here.empty()) {
    lower.push_back(*own);
    std::sort(lower.begin(), lower.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    TW_ASSIGN(pointer, PointerAt(access, lower, level));
  } else {
    TW_ASSIGN(pointer, PointerAt(access, lower, level - 1));
  }
  if (here.empty()) {
    pointer = NewInduction(scopes_[level], level, pointer, own->coefficient * element_bytes);
  } else {
    AtLevel at(*this, level);
    for (LinearTerm& term : here) term.coefficient *= element_bytes;
    TW_ASSIGN(Value * offset, EmitTerms(here));
    pointer = builder_.CreatePtrAdd(pointer, offset);
  }
  if (!is_volatile) scopes_[level].pointers[key] = pointer;
  return pointer;
}

// Then the terms alone are a place in the buffer, as their sum with a positive constant is.
// Displacements that cannot wrap are part of the instruction, also where those of a target do not
// wrap (WebAssembly).
bool FunctionEmitter::AllNonNegative(const std::vector<LinearTerm>& terms) const {
  return std::all_of(terms.begin(), terms.end(), [&](const LinearTerm& term) {
    return term.coefficient >= 0 && IsNonNegative(term.atom);
  });
}

absl::StatusOr<FunctionEmitter::Address> FunctionEmitter::EmitAddress(const Access& access,
                                                                      const Expr& scalar_index,
                                                                      int64_t extra) {
  LinearIndex linear = table_.Decompose(scalar_index);
  int64_t element_bytes = (*access.buffer)->dtype.bytes();
  int64_t constant = (linear.constant + extra) * element_bytes;
  uint64_t alignment = module_.tensor_alignment() | static_cast<uint64_t>(constant);
  for (const LinearTerm& term : linear.terms)
    alignment |= static_cast<uint64_t>(term.coefficient * element_bytes);
  alignment &= ~alignment + 1;
  TW_ASSIGN(Value * pointer, PointerAt(access, linear.terms, top()));
  if (constant != 0) {
    Value* displacement = llvm::ConstantInt::getSigned(I64(), constant);
    pointer = constant > 0 && AllNonNegative(linear.terms)
                  ? builder_.CreateInBoundsPtrAdd(pointer, displacement)
                  : builder_.CreatePtrAdd(pointer, displacement);
  }
  return Address{pointer, llvm::Align(alignment)};
}

// One pointer per lane, as a vector.
StatusOrValue FunctionEmitter::LanePointers(const Access& access) {
  TW_ASSIGN(Value * index, Emit(access.index));
  return builder_.CreateGEP(module_.ElementMemoryType((*access.buffer)->dtype),
                            access.binding->base, index);
}

// ------------------------------------------------------------------------------------------------
// loads

llvm::LoadInst* FunctionEmitter::Load1(llvm::Type* type, const Address& address) {
  // Not marked invariant, whatever the buffer: loads would be merged over long distances, and tiles
  // would lose their registers to them.
  return builder_.CreateAlignedLoad(type, address.pointer, address.align);
}

StatusOrValue FunctionEmitter::EmitLoad(const Expr& e) {
  Access access{&e->buffer, &BindingOf(e->buffer), e->args[0], e->mask, e->dtype};
  if (e->mask != nullptr && !e->dtype.is_vector()) {
    TW_ASSIGN(Value * condition, Emit(e->mask));
    TW_ASSIGN(llvm::Type * type, module_.ValueType(e->dtype));
    access.mask = nullptr;
    auto load = [&] {
      return access.binding->plan != nullptr ? LoadSlots(access) : LoadMemory(access);
    };
    return EmitBranches(condition, load,
                        [&]() -> StatusOrValue { return llvm::Constant::getNullValue(type); });
  }
  return access.binding->plan != nullptr ? LoadSlots(access) : LoadMemory(access);
}

StatusOrValue FunctionEmitter::LoadMemory(const Access& access) {
  llvm::Type* element = module_.ElementMemoryType(access.dtype);
  if (!access.dtype.is_vector()) {
    TW_ASSIGN(Address address, EmitAddress(access, access.index, 0));
    return FromMemory(Load1(element, address), access.dtype);
  }
  RampForm ramp;
  bool is_ramp = AsRampForm(access.index, &ramp);
  if (is_ramp && ramp.stride == 1) {
    llvm::Type* type = llvm::FixedVectorType::get(element, access.dtype.lanes);
    TW_ASSIGN(Address address, EmitAddress(access, ramp.base, 0));
    if (access.mask == nullptr) return FromMemory(Load1(type, address), access.dtype);
    TW_ASSIGN(Value * mask, EmitMask(access.mask));
    return FromMemory(MaskedLoad(address, access.dtype.lanes, element, mask), access.dtype);
  }
  if (is_ramp && ramp.stride == 0 && access.mask == nullptr) {
    TW_ASSIGN(Address address, EmitAddress(access, ramp.base, 0));
    Value* scalar = Load1(element, address);
    return FromMemory(builder_.CreateVectorSplat(access.dtype.lanes, scalar), access.dtype);
  }
  TW_ASSIGN(Value * lanes, LoadLanes(access, is_ramp ? &ramp : nullptr));
  return FromMemory(lanes, access.dtype);
}

// A strided vector from overlapping whole ones, which never reach beyond the last lane's element;
// of lanes that are not active no element is read, and their value is zero. `mask`: which lanes are
// active if a run decides it; `active` is true for all then.
StatusOrValue FunctionEmitter::LoadStrided(const Access& access, const RampForm& ramp,
                                           const std::vector<bool>& active, Value* mask) {
  int lanes = access.dtype.lanes;
  int64_t span = (lanes - 1) * ramp.stride + 1;
  llvm::Type* type = llvm::FixedVectorType::get(module_.ElementMemoryType(access.dtype), lanes);
  const bool all =
      mask == nullptr && std::find(active.begin(), active.end(), false) == active.end();
  Value* result = all ? nullptr : llvm::Constant::getNullValue(type);
  // Lanes of `result` that hold their element.
  std::vector<int> picked(lanes, llvm::PoisonMaskElem);
  for (int lane = 0; lane < lanes && !all; ++lane) picked[lane] = lane;
  for (int64_t first = 0; first < span; first += lanes) {
    int64_t start = std::min(first, span - lanes);
    std::vector<int> read(lanes, kNoLane);  // by element: the lane that it is for
    bool any = all;
    for (int lane = 0; lane < lanes; ++lane) {
      const int64_t element = lane * ramp.stride;
      if (!active[lane] || element < first || element >= first + lanes) continue;
      read[element - start] = lane;
      any = true;
    }
    if (!any) continue;
    TW_ASSIGN(Address address, EmitAddress(access, ramp.base, start));
    Value* part = all ? static_cast<Value*>(Load1(type, address))
                      : MaskedLoad(address, lanes, type->getScalarType(), PickMask(read, mask));
    std::vector<int> shuffle(lanes, llvm::PoisonMaskElem);
    for (int lane = 0; lane < lanes; ++lane) {
      int64_t element = lane * ramp.stride;
      bool fresh = active[lane] && element >= first && element < first + lanes;
      if (result == nullptr) {
        if (fresh) shuffle[lane] = static_cast<int>(element - start);
      } else {
        shuffle[lane] = fresh ? lanes + static_cast<int>(element - start) : picked[lane];
      }
      if (fresh) picked[lane] = lane;
    }
    result = result == nullptr ? builder_.CreateShuffleVector(part, shuffle)
                               : builder_.CreateShuffleVector(result, part, shuffle);
  }
  return result;
}

// The index as a vector, where lanes have no addresses of their own: null else.
StatusOrValue FunctionEmitter::EmitLanes(const Expr& index, const RampForm* ramp) {
  if (ramp != nullptr || AsOpenRamp(index)) return static_cast<Value*>(nullptr);
  return Emit(index);
}

absl::StatusOr<FunctionEmitter::Address> FunctionEmitter::LaneAddress(const Access& access,
                                                                      const RampForm* ramp,
                                                                      Value* index, int lane) {
  if (ramp != nullptr) return EmitAddress(access, ramp->base, lane * ramp->stride);
  if (const auto open = AsOpenRamp(access.index)) return EmitAddress(access, open->At(lane), 0);
  llvm::Type* element = module_.ElementMemoryType(access.dtype);
  return Address{
      builder_.CreateGEP(element, access.binding->base, builder_.CreateExtractElement(index, lane)),
      llvm::Align(access.dtype.bytes())};
}

StatusOrValue FunctionEmitter::LoadLanes(const Access& access, const RampForm* ramp) {
  llvm::Type* element = module_.ElementMemoryType(access.dtype);
  int lanes = access.dtype.lanes;
  llvm::Type* type = llvm::FixedVectorType::get(element, lanes);
  std::vector<bool> active(lanes, true);
  const bool shuffles = ramp != nullptr && ramp->stride > 1 &&
                        ramp->stride <= module_.target().machine.shuffled_stride &&
                        lanes * access.dtype.bytes() >= 16;
  if (access.mask != nullptr) {
    TW_ASSIGN(Value * mask, EmitMask(access.mask));
    active.clear();
    if (!ConstantMask(mask, &active)) {
      active.assign(static_cast<size_t>(lanes), true);
      if (shuffles) return LoadStrided(access, *ramp, active, mask);
      TW_ASSIGN(Value * pointers, LanePointers(access));
      return MaskedGather(pointers, element, llvm::Align(access.dtype.bytes()), mask);
    }
    active.resize(static_cast<size_t>(lanes));
  }
  if (shuffles) return LoadStrided(access, *ramp, active, /*mask=*/nullptr);
  TW_ASSIGN(Value * index, EmitLanes(access.index, ramp));
  Value* result = llvm::Constant::getNullValue(type);
  for (int lane = 0; lane < lanes; ++lane) {
    if (!active[lane]) continue;
    TW_ASSIGN(const Address address, LaneAddress(access, ramp, index, lane));
    result = builder_.CreateInsertElement(result, Load1(element, address), lane);
  }
  return result;
}

// ------------------------------------------------------------------------------------------------
// stores

absl::Status FunctionEmitter::EmitStore(const ir::Stmt& s) {
  TW_ASSIGN(Value * value, Emit(s->value));
  Access access{&s->buffer, &BindingOf(s->buffer), s->indices[0], s->mask, s->value->dtype};
  auto store = [&] {
    return access.binding->plan != nullptr ? StoreSlots(access, value) : StoreMemory(access, value);
  };
  if (s->mask == nullptr || access.dtype.is_vector()) return store();
  TW_ASSIGN(Value * condition, Emit(s->mask));
  access.mask = nullptr;
  auto nothing = [&]() -> StatusOrValue { return builder_.getTrue(); };
  return EmitBranches(
             condition,
             [&]() -> StatusOrValue {
               TW_TRY(store());
               return builder_.getTrue();
             },
             nothing)
      .status();
}

// Registers that lie across lines would be written in pieces: those go the usual way.
void FunctionEmitter::Stream(llvm::StoreInst* store) {
  const llvm::Type* type = store->getValueOperand()->getType();
  const uint64_t bits =
      std::min<uint64_t>(type->getPrimitiveSizeInBits(), 8 * module_.tensor_alignment());
  if (!type->isVectorTy() || store->getAlign().value() * 8 < bits) return;
  llvm::Metadata* one = llvm::ConstantAsMetadata::get(builder_.getInt32(1));
  store->setMetadata(llvm::LLVMContext::MD_nontemporal,
                     llvm::MDNode::get(store->getContext(), {one}));
  streams_ = true;
}

absl::Status FunctionEmitter::StoreMemory(const Access& access, Value* value) {
  value = ToMemory(value, access.dtype);
  RampForm ramp;
  bool is_ramp = AsRampForm(access.index, &ramp);
  if (!access.dtype.is_vector() || (is_ramp && ramp.stride == 1)) {
    TW_ASSIGN(Address address, EmitAddress(access, ramp.base, 0));
    if (access.mask == nullptr) {
      llvm::StoreInst* store = builder_.CreateAlignedStore(value, address.pointer, address.align);
      if (access.binding->facts.streamed) Stream(store);
      return absl::OkStatus();
    }
    TW_ASSIGN(Value * mask, EmitMask(access.mask));
    MaskedStore(value, address, mask);
    return absl::OkStatus();
  }
  return StoreLanes(access, is_ramp ? &ramp : nullptr, value);
}

absl::Status FunctionEmitter::StoreLanes(const Access& access, const RampForm* ramp, Value* value) {
  int lanes = access.dtype.lanes;
  std::vector<bool> active(lanes, true);
  if (access.mask != nullptr) {
    TW_ASSIGN(Value * mask, EmitMask(access.mask));
    active.clear();
    if (!ConstantMask(mask, &active)) {
      TW_ASSIGN(Value * pointers, LanePointers(access));
      MaskedScatter(value, pointers, llvm::Align(access.dtype.bytes()), mask);
      return absl::OkStatus();
    }
  }
  TW_ASSIGN(Value * index, EmitLanes(access.index, ramp));
  for (int lane = 0; lane < lanes; ++lane) {
    if (!active[lane]) continue;
    TW_ASSIGN(const Address address, LaneAddress(access, ramp, index, lane));
    builder_.CreateAlignedStore(builder_.CreateExtractElement(value, lane), address.pointer,
                                address.align);
  }
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------------------
// slots

namespace {

// The slot that holds exactly these elements, or -1.
int WholeSlot(const SlotPlan& plan, const std::vector<int64_t>& elements) {
  auto it = plan.elements.find(elements[0]);
  TW_CHECK(it != plan.elements.end()) << "codegen: element " << elements[0] << " has no slot";
  return plan.slots[it->second.slot] == elements ? it->second.slot : -1;
}

}  // namespace

StatusOrValue FunctionEmitter::LoadSlots(const Access& access) {
  std::vector<int64_t> elements;
  TW_CHECK(ConstantElements(access.index, &elements))
      << "codegen: slot access with an unknown index";
  const SlotPlan& plan = *access.binding->plan;
  auto load = [&](int slot) {
    llvm::AllocaInst* alloca = access.binding->slots[slot];
    return builder_.CreateLoad(alloca->getAllocatedType(), alloca);
  };
  Value* result = nullptr;
  if (int slot = WholeSlot(plan, elements); slot >= 0) {
    result = load(slot);
    if (plan.ignore_masks[slot]) return result;
  } else {
    TW_ASSIGN(llvm::Type * type, module_.ValueType(access.dtype));
    result = llvm::PoisonValue::get(type);
    for (size_t lane = 0; lane < elements.size(); ++lane) {
      SlotPlan::Place place = plan.elements.at(elements[lane]);
      Value* value = load(place.slot);
      if (plan.slots[place.slot].size() > 1)
        value = builder_.CreateExtractElement(value, place.lane);
      result = access.dtype.is_vector() ? builder_.CreateInsertElement(result, value, lane) : value;
    }
  }
  if (access.mask == nullptr) return result;
  TW_ASSIGN(Value * mask, Emit(access.mask));
  return builder_.CreateSelect(mask, result, llvm::Constant::getNullValue(result->getType()));
}

absl::Status FunctionEmitter::StoreSlots(const Access& access, Value* value) {
  std::vector<int64_t> elements;
  TW_CHECK(ConstantElements(access.index, &elements))
      << "codegen: slot access with an unknown index";
  const SlotPlan& plan = *access.binding->plan;
  Value* mask = nullptr;
  if (access.mask != nullptr) {
    TW_ASSIGN(mask, Emit(access.mask));
  }
  if (int slot = WholeSlot(plan, elements); slot >= 0) {
    llvm::AllocaInst* alloca = access.binding->slots[slot];
    if (mask != nullptr && !plan.ignore_masks[slot]) {
      value = builder_.CreateSelect(mask, value,
                                    builder_.CreateLoad(alloca->getAllocatedType(), alloca));
    }
    builder_.CreateStore(value, alloca);
    return absl::OkStatus();
  }
  for (size_t lane = 0; lane < elements.size(); ++lane) {
    SlotPlan::Place place = plan.elements.at(elements[lane]);
    llvm::AllocaInst* alloca = access.binding->slots[place.slot];
    bool vector_slot = plan.slots[place.slot].size() > 1;
    Value* old_slot = builder_.CreateLoad(alloca->getAllocatedType(), alloca);
    Value* element = access.dtype.is_vector() ? builder_.CreateExtractElement(value, lane) : value;
    if (mask != nullptr) {
      Value* old_element =
          vector_slot ? builder_.CreateExtractElement(old_slot, place.lane) : old_slot;
      element =
          builder_.CreateSelect(builder_.CreateExtractElement(mask, lane), element, old_element);
    }
    builder_.CreateStore(
        vector_slot ? builder_.CreateInsertElement(old_slot, element, place.lane) : element,
        alloca);
  }
  return absl::OkStatus();
}

}  // namespace tilewright::codegen
