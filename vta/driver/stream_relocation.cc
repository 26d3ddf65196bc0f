#include "vta/driver/stream_relocation.h"

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

constexpr size_t kOwnRegion = static_cast<size_t>(-1);  // constants and micro-ops

bool Transfers(const Instruction& i) {
  return (i.op == Opcode::kLoad || i.op == Opcode::kStore) && i.x_size > 0 && i.y_size > 0;
}

absl::Status BadInstruction(std::string_view slug, size_t index, const Instruction& i,
                            const std::string& what) {
  return support::InvalidArgument(slug,
                                  StrCat("instruction ", index, ": ", what, ": ", Disassemble(i)));
}

// The index of the parameter that holds everything the instruction touches in DRAM, or kOwnRegion.
absl::StatusOr<size_t> RegionFor(const Isa& isa, const Program& program, size_t index) {
  const Instruction& i = program.stream[index];
  const auto memory = static_cast<Memory>(i.memory);
  const int64_t bytes = isa.InfoOf(memory).element_bytes;
  const int64_t begin = i.dram_base * bytes;
  const int64_t end = (i.dram_base + (i.y_size - 1) * i.x_stride + i.x_size) * bytes;
  // Micro-ops are loaded from their own place only, and nothing else is.
  if (memory == Memory::kUop) {
    if (begin >= program.uop_offset && end <= program.image_bytes) return kOwnRegion;
    return BadInstruction("vta.driver.address", index, i,
                          StrCat("expected micro-ops at bytes ", program.uop_offset, " to ",
                                 program.image_bytes, ", found ", begin, " to ", end));
  }
  for (size_t p = 0; p < program.params.size(); ++p) {
    const Program::Param& param = program.params[p];
    if (begin >= param.offset && end <= param.offset + param.bytes) return p;
  }
  const bool constant = begin >= program.constant_offset() && end <= program.uop_offset;
  if (constant && i.op == Opcode::kLoad) return kOwnRegion;
  return BadInstruction(
      "vta.driver.address", index, i,
      StrCat("expected bytes of one parameter, or loads of constants, found ", begin, " to ", end));
}

}  // namespace

absl::StatusOr<std::vector<bool>> StoredParams(const Isa& isa, const Program& program) {
  std::vector<bool> stored(program.params.size(), false);
  for (size_t index = 0; index < program.stream.size(); ++index) {
    if (!Transfers(program.stream[index])) continue;
    TW_ASSIGN(const size_t region, RegionFor(isa, program, index));
    if (program.stream[index].op == Opcode::kStore) stored[region] = true;
  }
  return stored;
}

absl::StatusOr<std::vector<Instruction>> Relocate(const Isa& isa, const Program& program,
                                                  const OperandPlaces& places) {
  std::vector<Instruction> stream = program.stream;
  for (size_t index = 0; index < stream.size(); ++index) {
    Instruction& i = stream[index];
    if (!Transfers(i)) continue;
    TW_ASSIGN(const size_t region, RegionFor(isa, program, index));
    const bool is_own = region == kOwnRegion;
    const int64_t from = is_own ? program.constant_offset() : program.params[region].offset;
    const int64_t to = is_own ? places.own : places.params[region];
    const int64_t bytes = isa.InfoOf(static_cast<Memory>(i.memory)).element_bytes;
    const int64_t address = to + i.dram_base * bytes - from;
    if (address % bytes != 0) {
      return BadInstruction("vta.driver.alignment", index, i,
                            StrCat(is_own ? "constants and micro-ops" : program.params[region].name,
                                   ": expected a multiple of ", bytes, " bytes, found ", address));
    }
    i.dram_base = address / bytes;
  }
  return stream;
}

}  // namespace tilewright::vta
