#include "vta/driver/board_backend.h"

#include <algorithm>
#include <string>
#include <utility>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/driver/board_registers.h"
#include "vta/driver/mapped_device.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

constexpr char kBoardUnit[] = "device_ns";
constexpr int64_t kNsPerMs = 1'000'000;
// Short streams end while the driver looks again and again; for long ones it sleeps.
constexpr int64_t kSpinNs = 200'000, kPollMs = 1;

absl::Status Dead() {
  return support::Unavailable("vta.board.dead",
                              "expected registers that answer, found a bus without an answer; load "
                              "the bitstream, or reset the board");
}

absl::StatusOr<NamedConfig> ConfigOf(uint32_t identity) {
  for (const NamedConfig& named : NamedConfigs()) {
    if (named.config.Identity() == identity) return named;
  }
  return support::FailedPrecondition(
      "vta.board.identity",
      StrCat("expected hardware of a configuration with a name, found identity ", identity,
             "; load a bitstream of this version of vta/rtl"));
}

class BoardBackend final : public Backend {
 public:
  BoardBackend(BackendInfo info, const Config& config, BoardRegisters registers,
               MappedDevice memory, support::Clock* clock, const BoardTimes& times)
      : info_(std::move(info)),
        config_(config),
        registers_(std::move(registers)),
        memory_(std::move(memory)),
        clock_(clock),
        times_(times),
        clock_khz_(registers_.Read(Register::kClockKhz)) {}
  ~BoardBackend() override { (void)StopIfBusy(); }

  const BackendInfo& info() const override { return info_; }
  absl::Status CheckConfig(const Config& config) const override {
    return CheckSameConfig(config_, config);
  }
  absl::Status Grow(int64_t bytes) override {
    if (bytes <= info_.memory_bytes) return absl::OkStatus();
    return support::ResourceExhausted(
        "vta.driver.memory",
        StrCat("expected at most ", info_.memory_bytes, " bytes, found ", bytes));
  }
  std::span<uint8_t> memory() override { return memory_.bytes(); }

  absl::StatusOr<int64_t> Run(const Isa&, const StreamRun& run) override {
    TW_TRY(broken_);
    const auto address = static_cast<uint64_t>(info_.base_address + run.address);
    registers_.Write(Register::kStreamLow, static_cast<uint32_t>(address));
    registers_.Write(Register::kStreamHigh, static_cast<uint32_t>(address >> 32));
    registers_.Write(Register::kStreamLength, static_cast<uint32_t>(run.count));
    TW_TRY(Command(kControlStart));
    const absl::Status ended = WaitForEnd(run.max_cycles);
    if (!ended.ok()) {
      (void)StopIfBusy();  // what went wrong first is the error; broken_ keeps this one
      return ended;
    }
    return NsOf(registers_.Cycles());
  }

  // Ends a stream that runs. An error is that of all later runs, too.
  absl::Status StopIfBusy() {
    if (!broken_.ok() || !IsBusy()) return broken_;
    TW_TRY(Command(kControlStop));
    return WaitFor([this] { return !IsBusy(); });
  }

 private:
  int64_t NsOf(int64_t cycles) const {
    return static_cast<int64_t>(static_cast<__int128>(cycles) * kNsPerMs / clock_khz_);
  }

  // The bus may post a write: when the register is read, it has arrived. It reads 0 then.
  absl::Status Command(uint32_t command) {
    registers_.Write(Register::kControl, command);
    return WaitFor([this] { return registers_.Read(Register::kControl) == 0; });
  }

  // Waits for an answer of the hardware. Without one, the board is broken.
  template <typename Answered>
  absl::Status WaitFor(Answered answered) {
    const int64_t start_ns = clock_->NowNs();
    while (!answered()) {
      if (BoardRegisters::IsDead(registers_.Read(Register::kStatus))) return broken_ = Dead();
      const int64_t waited_ns = clock_->NowNs() - start_ns;
      if (waited_ns > times_.stuck_ms * kNsPerMs) {
        broken_ = support::Unavailable("vta.board.stuck",
                                       StrCat("expected an answer to start or stop within ",
                                              times_.stuck_ms, " ms, found none; reset the board"));
        return broken_;
      }
      if (waited_ns > kSpinNs) support::SleepMs(kPollMs);
    }
    return absl::OkStatus();
  }

  absl::Status WaitForEnd(int64_t max_cycles) {
    const int64_t start_ns = clock_->NowNs();
    int64_t cycles = -1, counted_ns = start_ns;  // when the counter moved last
    for (;;) {
      const uint32_t status = registers_.Read(Register::kStatus);
      if (BoardRegisters::IsDead(status)) return broken_ = Dead();
      const int64_t counter = registers_.Cycles();
      if (BoardRegisters::Has(status, Status::kIllegal)) {
        return support::InvalidArgument("vta.board.illegal",
                                        "expected instructions that mean something, found another");
      }
      if (BoardRegisters::Has(status, Status::kUnfinished)) {
        return support::FailedPrecondition(
            "vta.board.unfinished", "expected no work and no tokens at the finish, found some");
      }
      if (counter > max_cycles) {
        return support::DeadlineExceeded(
            "vta.board.timeout",
            StrCat("expected a finish within ", max_cycles, " cycles, found ", counter));
      }
      if (BoardRegisters::Has(status, Status::kDone)) return absl::OkStatus();
      const int64_t now_ns = clock_->NowNs();
      if (counter != cycles) {
        cycles = counter;
        counted_ns = now_ns;
      } else if (now_ns - counted_ns > times_.stuck_ms * kNsPerMs) {
        return support::Unavailable(
            "vta.board.hang", StrCat("expected cycles to be counted, found ", cycles, " for ",
                                     times_.stuck_ms, " ms; look at the board's clock and reset"));
      }
      if (now_ns - start_ns > kSpinNs) support::SleepMs(kPollMs);
    }
  }
  bool IsBusy() const {
    return BoardRegisters::Has(registers_.Read(Register::kStatus), Status::kBusy);
  }

  const BackendInfo info_;
  const Config config_;
  BoardRegisters registers_;
  MappedDevice memory_;
  support::Clock* const clock_;
  const BoardTimes times_;
  const int64_t clock_khz_;
  absl::Status broken_;  // the board takes no stream any more
};

absl::StatusOr<BoardRegisters> OpenRegisters(const BoardPlace& place) {
  if (place.register_bytes < RegisterBytes()) {
    return support::FailedPrecondition(
        "vta.board.registers", StrCat(place.registers, ": expected at least ", RegisterBytes(),
                                      " bytes, found ", place.register_bytes));
  }
  TW_ASSIGN(MappedDevice mapped, MappedDevice::Open({.path = place.registers,
                                                     .bytes = place.register_bytes,
                                                     .uncached = true,
                                                     .exclusive = true}));
  BoardRegisters registers(std::move(mapped));
  if (BoardRegisters::IsDead(registers.Read(Register::kStatus)))
    return support::WithContext(Dead(), place.registers);
  return registers;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> OpenBoard(const BoardPlace& place, support::Clock* clock,
                                                   const BoardTimes& times) {
  TW_ASSIGN(BoardRegisters registers, OpenRegisters(place));
  const auto named = ConfigOf(registers.Read(Register::kIdentity));
  if (!named.ok()) return support::WithContext(named.status(), place.registers);
  const uint32_t clock_khz = registers.Read(Register::kClockKhz);
  if (clock_khz == 0) {
    return support::FailedPrecondition(
        "vta.board.clock", StrCat(place.registers,
                                  ": expected the frequency of the clock in "
                                  "register clock_khz, found 0; set CLOCK_KHZ of vta_core"));
  }
  TW_ASSIGN(MappedDevice memory,
            MappedDevice::Open(
                {.path = place.memory, .bytes = place.memory_bytes, .uncached = place.uncached}));
  auto board = std::make_unique<BoardBackend>(
      BackendInfo{.name = StrCat("vta board ", named->name),
                  .version = StrCat("clock_khz=", clock_khz),
                  .configs = std::string(named->name),
                  .unit = kBoardUnit,
                  .memory_bytes = place.memory_bytes,
                  .base_address = place.memory_address},
      named->config, std::move(registers), std::move(memory), clock, times);
  TW_TRY(board->StopIfBusy());
  return std::unique_ptr<Backend>(std::move(board));
}

}  // namespace tilewright::vta
