// The instruction set as values: instructions and micro-ops with named fields, their encoding in
// 128 and 32 bits, and their text. Everything is made from isa.def. Value types and pure functions;
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tilewright::vta {

inline constexpr int kBlock = 16;  // lanes of an element: inputs, outputs and accumulators

enum class Opcode : uint8_t {
#define TW_VTA_OPCODE(Name, text, value, Format) k##Name = value,
#include "vta/isa/isa.def"
};
enum class Memory : uint8_t {
#define TW_VTA_MEMORY(Name, text, value, element_bytes, elements) k##Name = value,
#include "vta/isa/isa.def"
};
enum class AluOp : uint8_t {
#define TW_VTA_ALU_OP(Name, text, value) k##Name = value,
#include "vta/isa/isa.def"
};
// Which instructions have a field: all, load and store, gemm and alu, one of them.
enum class Format : uint8_t { Common, Memory, Loops, Gemm, Alu, Finish };

// The modules run side by side, each its own instructions in order.
enum class Module : uint8_t { kLoad, kCompute, kStore };
inline constexpr int kModules = 3;

struct MemoryInfo {
  Memory memory;
  std::string_view text;
  int64_t element_bytes;
  int64_t elements;
};
std::span<const MemoryInfo> Memories();
const MemoryInfo& InfoOf(Memory memory);

// A row of isa.def.
struct FieldInfo {
  Format format;
  std::string_view name;
  int lsb, width;
  bool is_signed;
};
std::span<const FieldInfo> Fields();

// Fields by name; those of other formats than the opcode's are 0.
struct Instruction {
  Opcode op = Opcode::kFinish;
#define TW_VTA_FIELD(format, name, lsb, width) int64_t name = 0;
#include "vta/isa/isa.def"

  bool operator==(const Instruction&) const = default;
};

struct MicroOp {
#define TW_VTA_UOP_FIELD(name, lsb, width) int64_t name = 0;
#include "vta/isa/isa.def"
  bool operator==(const MicroOp&) const = default;
};

struct Word128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Word128&) const = default;
};

// vta.isa.field: a value that does not fit its bits, or a field of another format that is not 0.
absl::StatusOr<Word128> Encode(const Instruction& instruction);
// vta.isa.opcode | vta.isa.memory | vta.isa.operation: bits that mean nothing. Bits that no field
// of the format covers are ignored.
absl::StatusOr<Instruction> Decode(const Word128& word);
absl::StatusOr<uint32_t> EncodeUop(const MicroOp& uop);
MicroOp DecodeUop(uint32_t word);

// One line: the opcode, the fields that are not 0, then the dependence flags.
//   load memory=inp sram_base=0 dram_base=16 y_size=1 x_size=4 x_stride=4 | pop_next push_next
std::string Disassemble(const Instruction& instruction);
std::string_view OpcodeText(Opcode op);
Format FormatOf(Opcode op);

// The module whose queue takes an instruction.
Module ModuleOf(const Instruction& instruction);
std::string_view ModuleText(Module module);

}  // namespace tilewright::vta
