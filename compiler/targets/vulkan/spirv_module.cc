#include "compiler/targets/vulkan/spirv_module.h"

#include <bit>
#include <cstring>

#include "compiler/ir/numeric.h"

namespace tilewright::vulkan {
namespace {

constexpr uint32_t kVersion = 0x00010300;

uint32_t Word(auto value) { return static_cast<uint32_t>(value); }

// Words of the operand types "LiteralInteger" and "LiteralFloat".
Words Literal(uint64_t value, int bits) {
  Words words = {Word(value)};
  if (bits == 64) words.push_back(Word(value >> 32));
  return words;
}

}  // namespace

void AddInstruction(Words* words, spv::Op op, const Words& operands) {
  words->push_back(Word((operands.size() + 1) << 16) | Word(op));
  words->insert(words->end(), operands.begin(), operands.end());
}

void AddString(Words* words, std::string_view text) {
  const size_t first = words->size();
  words->resize(first + text.size() / 4 + 1, 0);
  std::memcpy(words->data() + first, text.data(), text.size());
}

SpirvModule::SpirvModule() : math_set_(NewId()) { AddCapability(spv::Capability::Shader); }

Id SpirvModule::Declared(spv::Op op, const Words& operands, uint32_t kind) {
  Words key = {Word(op), kind};
  key.insert(key.end(), operands.begin(), operands.end());
  const auto [found, is_new] = declared_.try_emplace(std::move(key), 0);
  if (!is_new) return found->second;
  found->second = NewId();
  Words all = {found->second};
  all.insert(all.end(), operands.begin(), operands.end());
  AddInstruction(&declarations_, op, all);
  return found->second;
}

Id SpirvModule::Int(int bits) {
  if (bits == 8) AddCapability(spv::Capability::Int8);
  if (bits == 16) AddCapability(spv::Capability::Int16);
  if (bits == 64) AddCapability(spv::Capability::Int64);
  return Declared(spv::Op::OpTypeInt, {Word(bits), 0});
}

Id SpirvModule::Float(int bits) {
  if (bits == 16) AddCapability(spv::Capability::Float16);
  if (bits == 64) AddCapability(spv::Capability::Float64);
  return Declared(spv::Op::OpTypeFloat, {Word(bits)});
}

Id SpirvModule::Array(Id element, int64_t count) {
  return Declared(spv::Op::OpTypeArray, {element, IntConstant(32, count)});
}

Id SpirvModule::FunctionType(Id result, const std::vector<Id>& params) {
  Words operands = {result};
  operands.insert(operands.end(), params.begin(), params.end());
  return Declared(spv::Op::OpTypeFunction, operands);
}

Id SpirvModule::ConstantOf(Id type, const Words& literals) {
  Words key = {Word(spv::Op::OpConstant), 0, type};
  key.insert(key.end(), literals.begin(), literals.end());
  const auto [found, is_new] = declared_.try_emplace(std::move(key), 0);
  if (!is_new) return found->second;
  found->second = NewId();
  Words all = {type, found->second};
  all.insert(all.end(), literals.begin(), literals.end());
  AddInstruction(&declarations_, spv::Op::OpConstant, all);
  return found->second;
}

// The bits beyond a narrow type's width are zeros: the types have no sign.
Id SpirvModule::IntConstant(int bits, int64_t value) {
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  return ConstantOf(Int(bits), Literal(static_cast<uint64_t>(value) & mask, bits));
}

Id SpirvModule::FloatConstant(int bits, double value) {
  uint64_t literal = std::bit_cast<uint64_t>(value);
  if (bits == 32) literal = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (bits == 16) literal = ir::FloatToHalf(value);
  return ConstantOf(Float(bits), Literal(literal, bits));
}

Id SpirvModule::BoolConstant(bool value) {
  const spv::Op op = value ? spv::Op::OpConstantTrue : spv::Op::OpConstantFalse;
  const auto [found, is_new] = declared_.try_emplace({Word(op), 0}, 0);
  if (!is_new) return found->second;
  const Id type = Bool();
  found->second = NewId();
  AddInstruction(&declarations_, op, {type, found->second});
  return found->second;
}

Id SpirvModule::SpecialisationConstant(uint32_t number) {
  const Id type = Int(64), id = NewId();
  AddInstruction(&declarations_, spv::Op::OpSpecConstant, {type, id, 0, 0});
  Decorate(id, spv::Decoration::SpecId, {number});
  return id;
}

void SpirvModule::Name(Id id, std::string_view name) {
  Words operands = {id};
  AddString(&operands, name);
  AddInstruction(&names_, spv::Op::OpName, operands);
}

Id SpirvModule::Global(spv::StorageClass storage, Id type, std::string_view name) {
  const Id pointer = Pointer(storage, type);
  const Id id = NewId();
  AddInstruction(&declarations_, spv::Op::OpVariable, {pointer, id, Word(storage)});
  Name(id, name);
  return id;
}

// A structure of the interface, laid out one member behind the other. Each use has its own: its
// decorations belong to it.
Id SpirvModule::Block(const std::vector<Id>& members, uint32_t member_bytes,
                      const Words& decorations) {
  const Id id = NewId();
  Words operands = {id};
  operands.insert(operands.end(), members.begin(), members.end());
  AddInstruction(&declarations_, spv::Op::OpTypeStruct, operands);
  Decorate(id, spv::Decoration::Block);
  for (uint32_t i = 0; i < Word(members.size()); ++i) {
    AddInstruction(&decorations_, spv::Op::OpMemberDecorate,
                   {id, i, Word(spv::Decoration::Offset), i * member_bytes});
    for (uint32_t decoration : decorations)
      AddInstruction(&decorations_, spv::Op::OpMemberDecorate, {id, i, decoration});
  }
  return id;
}

Id SpirvModule::Buffer(Id element, int bytes, int64_t count, uint32_t binding, BufferUse use,
                       std::string_view name) {
  // Laid out arrays are types of their own: `kind` keeps them apart from arrays of variables.
  constexpr uint32_t kLaidOut = 1;
  const Id array =
      count == 0 ? Declared(spv::Op::OpTypeRuntimeArray, {element}, kLaidOut)
                 : Declared(spv::Op::OpTypeArray, {element, IntConstant(32, count)}, kLaidOut);
  if (laid_out_.insert(array).second) Decorate(array, spv::Decoration::ArrayStride, {Word(bytes)});
  if (bytes == 1) AddCapability(spv::Capability::StorageBuffer8BitAccess);
  if (bytes == 2) AddCapability(spv::Capability::StorageBuffer16BitAccess);
  Words decorations;
  if (!use.written) decorations.push_back(Word(spv::Decoration::NonWritable));
  if (use.shared_by_threads) decorations.push_back(Word(spv::Decoration::Coherent));
  const Id variable =
      Global(spv::StorageClass::StorageBuffer, Block({array}, 0, decorations), name);
  Decorate(variable, spv::Decoration::DescriptorSet, {0});
  Decorate(variable, spv::Decoration::Binding, {binding});
  return variable;
}

Id SpirvModule::PushConstants(int count) {
  constexpr uint32_t kBytes = 8;
  const std::vector<Id> members(static_cast<size_t>(count), Int(64));
  return Global(spv::StorageClass::PushConstant, Block(members, kBytes, {}), "sizes");
}

Id SpirvModule::BuiltIn(spv::BuiltIn which, Id type) {
  const Id id = Global(spv::StorageClass::Input, type,
                       which == spv::BuiltIn::WorkgroupId ? "group" : "thread");
  Decorate(id, spv::Decoration::BuiltIn, {Word(which)});
  inputs_.push_back(id);
  return id;
}

void SpirvModule::Decorate(Id id, spv::Decoration decoration, const Words& literals) {
  Words operands = {id, Word(decoration)};
  operands.insert(operands.end(), literals.begin(), literals.end());
  AddInstruction(&decorations_, spv::Op::OpDecorate, operands);
}

void SpirvModule::AddCapability(spv::Capability capability) { capabilities_.insert(capability); }

Words SpirvModule::Finish(Id main, std::string_view name, const std::vector<uint32_t>& group) {
  Words words = {spv::MagicNumber, kVersion, 0, next_id_, 0};
  for (spv::Capability capability : capabilities_)
    AddInstruction(&words, spv::Op::OpCapability, {Word(capability)});
  const auto extension = [&words](std::string_view text) {
    Words operands;
    AddString(&operands, text);
    AddInstruction(&words, spv::Op::OpExtension, operands);
  };
  if (Has(spv::Capability::StorageBuffer8BitAccess)) extension("SPV_KHR_8bit_storage");
  if (Has(spv::Capability::RoundingModeRTE)) extension("SPV_KHR_float_controls");
  if (Has(spv::Capability::DotProduct)) extension("SPV_KHR_integer_dot_product");
  Words import = {math_set_};
  AddString(&import, "GLSL.std.450");
  AddInstruction(&words, spv::Op::OpExtInstImport, import);
  AddInstruction(&words, spv::Op::OpMemoryModel,
                 {Word(spv::AddressingModel::Logical), Word(spv::MemoryModel::GLSL450)});
  Words entry = {Word(spv::ExecutionModel::GLCompute), main};
  AddString(&entry, name);
  entry.insert(entry.end(), inputs_.begin(), inputs_.end());
  AddInstruction(&words, spv::Op::OpEntryPoint, entry);
  Words size = {main, Word(spv::ExecutionMode::LocalSize)};
  size.insert(size.end(), group.begin(), group.end());
  AddInstruction(&words, spv::Op::OpExecutionMode, size);
  if (Has(spv::Capability::RoundingModeRTE)) {
    AddInstruction(&words, spv::Op::OpExecutionMode,
                   {main, Word(spv::ExecutionMode::RoundingModeRTE), 16});
  }
  for (const Words* part : {&names_, &decorations_, &declarations_, &functions_})
    words.insert(words.end(), part->begin(), part->end());
  return words;
}

}  // namespace tilewright::vulkan
