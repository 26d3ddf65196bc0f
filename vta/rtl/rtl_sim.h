// The RTL of the accelerator (vta_core.sv), made into C++ by Verilator, with a DRAM around it. A
// device with on-chip memories that stay from stream to stream. Objects belong to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

struct RtlOptions {
  int64_t dram_latency = 64;            // as in CycleTiming; at least 1
  int64_t max_cycles = 10'000'000'000;  // a stream that takes longer hangs
};

struct RtlReport {
  int64_t cycles = 0;                       // until the finish is done
  std::array<int64_t, kModules> busy = {};  // of each module: in which an instruction ran
  int64_t read_beats = 0, write_beats = 0;

  bool operator==(const RtlReport&) const = default;
};

// Instructions in DRAM.
struct RtlStream {
  int64_t address = 0;  // of the first byte, a multiple of 16
  int64_t count = 0;    // instructions
};

class RtlDram;

class RtlSim {
 public:
  // The memories start with arbitrary contents drawn from the seed.
  //   vta.rtl.config: no model was built for this configuration.
  static absl::StatusOr<std::unique_ptr<RtlSim>> Make(const Config& config, uint64_t seed);
  virtual ~RtlSim() = default;

  // What a control register reads as.
  virtual uint32_t ReadRegister(Register number) = 0;

  // Runs a stream, which is in the DRAM image, until it has finished. After an error the device is
  // as a stop leaves it, and takes the next stream.
  //   vta.rtl.options: a number that is too small; vta.rtl.illegal: an instruction that means
  //   nothing; vta.rtl.bounds: a read or write outside of the image; vta.rtl.unfinished: work or
  //   tokens were left at the finish; vta.rtl.deadlock: no module runs an instruction any more;
  //   vta.rtl.hang: more cycles than allowed, for instance of a module that waits for room for
  //   its tokens, and so still runs its instruction.
  absl::StatusOr<RtlReport> Run(const RtlStream& stream, const RtlOptions& options,
                                std::span<uint8_t> dram);
  // The same for a stream that is not in the image.
  absl::StatusOr<RtlReport> Run(std::span<const Word128> stream, const RtlOptions& options,
                                std::vector<uint8_t>* dram);

 private:
  virtual absl::StatusOr<RtlReport> RunOn(const RtlStream& stream, int64_t max_cycles,
                                          RtlDram* dram) = 0;
};

}  // namespace tilewright::vta
