// One SPIR-V module (version 1.3, for Vulkan 1.1) in its making: ids, types, constants, global
// variables, decorations, functions. Every type and constant is there once. Finish puts the parts
// in the order that the specification wants. One owner.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <spirv/unified1/spirv.hpp11>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::vulkan {

using Id = uint32_t;
using Words = std::vector<uint32_t>;

// Appends one instruction.
void AddInstruction(Words* words, spv::Op op, const Words& operands);
// Appends a literal string: its bytes, a zero, and zeros up to a whole word.
void AddString(Words* words, std::string_view text);

class SpirvModule {
 public:
  SpirvModule();

  Id NewId() { return next_id_++; }

  // Types. Integers have no sign: operations say how they read them. A type that is no part of the
  // base language brings its capability.
  Id Void() { return Declared(spv::Op::OpTypeVoid, {}); }
  Id Bool() { return Declared(spv::Op::OpTypeBool, {}); }
  Id Int(int bits);
  Id Float(int bits);
  Id Vector(Id element, uint32_t lanes) {
    return Declared(spv::Op::OpTypeVector, {element, lanes});
  }
  // An array without a layout, for variables of threads and groups.
  Id Array(Id element, int64_t count);
  Id Pointer(spv::StorageClass storage, Id type) {
    return Declared(spv::Op::OpTypePointer, {static_cast<uint32_t>(storage), type});
  }
  Id FunctionType(Id result, const std::vector<Id>& params);

  // Constants of an integer type of so many bits, a float type by its bits, a bool.
  Id IntConstant(int bits, int64_t value);
  Id FloatConstant(int bits, double value);
  Id BoolConstant(bool value);
  // An integer of 64 bits that a pipeline may give a value, 0 without: its constant `number`.
  Id SpecialisationConstant(uint32_t number);

  // A variable of the module. `type` is what it points to.
  Id Global(spv::StorageClass storage, Id type, std::string_view name);
  // A storage buffer of `count` elements of `bytes` bytes (count 0: of open size) at a binding.
  struct BufferUse {
    bool written = false;
    bool shared_by_threads = false;  // a thread reads what another thread of its group wrote
  };
  Id Buffer(Id element, int bytes, int64_t count, uint32_t binding, BufferUse use,
            std::string_view name);
  // The block of push constants: `count` integers of 64 bits.
  Id PushConstants(int count);
  Id BuiltIn(spv::BuiltIn which, Id type);

  void Decorate(Id id, spv::Decoration decoration, const Words& literals = {});
  void AddCapability(spv::Capability capability);
  bool Has(spv::Capability capability) const { return capabilities_.contains(capability); }
  // Conversions to 16-bit floats round to nearest even, whatever the device does by itself.
  void RoundHalvesToEven() { AddCapability(spv::Capability::RoundingModeRTE); }
  Id MathSet() const { return math_set_; }  // GLSL.std.450

  void AddFunction(Words words) { functions_.insert(functions_.end(), words.begin(), words.end()); }
  // Returns the whole module; `main` is its entry point.
  Words Finish(Id main, std::string_view name, const std::vector<uint32_t>& group);

 private:
  Id Declared(spv::Op op, const Words& operands, uint32_t kind = 0);
  Id ConstantOf(Id type, const Words& literals);
  Id Block(const std::vector<Id>& members, uint32_t member_bytes, const Words& decorations);
  void Name(Id id, std::string_view name);

  Id next_id_ = 1;
  Id math_set_;
  std::set<spv::Capability> capabilities_;
  std::map<Words, Id> declared_;
  std::set<Id> laid_out_;   // arrays with a stride
  std::vector<Id> inputs_;  // of the entry point
  Words names_, decorations_, declarations_, functions_;
};

}  // namespace tilewright::vulkan
