// A stream of launches on an accelerator, with memory and code. Several of them may share one
// (accelerator.h): what they launch runs one after the other, and nobody sees the others' memory.
// Code is checked when it is loaded, so that bad instructions never reach the hardware: their form,
// their addresses, and the tokens between its modules. Objects belong to one thread; code and
// memory belong to their device, which outlives them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vta/driver/accelerator.h"
#include "vta/driver/stream_relocation.h"
#include "vta/isa/code_object.h"

namespace tilewright::vta {

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
  explicit VtaDevice(std::shared_ptr<Accelerator> accelerator)
      : accelerator_(std::move(accelerator)) {}
  // The only stream of a backend.
  explicit VtaDevice(std::unique_ptr<Backend> backend)
      : VtaDevice(std::make_shared<Accelerator>(std::move(backend))) {}
  ~VtaDevice();  // frees what is still allocated
  VtaDevice(const VtaDevice&) = delete;
  VtaDevice& operator=(const VtaDevice&) = delete;

  const BackendInfo& info() const { return accelerator_->info(); }

  // As Accelerator.
  absl::StatusOr<DramRange> Allocate(int64_t bytes);
  void Free(const DramRange& range);
  // Of all allocations and of loaded code, of all streams.
  int64_t used_bytes() const { return accelerator_->used_bytes(); }
  // As Accelerator; Load allocates.
  std::span<uint8_t> Bytes(const DramRange& range) { return accelerator_->Bytes(range); }

  // DATA_LOSS or INVALID_ARGUMENT for code that is none, of another configuration, or whose streams
  // are wrong; "program NAME" is in the error. vta.driver.cycles: a stream whose instructions alone
  // take longer than kMostCycles. vta.driver.memory: no room.
  absl::StatusOr<std::unique_ptr<VtaCode>> Load(std::string_view bytes);
  void Unload(std::unique_ptr<VtaCode> code);

  // Runs a kernel on operands in the order of its parameters, after what other streams launched,
  // and waits for its end.
  //   vta.driver.operands: another number of them; one that is too short; one that the kernel
  //   writes and that shares bytes with another. vta.driver.alignment: as Relocate; vta.isa.field:
  //   an address that instructions cannot hold; as Backend::Run. With the name of the program.
  // `report`: as StreamRun.
  absl::Status Launch(VtaKernel* kernel, std::span<const DramRange> operands,
                      CycleReport* report = nullptr);

  // Of all its launches so far, one after the other, in info().unit.
  int64_t cycles() const { return cycles_; }

  // A stream of more cycles is refused: on a simulator it would take minutes.
  static constexpr int64_t kMostCycles = int64_t{1} << 32;

 private:
  absl::Status Prepare(const VtaCode& code, VtaKernel* kernel);
  absl::Status CheckOperands(const VtaKernel& kernel, std::span<const DramRange> operands) const;
  absl::Status WriteCommands(VtaKernel* kernel, std::span<const DramRange> operands);

  const std::shared_ptr<Accelerator> accelerator_;
  std::set<int64_t> allocated_;  // addresses
  int64_t cycles_ = 0;
};

}  // namespace tilewright::vta
