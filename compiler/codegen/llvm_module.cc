// Kernels of one module: entries with the C ABI, attributes, and what several functions share.
#include <set>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/llvm_emitter.h"
#include "compiler/ir/streamed_writes.h"
#include "compiler/ir/visit.h"
#include "compiler/target/target.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {

using ir::DType;
using ir::TypeCode;
using llvm::Value;

ModuleEmitter::ModuleEmitter(llvm::LLVMContext& context, const target::Target& target,
                             const LlvmTarget& family)
    : context_(context),
      target_(target),
      family_(family),
      module_(std::make_unique<llvm::Module>("tilewright", context)) {
  auto* i32 = llvm::Type::getInt32Ty(context);
  auto* pointer = llvm::PointerType::get(context, 0);
  context_struct_ = llvm::StructType::get(context, {i32, i32, pointer, pointer});  // TwContext
}

absl::StatusOr<llvm::Type*> ModuleEmitter::ValueType(DType type) {
  bool known = type.is_bool() || type.bits == 32 || type.bits == 64 || type.bits == 16 ||
               (type.is_int() && type.bits == 8);
  if (!known) {
    return support::Unimplemented("codegen.type.unsupported",
                                  "expected a type that tensors have, found " + ir::TypeName(type));
  }
  llvm::Type* element = type.is_bool() ? llvm::Type::getInt1Ty(context_) : ElementMemoryType(type);
  return type.is_vector() ? llvm::FixedVectorType::get(element, type.lanes) : element;
}

bool ModuleEmitter::ComputesIn(DType type) const {
  const bool is_half = type.Element() == ir::kF16;
  return !type.is_float() || type.bits != 16 || (is_half && target_.machine.computes_f16);
}

llvm::Type* ModuleEmitter::ElementMemoryType(DType type) {
  if (type.is_bool()) return llvm::Type::getInt8Ty(context_);
  if (type.is_int() || !ComputesIn(type)) return llvm::Type::getIntNTy(context_, type.bits);
  if (type.bits == 16) return llvm::Type::getHalfTy(context_);
  return type.bits == 64 ? llvm::Type::getDoubleTy(context_) : llvm::Type::getFloatTy(context_);
}

void ModuleEmitter::AddCommonAttributes(llvm::Function* function) {
  function->addFnAttr(llvm::Attribute::NoUnwind);
  family_.add_attributes(target_, *function);
}

llvm::Function* ModuleEmitter::NewInternalFunction(llvm::FunctionType* type,
                                                   const std::string& name) {
  auto* function = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, name, *module_);
  AddCommonAttributes(function);
  function->addFnAttr(llvm::Attribute::NoInline);
  return function;
}

void ModuleEmitter::AnnotatePointer(llvm::Function* function, unsigned index,
                                    const BufferFacts& facts) {
  if (!facts.aliased) function->addParamAttr(index, llvm::Attribute::NoAlias);
  function->addParamAttr(index, llvm::Attribute::NoCapture);
  function->addParamAttr(
      index, llvm::Attribute::getWithAlignment(context_, llvm::Align(tensor_alignment())));
  if (facts.read_only) function->addParamAttr(index, llvm::Attribute::ReadOnly);
  if (facts.bytes > 0) function->addDereferenceableParamAttr(index, facts.bytes);
}

llvm::FunctionCallee ModuleEmitter::MathFunction(const std::string& name, llvm::Type* type,
                                                 int arity) {
  std::vector<llvm::Type*> parameters(arity, type);
  llvm::FunctionCallee callee =
      module_->getOrInsertFunction(name, llvm::FunctionType::get(type, parameters, false));
  auto* function = llvm::cast<llvm::Function>(callee.getCallee());
  function->setDoesNotThrow();
  function->setDoesNotAccessMemory();
  return callee;
}

namespace {

// The buffers of a function that may share memory (kMayAlias).
std::set<std::string> AliasedBuffers(const ir::Function& function) {
  std::set<std::string> names;
  auto it = function.attrs.find(std::string(kMayAlias));
  if (it == function.attrs.end() || !std::holds_alternative<std::string>(it->second)) return names;
  for (const std::string& name : support::Split(std::get<std::string>(it->second), ',')) {
    names.insert(name);
  }
  for (const ir::Buffer& param : function.params) {
    if (param->role == ir::Role::kOutput) names.insert(param->name);
  }
  return names;
}

BufferFacts FactsOf(const ir::Buffer& buffer, bool aliased) {
  BufferFacts facts;
  facts.aliased = aliased;
  facts.read_only =
      !aliased && (buffer->role == ir::Role::kInput || buffer->role == ir::Role::kConstant);
  facts.bytes = buffer->dtype.bytes();
  for (const ir::Expr& dim : buffer->shape) {
    const int64_t* extent = ir::AsInt(dim);
    facts.bytes = extent == nullptr ? 0 : facts.bytes * *extent;
  }
  return facts;
}

}  // namespace

// int32_t tw_kernel_<name>(context, buffers, sizes, workspace): checks versions and sizes, unpacks,
// calls the body.
void ModuleEmitter::EmitEntry(const ir::Function& function, llvm::Function* body) {
  llvm::IRBuilder<> builder(context_);
  llvm::Type *i32 = builder.getInt32Ty(), *i64 = builder.getInt64Ty(),
             *pointer = builder.getPtrTy();
  auto* type = llvm::FunctionType::get(i32, {pointer, pointer, pointer, pointer}, false);
  auto* entry = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage,
                                       TW_KERNEL_SYMBOL_PREFIX + function.name, *module_);
  AddCommonAttributes(entry);
  Value* context = entry->getArg(0);
  builder.SetInsertPoint(llvm::BasicBlock::Create(context_, "", entry));
  auto require = [&](Value* condition, int32_t code) {
    auto* failed = llvm::BasicBlock::Create(context_, "", entry);
    auto* next = llvm::BasicBlock::Create(context_, "", entry);
    builder.CreateCondBr(condition, next, failed);
    builder.SetInsertPoint(failed);
    builder.CreateRet(builder.getInt32(code));
    builder.SetInsertPoint(next);
  };
  Value* version = builder.CreateLoad(i32, builder.CreateStructGEP(context_struct_, context, 0));
  require(builder.CreateICmpUGE(version, builder.getInt32(TW_ABI_VERSION)), TW_ERROR_ABI);
  std::vector<Value*> arguments;
  for (size_t i = 0; i < function.params.size(); ++i) {
    arguments.push_back(
        builder.CreateLoad(pointer, builder.CreateConstGEP1_64(pointer, entry->getArg(1), i)));
  }
  for (size_t i = 0; i < function.size_params.size(); ++i) {
    Value* size = builder.CreateLoad(i64, builder.CreateConstGEP1_64(i64, entry->getArg(2), i));
    require(builder.CreateICmpSGE(size, builder.getInt64(1)), TW_ERROR_SIZE);
    arguments.push_back(size);
  }
  arguments.push_back(context);
  arguments.push_back(entry->getArg(3));
  builder.CreateRet(builder.CreateCall(body, arguments));
}

// Types are checked once up front; memory accesses do not ask again.
absl::Status ModuleEmitter::CheckTypes(const ir::Function& function) {
  absl::Status status;
  auto check = [&](ir::DType type) {
    if (status.ok()) status = ValueType(type).status();
    return status.ok();
  };
  for (const ir::Buffer& buffer : function.params) check(buffer->dtype);
  ir::VisitExprsIn(function.body, [&](const ir::Expr& e) { return check(e->dtype); });
  ir::VisitStmts(function.body, [&](const ir::Stmt& s) {
    return s->kind != ir::StmtKind::kAlloc || check(s->buffer->dtype);
  });
  return status;
}

absl::StatusOr<support::Dim> ModuleEmitter::AddKernel(const ir::Function& function) {
  TW_TRY(CheckTypes(function));
  auto* i64 = llvm::Type::getInt64Ty(context_);
  auto* pointer = llvm::PointerType::get(context_, 0);
  std::vector<llvm::Type*> parameters(function.params.size(), pointer);
  parameters.insert(parameters.end(), function.size_params.size(), i64);
  parameters.insert(parameters.end(), 2, pointer);  // context, workspace
  auto* type = llvm::FunctionType::get(llvm::Type::getInt32Ty(context_), parameters, false);
  llvm::Function* body = NewInternalFunction(type, function.name);

  WorkspacePlan workspace;
  FunctionEmitter emitter(*this, body, workspace, /*host=*/true);
  unsigned index = 0;
  const std::set<std::string> aliased = AliasedBuffers(function);
  for (const ir::Buffer& buffer : function.params) {
    BufferFacts facts = FactsOf(buffer, aliased.count(buffer->name) > 0);
    facts.streamed = ir::HasStreamedWrites(function, buffer->name);
    AnnotatePointer(body, index, facts);
    emitter.BindBuffer(buffer, body->getArg(index++), facts);
  }
  for (const ir::Expr& size : function.size_params)
    emitter.BindVar(size, body->getArg(index++), true);
  emitter.BindRuntime(body->getArg(index), body->getArg(index + 1), nullptr, 1);
  TW_TRY(emitter.EmitBody(function.body));
  EmitEntry(function, body);
  return workspace.peak();
}

}  // namespace tilewright::codegen
