#include "vta/isa/rtl_package.h"

#include <algorithm>
#include <vector>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

constexpr char kPackageHead[] =
    "// Generated from vta/isa/isa.def by vta_isa_test. Do not edit.\n"
    "// To write it: TILEWRIGHT_UPDATE_GOLDEN=1 build/release/bin/vta_isa_test\n"
    "//\n"
    "// What the RTL knows of the instruction set. VTA_CONFIG_<name> takes a configuration.\n"
    "// verilator lint_off UNUSEDPARAM\n";

struct NamedValue {
  std::string_view text;
  int64_t value;
};
constexpr NamedValue kOpcodeValues[] = {
#define TW_VTA_OPCODE(Name, text, value, Format, what) {text, value},
#include "vta/isa/isa.def"
};
constexpr NamedValue kOperationValues[] = {
#define TW_VTA_ALU_OP(Name, text, value, what) {text, value},
#include "vta/isa/isa.def"
};
constexpr NamedValue kRegisterValues[] = {
#define TW_VTA_REGISTER(Name, text, address, what) {text, address},
#include "vta/isa/isa.def"
};
constexpr NamedValue kStatusValues[] = {
#define TW_VTA_STATUS(Name, text, bit, what) {text, bit},
#include "vta/isa/isa.def"
};
std::string Upper(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return upper;
}

std::string Constant(const std::string& name, int64_t value) {
  return StrCat("  localparam int unsigned ", Upper(name), " = ", value, ";\n");
}

std::string Constants(std::string_view prefix, std::span<const NamedValue> rows) {
  std::string text;
  for (const NamedValue& row : rows) text += Constant(StrCat(prefix, "_", row.text), row.value);
  return text;
}

std::string Enumeration(std::string_view type, std::string_view prefix, int bits,
                        std::span<const NamedValue> rows) {
  std::string text = StrCat("  typedef enum logic [", bits - 1, ":0] {");
  for (size_t i = 0; i < rows.size(); ++i) {
    text += StrCat(i == 0 ? "\n" : ",\n", "    ", prefix, "_", Upper(rows[i].text), " = ", bits,
                   "'d", rows[i].value);
  }
  return text + StrCat("\n  } ", type, ";\n");
}

// A member of a packed struct: `width` bits from `lsb`.
struct BitField {
  std::string name;
  int lsb, width;
  bool is_signed;
};

// SystemVerilog has the highest bits first. Bits of no field are members, too.
std::string PackedStruct(std::string_view type, std::vector<BitField> fields, int bits) {
  std::sort(fields.begin(), fields.end(),
            [](const BitField& a, const BitField& b) { return a.lsb < b.lsb; });
  std::vector<BitField> all;
  int at = 0;
  const auto fill = [&](int until) {
    if (at < until) all.push_back({StrCat("unused_", at), at, until - at, false});
  };
  for (const BitField& field : fields) {
    fill(field.lsb);
    all.push_back(field);
    at = field.lsb + field.width;
  }
  fill(bits);
  std::string text = "  typedef struct packed {\n";
  for (auto field = all.rbegin(); field != all.rend(); ++field) {
    text += StrCat("    logic ", field->is_signed ? "signed " : "", "[", field->width - 1, ":0] ",
                   field->name, ";\n");
  }
  return text + StrCat("  } ", type, ";\n");
}

std::string InstructionStruct(const Isa& isa, std::string_view type, Format format) {
  std::vector<BitField> fields = {{"opcode", 0, kOpcodeBits, false}};
  for (const FieldInfo& f : isa.Fields()) {
    if (HasFields(format, f.format))
      fields.push_back({std::string(f.name), f.lsb, f.width, f.is_signed});
  }
  return PackedStruct(type, std::move(fields), 2 * kHalfBits);
}

std::string UopStruct(const Isa& isa) {
  std::vector<BitField> fields;
  for (const UopFieldInfo& f : isa.UopFields())
    fields.push_back({std::string(f.name), f.lsb, f.width, false});
  return PackedStruct("uop_t", std::move(fields), kUopBits);
}

int WidthOf(const Isa& isa, std::string_view name) {
  const auto field = std::find_if(isa.Fields().begin(), isa.Fields().end(),
                                  [&](const FieldInfo& f) { return f.name == name; });
  TW_CHECK(field != isa.Fields().end()) << "no field " << name;
  return field->width;
}

// Sizes of memories are those of the memories, below.
std::string ConfigConstants(const Config& c) {
  const NamedValue values[] = {
#define TW_VTA_CONFIG(name, value, least, most, what) {#name, c.name},
#include "vta/isa/isa.def"
  };
  std::string text;
  for (const NamedValue& v : values) {
    if (v.text == "block" || v.text.ends_with("_bits"))
      text += Constant(std::string(v.text), v.value);
  }
  return text;
}

std::string MemoryConstants(const Isa& isa) {
  std::string text;
  std::vector<NamedValue> values;
  for (const MemoryInfo& memory : isa.Memories()) {
    text += Constant(StrCat(memory.text, "_bytes"), memory.element_bytes);
    text += Constant(StrCat(memory.text, "_elements"), memory.elements);
    text += Constant(StrCat(memory.text, "_index_bits"), IndexBits(memory.elements));
    values.push_back({memory.text, static_cast<int64_t>(memory.memory)});
  }
  text += Constant("src_index_bits", SourceBits(isa.config()));
  return text + Enumeration("memory_t", "MEMORY", WidthOf(isa, "memory"), values);
}

std::string Package(const NamedConfig& named) {
  const auto isa = Isa::Make(named.config);
  TW_CHECK(isa.ok()) << named.name << ": " << support::StatusText(isa.status());
  return StrCat(
      "package vta_isa;\n  // ", named.config.ToString(), "\n", ConfigConstants(named.config),
      Constant("identity", named.config.Identity()), MemoryConstants(*isa),
      Enumeration("opcode_t", "OPCODE", kOpcodeBits, kOpcodeValues),
      Enumeration("operation_t", "OPERATION", WidthOf(*isa, "operation"), kOperationValues),
      Constants("REGISTER", kRegisterValues), Constants("STATUS", kStatusValues),
      Constant("control_start", kControlStart), Constant("control_stop", kControlStop),
      InstructionStruct(*isa, "transfer_t", Format::Memory),
      InstructionStruct(*isa, "gemm_t", Format::Gemm),
      InstructionStruct(*isa, "alu_t", Format::Alu), UopStruct(*isa), "endpackage\n");
}

}  // namespace

std::string RtlPackageText(std::span<const NamedConfig> configs) {
  std::string text = kPackageHead;
  for (size_t i = 1; i < configs.size(); ++i)
    text += StrCat(i == 1 ? "`ifdef" : "`elsif", " VTA_CONFIG_", configs[i].name, "\n",
                   Package(configs[i]));
  if (configs.size() > 1) text += "`else\n";
  text += Package(configs[0]);
  return text + (configs.size() > 1 ? "`endif\n" : "") + "// verilator lint_on UNUSEDPARAM\n";
}

}  // namespace tilewright::vta
