// A device of the accelerator: memory, code and launches on a backend (vta_backend.h). Code is
// checked when it is loaded, so that a bad stream never reaches the hardware: its form, its
// addresses, and the tokens between its modules. Objects belong to one thread; code and memory
// belong to their device, which outlives them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vta/driver/dram_allocator.h"
#include "vta/driver/stream_relocation.h"
#include "vta/driver/vta_backend.h"
#include "vta/isa/code_object.h"

namespace tilewright::vta {

// Bytes of the device's DRAM.
struct DramRange {
  int64_t address = 0, bytes = 0;
  bool operator==(const DramRange&) const = default;
};

class VtaCode;

// A program of loaded code. Its micro-ops and its command buffer (the instructions, relocated to
// the operands of the last launch) are in DRAM.
struct VtaKernel {
  const VtaCode* code = nullptr;
  const Program* program = nullptr;
  std::vector<bool> stored;  // by parameter: the stream writes it
  int64_t max_cycles = 0;    // later, the stream hangs
  DramRange own, commands;   // own: constants and micro-ops
  // What the command buffer is for; none before the first launch.
  std::optional<std::vector<DramRange>> operands;
};

class VtaCode {
 public:
  // Null if there is no such program.
  VtaKernel* Find(std::string_view name);

 private:
  friend class VtaDevice;
  VtaCode(CodeObject object, Isa isa) : object_(std::move(object)), isa_(std::move(isa)) {}

  const CodeObject object_;
  const Isa isa_;
  std::vector<VtaKernel> kernels_;
};

class VtaDevice {
 public:
  explicit VtaDevice(std::unique_ptr<Backend> backend);

  const BackendInfo& info() const { return backend_->info(); }

  // vta.driver.bytes | vta.driver.memory: as DramAllocator.
  absl::StatusOr<DramRange> Allocate(int64_t bytes);
  void Free(const DramRange& range) { allocator_.Free(range.address); }
  // Of all allocations and of loaded code.
  int64_t used_bytes() const { return allocator_.used_bytes(); }
  // The bytes of a range. REQUIRES: within an allocation. Valid until the next Allocate or Load.
  std::span<uint8_t> Bytes(const DramRange& range);

  // DATA_LOSS or INVALID_ARGUMENT for code that is none, of another configuration, or whose streams
  // are wrong; "program NAME" is in the error. vta.driver.cycles: a stream whose instructions alone
  // take longer than kMostCycles. vta.driver.memory: no room.
  absl::StatusOr<std::unique_ptr<VtaCode>> Load(std::string_view bytes);
  void Unload(std::unique_ptr<VtaCode> code);

  // Runs a kernel on operands in the order of its parameters, and waits for its end.
  //   vta.driver.operands: another number of them; one that is too short; one that the kernel
  //   writes and that shares bytes with another. vta.driver.alignment: as Relocate; vta.isa.field:
  //   an address that instructions cannot hold; as Backend::Run. With the name of the program.
  absl::Status Launch(VtaKernel* kernel, std::span<const DramRange> operands);

  // Of all launches so far, one after the other, in info().unit.
  int64_t cycles() const { return cycles_; }

  // A stream of more cycles is refused: on a simulator it would take minutes.
  static constexpr int64_t kMostCycles = int64_t{1} << 32;

 private:
  absl::Status Prepare(const VtaCode& code, VtaKernel* kernel);
  absl::Status CheckOperands(const VtaKernel& kernel, std::span<const DramRange> operands) const;
  absl::Status WriteCommands(VtaKernel* kernel, std::span<const DramRange> operands);

  std::unique_ptr<Backend> backend_;
  DramAllocator allocator_;
  int64_t cycles_ = 0;
};

}  // namespace tilewright::vta
