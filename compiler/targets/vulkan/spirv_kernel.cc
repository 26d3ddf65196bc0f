#include "compiler/targets/vulkan/spirv_kernel.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "compiler/codegen/group_memory.h"
#include "compiler/codegen/index_width.h"
#include "compiler/codegen/local_slots.h"
#include "compiler/codegen/sub_group_sums.h"
#include "compiler/ir/buffer_bytes.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/targets/vulkan/loop_cost.h"
#include "compiler/targets/vulkan/spirv_expr.h"
#include "deploy/runtime/spirv_abi.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vulkan {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtKind;
using support::StrCat;

constexpr int64_t kMostBufferBytes = std::numeric_limits<uint32_t>::max();

spv::Op GroupOpOf(ir::ExprKind op, ir::DType type) {
  const auto of_type = [type](spv::Op of_signed, spv::Op of_unsigned, spv::Op of_floats) {
    if (type.is_float()) return of_floats;
    return type.code == ir::TypeCode::kInt ? of_signed : of_unsigned;
  };
  switch (op) {
    case ir::ExprKind::kMin:
      return of_type(spv::Op::OpGroupNonUniformSMin, spv::Op::OpGroupNonUniformUMin,
                     spv::Op::OpGroupNonUniformFMin);
    case ir::ExprKind::kMax:
      return of_type(spv::Op::OpGroupNonUniformSMax, spv::Op::OpGroupNonUniformUMax,
                     spv::Op::OpGroupNonUniformFMax);
    default:
      return of_type(spv::Op::OpGroupNonUniformIAdd, spv::Op::OpGroupNonUniformIAdd,
                     spv::Op::OpGroupNonUniformFAdd);
  }
}

class KernelEmitter {
 public:
  KernelEmitter(const ir::Function& kernel, const SpirvOptions& options)
      : kernel_(kernel),
        code_(&module_),
        expr_(&module_, &code_, codegen::FitsInt32(kernel), options.dot_products),
        global_barriers_(codegen::OrdersGlobalMemory(kernel)),
        unroll_(UnrollingOf(kernel)) {
    // Unrolled loops cost what a driver counts: sums of sub-groups are no such loops.
    if (options.sub_groups && unroll_ == 1) sums_ = codegen::FindSubGroupSums(kernel);
  }

  absl::StatusOr<KernelModule> Emit();

 private:
  absl::Status DeclareBuffers();
  void DeclareSizes();
  void Statement(const Stmt& s);
  void For(const Stmt& s);
  void Unrolled(const Stmt& s, int bits, Id first);
  bool IsShared(const codegen::SubGroupSum& sum) const;
  void SubGroupSum(const Stmt& s, const codegen::SubGroupSum& sum, int bits, Id first, Id end);
  void BoundLoop(const Stmt& s);
  void Alloc(const Stmt& s);
  void Store(const Stmt& s);
  int64_t ElementsOf(const ir::Buffer& b);
  Id Axis(spv::BuiltIn which, int axis);
  std::vector<std::string> Features() const;

  const ir::Function& kernel_;
  SpirvModule module_;
  SpirvCode code_;
  SpirvExpr expr_;
  const bool global_barriers_;
  const int64_t unroll_;  // of the innermost loops
  codegen::SubGroupSums sums_;
  std::map<spv::BuiltIn, Id> built_ins_;  // loaded
};

absl::Status KernelEmitter::DeclareBuffers() {
  const auto read_back = codegen::ReadBack(kernel_);
  uint32_t binding = 0;
  for (const ir::Buffer& b : kernel_.params) {
    const int64_t bytes = ir::ConstantBytes(*b).value_or(0);
    if (bytes > kMostBufferBytes) {
      return support::Unimplemented(
          "codegen.vulkan.buffer_bytes",
          StrCat(kernel_.name, ": expected buffers of at most ", kMostBufferBytes, " bytes, found ",
                 b->name, " of ", bytes));
    }
    const auto storage = spv::StorageClass::StorageBuffer;
    const bool written = b->role == ir::Role::kOutput;
    const SpirvModule::BufferUse use = {written, read_back.contains(b.get())};
    const Id variable = module_.Buffer(expr_.MemoryTypeOf(b->dtype, storage), b->dtype.bytes(),
                                       bytes / b->dtype.bytes(), binding, use, b->name);
    expr_.SetPlace(b, {.variable = variable,
                       .storage = storage,
                       .constant = !written,
                       .binding = binding++,
                       .use = use});
  }
  return absl::OkStatus();
}

// A size is a push constant, unless the pipeline is for this size alone.
void KernelEmitter::DeclareSizes() {
  if (kernel_.size_params.empty()) return;
  const Id sizes = module_.PushConstants(static_cast<int>(kernel_.size_params.size()));
  const Id type = module_.Int(64);
  const Id pointer = module_.Pointer(spv::StorageClass::PushConstant, type);
  for (size_t i = 0; i < kernel_.size_params.size(); ++i) {
    const Id index = module_.IntConstant(32, static_cast<int64_t>(i));
    const Id at = code_.Op(spv::Op::OpAccessChain, pointer, {sizes, index});
    const Id pushed = code_.Load(type, at, sizes, /*constant=*/true);
    const Id known = module_.SpecialisationConstant(static_cast<uint32_t>(i));
    const Id is_known =
        code_.Op(spv::Op::OpINotEqual, module_.Bool(), {known, module_.IntConstant(64, 0)});
    expr_.SetVar(kernel_.size_params[i],
                 code_.Op(spv::Op::OpSelect, type, {is_known, known, pushed}));
  }
}

Id KernelEmitter::Axis(spv::BuiltIn which, int axis) {
  const Id word = module_.Int(32);
  Id& loaded = built_ins_[which];
  if (loaded == 0) {
    const Id vector = module_.Vector(word, 3);
    const Id variable = module_.BuiltIn(which, vector);
    loaded = code_.Load(vector, variable, variable, /*constant=*/true);
  }
  return code_.Component(word, loaded, static_cast<uint32_t>(axis));
}

// No loop: the launch has the iterations.
void KernelEmitter::BoundLoop(const Stmt& s) {
  const auto which =
      ir::IsBlockAxis(s->for_kind) ? spv::BuiltIn::WorkgroupId : spv::BuiltIn::LocalInvocationId;
  Id id = Axis(which, ir::AxisOf(s->for_kind));
  if (expr_.BitsOf(s->var->dtype) == 64) id = code_.Op(spv::Op::OpUConvert, module_.Int(64), {id});
  expr_.SetVar(s->var, id);
  Statement(s->body);
}

void KernelEmitter::For(const Stmt& s) {
  expr_.SetRange(s->var, s->range);
  if (ir::IsBound(s->for_kind)) return BoundLoop(s);
  if (s->for_kind == ir::ForKind::kVectorized || s->for_kind == ir::ForKind::kUnrolled)
    return expr_.Fail(StrCat("the loop ", s->var->name, ", which should have been expanded"));
  const Id first = expr_.Lane(s->range.min, 0);
  const Expr end = ir::IsInt(s->range.min, 0) ? s->range.extent : s->range.min + s->range.extent;
  const int bits = expr_.BitsOf(s->var->dtype);
  if (unroll_ > 1 && IsInnermost(s)) return Unrolled(s, bits, first);
  const auto sum = sums_.find(s.get());
  if (sum != sums_.end() && IsShared(sum->second))
    return SubGroupSum(s, sum->second, bits, first, expr_.Lane(end, 0));
  code_.For(bits, first, expr_.Lane(end, 0), module_.IntConstant(bits, 1), [&](Id i) {
    expr_.SetVar(s->var, i);
    Statement(s->body);
  });
}

// The body several times in each iteration, and for what is left over behind the loop.
void KernelEmitter::Unrolled(const Stmt& s, int bits, Id first) {
  const Id type = module_.Int(bits);
  const auto plus = [&](Id base, int64_t offset) {
    return offset == 0 ? base
                       : code_.Op(spv::Op::OpIAdd, type, {base, module_.IntConstant(bits, offset)});
  };
  const auto bodies = [&](Id base, int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      expr_.SetVar(s->var, plus(base, k));
      Statement(s->body);
    }
  };
  const int64_t extent = *ir::AsInt(s->range.extent), rest = extent % unroll_;
  const Id end = plus(first, extent - rest);
  const Id step = module_.IntConstant(bits, unroll_);
  if (extent > rest) code_.For(bits, first, end, step, [&](Id i) { bodies(i, unroll_); });
  bodies(end, rest);
}

// Vulkan 1.1 puts together values of these types; others are a feature of their own.
bool KernelEmitter::IsShared(const codegen::SubGroupSum& sum) const {
  const ir::DType type = sum.value()->dtype;
  return type.is_float() ? type.bits >= 32 : expr_.BitsOf(type) == 32;
}

// The threads of a sub-group take the terms in turn. Each begins with the identity, and the device
// puts together what they have.
void KernelEmitter::SubGroupSum(const Stmt& s, const codegen::SubGroupSum& sum, int bits, Id first,
                                Id end) {
  const ir::DType dtype = sum.value()->dtype;
  const Id type = expr_.TypeOf(dtype), counter = module_.Int(bits);
  const ir::Var part = ir::MakeVar("part", dtype), whole = ir::MakeVar("whole", dtype);
  const auto as_counter = [&](Id word) {
    return bits == 32 ? word : code_.Op(spv::Op::OpUConvert, counter, {word});
  };
  const Id own = code_.Variable(type);
  code_.Store(own, expr_.Lane(ir::IdentityOf(sum.op(), dtype), 0), own);
  const Id lane = as_counter(code_.LaneInSubGroup()), lanes = as_counter(code_.LanesOfSubGroup());
  const Id begin = code_.Op(spv::Op::OpIAdd, counter, {first, lane});
  code_.For(bits, begin, end, lanes, [&](Id i) {
    expr_.SetVar(s->var, i);
    expr_.SetVar(part, code_.Load(type, own, own));
    code_.Store(own, expr_.Lane(ir::Binary(sum.op(), part, sum.value()), 0), own);
  });
  const Id all =
      code_.ReduceInSubGroup(GroupOpOf(sum.op(), dtype), type, code_.Load(type, own, own));
  expr_.SetVar(whole, all);
  const Expr value = sum.accumulator_first ? ir::Binary(sum.op(), sum.accumulator(), whole)
                                           : ir::Binary(sum.op(), whole, sum.accumulator());
  Statement(ir::MakeStore(sum.store->buffer, sum.store->indices, value));
}

int64_t KernelEmitter::ElementsOf(const ir::Buffer& b) {
  const auto bytes = ir::ConstantBytes(*b);
  if (!bytes.has_value()) expr_.Fail(StrCat("buffer ", b->name, " of symbolic size"));
  return std::max<int64_t>(bytes.value_or(0) / b->dtype.bytes(), 1);
}

// A private buffer whose indices are constant is a variable for each element, which every driver
// keeps in a register.
void KernelEmitter::Alloc(const Stmt& s) {
  const ir::Buffer& b = s->buffer;
  Place place;
  const Id element = expr_.TypeOf(b->dtype);
  if (b->scope == ir::Scope::kShared) {
    place.storage = spv::StorageClass::Workgroup;
    place.variable = module_.Global(place.storage, module_.Array(element, ElementsOf(b)), b->name);
  } else if (b->scope == ir::Scope::kLocal) {
    const auto plan = codegen::PlanSlots(b, s->body, /*outlined_loops=*/false);
    if (plan.promotable) {
      for (const auto& [index, slot] : plan.elements)
        place.elements[index] = code_.Variable(element);
    }
    if (place.elements.empty())
      place.variable = code_.Variable(module_.Array(element, ElementsOf(b)));
  } else {
    return expr_.Fail(StrCat("a buffer of its own in scope of ", b->name));
  }
  expr_.SetPlace(b, std::move(place));
  Statement(s->body);
}

// All values before the first store.
void KernelEmitter::Store(const Stmt& s) {
  const int lanes = s->value->dtype.lanes;
  Words values, masks;
  for (int i = 0; i < lanes; ++i) {
    values.push_back(expr_.Lane(s->value, i));
    if (s->mask != nullptr) masks.push_back(expr_.Lane(s->mask, i));
  }
  const auto store = [&](int lane) {
    expr_.Store(s->buffer, s->indices[0], lane, values[static_cast<size_t>(lane)]);
  };
  const auto store_all = [&] {
    if (expr_.StoreRun(s->buffer, s->indices[0], values)) return;
    for (int i = 0; i < lanes; ++i) store(i);
  };
  if (masks.empty()) return store_all();
  const bool same = std::all_of(masks.begin(), masks.end(), [&](Id m) { return m == masks[0]; });
  if (same && !expr_.StoresWithoutBranch(s->buffer)) return code_.If(masks[0], store_all);
  for (int i = 0; i < lanes;) {
    const Id mask = masks[static_cast<size_t>(i)];
    int end = i + 1;  // of the lanes behind one condition
    while (end < lanes && masks[static_cast<size_t>(end)] == mask) ++end;
    if (expr_.StoresWithoutBranch(s->buffer)) {
      for (; i < end; ++i)
        expr_.StoreIf(s->buffer, s->indices[0], i, values[static_cast<size_t>(i)], mask);
    } else {
      code_.If(mask, [&] {
        for (int lane = i; lane < end; ++lane) store(lane);
      });
    }
    i = end;
  }
}

void KernelEmitter::Statement(const Stmt& s) {
  switch (s->kind) {
    case StmtKind::kFor:
      return For(s);
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) Statement(child);
      return;
    case StmtKind::kStore:
      return Store(s);
    case StmtKind::kIf: {
      SpirvCode::Body otherwise;
      if (s->else_body != nullptr) otherwise = [&] { Statement(s->else_body); };
      return code_.If(expr_.Lane(s->condition, 0), [&] { Statement(s->body); }, otherwise);
    }
    case StmtKind::kLet:
      expr_.SetVar(s->var, expr_.Lane(s->value, 0));
      expr_.SetValue(s->var, s->value);
      return Statement(s->body);
    case StmtKind::kAlloc:
      return Alloc(s);
    case StmtKind::kEvaluate:  // prefetches only: a hint
      return;
    case StmtKind::kAsync:
      return Statement(s->body);
    case StmtKind::kSync:  // no store is in flight, so commit and wait say nothing
      if (s->sync == ir::SyncKind::kBarrier) code_.Barrier(global_barriers_);
      return;
    default:
      return expr_.Fail("a statement that should have been lowered");
  }
}

std::vector<std::string> KernelEmitter::Features() const {
  std::vector<std::string> features;
#define TW_FEATURE(feature, capability) \
  if (module_.Has(spv::Capability::capability)) features.emplace_back(#feature);
  TW_SPIRV_FEATURES(TW_FEATURE)
#undef TW_FEATURE
  std::sort(features.begin(), features.end());
  return features;
}

absl::StatusOr<KernelModule> KernelEmitter::Emit() {
  if (kernel_.stage != ir::Stage::kFlat) {
    return support::FailedPrecondition(
        "codegen.vulkan.not_flat",
        StrCat("expected a function of stage flat, found ", kernel_.name));
  }
  TW_TRY(DeclareBuffers());
  DeclareSizes();
  Statement(kernel_.body);
  const auto group = codegen::GroupOf(kernel_);
  if (!group.has_value()) expr_.Fail("a group of symbolic size");
  if (!expr_.error().empty()) {
    return support::Unimplemented(
        "codegen.vulkan.unsupported",
        StrCat("expected what SPIR-V has, found ", expr_.error(), " in ", kernel_.name));
  }
  const Id main = module_.NewId(), none = module_.Void();
  module_.AddFunction(code_.Finish(main, module_.FunctionType(none, {}), none, 0));
  const Words size(group->begin(), group->end());
  return KernelModule{module_.Finish(main, kernel_.name, size), LoopCost(kernel_.body, unroll_),
                      Features()};
}

}  // namespace

SpirvOptions SpirvOptions::Of(const target::Machine& machine) {
  return {.sub_groups = machine.launch.sub_groups,
          .dot_products = machine.Has("shaderIntegerDotProduct")};
}

absl::StatusOr<KernelModule> EmitKernel(const ir::Function& kernel, const SpirvOptions& options) {
  return KernelEmitter(kernel, options).Emit();
}

}  // namespace tilewright::vulkan
