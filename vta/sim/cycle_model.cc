#include "vta/sim/cycle_model.h"

#include <algorithm>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/sim/fetch_unit.h"
#include "vta/sim/read_port.h"
#include "vta/sim/stream_cycles.h"
#include "vta/sim/stream_progress.h"
#include "vta/sim/tokens.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

// A module and the instruction that it runs.
struct Stage {
  enum class Phase { kIdle, kReading, kWorking };
  Phase phase = Phase::kIdle;
  size_t instruction = 0;
  int64_t start = 0;
  int64_t end = 0;                  // of its work, as far as it is known
  std::vector<int64_t> reads = {};  // beats of each request of a load
  size_t next_read = 0;
  int64_t next_request = 0;
  int64_t queued = 0;  // instructions in front of the module
};

// Discrete events: the fetch, the dispatch and each module say when they can act next, and the
// first one acts. Of several in one cycle, the one goes first whose last read request is the
// oldest: so they take turns at the read port.
class Pipeline {
 public:
  Pipeline(const Isa& isa, const Stream& stream, const CycleTiming& timing, int64_t max_cycles,
           Datapath* datapath)
      : isa_(isa),
        stream_(stream),
        timing_(timing),
        max_cycles_(max_cycles),
        datapath_(*datapath),
        progress_(stream),
        port_(timing.dram_latency, timing.outstanding),
        fetch_(static_cast<int64_t>(stream.size()), timing.fetch_burst, timing.fetch_queue,
               timing.bytes_per_beat),
        visible_(stream.size(), kNever) {}

  absl::StatusOr<CycleReport> Run() {
    while (report_.trace.size() < stream_.size()) {
      const size_t unit = NextUnit();
      if (unit == kUnits) return progress_.Deadlock();
      if (now_ > max_cycles_) return TimedOut();
      TW_TRY(Act(unit));
    }
    TW_TRY(progress_.CheckNoTokens());
    report_.cycles = now_;
    report_.counters = datapath_.counters();
    report_.read_beats = port_.beats();
    return std::move(report_);
  }

 private:
  // The modules come first, as in Module.
  static constexpr size_t kFetch = kModules, kDispatch = kModules + 1, kUnits = kModules + 2;

  // Sets now_ to the cycle in which the unit acts; kUnits if none ever will.
  size_t NextUnit() {
    size_t best = kUnits;
    int64_t first = kNever;
    for (size_t unit = 0; unit < kUnits; ++unit) {
      const int64_t at = std::max(now_, NextOf(unit));
      if (at == kNever) continue;
      if (at > first || (at == first && asked_[unit] >= asked_[best])) continue;
      best = unit;
      first = at;
    }
    if (best < kUnits) now_ = first;
    return best;
  }

  int64_t NextOf(size_t unit) const {
    if (unit == kFetch) return fetch_.NextRequest(port_);
    if (unit == kDispatch) return NextDispatch();
    const Stage& stage = stages_[unit];
    switch (stage.phase) {
      case Stage::Phase::kIdle:
        if (!progress_.HasWork(unit) || !progress_.HeadHasTokens(unit)) return kNever;
        return visible_[progress_.Head(unit)];
      case Stage::Phase::kReading:
        return std::max(stage.next_request, port_.Accepts());
      case Stage::Phase::kWorking:
        return progress_.HasRoom(stage.instruction, timing_.token_depth) ? stage.end : kNever;
    }
    return kNever;
  }

  int64_t NextDispatch() const {
    const int64_t at = fetch_.NextDispatch();
    if (at == kNever) return kNever;
    const auto module = static_cast<size_t>(ModuleOf(stream_.instructions[fetch_.next()]));
    return stages_[module].queued < timing_.module_queue ? at : kNever;
  }

  absl::Status Act(size_t unit) {
    if (unit == kFetch) {
      asked_[unit] = ++requests_;
      fetch_.Request(now_, &port_);
      return absl::OkStatus();
    }
    if (unit == kDispatch) {
      const size_t index = fetch_.next();
      visible_[index] = now_ + 1;
      ++stages_[static_cast<size_t>(ModuleOf(stream_.instructions[index]))].queued;
      fetch_.Dispatch(now_);
      return absl::OkStatus();
    }
    switch (stages_[unit].phase) {
      case Stage::Phase::kIdle:
        return Start(unit);
      case Stage::Phase::kReading:
        asked_[unit] = ++requests_;
        Read(&stages_[unit]);
        return absl::OkStatus();
      case Stage::Phase::kWorking:
        End(unit);
        return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status Start(size_t unit) {
    Stage& stage = stages_[unit];
    const std::array<bool, kModules> waited = WaitForRoom();
    stage.instruction = progress_.Start(unit);
    const std::array<bool, kModules> wait = WaitForRoom();
    for (size_t m = 0; m < kModules; ++m) {
      // The giver sees the room in this cycle, which is its last then.
      if (waited[m] && !wait[m]) stages_[m].end = std::max(stages_[m].end, now_ + 1);
    }
    --stage.queued;
    const Instruction& i = stream_.instructions[stage.instruction];
    absl::Status status = datapath_.Execute(i);
    if (status.ok() && i.op == Opcode::kFinish) status = CheckAllDone(unit);
    if (!status.ok())
      return support::WithContext(status, StrCat("instruction ", stage.instruction));
    stage.phase = Stage::Phase::kWorking;
    stage.start = now_;
    stage.end = now_ + CycleTiming::kDecodeCycles;
    switch (i.op) {
      case Opcode::kFinish:
        break;
      case Opcode::kGemm:
      case Opcode::kAlu:
        stage.end += LoopCycles(i, timing_.pipeline_depth);
        break;
      case Opcode::kLoad:
        StartLoad(i, &stage);
        break;
      case Opcode::kStore:
        StartStore(i, &stage);
        break;
    }
    return absl::OkStatus();
  }

  // Every row is one request, or several if it is longer than a burst. The memory takes a beat or a
  // zero of the padding a cycle, so a load lasts at least as long as these.
  void StartLoad(const Instruction& i, Stage* stage) {
    stage->next_request = stage->end;
    stage->end += ElementsOnChip(i);
    if (i.x_size > 0) stage->end -= i.y_size * i.x_size;
    stage->reads.clear();
    stage->next_read = 0;
    for (const ByteRange& row : RowsInDram(isa_, i)) {
      int64_t beats = BeatsOf(row, timing_.bytes_per_beat);
      stage->end += beats;
      for (; beats > timing_.burst_beats; beats -= timing_.burst_beats)
        stage->reads.push_back(timing_.burst_beats);
      stage->reads.push_back(beats);
    }
    if (!stage->reads.empty()) stage->phase = Stage::Phase::kReading;
  }

  void Read(Stage* stage) {
    const int64_t beats = stage->reads[stage->next_read++];
    stage->end = std::max(stage->end, port_.Read(now_, beats) + beats);
    stage->next_request = now_ + 1;
    if (stage->next_read == stage->reads.size()) stage->phase = Stage::Phase::kWorking;
  }

  // A store has the write channel to itself. It is done when DRAM says so.
  void StartStore(const Instruction& i, Stage* stage) {
    int64_t beats = 0;
    for (const ByteRange& row : RowsInDram(isa_, i)) beats += BeatsOf(row, timing_.bytes_per_beat);
    if (beats > 0) stage->end += beats + timing_.dram_latency;
    report_.write_beats += beats;
  }

  void End(size_t unit) {
    Stage& stage = stages_[unit];
    progress_.End(stage.instruction);
    report_.trace.push_back({stage.instruction, static_cast<Module>(unit), stage.start, stage.end});
    report_.busy[unit] += stage.end - stage.start;
    stage.phase = Stage::Phase::kIdle;
  }

  // The modules whose tokens find their queues full.
  std::array<bool, kModules> WaitForRoom() const {
    std::array<bool, kModules> wait = {};
    for (size_t m = 0; m < kModules; ++m) {
      wait[m] = stages_[m].phase == Stage::Phase::kWorking &&
                !progress_.HasRoom(stages_[m].instruction, timing_.token_depth);
    }
    return wait;
  }

  absl::Status TimedOut() const {
    return support::DeadlineExceeded(
        "vta.sim.timeout",
        StrCat("expected the end of the stream within ", max_cycles_, " cycles, found ",
               report_.trace.size(), " of ", stream_.size(), " instructions done"));
  }

  // The finish is the last instruction of its module; the others must be idle.
  absl::Status CheckAllDone(size_t unit) const {
    TW_TRY(progress_.CheckAllStarted());
    for (size_t m = 0; m < kModules; ++m) {
      if (m == unit || stages_[m].phase == Stage::Phase::kIdle) continue;
      return support::FailedPrecondition(
          "vta.sim.finish",
          StrCat("expected all work to be done at finish, found that ", stages_[m].instruction,
                 " still runs: ", Disassemble(stream_.instructions[stages_[m].instruction])));
    }
    return absl::OkStatus();
  }

  const Isa& isa_;
  const Stream& stream_;
  const CycleTiming& timing_;
  const int64_t max_cycles_;
  Datapath& datapath_;
  StreamProgress progress_;
  ReadPort port_;
  FetchUnit fetch_;
  std::vector<int64_t> visible_;  // from which cycle on the module sees an instruction
  std::array<Stage, kModules> stages_;
  int64_t now_ = 0;
  int64_t requests_ = 0;
  std::array<int64_t, kUnits + 1> asked_ = {};  // the read request that was the unit's last
  CycleReport report_;
};

}  // namespace

absl::Status CheckTiming(const CycleTiming& t) {
  const auto check = [](std::string_view name, int64_t least, int64_t value) -> absl::Status {
    if (value >= least) return absl::OkStatus();
    return support::InvalidArgument("vta.sim.timing",
                                    StrCat(name, ": expected at least ", least, ", found ", value));
  };
  TW_TRY(check("dram_latency", 0, t.dram_latency));
  TW_TRY(check("bytes_per_beat", 1, t.bytes_per_beat));
  TW_TRY(check("outstanding", 1, t.outstanding));
  TW_TRY(check("burst_beats", 1, t.burst_beats));
  TW_TRY(check("fetch_burst", 1, t.fetch_burst));
  TW_TRY(check("fetch_queue", t.fetch_burst, t.fetch_queue));
  TW_TRY(check("module_queue", 1, t.module_queue));
  TW_TRY(check("token_depth", 1, t.token_depth));
  return check("pipeline_depth", 0, t.pipeline_depth);
}

absl::StatusOr<CycleReport> RunCycles(const Isa& isa, std::span<const Word128> words,
                                      const CycleTiming& timing, uint64_t seed,
                                      std::vector<uint8_t>* dram, int64_t max_cycles) {
  TW_TRY(CheckTiming(timing));
  TW_ASSIGN(const Stream stream, ReadStream(isa, words));
  Datapath datapath(isa, seed, dram);
  return Pipeline(isa, stream, timing, max_cycles, &datapath).Run();
}

}  // namespace tilewright::vta
