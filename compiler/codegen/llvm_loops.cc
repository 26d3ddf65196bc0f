// Statements: loops, branches, allocations, and parallel loops as functions of their own.
#include <llvm/IR/Dominators.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/Transforms/Utils/PromoteMemToReg.h>

#include <algorithm>
#include <optional>
#include <set>

#include "compiler/codegen/llvm_emitter.h"
#include "compiler/codegen/llvm_scope.h"
#include "compiler/ir/buffer_bytes.h"
#include "compiler/ir/visit.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/support/status.h"

namespace tilewright::codegen {

using ir::Expr;
using ir::ExprKind;
using ir::ForKind;
using ir::Stmt;
using ir::StmtKind;
using llvm::Value;

namespace {

// Scratch of one function on its stack; beyond it the workspace takes over. Well below
// TW_TASK_STACK_BYTES, because spilled registers and libm need some too.
constexpr int64_t kMaxStackBuffer = 64 << 10;
constexpr int64_t kMaxStackBytes = 256 << 10;
constexpr int64_t kMaxWorkspaceBytes = int64_t{4} << 30;

// An extent over size parameters as a dimension; nothing where it has other operations.
std::optional<support::Dim> OpenSize(const Expr& e) {
  if (const int64_t* value = ir::AsInt(e)) return support::Dim(*value);
  if (e->kind == ExprKind::kVar) return support::Dim::Variable(e->name);
  if (e->kind == ExprKind::kCast) return OpenSize(e->args[0]);
  if (e->args.size() != 2) return std::nullopt;
  const std::optional<support::Dim> a = OpenSize(e->args[0]), b = OpenSize(e->args[1]);
  if (!a || !b) return std::nullopt;
  if (e->kind == ExprKind::kAdd) return *a + *b;
  if (e->kind == ExprKind::kSub) return *a - *b;
  if (e->kind == ExprKind::kMul) return *a * *b;
  const bool divides = b->constant().value_or(0) > 0;
  if (e->kind == ExprKind::kFloorDiv && divides) return a->FloorDiv(b->value());
  return std::nullopt;
}

// What the body of a parallel loop needs from outside, in the order of first use.
struct Captures {
  std::vector<Expr> vars;
  std::vector<ir::Buffer> buffers;
};

Captures CollectCaptures(const Stmt& loop) {
  Captures captures;
  std::vector<const void*> seen, bound;
  auto fresh = [&](const void* node) {
    if (std::find(bound.begin(), bound.end(), node) != bound.end()) return false;
    if (std::find(seen.begin(), seen.end(), node) != seen.end()) return false;
    seen.push_back(node);
    return true;
  };
  bound.push_back(loop->var.get());
  ir::VisitStmts(loop->body, [&](const Stmt& s) {
    if (s->kind == StmtKind::kFor || s->kind == StmtKind::kLet) bound.push_back(s->var.get());
    if (s->kind == StmtKind::kAlloc) bound.push_back(s->buffer.get());
    return true;
  });
  ir::VisitExprsIn(loop->body, [&](const Expr& e) {
    if (e->kind == ExprKind::kVar && fresh(e.get())) captures.vars.push_back(e);
    if (e->kind == ExprKind::kLoad && fresh(e->buffer.get())) captures.buffers.push_back(e->buffer);
    return true;
  });
  ir::VisitStmts(loop->body, [&](const Stmt& s) {
    if (s->kind == StmtKind::kStore && fresh(s->buffer.get()))
      captures.buffers.push_back(s->buffer);
    return true;
  });
  return captures;
}

}  // namespace

FunctionEmitter::FunctionEmitter(ModuleEmitter& module, llvm::Function* function,
                                 WorkspacePlan& workspace, bool host)
    : module_(module),
      function_(function),
      workspace_plan_(workspace),
      host_(host),
      builder_(module.context()),
      entry_(llvm::BasicBlock::Create(module.context(), "", function)) {
  scopes_.emplace_back();
  builder_.SetInsertPoint(llvm::BasicBlock::Create(module.context(), "", function));
}

void FunctionEmitter::BindVar(const Expr& var, Value* value, bool non_negative) {
  vars_[var.get()] = {value, top(), non_negative};
}

void FunctionEmitter::BindBuffer(const ir::Buffer& buffer, Value* base, BufferFacts facts) {
  Binding& binding = buffers_[buffer.get()];
  binding.base = base;
  binding.facts = facts;
  binding.id = static_cast<int>(buffers_.size());
  if (facts.read_only) table_.MarkImmutable(buffer);
}

void FunctionEmitter::BindRuntime(Value* context, Value* workspace, Value* task, int64_t tasks) {
  runtime_context_ = context;
  workspace_ = workspace;
  task_ = task;
  tasks_ = tasks;
}

int FunctionEmitter::LevelOf(const Expr& e) const {
  if (e->kind == ExprKind::kLoad) return top();
  if (e->kind == ExprKind::kVar) {
    auto it = vars_.find(e.get());
    return it == vars_.end() ? top() : it->second.level;
  }
  int level = 0;
  for (const Expr& a : e->args) level = std::max(level, LevelOf(a));
  return level;
}

absl::Status FunctionEmitter::EmitBody(const Stmt& body) {
  llvm::BasicBlock* first = builder_.GetInsertBlock();
  TW_TRY(EmitStmt(body));
  // Other cores may see such stores later than what says that they were made.
  if (streams_) module_.family().fence_stores(builder_);
  builder_.CreateRet(builder_.getInt32(TW_OK));
  llvm::IRBuilder<>(entry_).CreateBr(first);
  PromoteSlots();
  if (module_.family().finish != nullptr) module_.family().finish(*function_);
  return absl::OkStatus();
}

void FunctionEmitter::PromoteSlots() {
  if (promotable_.empty()) return;
  llvm::DominatorTree dominators(*function_);
  llvm::PromoteMemToReg(promotable_, dominators);
  promotable_.clear();
}

absl::Status FunctionEmitter::EmitStmt(const Stmt& s) {
  switch (s->kind) {
    case StmtKind::kFor:
      return EmitFor(s);
    case StmtKind::kStore:
      return EmitStore(s);
    case StmtKind::kSeq:
      return EmitSeq(s->stmts);
    case StmtKind::kIf:
      return EmitIf(s);
    case StmtKind::kLet: {
      TW_ASSIGN(Value * value, Emit(s->value));
      BindVar(s->var, value, IsNonNegative(s->value));
      return EmitStmt(s->body);
    }
    case StmtKind::kAlloc:
      return EmitAlloc(s);
    case StmtKind::kEvaluate: {
      bool prefetch =
          s->value->kind == ExprKind::kCall && s->value->intrinsic == ir::Intrinsic::kPrefetch;
      return prefetch ? EmitPrefetch(s->value->args[0]) : Emit(s->value).status();
    }
    case StmtKind::kAsync:  // done at once: early is allowed
      return EmitStmt(s->body);
    case StmtKind::kSync:
      if (s->sync != ir::SyncKind::kBarrier || thread_loops_ == 0) return absl::OkStatus();
      return support::Unimplemented(
          "codegen.sync.barrier", "expected no barrier between the threads of a group, found one");
    case StmtKind::kBlock:
    case StmtKind::kCombine:
      break;
  }
  return support::Internal("codegen.stmt.not_flat",
                           "block " + s->name + " in a function that should be flat");
}

absl::Status FunctionEmitter::EmitPrefetch(const Expr& load) {
  Access access{&load->buffer, &BindingOf(load->buffer), load->args[0], nullptr, load->dtype};
  RampForm ramp;
  if (access.binding->plan != nullptr || !AsRampForm(access.index, &ramp)) return absl::OkStatus();
  TW_ASSIGN(Address address, EmitAddress(access, ramp.base, 0));
  builder_.CreateIntrinsic(
      llvm::Intrinsic::prefetch, {address.pointer->getType()},
      {address.pointer, builder_.getInt32(0), builder_.getInt32(3), builder_.getInt32(1)});
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------------------
// branches

absl::Status FunctionEmitter::EmitIf(const Stmt& s) {
  TW_ASSIGN(Value * condition, Emit(s->condition));
  if (auto* constant = llvm::dyn_cast<llvm::ConstantInt>(condition)) {
    const Stmt& taken = constant->isZero() ? s->else_body : s->body;
    return taken == nullptr ? absl::OkStatus() : EmitStmt(taken);
  }
  llvm::BasicBlock* then_block = llvm::BasicBlock::Create(module_.context(), "", function_);
  llvm::BasicBlock* join = llvm::BasicBlock::Create(module_.context(), "", function_);
  llvm::BasicBlock* else_block = join;
  if (s->else_body != nullptr)
    else_block = llvm::BasicBlock::Create(module_.context(), "", function_);
  llvm::Instruction* branch = builder_.CreateCondBr(condition, then_block, else_block);
  TW_TRY(EmitArm(s->body, then_block, join, branch));
  if (s->else_body != nullptr) TW_TRY(EmitArm(s->else_body, else_block, join, branch));
  builder_.SetInsertPoint(join);
  return absl::OkStatus();
}

void FunctionEmitter::PushArm(llvm::Instruction* branch) {
  scopes_.emplace_back();
  scopes_.back().entry_branch = branch;
}

absl::Status FunctionEmitter::EmitArm(const Stmt& body, llvm::BasicBlock* block,
                                      llvm::BasicBlock* join, llvm::Instruction* branch) {
  PushArm(branch);
  builder_.SetInsertPoint(block);
  TW_TRY(EmitStmt(body));
  builder_.CreateBr(join);
  scopes_.pop_back();
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------------------
// loops

absl::Status FunctionEmitter::EmitFor(const Stmt& s) {
  if (s->for_kind == ForKind::kVectorized || s->for_kind == ForKind::kUnrolled) {
    return support::Internal("codegen.loop.not_flat",
                             "loop " + s->var->name + " should have been expanded");
  }
  const int64_t* extent = ir::AsInt(s->range.extent);
  if (extent != nullptr && *extent <= 0) return absl::OkStatus();
  if (extent != nullptr && *extent == 1) {
    TW_ASSIGN(Value * value, Emit(s->range.min));
    BindVar(s->var, value, IsNonNegative(s->range.min));
    return EmitStmt(s->body);
  }
  if (s->for_kind == ForKind::kParallel && host_ && module_.family().threads)
    return EmitParallelLoop(s, extent == nullptr ? 0 : *extent);
  thread_loops_ += ir::IsThreadAxis(s->for_kind);
  absl::Status status = EmitSerialLoop(s);
  thread_loops_ -= ir::IsThreadAxis(s->for_kind);
  return status;
}

// How often the branch at the end of a loop is taken. Without it LLVM takes each loop for about
// thirty trips: the deepest one then keeps its constants in registers, and the sums of a longer one
// go through memory.
void FunctionEmitter::SayTrips(int64_t trips, llvm::Instruction* branch) {
  constexpr int64_t kMost = int64_t{1} << 20;
  const auto taken = static_cast<uint32_t>(std::min(trips - 1, kMost));
  branch->setMetadata(llvm::LLVMContext::MD_prof,
                      llvm::MDBuilder(module_.context()).createBranchWeights(taken, 1));
}

absl::Status FunctionEmitter::EmitSerialLoop(const Stmt& s) {
  TW_ASSIGN(Value * min, Emit(s->range.min));
  TW_ASSIGN(Value * extent, Emit(s->range.extent));
  auto* constant_extent = llvm::dyn_cast<llvm::ConstantInt>(extent);
  if (constant_extent != nullptr && constant_extent->getSExtValue() <= 0) return absl::OkStatus();
  Value* end = builder_.CreateNSWAdd(min, extent);
  llvm::BasicBlock* preheader = builder_.GetInsertBlock();
  llvm::BasicBlock* header = llvm::BasicBlock::Create(module_.context(), "", function_);
  llvm::BasicBlock* exit = llvm::BasicBlock::Create(module_.context(), "", function_);
  Scope scope;
  if (constant_extent != nullptr) {
    scope.entry_branch = builder_.CreateBr(header);
  } else {
    Value* some = builder_.CreateICmpSGT(extent, llvm::Constant::getNullValue(extent->getType()));
    scope.entry_branch = builder_.CreateCondBr(some, header, exit);
  }
  scope.header = header;
  scope.preheader = preheader;
  scope.var = s->var;
  if (const int64_t* constant = ir::AsInt(s->range.min)) {
    scope.min = *constant;
  } else {
    scope.min_value = min;
  }
  scopes_.push_back(std::move(scope));
  builder_.SetInsertPoint(header);
  llvm::PHINode* counter = builder_.CreatePHI(min->getType(), 2);
  counter->addIncoming(min, preheader);
  BindVar(s->var, counter, IsNonNegative(s->range.min));
  TW_TRY(EmitStmt(s->body));
  llvm::BasicBlock* latch = builder_.GetInsertBlock();
  for (const Scope::Induction& induction : scopes_.back().inductions) {
    induction.phi->addIncoming(builder_.CreatePtrAdd(induction.phi, induction.step), latch);
  }
  Value* next = builder_.CreateNSWAdd(counter, llvm::ConstantInt::get(counter->getType(), 1));
  counter->addIncoming(next, latch);
  llvm::Instruction* again = builder_.CreateCondBr(builder_.CreateICmpSLT(next, end), header, exit);
  if (constant_extent != nullptr) SayTrips(constant_extent->getSExtValue(), again);
  scopes_.pop_back();
  builder_.SetInsertPoint(exit);
  return absl::OkStatus();
}

// Outlines the body into `task(captures…, task)` and a thunk with the runtime's signature that
// unpacks the closure:
//   closure = {captures…};
//   rc = context->parallel_for(context, thunk, &closure, extent);
//   if (rc) return rc
absl::Status FunctionEmitter::EmitParallelLoop(const Stmt& s, int64_t tasks) {
  llvm::LLVMContext& context = module_.context();
  Captures captures = CollectCaptures(s);
  TW_ASSIGN(Value * min, Emit(s->range.min));
  TW_ASSIGN(Value * extent, Emit(s->range.extent));
  std::vector<Value*> captured;
  std::vector<llvm::Type*> types;
  for (const ir::Buffer& buffer : captures.buffers) captured.push_back(BindingOf(buffer).base);
  for (const Expr& var : captures.vars) {
    TW_ASSIGN(Value * value, EmitNode(var));
    captured.push_back(value);
  }
  captured.push_back(workspace_);
  captured.push_back(min);
  for (Value* value : captured) types.push_back(value->getType());
  llvm::StructType* closure_type = llvm::StructType::get(context, types);

  std::vector<llvm::Type*> parameters = types;
  parameters.push_back(builder_.getInt64Ty());
  auto* task_type = llvm::FunctionType::get(builder_.getInt32Ty(), parameters, false);
  llvm::Function* task =
      module_.NewInternalFunction(task_type, function_->getName().str() + ".task");
  FunctionEmitter inner(module_, task, workspace_plan_, /*host=*/false);
  for (size_t i = 0; i < captures.buffers.size(); ++i) {
    const BufferFacts& facts = BindingOf(captures.buffers[i]).facts;
    module_.AnnotatePointer(task, i, facts);
    inner.BindBuffer(captures.buffers[i], task->getArg(i), facts);
  }
  for (size_t i = 0; i < captures.vars.size(); ++i) {
    inner.BindVar(captures.vars[i], task->getArg(captures.buffers.size() + i),
                  IsNonNegative(captures.vars[i]));
  }
  Value* inner_min = task->getArg(types.size() - 1);
  Value* task_id = task->getArg(types.size());
  bool from_zero = ir::IsInt(s->range.min, 0);
  Value* var = from_zero ? task_id : inner.builder_.CreateNSWAdd(inner_min, task_id);
  inner.BindVar(s->var, var, IsNonNegative(s->range.min));
  inner.BindRuntime(nullptr, task->getArg(types.size() - 2), task_id, tasks);
  TW_TRY(inner.EmitBody(s->body));

  auto* thunk_type = llvm::FunctionType::get(builder_.getInt32Ty(),
                                             {builder_.getPtrTy(), builder_.getInt64Ty()}, false);
  llvm::Function* thunk =
      module_.NewInternalFunction(thunk_type, function_->getName().str() + ".thunk");
  llvm::IRBuilder<> in_thunk(llvm::BasicBlock::Create(context, "", thunk));
  std::vector<Value*> arguments;
  for (size_t i = 0; i < types.size(); ++i) {
    arguments.push_back(
        in_thunk.CreateLoad(types[i], in_thunk.CreateStructGEP(closure_type, thunk->getArg(0), i)));
  }
  arguments.push_back(thunk->getArg(1));
  in_thunk.CreateRet(in_thunk.CreateCall(task, arguments));

  Value* closure = llvm::IRBuilder<>(entry_).CreateAlloca(closure_type);
  for (size_t i = 0; i < captured.size(); ++i) {
    builder_.CreateStore(captured[i], builder_.CreateStructGEP(closure_type, closure, i));
  }
  auto* runtime_type = llvm::FunctionType::get(
      builder_.getInt32Ty(),
      {builder_.getPtrTy(), builder_.getPtrTy(), builder_.getPtrTy(), builder_.getInt64Ty()},
      false);
  Value* entry = builder_.CreateLoad(
      builder_.getPtrTy(), builder_.CreateStructGEP(module_.context_struct(), runtime_context_, 3));
  Value* rc = builder_.CreateCall(runtime_type, entry, {runtime_context_, thunk, closure, extent});
  llvm::BasicBlock* failed = llvm::BasicBlock::Create(context, "", function_);
  llvm::BasicBlock* next = llvm::BasicBlock::Create(context, "", function_);
  builder_.CreateCondBr(builder_.CreateICmpEQ(rc, builder_.getInt32(TW_OK)), next, failed);
  builder_.SetInsertPoint(failed);
  builder_.CreateRet(rc);
  builder_.SetInsertPoint(next);
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------------------
// allocations

absl::Status FunctionEmitter::EmitAlloc(const Stmt& s) {
  SlotPlan plan = PlanSlots(s->buffer, s->body, host_);
  if (plan.promotable) return AllocSlots(s, std::move(plan));
  const std::optional<int64_t> known = ir::ConstantBytes(*s->buffer);
  if (!known.has_value()) return EmitOpenAlloc(s);
  const int64_t bytes = *known;
  bool on_stack = bytes <= kMaxStackBuffer && stack_bytes_ + bytes <= kMaxStackBytes &&
                  (s->buffer->scope == ir::Scope::kLocal || !host_);
  if (on_stack) {
    stack_bytes_ += bytes;
    llvm::Type* type = llvm::ArrayType::get(builder_.getInt8Ty(), bytes);
    llvm::AllocaInst* alloca = llvm::IRBuilder<>(entry_).CreateAlloca(type);
    alloca->setAlignment(llvm::Align(64));
    BindBuffer(s->buffer, alloca, {.bytes = bytes});
    return EmitStmt(s->body);
  }
  int64_t slice = (bytes + 63) / 64 * 64;
  int64_t tasks = host_ ? 1 : tasks_;
  if (tasks <= 0 || slice > kMaxWorkspaceBytes / tasks ||
      workspace_plan_.top() > kMaxWorkspaceBytes - slice * tasks) {
    return support::ResourceExhausted("codegen.workspace.too_large",
                                      "intermediate " + s->buffer->name + " of " +
                                          std::to_string(bytes) + " bytes for " +
                                          std::to_string(tasks) + " tasks");
  }
  int64_t offset = workspace_plan_.Push(slice * tasks);
  // In the entry block, because addresses of outer loops are computed out there.
  llvm::IRBuilder<> in_entry(entry_);
  Value* base = in_entry.CreatePtrAdd(workspace_, in_entry.getInt64(offset));
  if (!host_) {
    base = in_entry.CreatePtrAdd(base, in_entry.CreateNSWMul(task_, in_entry.getInt64(slice)));
  }
  BindBuffer(s->buffer, base, {.bytes = bytes});
  TW_TRY(EmitStmt(s->body));
  workspace_plan_.PopTo(offset);
  return absl::OkStatus();
}

absl::Status FunctionEmitter::EmitOpenAlloc(const Stmt& s) {
  std::optional<support::Dim> bytes = support::Dim(s->buffer->dtype.bytes());
  for (const Expr& extent : s->buffer->shape) {
    const std::optional<support::Dim> dim = OpenSize(extent);
    if (bytes && dim) bytes = *bytes * *dim;
    if (!dim) bytes.reset();
  }
  const std::set<std::string> variables = bytes ? bytes->variables() : std::set<std::string>();
  const bool known = std::all_of(variables.begin(), variables.end(), [&](const std::string& name) {
    return SizeNamed(name) != nullptr;
  });
  if (!host_ || !bytes || !known) {
    return support::Unimplemented(
        "codegen.alloc.open", "intermediate " + s->buffer->name +
                                  ": expected extents made of sums, products and quotients of size "
                                  "parameters, around all loops, found others");
  }
  constexpr int64_t kAlignment = 64;
  *bytes = (*bytes + support::Dim(kAlignment - 1)).FloorDiv(kAlignment) * support::Dim(kAlignment);
  workspace_plan_.AddOpen(*bytes);
  BindBuffer(s->buffer, workspace_, {});
  llvm::IRBuilder<> in_entry(entry_);
  workspace_ = in_entry.CreatePtrAdd(workspace_, OpenValue(*bytes, in_entry));
  return EmitStmt(s->body);
}

Value* FunctionEmitter::SizeNamed(const std::string& name) const {
  for (const auto& [var, bound] : vars_) {
    if (var->name == name) return bound.value;
  }
  return nullptr;
}

Value* FunctionEmitter::OpenValue(const support::Dim& size, llvm::IRBuilder<>& b) const {
  struct Term {
    Value* value;
    llvm::IRBuilder<>* b;
    Term operator+(const Term& other) const { return {b->CreateNSWAdd(value, other.value), b}; }
    Term operator*(const Term& other) const { return {b->CreateNSWMul(value, other.value), b}; }
  };
  const auto variable = [&](const std::string& name) { return Term{SizeNamed(name), &b}; };
  const auto quotient = [&](const Term& t, int64_t divisor) {  // rounded down
    Value* by = b.getInt64(divisor);
    Value* below = b.CreateICmpSLT(b.CreateSRem(t.value, by), b.getInt64(0));
    return Term{b.CreateSub(b.CreateSDiv(t.value, by), b.CreateZExt(below, b.getInt64Ty())), &b};
  };
  return size.Fold<Term>([&](int64_t n) { return Term{b.getInt64(n), &b}; }, variable, quotient)
      .value;
}

absl::Status FunctionEmitter::AllocSlots(const Stmt& s, SlotPlan plan) {
  plans_.push_back(std::make_unique<SlotPlan>(std::move(plan)));
  Binding binding;
  binding.plan = plans_.back().get();
  binding.id = static_cast<int>(buffers_.size()) + 1;
  llvm::IRBuilder<> in_entry(entry_);
  for (const LocalSlot& slot : binding.plan->slots) {
    TW_ASSIGN(llvm::Type * type,
              module_.ValueType(s->buffer->dtype.WithLanes(static_cast<int>(slot.size()))));
    binding.slots.push_back(in_entry.CreateAlloca(type));
    promotable_.push_back(binding.slots.back());
  }
  buffers_[s->buffer.get()] = std::move(binding);
  return EmitStmt(s->body);
}

}  // namespace tilewright::codegen
