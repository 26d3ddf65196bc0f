// Expressions of the tensor IR as SPIR-V, one lane at a time: graphics processors compute one lane
// for each thread, and drivers cut vectors into lanes. Only accesses of global memory are wide.
// Both sides of a Select are computed, and a load behind a guard (of a Select or a mask) reads the
// first element where the guard does not hold. One object per kernel; borrows module and code.
#pragma once

#include <map>
#include <string>
#include <unordered_map>

#include "compiler/analysis/analyzer.h"
#include "compiler/ir/ir.h"
#include "compiler/targets/vulkan/spirv_code.h"
#include "compiler/targets/vulkan/spirv_math.h"

namespace tilewright::vulkan {

// Elements of a wide access: the most that a vector of SPIR-V has.
inline constexpr int kWide = 4;

// Where a buffer is.
struct Place {
  Id variable = 0;  // of all elements
  spv::StorageClass storage = spv::StorageClass::Function;
  bool constant = false;  // the kernel does not write it
  uint32_t binding = 0;   // of a storage buffer, and how it is used
  SpirvModule::BufferUse use = {};
  Id wide = 0;  // the same as an array of vectors of kWide elements, once an access wants it
  std::map<int64_t, Id> elements = {};  // private buffers of constant indices: a variable for each
};

class SpirvExpr {
 public:
  // `narrow`: values of type i64 fit into 32 bits. `dot_products`: of bytes, by instruction.
  SpirvExpr(SpirvModule* module, SpirvCode* code, bool narrow, bool dot_products)
      : module_(*module),
        code_(*code),
        math_(module),
        narrow_(narrow),
        dot_products_(dot_products) {}

  Id TypeOf(ir::DType type);  // of one lane's value
  int BitsOf(ir::DType type) const;
  // Of one element in memory. Buffers of bools that others see have a byte for each.
  Id MemoryTypeOf(ir::DType type, spv::StorageClass storage);

  // The value of one lane (scalars: lane 0).
  Id Lane(const ir::Expr& e, int lane);
  // buffer[index] = value, of one lane.
  void Store(const ir::Buffer& buffer, const ir::Expr& index, int lane, Id value);
  // Stores all lanes of a run by wide accesses; false where it is not known to be at a multiple of
  // their size.
  bool StoreRun(const ir::Buffer& buffer, const ir::Expr& index, const Words& values);
  // buffer[index] = condition ? value : buffer[index], where that is cheaper than a branch.
  bool StoresWithoutBranch(const ir::Buffer& buffer) const {
    return !places_.at(buffer.get()).elements.empty();
  }
  void StoreIf(const ir::Buffer& buffer, const ir::Expr& index, int lane, Id value, Id condition);

  void SetPlace(const ir::Buffer& buffer, Place place) { places_[buffer.get()] = std::move(place); }
  void SetVar(const ir::Var& var, Id id) { vars_[var.get()] = id; }
  // What is known of a variable from here on.
  void SetRange(const ir::Var& var, const ir::Range& range) { analyzer_.SetRange(var, range); }
  void SetValue(const ir::Var& var, const ir::Expr& value) { analyzer_.SetValue(var, value); }

  // What could not be said; empty while all is well.
  const std::string& error() const { return error_; }
  void Fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }

 private:
  struct Element {
    Id pointer, root;
    const Place* place;
  };
  Element ElementAt(const ir::Buffer& buffer, const ir::Expr& index, int lane);
  Id LoadElement(const ir::Buffer& buffer, const ir::Expr& index, int lane);
  Id Constant(ir::DType type, int64_t value);
  Id Immediate(const ir::Expr& e);
  Id Ramp(const ir::Expr& e, int lane);
  Id Select(Id type, Id condition, Id yes, Id no) {
    return code_.Op(spv::Op::OpSelect, type, {condition, yes, no});
  }
  Id Not(Id condition) { return code_.Op(spv::Op::OpLogicalNot, module_.Bool(), {condition}); }
  // Lane of `e` where the guard holds; anything elsewhere. `of_all`: lanes have the same guard.
  Id Guarded(const ir::Expr& e, int lane, Id guard, bool of_all);
  Id IndexOf(const ir::Expr& index, int lane);
  // Whether a run is a row of whole vectors of a storage buffer.
  bool IsWide(const ir::Buffer& buffer, const ir::Expr& index) const;
  // Where vector `number` of such a run is; `type` is the vector's.
  Id WidePointer(const ir::Buffer& buffer, const ir::Expr& index, int number, Id* type);
  Id Binary(const ir::Expr& e, int lane);
  Id Compare(ir::ExprKind kind, ir::DType type, Id a, Id b);
  Id IntBinary(const ir::Expr& e, Id a, Id b);
  Id Divided(const ir::Expr& e, Id a, Id b);
  Id Cast(ir::DType to, ir::DType from, Id value);
  Id IntOfFloat(ir::DType to, ir::DType from, Id value);
  Id Intrinsic(const ir::Expr& e, int lane);
  Id IntIntrinsic(const ir::Expr& e, int lane);
  Id RoundingShift(ir::DType type, Id a, Id n);
  Id FloatIntrinsic(const ir::Expr& e, const Words& operands);
  Id FourBytes(const ir::Expr& bytes, int lane);
  Id Dot4ByInstruction(const ir::Expr& e, int lane);
  Id Dot4(const ir::Expr& e, int lane);

  SpirvModule& module_;
  SpirvCode& code_;
  SpirvMath math_;
  const bool narrow_, dot_products_;
  analysis::Analyzer analyzer_;
  std::unordered_map<const ir::BufferNode*, Place> places_;
  std::unordered_map<const ir::ExprNode*, Id> vars_;
  Id guard_ = 0;            // where the values at hand are asked for; 0: always
  bool same_guard_ = true;  // for all lanes of them
  std::string error_;
};

}  // namespace tilewright::vulkan
