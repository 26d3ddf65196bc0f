// What runs instruction streams: the seam between the driver and simulators, RTL and boards. A
// backend has a DRAM, which the driver writes and reads, and runs one stream at a time on it. Every
// instance is a device of its own. Objects belong to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vta/isa/isa.h"
#include "vta/sim/cycle_model.h"

namespace tilewright::vta {

struct BackendInfo {
  std::string name;           // "vta cycle model"
  std::string version;        // what cycles depend on: other numbers are another device
  std::string configs;        // names of those that it runs code for, with commas
  bool any_memories = false;  // and for these with memories of other sizes
  std::string unit;           // of what Run returns, as in deploy/support/measure_units.h
  // How its hardware keeps time, if runs can say what its modules did (StreamRun::report).
  std::optional<CycleTiming> traced_timing = std::nullopt;
  int64_t memory_bytes = 0;  // of DRAM, at most; a multiple of kDramAlignment
  // Of the first byte of memory() for the hardware, a multiple of kDramAlignment: instructions have
  // absolute addresses.
  int64_t base_address = 0;
};

// Every allocation starts at a multiple: an element of any memory of any configuration.
inline constexpr int64_t kDramAlignment = 1024;

// A stream in DRAM: instructions of 16 bytes, the low half first, little-endian.
struct StreamRun {
  int64_t address = 0;  // of the first instruction, in memory()
  int64_t count = 0;    // instructions
  // A device that has not finished by then hangs.
  int64_t max_cycles = 0;
  // Gets what the modules did, if the backend has a traced_timing. May be null.
  CycleReport* report = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const BackendInfo& info() const = 0;
  // vta.config.other: this hardware cannot run code for that configuration.
  virtual absl::Status CheckConfig(const Config& config) const = 0;

  // Makes the first `bytes` of DRAM usable, if there are so many. Addresses keep their bytes; spans
  // of memory() end.
  virtual absl::Status Grow(int64_t bytes) = 0;
  // The usable DRAM. Its first byte has the address info().base_address in instructions.
  virtual std::span<uint8_t> memory() = 0;

  // Runs a stream to its finish; returns what it took, in info().unit. REQUIRES: the stream is in
  // memory(), and CheckConfig accepts the configuration of `isa`.
  //   vta.sim.*, vta.rtl.* or vta.board.* for what goes wrong; DEADLINE_EXCEEDED after max_cycles.
  // The device takes another stream after an error.
  virtual absl::StatusOr<int64_t> Run(const Isa& isa, const StreamRun& run) = 0;
};

}  // namespace tilewright::vta
