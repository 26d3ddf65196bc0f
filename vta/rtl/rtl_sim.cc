#include "vta/rtl/rtl_sim.h"

#include <Vblock16.h>
#include <Vblock32.h>
#include <Vblock8.h>
#include <verilated.h>

#include <string>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/rtl/rtl_dram.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

// Within so many cycles without anything on its way in DRAM, a stream that is alive runs an
// instruction.
constexpr int64_t kWatch = 1024;

uint32_t Bit(Status status) { return 1u << static_cast<int>(status); }

// `Model` is what Verilator made of vta_core.sv for one configuration.
template <typename Model>
class VerilatedSim : public RtlSim {
 public:
  explicit VerilatedSim(uint64_t seed) {
    context_.randReset(2);
    context_.randSeed(static_cast<int>(seed % 0x7fffffff) + 1);  // 0 would ask the clock
    model_ = std::make_unique<Model>(&context_);
    model_->clk = model_->reset = 0;
    model_->register_write = model_->read_beat = model_->write_response = 0;
    model_->read_ready = model_->write_ready = 1;
    model_->reset = 1;
    for (int cycle = 0; cycle < 2; ++cycle) {
      for (int clk : {0, 1}) {
        model_->clk = static_cast<uint8_t>(clk);
        model_->eval();
      }
    }
    model_->reset = 0;
  }
  ~VerilatedSim() override { model_->final(); }

  absl::StatusOr<RtlReport> RunOn(const RtlStream& stream, int64_t max_cycles,
                                  RtlDram* dram) override {
    const auto address = static_cast<uint64_t>(stream.address);
    WriteRegister(-4, Register::kStreamLow, static_cast<uint32_t>(address), dram);
    WriteRegister(-3, Register::kStreamHigh, static_cast<uint32_t>(address >> 32), dram);
    WriteRegister(-2, Register::kStreamLength, static_cast<uint32_t>(stream.count), dram);
    WriteRegister(-1, Register::kControl, kControlStart, dram);
    int64_t now = 0;
    absl::Status status = RunToEnd(max_cycles, &now, dram);
    if (!status.ok()) {
      Stop(now, dram);
      return status;
    }
    RtlReport report;
    report.cycles = static_cast<int64_t>(ReadRegister(Register::kCyclesLow)) |
                    static_cast<int64_t>(ReadRegister(Register::kCyclesHigh)) << 32;
    report.busy = Busy();
    report.read_beats = ReadRegister(Register::kReadBeats);
    report.write_beats = ReadRegister(Register::kWriteBeats);
    return report;
  }

  uint32_t ReadRegister(Register number) override {
    model_->register_address = static_cast<uint8_t>(number);
    model_->eval();
    return model_->register_value;
  }

 private:
  void WriteRegister(int64_t now, Register number, uint32_t value, RtlDram* memory) {
    model_->register_write = 1;
    model_->register_address = static_cast<uint8_t>(number);
    model_->register_written = value;
    Cycle(now, memory);
    model_->register_write = 0;
  }
  std::array<int64_t, kModules> Busy() {
    return {ReadRegister(Register::kLoadBusy), ReadRegister(Register::kComputeBusy),
            ReadRegister(Register::kStoreBusy)};
  }

  void Cycle(int64_t now, RtlDram* memory) {
    model_->read_beat = memory->HasBeat(now);
    if (model_->read_beat) model_->read_data = memory->TakeBeat();
    model_->write_response = memory->TakeResponse(now);
    model_->clk = 0;
    model_->eval();
    if (model_->read_request)
      memory->Read(now, static_cast<int64_t>(model_->read_address), model_->read_beats);
    if (model_->write_beat) {
      memory->Write(now, static_cast<int64_t>(model_->write_address), model_->write_data,
                    model_->write_last);
    }
    model_->clk = 1;
    model_->eval();
  }

  // Leaves the cycle after the last in `cycle`.
  absl::Status RunToEnd(int64_t max_cycles, int64_t* cycle, RtlDram* memory) {
    model_->register_address = static_cast<uint8_t>(Register::kStatus);
    std::array<int64_t, kModules> busy = {};
    while (*cycle < max_cycles) {
      const int64_t now = (*cycle)++;
      Cycle(now, memory);
      const uint32_t status = model_->register_value;
      TW_TRY(memory->status());
      if ((status & Bit(Status::kIllegal)) != 0) {
        return support::InvalidArgument("vta.rtl.illegal",
                                        "expected instructions that mean something, found another");
      }
      if ((status & Bit(Status::kUnfinished)) != 0) {
        return support::FailedPrecondition(
            "vta.rtl.unfinished", "expected no work and no tokens at the finish, found some");
      }
      if ((status & Bit(Status::kDone)) != 0) return absl::OkStatus();
      if (now % kWatch != kWatch - 1) continue;
      const std::array<int64_t, kModules> before = busy;
      busy = Busy();
      model_->register_address = static_cast<uint8_t>(Register::kStatus);
      if (busy == before && memory->idle()) {
        return support::FailedPrecondition(
            "vta.rtl.deadlock",
            StrCat("expected a module that can continue, found none in cycle ", now));
      }
    }
    return support::DeadlineExceeded(
        "vta.rtl.hang", StrCat("expected a finish within ", max_cycles, " cycles, found none"));
  }

  // What DRAM still owes arrives, and goes nowhere.
  void Stop(int64_t now, RtlDram* memory) {
    WriteRegister(now++, Register::kControl, kControlStop, memory);
    model_->register_address = static_cast<uint8_t>(Register::kStatus);
    do {
      Cycle(now++, memory);
    } while ((model_->register_value & Bit(Status::kBusy)) != 0);
  }

  VerilatedContext context_;
  std::unique_ptr<Model> model_;
};

struct ModelRow {
  std::string_view name;
  std::unique_ptr<RtlSim> (*make)(uint64_t seed);
};
constexpr ModelRow kModels[] = {
#define TW_VTA_PRESET(name, ...)                           \
  {#name, [](uint64_t seed) -> std::unique_ptr<RtlSim> {   \
     return std::make_unique<VerilatedSim<V##name>>(seed); \
   }},
#include "vta/isa/isa.def"
};

absl::Status CheckOptions(const RtlOptions& options) {
  if (options.dram_latency >= 1) return absl::OkStatus();
  return support::InvalidArgument(
      "vta.rtl.options", StrCat("dram_latency: expected at least 1, found ", options.dram_latency));
}

}  // namespace

absl::StatusOr<RtlReport> RtlSim::Run(const RtlStream& stream, const RtlOptions& options,
                                      std::span<uint8_t> dram) {
  TW_TRY(CheckOptions(options));
  RtlDram memory(dram, options.dram_latency);
  return RunOn(stream, options.max_cycles, &memory);
}

absl::StatusOr<RtlReport> RtlSim::Run(std::span<const Word128> stream, const RtlOptions& options,
                                      std::vector<uint8_t>* dram) {
  TW_TRY(CheckOptions(options));
  RtlDram memory(*dram, options.dram_latency);
  const int64_t address = memory.PlaceBehind(stream);
  return RunOn({.address = address, .count = static_cast<int64_t>(stream.size())},
               options.max_cycles, &memory);
}

absl::StatusOr<std::unique_ptr<RtlSim>> RtlSim::Make(const Config& config, uint64_t seed) {
  for (const ModelRow& row : kModels) {
    auto named = FindConfig(row.name);
    if (named.ok() && *named == config) return row.make(seed);
  }
  return support::NotFound(
      "vta.rtl.config", StrCat("expected a configuration with a name, found ", config.ToString()));
}

}  // namespace tilewright::vta
