#include "vta/isa/isa.h"

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

struct FieldRow {
  FieldInfo info;
  int64_t Instruction::* member;
};

constexpr FieldRow kFields[] = {
#define TW_VTA_FIELD(format, name, lsb, width) \
  {{Format::format, #name, lsb, width, false}, &Instruction::name},
#define TW_VTA_SIGNED_FIELD(format, name, lsb, width) \
  {{Format::format, #name, lsb, width, true}, &Instruction::name},
#include "vta/isa/isa.def"
};

constexpr FieldInfo kFieldInfos[] = {
#define TW_VTA_FIELD(format, name, lsb, width) {Format::format, #name, lsb, width, false},
#define TW_VTA_SIGNED_FIELD(format, name, lsb, width) {Format::format, #name, lsb, width, true},
#include "vta/isa/isa.def"
};

constexpr MemoryInfo kMemories[] = {
#define TW_VTA_MEMORY(Name, text, value, element_bytes, elements) \
  {Memory::k##Name, text, element_bytes, elements},
#include "vta/isa/isa.def"
};

struct OpcodeRow {
  Opcode op;
  std::string_view text;
  Format format;
};
constexpr OpcodeRow kOpcodes[] = {
#define TW_VTA_OPCODE(Name, text, value, format) {Opcode::k##Name, text, Format::format},
#include "vta/isa/isa.def"
};

constexpr std::string_view kAluOps[] = {
#define TW_VTA_ALU_OP(Name, text, value) text,
#include "vta/isa/isa.def"
};

constexpr int kOpcodeBits = 3;

const OpcodeRow* FindOpcode(uint64_t value) {
  for (const OpcodeRow& row : kOpcodes) {
    if (static_cast<uint64_t>(row.op) == value) return &row;
  }
  return nullptr;
}

bool Fits(int64_t value, int width, bool is_signed) {
  if (!is_signed) return value >= 0 && value < (int64_t{1} << width);
  return value >= -(int64_t{1} << (width - 1)) && value < (int64_t{1} << (width - 1));
}

void PutBits(Word128* word, int lsb, int width, int64_t value) {
  uint64_t bits = static_cast<uint64_t>(value) & ((uint64_t{1} << width) - 1);
  // No field straddles the two halves (tested).
  (lsb < 64 ? word->low : word->high) |= bits << (lsb % 64);
}

int64_t GetBits(const Word128& word, int lsb, int width, bool is_signed) {
  uint64_t bits = (lsb < 64 ? word.low : word.high) >> (lsb % 64);
  bits &= (uint64_t{1} << width) - 1;
  if (is_signed && (bits >> (width - 1)) != 0) bits |= ~uint64_t{0} << width;
  return static_cast<int64_t>(bits);
}

bool BelongsTo(const FieldInfo& field, Format format) {
  bool loops = format == Format::Gemm || format == Format::Alu;
  return field.format == Format::Common || field.format == format ||
         (field.format == Format::Loops && loops);
}

}  // namespace

std::span<const MemoryInfo> Memories() { return kMemories; }
std::span<const FieldInfo> Fields() { return kFieldInfos; }

const MemoryInfo& InfoOf(Memory memory) {
  for (const MemoryInfo& row : kMemories) {
    if (row.memory == memory) return row;
  }
  TW_CHECK(false) << "no memory " << static_cast<int>(memory);
  return kMemories[0];
}

std::string_view OpcodeText(Opcode op) { return FindOpcode(static_cast<uint64_t>(op))->text; }
Format FormatOf(Opcode op) { return FindOpcode(static_cast<uint64_t>(op))->format; }

absl::StatusOr<Word128> Encode(const Instruction& instruction) {
  Format format = FormatOf(instruction.op);
  Word128 word;
  PutBits(&word, 0, kOpcodeBits, static_cast<int64_t>(instruction.op));
  for (const FieldRow& row : kFields) {
    int64_t value = instruction.*row.member;
    if (!BelongsTo(row.info, format)) continue;
    if (!Fits(value, row.info.width, row.info.is_signed)) {
      return support::InvalidArgument(
          "vta.isa.field",
          StrCat(OpcodeText(instruction.op), " ", row.info.name, ": expected ", row.info.width,
                 row.info.is_signed ? " signed" : "", " bits, found ", value));
    }
    PutBits(&word, row.info.lsb, row.info.width, value);
  }
  auto decoded = Decode(word);
  if (!decoded.ok()) return decoded.status();
  if (!(*decoded == instruction)) {
    return support::InvalidArgument(
        "vta.isa.field",
        StrCat("expected only fields of ", OpcodeText(instruction.op), ", found others set"));
  }
  return word;
}

absl::StatusOr<Instruction> Decode(const Word128& word) {
  uint64_t opcode = static_cast<uint64_t>(GetBits(word, 0, kOpcodeBits, false));
  const OpcodeRow* row = FindOpcode(opcode);
  if (row == nullptr) {
    return support::InvalidArgument("vta.isa.opcode",
                                    StrCat("expected a known opcode, found ", opcode));
  }
  Instruction instruction{.op = row->op};
  for (const FieldRow& field : kFields) {
    if (!BelongsTo(field.info, row->format)) continue;
    instruction.*field.member =
        GetBits(word, field.info.lsb, field.info.width, field.info.is_signed);
  }
  bool memory_known = false;
  for (const MemoryInfo& m : kMemories) {
    memory_known = memory_known || static_cast<int64_t>(m.memory) == instruction.memory;
  }
  if (!memory_known) {
    return support::InvalidArgument("vta.isa.memory",
                                    StrCat("expected a known memory, found ", instruction.memory));
  }
  if (instruction.operation >= static_cast<int64_t>(std::size(kAluOps))) {
    return support::InvalidArgument(
        "vta.isa.operation", StrCat("expected a known operation, found ", instruction.operation));
  }
  return instruction;
}

absl::StatusOr<uint32_t> EncodeUop(const MicroOp& uop) {
  uint32_t word = 0;
  std::string_view bad;
#define TW_VTA_UOP_FIELD(name, lsb, width)                       \
  if (!Fits(uop.name, width, false) && bad.empty()) bad = #name; \
  word |= static_cast<uint32_t>(uop.name) << lsb;
#include "vta/isa/isa.def"
  if (bad.empty()) return word;
  return support::InvalidArgument(
      "vta.isa.field", StrCat("micro-op: expected a value that fits ", bad, ", found dst=", uop.dst,
                              " src=", uop.src, " wgt=", uop.wgt));
}

MicroOp DecodeUop(uint32_t word) {
  MicroOp uop;
#define TW_VTA_UOP_FIELD(name, lsb, width) uop.name = (word >> lsb) & ((1u << width) - 1);
#include "vta/isa/isa.def"
  return uop;
}

std::string Disassemble(const Instruction& instruction) {
  Format format = FormatOf(instruction.op);
  std::string text(OpcodeText(instruction.op)), flags;
  for (const FieldRow& row : kFields) {
    if (!BelongsTo(row.info, format)) continue;
    int64_t value = instruction.*row.member;
    if (row.info.format == Format::Common) {
      if (value != 0) flags += StrCat(" ", row.info.name);
    } else if (row.info.name == "memory") {
      text += StrCat(" memory=", InfoOf(static_cast<Memory>(value)).text);
    } else if (row.info.name == "operation") {
      text += StrCat(" operation=", kAluOps[value]);
    } else if (value != 0) {
      text += StrCat(" ", row.info.name, "=", value);
    }
  }
  return flags.empty() ? text : text + " |" + flags;
}

Module ModuleOf(const Instruction& instruction) {
  if (instruction.op == Opcode::kStore) return Module::kStore;
  bool loads_operands = instruction.op == Opcode::kLoad &&
                        (instruction.memory == static_cast<int64_t>(Memory::kInp) ||
                         instruction.memory == static_cast<int64_t>(Memory::kWgt));
  return loads_operands ? Module::kLoad : Module::kCompute;
}

std::string_view ModuleText(Module module) {
  constexpr std::string_view kText[] = {"load", "compute", "store"};
  return kText[static_cast<int>(module)];
}

}  // namespace tilewright::vta
