// Inside of the LLVM back end: emits LLVM IR for functions of stage kFlat. ModuleEmitter owns what
// kernels of one module share; FunctionEmitter emits one LLVM function (a kernel's serial part, or
// the body of a parallel loop). Included by the llvm_*.cc files only. One object per compilation
// and thread.
//
// The IR is emitted clean, because no IR pass follows: index arithmetic is placed at the outermost
// loop where its operands are known, pointers that move with a loop are phi nodes of their own
// (there is no strength reduction later), buffers with constant indices are one value per slot.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/codegen/linear_index.h"
#include "compiler/codegen/llvm_target.h"
#include "compiler/codegen/local_slots.h"
#include "compiler/ir/ir.h"
#include "compiler/target/target.h"
#include "deploy/support/dim.h"

namespace tilewright::codegen {

// Bytes of workspace as allocations nest and end; the peak is what the kernel declares.
class WorkspacePlan {
 public:
  int64_t Push(int64_t bytes) {
    int64_t offset = top_;
    top_ += (bytes + 63) / 64 * 64;
    peak_ = peak_ < top_ ? top_ : peak_;
    return offset;
  }
  void PopTo(int64_t offset) { top_ = offset; }
  int64_t top() const { return top_; }
  // What has an open size lies before everything else, for the whole call.
  void AddOpen(const support::Dim& bytes) { open_ = open_ + bytes; }
  support::Dim peak() const { return open_ + support::Dim(peak_); }

 private:
  int64_t top_ = 0, peak_ = 0;
  support::Dim open_;
};

// What a kernel knows about a buffer that lives in memory.
struct BufferFacts {
  bool read_only = false;  // an input or constant: loads of it are invariant
  bool aliased = false;    // another parameter may be the same memory
  bool streamed = false;   // written past the caches
  int64_t bytes = 0;       // 0 when not constant
};

class ModuleEmitter {
 public:
  ModuleEmitter(llvm::LLVMContext& context, const target::Target& target, const LlvmTarget& family);

  // Adds the entry tw_kernel_<name> and all it needs. Returns the workspace that it wants, in
  // bytes.
  absl::StatusOr<support::Dim> AddKernel(const ir::Function& function);

  llvm::Module& module() { return *module_; }
  std::unique_ptr<llvm::Module> Take() { return std::move(module_); }
  llvm::LLVMContext& context() { return context_; }
  const target::Target& target() const { return target_; }
  uint64_t tensor_alignment() const {
    return static_cast<uint64_t>(target_.machine.tensor_alignment());
  }
  const LlvmTarget& family() const { return family_; }

  // Types. Bools are i1 in values and one byte in memory.
  absl::StatusOr<llvm::Type*> ValueType(ir::DType type);
  // False of floats of 16 bits that the machine only moves and converts: integers hold their bits.
  bool ComputesIn(ir::DType type) const;
  llvm::Type* ElementMemoryType(ir::DType type);
  llvm::Function* NewInternalFunction(llvm::FunctionType* type, const std::string& name);
  // Parameter `index` points to a buffer that nothing else points to, unless the facts say so.
  void AnnotatePointer(llvm::Function* function, unsigned index, const BufferFacts& facts);
  // libm's function for one lane: expf, exp, …
  llvm::FunctionCallee MathFunction(const std::string& name, llvm::Type* type, int arity);
  llvm::StructType* context_struct() { return context_struct_; }

 private:
  absl::Status CheckTypes(const ir::Function& function);
  void AddCommonAttributes(llvm::Function* function);
  void EmitEntry(const ir::Function& function, llvm::Function* body);

  llvm::LLVMContext& context_;
  target::Target target_;
  const LlvmTarget& family_;
  std::unique_ptr<llvm::Module> module_;
  llvm::StructType* context_struct_;
};

class FunctionEmitter {
 public:
  // `host`: parallel loops are outlined and run by the runtime; otherwise they run serially.
  FunctionEmitter(ModuleEmitter& module, llvm::Function* function, WorkspacePlan& workspace,
                  bool host);

  void BindVar(const ir::Expr& var, llvm::Value* value, bool non_negative);
  void BindBuffer(const ir::Buffer& buffer, llvm::Value* base, BufferFacts facts);
  // The runtime context (host only), the workspace, and which parallel task this is (null on the
  // host).
  void BindRuntime(llvm::Value* context, llvm::Value* workspace, llvm::Value* task, int64_t tasks);

  // Emits the statement and `return TW_OK`, then promotes slots to SSA values.
  absl::Status EmitBody(const ir::Stmt& body);

 private:
  struct Scope {
    llvm::Instruction* entry_branch =
        nullptr;  // in the parent scope; hoisted code of the parent goes before it
    llvm::BasicBlock* header = nullptr;  // loops only
    llvm::BasicBlock* preheader = nullptr;
    ir::Expr var;  // loops only
    struct Induction {
      llvm::PHINode* phi;
      llvm::Value* step;  // bytes, loop invariant constant
    };
    std::vector<Induction> inductions;
    int64_t min = 0;
    llvm::Value* min_value = nullptr;
    std::map<std::vector<int64_t>, llvm::Value*> pointers;
    std::unordered_map<int, llvm::Value*> atoms;
  };
  struct Binding {
    llvm::Value* base = nullptr;     // memory, or
    const SlotPlan* plan = nullptr;  // slots
    std::vector<llvm::AllocaInst*> slots;
    BufferFacts facts;
    int id = 0;
  };
  struct Access {
    const ir::Buffer* buffer;
    Binding* binding;
    ir::Expr index;
    ir::Expr mask;
    ir::DType dtype;  // of the access, lanes included
  };
  // Moves the builder to the end of scope `level`'s code for the life of the object.
  class AtLevel;

  // llvm_sequence.cc
  absl::Status EmitSeq(const std::vector<ir::Stmt>& stmts);
  std::vector<bool> RevisitBoundaries(const std::vector<ir::Stmt>& stmts);
  void SeparateLoads();

  // llvm_loops.cc
  absl::Status EmitStmt(const ir::Stmt& s);
  absl::Status EmitFor(const ir::Stmt& s);
  void SayTrips(int64_t trips, llvm::Instruction* branch);
  absl::Status EmitSerialLoop(const ir::Stmt& s);
  absl::Status EmitParallelLoop(const ir::Stmt& s, int64_t tasks);
  absl::Status EmitIf(const ir::Stmt& s);
  void PushArm(llvm::Instruction* branch);
  absl::Status EmitArm(const ir::Stmt& body, llvm::BasicBlock* block, llvm::BasicBlock* join,
                       llvm::Instruction* branch);
  absl::Status EmitAlloc(const ir::Stmt& s);
  // A buffer whose size depends on size parameters: at the front of the workspace, for good.
  absl::Status EmitOpenAlloc(const ir::Stmt& s);
  // The variable of this name; null where none is bound.
  llvm::Value* SizeNamed(const std::string& name) const;
  // REQUIRES: the variables of `size` are bound.
  llvm::Value* OpenValue(const support::Dim& size, llvm::IRBuilder<>& b) const;
  absl::Status AllocSlots(const ir::Stmt& s, SlotPlan plan);
  absl::Status EmitPrefetch(const ir::Expr& load);
  void PromoteSlots();
  // The innermost scope whose variables `e` uses; the current one when it reads memory.
  int LevelOf(const ir::Expr& e) const;
  bool IsNonNegative(const ir::Expr& e) const;

  // llvm_values.cc
  absl::StatusOr<llvm::Value*> Emit(const ir::Expr& e);
  absl::StatusOr<llvm::Value*> EmitNode(const ir::Expr& e);
  absl::StatusOr<llvm::Value*> EmitShared(const ir::Expr& e);
  absl::StatusOr<llvm::Value*> EmitBinary(const ir::Expr& e);
  absl::StatusOr<llvm::Value*> EmitSelect(const ir::Expr& e);
  // `condition ? then : otherwise` with branches; each side is a scope of its own.
  using Side = std::function<absl::StatusOr<llvm::Value*>()>;
  absl::StatusOr<llvm::Value*> EmitBranches(llvm::Value* condition, const Side& then_side,
                                            const Side& else_side);
  bool IsSafeToSpeculate(const ir::Expr& e) const;
  absl::StatusOr<llvm::Value*> EmitCall(const ir::Expr& e);
  llvm::Value* EmitRoundingShift(const ir::Expr& e, llvm::Value* a, llvm::Value* n);
  absl::StatusOr<llvm::Value*> EmitMathCall(const std::string& stem,
                                            const std::vector<llvm::Value*>& args, ir::DType type);
  absl::StatusOr<llvm::Value*> EmitRamp(const ir::Expr& e);
  // llvm_casts.cc
  absl::StatusOr<llvm::Value*> EmitCast(const ir::Expr& e);
  absl::Status RefuseHalf(const ir::Expr& e) const;
  absl::StatusOr<llvm::Value*> EmitConversion(llvm::Value* value, ir::DType from, ir::DType to);
  absl::StatusOr<llvm::Value*> EmitHalfCast(llvm::Value* value, ir::DType from, ir::DType to);
  absl::StatusOr<llvm::Value*> EmitNearestByte(const ir::Expr& e);
  absl::StatusOr<llvm::Value*> EmitNibble(const ir::Expr& e);
  llvm::Value* EmitWordOfFloat(llvm::Value* value, llvm::Type* words);
  llvm::Value* ClampToUnsigned(llvm::Value* value, ir::DType to);
  llvm::Value* EmitFloatToInt(llvm::Value* value, ir::DType from, ir::DType to, llvm::Type* type);
  absl::StatusOr<llvm::Value*> EmitFusedHalves(const ir::Expr& e);
  llvm::Value* EmitFused(const ir::Expr& e, const std::vector<llvm::Value*>& args);
  llvm::Value* EmitPairDot(PairDot dot);
  llvm::Value* EmitDot4(const ir::Expr& e, const std::vector<llvm::Value*>& args);
  absl::StatusOr<llvm::Value*> EmitDotTile(const ir::Expr& e,
                                           const std::vector<llvm::Value*>& args);
  llvm::Value* EmitDivide(ir::ExprKind kind, llvm::Value* a, llvm::Value* b, const ir::Expr& e);
  // Scalar i64 expressions without memory reads: shared and hoisted.
  absl::StatusOr<llvm::Value*> EmitIndex(const ir::Expr& e);
  absl::StatusOr<llvm::Value*> EmitAtom(const LinearTerm& term);
  // What `emit` makes of `e`, whose number is `id`.
  absl::StatusOr<llvm::Value*> EmitHoisted(const ir::Expr& e, int id, const Side& emit);
  absl::StatusOr<llvm::Value*> EmitTerms(const std::vector<LinearTerm>& terms);

  // llvm_store_runs.cc
  struct RunStore {  // one store of a run: where it starts, by the same terms for all of a run
    const ir::Stmt* stmt;
    LinearIndex index;
    int64_t stride = 0;   // 0 where it is open
    int open_stride = 0;  // its number
    int lanes = 0;
  };
  std::optional<RunStore> AsRunStore(const ir::Stmt& s);
  size_t RunLength(const std::vector<ir::Stmt>& stmts, size_t first, std::vector<RunStore>* run);
  absl::Status EmitStoreRun(const std::vector<RunStore>& run);
  absl::Status EmitChains(std::vector<RunStore> run);
  absl::Status StoreByLanes(const std::vector<RunStore>& run);
  bool SameMask(const RunStore& a, const RunStore& b);
  absl::Status StoreMaskedPair(const RunStore& even, const RunStore& odd);
  absl::Status StoreTransposed(const std::vector<RunStore>& chain);
  absl::StatusOr<llvm::Value*> EmitJoined(const std::vector<RunStore>& chain);
  absl::Status StoreInterleaved(const std::vector<RunStore>& chain);
  // llvm_memory.cc
  // Address of element `index` + `extra` elements, and what alignment it is known to have.
  struct Address {
    llvm::Value* pointer;
    llvm::Align align;
  };
  absl::StatusOr<llvm::Value*> EmitLoad(const ir::Expr& e);
  absl::Status EmitStore(const ir::Stmt& s);
  absl::StatusOr<llvm::Value*> LoadMemory(const Access& access);
  absl::Status StoreMemory(const Access& access, llvm::Value* value);
  void Stream(llvm::StoreInst* store);
  absl::StatusOr<llvm::Value*> LoadSlots(const Access& access);
  absl::Status StoreSlots(const Access& access, llvm::Value* value);
  absl::StatusOr<llvm::Value*> LoadStrided(const Access& access, const RampForm& ramp,
                                           const std::vector<bool>& active, llvm::Value* mask);
  absl::StatusOr<llvm::Value*> EmitLanes(const ir::Expr& index, const RampForm* ramp);
  absl::StatusOr<Address> LaneAddress(const Access& access, const RampForm* ramp,
                                      llvm::Value* index, int lane);
  absl::StatusOr<llvm::Value*> LoadLanes(const Access& access, const RampForm* ramp);
  absl::Status StoreLanes(const Access& access, const RampForm* ramp, llvm::Value* value);
  absl::StatusOr<llvm::Value*> LanePointers(const Access& access);
  bool AllNonNegative(const std::vector<LinearTerm>& terms) const;
  absl::StatusOr<Address> EmitAddress(const Access& access, const ir::Expr& scalar_index,
                                      int64_t extra);
  absl::StatusOr<llvm::Value*> PointerAt(const Access& access, const std::vector<LinearTerm>& terms,
                                         int level);
  llvm::Value* NewInduction(Scope& scope, int level, llvm::Value* start_base, int64_t byte_step);
  llvm::LoadInst* Load1(llvm::Type* type, const Address& address);
  llvm::Value* FromMemory(llvm::Value* value, ir::DType type);
  llvm::Value* ToMemory(llvm::Value* value, ir::DType type);
  Binding& BindingOf(const ir::Buffer& buffer);
  // llvm_masks.cc
  // In a power of two of lanes, as all masks of loads and stores are; those behind its own are off.
  absl::StatusOr<llvm::Value*> EmitMask(const ir::Expr& mask);
  // The mask whose lane i is lane lanes[i] of `mask`, or on where that is null; off for kNoLane.
  static constexpr int kNoLane = -1;
  llvm::Value* PickMask(const std::vector<int>& lanes, llvm::Value* mask);
  llvm::Value* AsWideAs(const llvm::Value* mask, llvm::Value* value);
  llvm::Value* FirstLanes(llvm::Value* value, int lanes);
  // Zero in lanes that are off.
  llvm::Value* MaskedLoad(const Address& address, int lanes, llvm::Type* element,
                          llvm::Value* mask);
  void MaskedStore(llvm::Value* value, const Address& address, llvm::Value* mask);
  llvm::Value* MaskedGather(llvm::Value* pointers, llvm::Type* element, llvm::Align align,
                            llvm::Value* mask);
  void MaskedScatter(llvm::Value* value, llvm::Value* pointers, llvm::Align align,
                     llvm::Value* mask);
  absl::StatusOr<llvm::Value*> EmitLaneLimit(const ir::Expr& e);
  absl::StatusOr<llvm::Value*> CompareLanes(int lanes, const ir::Expr& limit, bool below);

  int top() const { return static_cast<int>(scopes_.size()) - 1; }
  llvm::Type* I64() { return builder_.getInt64Ty(); }

  ModuleEmitter& module_;
  llvm::Function* function_;
  WorkspacePlan& workspace_plan_;
  int thread_loops_ = 0;  // around the current statement, of more than one iteration
  bool host_;
  llvm::IRBuilder<> builder_;
  llvm::BasicBlock* entry_;  // allocas only; branches to the body at the end
  llvm::Value* runtime_context_ = nullptr;
  llvm::Value* workspace_ = nullptr;
  llvm::Value* task_ = nullptr;
  int64_t tasks_ = 1;
  int64_t stack_bytes_ = 0;
  bool streams_ = false;  // some stores go past the caches
  IndexTable table_;
  std::vector<Scope> scopes_;
  struct VarBinding {
    llvm::Value* value;
    int level;
    bool non_negative;
  };
  std::unordered_map<const ir::ExprNode*, VarBinding> vars_;
  std::unordered_map<const ir::BufferNode*, Binding> buffers_;
  // Loads of immutable buffers and their broadcasts, within one basic block.
  std::unordered_map<int, llvm::Value*> shared_;
  llvm::BasicBlock* shared_block_ = nullptr;
  std::vector<std::unique_ptr<SlotPlan>> plans_;
  std::vector<llvm::AllocaInst*> promotable_;
};

}  // namespace tilewright::codegen
