// The instruction set as values: instructions and micro-ops with named fields, their text, and an
// Isa, which encodes them for one hardware configuration in 128 and 32 bits. Everything is made
// from isa.def. Value types and pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vta/isa/config.h"

namespace tilewright::vta {

inline constexpr int kOpcodeBits = 3;
inline constexpr int kHalfBits = 64;  // an instruction has two halves, and no field is in both
inline constexpr int kUopBits = 32;

enum class Opcode : uint8_t {
#define TW_VTA_OPCODE(Name, text, value, Format, what) k##Name = value,
#include "vta/isa/isa.def"
};
enum class Memory : uint8_t {
#define TW_VTA_MEMORY(Name, text, value, element_bytes, elements, what) k##Name = value,
#include "vta/isa/isa.def"
};
enum class AluOp : uint8_t {
#define TW_VTA_ALU_OP(Name, text, value, what) k##Name = value,
#include "vta/isa/isa.def"
};
// Addresses of the control registers, in bytes, and bits of the register status.
enum class Register : uint8_t {
#define TW_VTA_REGISTER(Name, text, address, what) k##Name = address,
#include "vta/isa/isa.def"
};
enum class Status : uint8_t {
#define TW_VTA_STATUS(Name, text, bit, what) k##Name = bit,
#include "vta/isa/isa.def"
};
inline constexpr uint32_t kControlStart = 1, kControlStop = 2;
// The most that requantise shifts by: a product of two 32-bit numbers and half of the last bit that
// is kept are less than 2^63.
inline constexpr int64_t kMaxRequantiseShift = 62;
inline constexpr int64_t kAluOps = []() {
  int64_t count = 0;
#define TW_VTA_ALU_OP(Name, text, value, what) ++count;
#include "vta/isa/isa.def"
  return count;
}();
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
  std::string_view what;
};

// Fields by name; those of other formats than the opcode's are 0.
struct Instruction {
  Opcode op = Opcode::kFinish;
#define TW_VTA_FIELD(format, name, half, width, what) int64_t name = 0;
#include "vta/isa/isa.def"

  bool operator==(const Instruction&) const = default;
};

struct MicroOp {
#define TW_VTA_UOP_FIELD(name, width, what) int64_t name = 0;
#include "vta/isa/isa.def"
  bool operator==(const MicroOp&) const = default;
};

struct Word128 {
  uint64_t low = 0, high = 0;
  bool operator==(const Word128&) const = default;
};

// A row of isa.def with its place in one configuration. Bits 64 and up are those of the high half.
struct FieldInfo {
  Format format;
  std::string_view name;
  int lsb, width;
  bool is_signed;
  int64_t Instruction::* member;
  std::string_view what;
};
struct UopFieldInfo {
  std::string_view name;
  int lsb, width;
  int64_t MicroOp::* member;
  std::string_view what;
};

// The instruction set of one configuration.
class Isa {
 public:
  // vta.config.value | vta.config.bits: as CheckConfig.
  static absl::StatusOr<Isa> Make(const Config& config);
  // vta.config.bits: fields that do not fit, or that cannot name every element of a memory.
  static absl::Status CheckBits(const Config& config);

  const Config& config() const { return config_; }
  std::span<const MemoryInfo> Memories() const { return memories_; }
  const MemoryInfo& InfoOf(Memory memory) const;
  std::span<const FieldInfo> Fields() const { return fields_; }
  std::span<const UopFieldInfo> UopFields() const { return uop_fields_; }

  // vta.isa.field: a value that does not fit its bits, or a field of another format that is not 0.
  absl::StatusOr<Word128> Encode(const Instruction& instruction) const;
  // The same for a stream; the error says which instruction.
  absl::StatusOr<std::vector<Word128>> Encode(std::span<const Instruction> stream) const;
  // vta.isa.opcode | vta.isa.memory | vta.isa.operation: bits that mean nothing. Bits that no field
  // of the format covers are ignored.
  absl::StatusOr<Instruction> Decode(const Word128& word) const;
  absl::StatusOr<uint32_t> EncodeUop(const MicroOp& uop) const;
  MicroOp DecodeUop(uint32_t word) const;

 private:
  explicit Isa(const Config& config);

  Config config_;
  std::vector<MemoryInfo> memories_;
  std::vector<FieldInfo> fields_;
  std::vector<UopFieldInfo> uop_fields_;
};

// One line: the opcode, the fields that are not 0, then the dependence flags.
//   load memory=inp sram_base=0 dram_base=16 y_size=1 x_size=4 x_stride=4 | pop_next push_next
std::string Disassemble(const Instruction& instruction);
std::string_view OpcodeText(Opcode op);
std::string_view MemoryText(Memory memory);
Format FormatOf(Opcode op);
// Whether instructions of an opcode's format have a field of `field`.
bool HasFields(Format format, Format field);

// The module whose queue takes an instruction.
Module ModuleOf(const Instruction& instruction);
std::string_view ModuleText(Module module);

}  // namespace tilewright::vta
