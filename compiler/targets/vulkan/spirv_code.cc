#include "compiler/targets/vulkan/spirv_code.h"

#include <algorithm>

namespace tilewright::vulkan {
namespace {

uint32_t CodeOf(auto value) { return static_cast<uint32_t>(value); }

bool Rounds(spv::Op op) {
  return op == spv::Op::OpFAdd || op == spv::Op::OpFSub || op == spv::Op::OpFMul;
}

}  // namespace

SpirvCode::SpirvCode(SpirvModule* module) : module_(*module), entry_(module_.NewId()) {
  Open(entry_);
}

void SpirvCode::Open(Id label) { regions_.push_back({{}, label, {}}); }

SpirvCode::Region SpirvCode::Close() {
  Region region = std::move(regions_.back());
  regions_.pop_back();
  for (const Words& key : region.keys) computed_.erase(key);
  return region;
}

void SpirvCode::Append(const Region& region) {
  Words& words = regions_.back().words;
  words.insert(words.end(), region.words.begin(), region.words.end());
}

void SpirvCode::AppendLoop(Id header, Id merge) {
  const Region loop = Close();
  Branch(header);
  Append(loop);
  StartBlock(merge);
  ++epoch_;
}

void SpirvCode::StartBlock(Id label) {
  Add(spv::Op::OpLabel, {label});
  regions_.back().label = label;
}

size_t SpirvCode::DepthOf(Id id) const {
  const auto found = depths_.find(id);
  return found == depths_.end() ? 0 : found->second;
}

void SpirvCode::Compute(const Words& key, Id id, size_t depth) {
  computed_[key] = id;
  regions_[depth].keys.push_back(key);
  if (depth > 0) depths_[id] = depth;
}

// `before`: literals and ids of the module in front of the operands.
Id SpirvCode::Placed(spv::Op op, Id type, const Words& before, const Words& operands) {
  Words key = {CodeOf(op), type};
  key.insert(key.end(), before.begin(), before.end());
  key.insert(key.end(), operands.begin(), operands.end());
  if (const auto found = computed_.find(key); found != computed_.end()) return found->second;
  size_t depth = 0;
  for (Id operand : operands) depth = std::max(depth, DepthOf(operand));
  const Id id = module_.NewId();
  Words all = {type, id};
  all.insert(all.end(), key.begin() + 2, key.end());
  AddInstruction(&regions_[depth].words, op, all);
  if (Rounds(op)) module_.Decorate(id, spv::Decoration::NoContraction);
  Compute(key, id, depth);
  return id;
}

Id SpirvCode::Op(spv::Op op, Id type, const Words& operands) {
  return Placed(op, type, {}, operands);
}

Id SpirvCode::Math(GLSLstd450 function, Id type, const Words& operands) {
  return Placed(spv::Op::OpExtInst, type, {module_.MathSet(), CodeOf(function)}, operands);
}

Id SpirvCode::Call(Id function, Id type, const Words& operands) {
  return Placed(spv::Op::OpFunctionCall, type, {function}, operands);
}

Id SpirvCode::Component(Id type, Id vector, uint32_t index) {
  const Words key = {CodeOf(spv::Op::OpCompositeExtract), type, vector, index};
  if (const auto found = computed_.find(key); found != computed_.end()) return found->second;
  const size_t depth = DepthOf(vector);
  const Id id = module_.NewId();
  AddInstruction(&regions_[depth].words, spv::Op::OpCompositeExtract, {type, id, vector, index});
  Compute(key, id, depth);
  return id;
}

Id SpirvCode::Parameter(Id type) {
  const Id id = module_.NewId();
  AddInstruction(&parameters_, spv::Op::OpFunctionParameter, {type, id});
  return id;
}

Id SpirvCode::Variable(Id type) {
  const Id id = module_.NewId();
  AddInstruction(&variables_, spv::Op::OpVariable,
                 {module_.Pointer(spv::StorageClass::Function, type), id,
                  CodeOf(spv::StorageClass::Function)});
  return id;
}

// A load is where it is asked for: that may be behind a condition or a barrier.
Id SpirvCode::Load(Id type, Id pointer, Id root, bool constant) {
  Words key = {CodeOf(spv::Op::OpLoad), type, pointer};
  if (!constant) key.insert(key.end(), {epoch_, epochs_[root]});
  if (const auto found = computed_.find(key); found != computed_.end()) return found->second;
  const Id id = module_.NewId();
  Add(spv::Op::OpLoad, {type, id, pointer});
  Compute(key, id, regions_.size() - 1);
  return id;
}

void SpirvCode::Store(Id pointer, Id value, Id root) {
  ++epochs_[root];
  Add(spv::Op::OpStore, {pointer, value});
}

Id SpirvCode::Scope(spv::Scope scope) { return module_.IntConstant(32, CodeOf(scope)); }

void SpirvCode::Barrier(bool global) {
  uint32_t semantics = CodeOf(spv::MemorySemanticsMask::AcquireRelease) |
                       CodeOf(spv::MemorySemanticsMask::WorkgroupMemory);
  if (global) semantics |= CodeOf(spv::MemorySemanticsMask::UniformMemory);
  Add(spv::Op::OpControlBarrier, {Scope(spv::Scope::Workgroup), Scope(spv::Scope::Workgroup),
                                  module_.IntConstant(32, semantics)});
  ++epoch_;
}

// All threads of a group are in the outermost region, where this is placed once.
Id SpirvCode::CountInSubGroup(spv::GroupOperation which) {
  module_.AddCapability(spv::Capability::GroupNonUniformArithmetic);
  return Placed(spv::Op::OpGroupNonUniformIAdd, module_.Int(32),
                {Scope(spv::Scope::Subgroup), CodeOf(which)}, {module_.IntConstant(32, 1)});
}

Id SpirvCode::LaneInSubGroup() { return CountInSubGroup(spv::GroupOperation::ExclusiveScan); }

Id SpirvCode::LanesOfSubGroup() { return CountInSubGroup(spv::GroupOperation::Reduce); }

// Stays where it is asked for: elsewhere other threads may take part.
Id SpirvCode::ReduceInSubGroup(spv::Op op, Id type, Id value) {
  module_.AddCapability(spv::Capability::GroupNonUniformArithmetic);
  const Id id = module_.NewId();
  Add(op, {type, id, Scope(spv::Scope::Subgroup), CodeOf(spv::GroupOperation::Reduce), value});
  depths_[id] = regions_.size() - 1;
  return id;
}

void SpirvCode::If(Id condition, const Body& then_body, const Body& else_body) {
  const Id then_label = module_.NewId(), merge = module_.NewId();
  const Id else_label = else_body == nullptr ? merge : module_.NewId();
  std::vector<Region> branches;
  for (const auto& [label, body] : {std::pair(then_label, &then_body), {else_label, &else_body}}) {
    if (*body == nullptr) continue;
    Open(label);
    StartBlock(label);
    (*body)();
    Branch(merge);
    branches.push_back(Close());
  }
  Add(spv::Op::OpSelectionMerge, {merge, CodeOf(spv::SelectionControlMask::MaskNone)});
  Add(spv::Op::OpBranchConditional, {condition, then_label, else_label});
  for (const Region& branch : branches) Append(branch);
  StartBlock(merge);
}

void SpirvCode::For(int bits, Id first, Id end, Id step, const std::function<void(Id)>& body) {
  const Id type = module_.Int(bits);
  const Id header = module_.NewId(), inner = module_.NewId(), next = module_.NewId(),
           merge = module_.NewId(), i = module_.NewId(), next_i = module_.NewId(),
           goes_on = module_.NewId();
  const Id before = regions_.back().label;
  ++epoch_;
  Open(header);
  StartBlock(header);
  Add(spv::Op::OpPhi, {type, i, first, before, next_i, next});
  depths_[i] = regions_.size() - 1;
  Add(spv::Op::OpSLessThan, {module_.Bool(), goes_on, i, end});
  Add(spv::Op::OpLoopMerge, {merge, next, CodeOf(spv::LoopControlMask::MaskNone)});
  Add(spv::Op::OpBranchConditional, {goes_on, inner, merge});
  StartBlock(inner);
  body(i);
  Branch(next);
  StartBlock(next);
  Add(spv::Op::OpIAdd, {type, next_i, i, step});
  Branch(header);
  AppendLoop(header, merge);
}

void SpirvCode::While(const std::function<Id()>& condition, const Body& body) {
  const Id header = module_.NewId(), test = module_.NewId(), inner = module_.NewId(),
           next = module_.NewId(), merge = module_.NewId();
  ++epoch_;
  Open(header);
  StartBlock(header);
  Add(spv::Op::OpLoopMerge, {merge, next, CodeOf(spv::LoopControlMask::MaskNone)});
  Branch(test);
  StartBlock(test);
  const Id goes_on = condition();
  Add(spv::Op::OpBranchConditional, {goes_on, inner, merge});
  StartBlock(inner);
  body();
  Branch(next);
  StartBlock(next);
  Branch(header);
  AppendLoop(header, merge);
}

Words SpirvCode::Finish(Id function, Id type, Id result_type, Id result) {
  Words words;
  AddInstruction(&words, spv::Op::OpFunction,
                 {result_type, function, CodeOf(spv::FunctionControlMask::MaskNone), type});
  words.insert(words.end(), parameters_.begin(), parameters_.end());
  AddInstruction(&words, spv::Op::OpLabel, {entry_});
  words.insert(words.end(), variables_.begin(), variables_.end());
  if (result == 0) {
    Add(spv::Op::OpReturn, {});
  } else {
    Add(spv::Op::OpReturnValue, {result});
  }
  const Region body = Close();
  words.insert(words.end(), body.words.begin(), body.words.end());
  AddInstruction(&words, spv::Op::OpFunctionEnd, {});
  return words;
}

}  // namespace tilewright::vulkan
