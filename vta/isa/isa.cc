#include "vta/isa/isa.h"

#include <algorithm>
#include <array>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

using SizeOf = int64_t (*)(const Config&);

struct FieldRow {
  Format format;
  std::string_view name;
  int half;
  bool is_signed;
  SizeOf width;
  int64_t Instruction::* member;
  std::string_view what;
};
constexpr FieldRow kFields[] = {
#define TW_VTA_FIELD_ROW(format, name, half, is_signed, width, what)  \
  {Format::format,                                                    \
   #name,                                                             \
   half,                                                              \
   is_signed,                                                         \
   []([[maybe_unused]] const Config& c) -> int64_t { return width; }, \
   &Instruction::name,                                                \
   what},
#define TW_VTA_FIELD(format, name, half, width, what) \
  TW_VTA_FIELD_ROW(format, name, half, false, width, what)
#define TW_VTA_SIGNED_FIELD(format, name, half, width, what) \
  TW_VTA_FIELD_ROW(format, name, half, true, width, what)
#include "vta/isa/isa.def"
#undef TW_VTA_FIELD_ROW
};

struct UopRow {
  std::string_view name;
  SizeOf width;
  int64_t MicroOp::* member;
  std::string_view what;
};
constexpr UopRow kUopFields[] = {
#define TW_VTA_UOP_FIELD(name, width, what) \
  {#name, [](const Config& c) -> int64_t { return width; }, &MicroOp::name, what},
#include "vta/isa/isa.def"
};

struct MemoryRow {
  Memory memory;
  std::string_view text;
  SizeOf element_bytes, elements;
  std::string_view what;
};
constexpr MemoryRow kMemories[] = {
#define TW_VTA_MEMORY(Name, text, value, element_bytes, elements, what)       \
  {Memory::k##Name, text,                                                     \
   []([[maybe_unused]] const Config& c) -> int64_t { return element_bytes; }, \
   [](const Config& c) -> int64_t { return elements; }, what},
#include "vta/isa/isa.def"
};

struct OpcodeRow {
  Opcode op;
  std::string_view text;
  Format format;
};
constexpr OpcodeRow kOpcodes[] = {
#define TW_VTA_OPCODE(Name, text, value, format, what) {Opcode::k##Name, text, Format::format},
#include "vta/isa/isa.def"
};

constexpr std::string_view kAluOpTexts[] = {
#define TW_VTA_ALU_OP(Name, text, value, what) text,
#include "vta/isa/isa.def"
};

const OpcodeRow* FindOpcode(uint64_t value) {
  for (const OpcodeRow& row : kOpcodes) {
    if (static_cast<uint64_t>(row.op) == value) return &row;
  }
  return nullptr;
}

const MemoryRow* FindMemory(int64_t value) {
  for (const MemoryRow& row : kMemories) {
    if (static_cast<int64_t>(row.memory) == value) return &row;
  }
  return nullptr;
}

bool Fits(int64_t value, int width, bool is_signed) {
  if (!is_signed) return value >= 0 && value < (int64_t{1} << width);
  return value >= -(int64_t{1} << (width - 1)) && value < (int64_t{1} << (width - 1));
}

void PutBits(Word128* word, int lsb, int width, int64_t value) {
  const uint64_t bits = static_cast<uint64_t>(value) & ((uint64_t{1} << width) - 1);
  (lsb < kHalfBits ? word->low : word->high) |= bits << (lsb % kHalfBits);
}

int64_t GetBits(const Word128& word, int lsb, int width, bool is_signed) {
  uint64_t bits = (lsb < kHalfBits ? word.low : word.high) >> (lsb % kHalfBits);
  bits &= (uint64_t{1} << width) - 1;
  if (is_signed && (bits >> (width - 1)) != 0) bits |= ~uint64_t{0} << width;
  return static_cast<int64_t>(bits);
}

// The bits of one half that fields of a format take up to now, with those of the formats that its
// instructions have before.
class Cursor {
 public:
  // The first bit of a field, in its half.
  int Take(Format format, int half, int64_t width) {
    int64_t at = half == 0 ? kOpcodeBits : 0;
    for (Format before : {Format::Common, Format::Loops}) {
      if (before != format && HasFields(format, before)) at += Used(before, half);
    }
    int64_t& used = Used(format, half);
    at += used;
    used += width;
    return static_cast<int>(at);
  }

 private:
  int64_t& Used(Format format, int half) {
    return used_[static_cast<size_t>(format)][static_cast<size_t>(half)];
  }

  std::array<std::array<int64_t, 2>, 6> used_ = {};
};

}  // namespace

bool HasFields(Format format, Format field) {
  const bool loops = format == Format::Gemm || format == Format::Alu || format == Format::Loops;
  return field == Format::Common || field == format || (field == Format::Loops && loops);
}

Isa::Isa(const Config& config) : config_(config) {
  for (const MemoryRow& row : kMemories) {
    memories_.push_back(
        {row.memory, row.text, row.element_bytes(config), row.elements(config), row.what});
  }
  Cursor cursor;
  for (const FieldRow& row : kFields) {
    const auto width = static_cast<int>(row.width(config));
    const int lsb = row.half * kHalfBits + cursor.Take(row.format, row.half, width);
    fields_.push_back({row.format, row.name, lsb, width, row.is_signed, row.member, row.what});
  }
  int lsb = 0;
  for (const UopRow& row : kUopFields) {
    const auto width = static_cast<int>(row.width(config));
    uop_fields_.push_back({row.name, lsb, width, row.member, row.what});
    lsb += width;
  }
}

absl::StatusOr<Isa> Isa::Make(const Config& config) {
  TW_TRY(CheckConfig(config));
  return Isa(config);
}

absl::Status Isa::CheckBits(const Config& config) {
  Cursor cursor;
  for (const FieldRow& row : kFields) {
    const int64_t end = cursor.Take(row.format, row.half, row.width(config)) + row.width(config);
    if (end <= kHalfBits) continue;
    return support::InvalidArgument(
        "vta.config.bits", StrCat("expected fields that end within ", kHalfBits,
                                  " bits of their half, found ", row.name, " that ends at ", end));
  }
  int64_t uop_bits = 0;
  for (const UopRow& row : kUopFields) uop_bits += row.width(config);
  if (uop_bits > kUopBits)
    return support::InvalidArgument(
        "vta.config.bits",
        StrCat("expected at most ", kUopBits, " bits of a micro-op, found ", uop_bits));
  for (const MemoryRow& row : kMemories) {
    if (IndexBits(row.elements(config)) <= config.sram_bits) continue;
    return support::InvalidArgument(
        "vta.config.bits",
        StrCat("sram_bits: expected at least ", IndexBits(row.elements(config)),
               " for every element of ", row.text, ", found ", config.sram_bits));
  }
  return absl::OkStatus();
}

const MemoryInfo& Isa::InfoOf(Memory memory) const {
  const auto row = std::find_if(memories_.begin(), memories_.end(),
                                [&](const MemoryInfo& m) { return m.memory == memory; });
  TW_CHECK(row != memories_.end()) << "no memory " << static_cast<int>(memory);
  return *row;
}

absl::StatusOr<Word128> Isa::Encode(const Instruction& instruction) const {
  const Format format = FormatOf(instruction.op);
  Word128 word;
  PutBits(&word, 0, kOpcodeBits, static_cast<int64_t>(instruction.op));
  for (const FieldInfo& field : fields_) {
    const int64_t value = instruction.*field.member;
    if (!HasFields(format, field.format)) continue;
    if (!Fits(value, field.width, field.is_signed)) {
      return support::InvalidArgument(
          "vta.isa.field",
          StrCat(OpcodeText(instruction.op), " ", field.name, ": expected ", field.width,
                 field.is_signed ? " signed" : "", " bits, found ", value));
    }
    PutBits(&word, field.lsb, field.width, value);
  }
  TW_ASSIGN(const Instruction decoded, Decode(word));
  if (!(decoded == instruction)) {
    return support::InvalidArgument(
        "vta.isa.field",
        StrCat("expected only fields of ", OpcodeText(instruction.op), ", found others set"));
  }
  return word;
}

absl::StatusOr<std::vector<Word128>> Isa::Encode(std::span<const Instruction> stream) const {
  std::vector<Word128> words;
  for (size_t i = 0; i < stream.size(); ++i) {
    auto word = Encode(stream[i]);
    if (!word.ok()) return support::WithContext(word.status(), StrCat("instruction ", i));
    words.push_back(*word);
  }
  return words;
}

absl::StatusOr<Instruction> Isa::Decode(const Word128& word) const {
  const auto opcode = static_cast<uint64_t>(GetBits(word, 0, kOpcodeBits, false));
  const OpcodeRow* row = FindOpcode(opcode);
  if (row == nullptr) {
    return support::InvalidArgument("vta.isa.opcode",
                                    StrCat("expected a known opcode, found ", opcode));
  }
  Instruction instruction{.op = row->op};
  for (const FieldInfo& field : fields_) {
    if (!HasFields(row->format, field.format)) continue;
    instruction.*field.member = GetBits(word, field.lsb, field.width, field.is_signed);
  }
  if (FindMemory(instruction.memory) == nullptr) {
    return support::InvalidArgument("vta.isa.memory",
                                    StrCat("expected a known memory, found ", instruction.memory));
  }
  if (instruction.operation >= kAluOps) {
    return support::InvalidArgument(
        "vta.isa.operation", StrCat("expected a known operation, found ", instruction.operation));
  }
  return instruction;
}

absl::StatusOr<uint32_t> Isa::EncodeUop(const MicroOp& uop) const {
  uint32_t word = 0;
  for (const UopFieldInfo& field : uop_fields_) {
    const int64_t value = uop.*field.member;
    if (!Fits(value, field.width, false)) {
      return support::InvalidArgument(
          "vta.isa.field", StrCat("micro-op: expected a value that fits ", field.name,
                                  ", found dst=", uop.dst, " src=", uop.src, " wgt=", uop.wgt));
    }
    word |= static_cast<uint32_t>(value) << field.lsb;
  }
  return word;
}

MicroOp Isa::DecodeUop(uint32_t word) const {
  MicroOp uop;
  for (const UopFieldInfo& field : uop_fields_)
    uop.*field.member = (word >> field.lsb) & ((1u << field.width) - 1);
  return uop;
}

std::string Disassemble(const Instruction& instruction) {
  const Format format = FormatOf(instruction.op);
  std::string text(OpcodeText(instruction.op)), flags;
  for (const FieldRow& row : kFields) {
    if (!HasFields(format, row.format)) continue;
    const int64_t value = instruction.*row.member;
    if (row.format == Format::Common) {
      if (value != 0) flags += StrCat(" ", row.name);
    } else if (row.name == "memory") {
      text += StrCat(" memory=", MemoryText(static_cast<Memory>(value)));
    } else if (row.name == "operation") {
      text += StrCat(" operation=", kAluOpTexts[value]);
    } else if (value != 0) {
      text += StrCat(" ", row.name, "=", value);
    }
  }
  return flags.empty() ? text : text + " |" + flags;
}

std::string_view OpcodeText(Opcode op) { return FindOpcode(static_cast<uint64_t>(op))->text; }
Format FormatOf(Opcode op) { return FindOpcode(static_cast<uint64_t>(op))->format; }
std::string_view MemoryText(Memory memory) {
  return FindMemory(static_cast<int64_t>(memory))->text;
}

Module ModuleOf(const Instruction& instruction) {
  if (instruction.op == Opcode::kStore) return Module::kStore;
  const bool loads_operands = instruction.op == Opcode::kLoad &&
                              (instruction.memory == static_cast<int64_t>(Memory::kInp) ||
                               instruction.memory == static_cast<int64_t>(Memory::kWgt));
  return loads_operands ? Module::kLoad : Module::kCompute;
}

std::string_view ModuleText(Module module) {
  constexpr std::string_view kText[] = {"load", "compute", "store"};
  return kText[static_cast<int>(module)];
}

}  // namespace tilewright::vta
