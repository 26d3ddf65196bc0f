#include "vta/isa/manual.h"

#include <vector>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

constexpr char kHead[] =
    "<!-- Generated from vta/isa/isa.def by vta_isa_test. Do not edit.\n"
    "     To write it: TILEWRIGHT_UPDATE_GOLDEN=1 build/release/bin/vta_isa_test -->\n\n"
    "# The instruction set\n\n"
    "[README.md](README.md) says how modules, tokens and arithmetic work. This page has the rows "
    "of\n"
    "the table: bits are counted from the lowest, and those from 64 up are in the high half.\n";

struct ConfigRow {
  std::string_view name;
  int64_t Config::* member;
  std::string_view what;
};
constexpr ConfigRow kConfigRows[] = {
#define TW_VTA_CONFIG(name, value, least, most, what) {#name, &Config::name, what},
#include "vta/isa/isa.def"
};

struct ValueRow {
  std::string_view text;
  int value;
  std::string_view what;
};
constexpr ValueRow kOpcodeRows[] = {
#define TW_VTA_OPCODE(Name, text, value, Format, what) {text, value, what},
#include "vta/isa/isa.def"
};
constexpr ValueRow kOperationRows[] = {
#define TW_VTA_ALU_OP(Name, text, value, what) {text, value, what},
#include "vta/isa/isa.def"
};

constexpr ValueRow kRegisterRows[] = {
#define TW_VTA_REGISTER(Name, text, address, what) {text, address, what},
#include "vta/isa/isa.def"
};
constexpr ValueRow kStatusRows[] = {
#define TW_VTA_STATUS(Name, text, bit, what) {text, bit, what},
#include "vta/isa/isa.def"
};

// The title of a table whose last columns are the named configurations.
std::string Title(std::string_view section, const std::string& columns, int count) {
  std::string head = StrCat("\n## ", section, "\n\n| ", columns), rule = "\n|";
  for (int i = 0; i < count; ++i) rule += "---|";
  return head + " |" + rule + "\n";
}
std::string TitleByConfig(std::string_view section, const std::string& columns, int count) {
  std::string all = columns;
  for (const NamedConfig& named : NamedConfigs()) all += StrCat(" | `", named.name, "`");
  return Title(section, all, count + static_cast<int>(NamedConfigs().size()));
}

std::string Values(std::string_view section, std::span<const ValueRow> rows) {
  std::string text = Title(section, "name | value | meaning", 3);
  for (const ValueRow& row : rows)
    text += StrCat("| `", row.text, "` | ", row.value, " | ", row.what, " |\n");
  return text;
}

std::string Configurations() {
  std::string text = TitleByConfig("Configurations", "member | meaning", 2);
  for (const ConfigRow& row : kConfigRows) {
    text += StrCat("| `", row.name, "` | ", row.what);
    for (const NamedConfig& named : NamedConfigs()) text += StrCat(" | ", named.config.*row.member);
    text += " |\n";
  }
  return text;
}

std::string MemorySizes(std::span<const Isa> isas) {
  std::string text = TitleByConfig("Memories", "name | value | elements", 3);
  for (const MemoryInfo& first : isas[0].Memories()) {
    text += StrCat("| `", first.text, "` | ", static_cast<int>(first.memory), " | ", first.what);
    for (const Isa& isa : isas) {
      const MemoryInfo& memory = isa.InfoOf(first.memory);
      text += StrCat(" | ", memory.elements, " of ", memory.element_bytes, " bytes");
    }
    text += " |\n";
  }
  return text;
}

std::string Bits(int lsb, int width) {
  return width == 1 ? StrCat(lsb) : StrCat(lsb, "-", lsb + width - 1);
}

std::string FieldTable(std::string_view section, Format format, std::span<const Isa> isas) {
  std::string text = TitleByConfig(section, "field | meaning", 2);
  for (size_t i = 0; i < isas[0].Fields().size(); ++i) {
    const FieldInfo& first = isas[0].Fields()[i];
    if (first.format != format) continue;
    text += StrCat("| `", first.name, "` | ", first.what, first.is_signed ? "; signed" : "");
    for (const Isa& isa : isas) text += " | " + Bits(isa.Fields()[i].lsb, isa.Fields()[i].width);
    text += " |\n";
  }
  return text;
}

std::string UopTable(std::span<const Isa> isas) {
  std::string text = TitleByConfig("Micro-ops", "field | meaning", 2);
  for (size_t i = 0; i < isas[0].UopFields().size(); ++i) {
    const UopFieldInfo& first = isas[0].UopFields()[i];
    text += StrCat("| `", first.name, "` | ", first.what);
    for (const Isa& isa : isas)
      text += " | " + Bits(isa.UopFields()[i].lsb, isa.UopFields()[i].width);
    text += " |\n";
  }
  return text;
}

}  // namespace

std::string ManualText() {
  std::vector<Isa> isas;
  for (const NamedConfig& named : NamedConfigs()) {
    auto isa = Isa::Make(named.config);
    TW_CHECK(isa.ok()) << named.name << ": " << support::StatusText(isa.status());
    isas.push_back(*std::move(isa));
  }
  return StrCat(kHead, Configurations(), MemorySizes(isas), Values("Instructions", kOpcodeRows),
                Values("Operations of `alu`", kOperationRows),
                FieldTable("Fields of all instructions", Format::Common, isas),
                FieldTable("Fields of `load` and `store`", Format::Memory, isas),
                FieldTable("Fields of `gemm` and `alu`", Format::Loops, isas),
                FieldTable("Fields of `gemm`", Format::Gemm, isas),
                FieldTable("Fields of `alu`", Format::Alu, isas), UopTable(isas),
                Values("Control registers", kRegisterRows),
                Values("Bits of `status`", kStatusRows));
}

}  // namespace tilewright::vta
