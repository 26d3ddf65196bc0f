// Code objects of the accelerator: what the compiler writes and a driver runs. One holds a program
// for each kernel: its instructions, its micro-ops, and where in DRAM its parameters are; and the
// hardware configuration that all of them are for. Values and pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

// Of artifacts and manifests.
inline constexpr std::string_view kCodeFormat = "vta-stream";

struct Program {
  struct Param {
    std::string name;
    int64_t offset = 0, bytes = 0;  // in the image
    bool operator==(const Param&) const = default;
  };
  std::string name;
  std::vector<Instruction> stream;
  std::vector<MicroOp> uops;
  std::vector<Param> params;  // in the order of the kernel's parameters, row-major
  std::string constants;      // bytes right before the micro-ops, which programs load
  int64_t uop_offset = 0;
  int64_t image_bytes = 0;

  bool operator==(const Program&) const = default;

  int64_t constant_offset() const { return uop_offset - static_cast<int64_t>(constants.size()); }
  // One instruction a line, micro-ops below.
  std::string Listing() const;
  // The instructions of the stream as bits.
  absl::StatusOr<std::vector<Word128>> Encoded(const Isa& isa) const;
  // A DRAM image with the constants and the micro-ops in place and everything else 0.
  absl::StatusOr<std::vector<uint8_t>> Image(const Isa& isa) const;
};

struct CodeObject {
  Config config;
  std::vector<Program> programs;

  bool operator==(const CodeObject&) const = default;
};

// vta.isa.field for an instruction or a micro-op that cannot be encoded; vta.config.* for a
// configuration that cannot exist.
absl::StatusOr<std::string> SerializeCode(const CodeObject& code);

// Reads what SerializeCode wrote. DATA_LOSS vta.code.format for bytes that are no code object, or
// places outside of the image; vta.config.* for a configuration that cannot exist; vta.isa.* for
// instructions that mean nothing.
absl::StatusOr<CodeObject> ParseCode(std::string_view bytes);

}  // namespace tilewright::vta
