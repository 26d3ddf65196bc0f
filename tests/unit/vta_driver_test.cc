// The driver of the accelerator: places in DRAM, relocation, code that is refused, launches on both
// simulators, and the limit of cycles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "deploy/runtime/device_loader.h"
#include "deploy/support/clock.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/test_seed.h"
#include "tests/support/vta_mock_board.h"
#include "tests/support/vta_programs.h"
#include "tests/support/vta_random_stream.h"
#include "tests/support/vta_streams.h"
#include "vta/driver/board_backend.h"
#include "vta/driver/dram_allocator.h"
#include "vta/driver/simulated_backends.h"
#include "vta/driver/stream_relocation.h"
#include "vta/driver/vta_device.h"
#ifdef TILEWRIGHT_BUILD_RTL
#include "vta/driver/rtl_backend.h"
#endif
#include "vta/sim/stream_cycles.h"

namespace tilewright::vta {
namespace {

using support::Slug;
using support::StrCat;
using testing::HasSubstr;
using tests::CodeBytes;
using tests::IsaOf;
using tests::Scaled;
using tests::ScaleProgram;

const Config kConfig;
constexpr int64_t kVectors = 6;

TEST(DramAllocatorTest, UsesFreedRangesAgain) {
  DramAllocator dram(4096, 256);
  const int64_t a = *dram.Allocate(1), b = *dram.Allocate(257), c = *dram.Allocate(256);
  EXPECT_EQ(std::vector<int64_t>({a, b, c}), std::vector<int64_t>({0, 256, 768}));
  EXPECT_EQ(dram.used_bytes(), 1024);
  dram.Free(b);
  EXPECT_EQ(*dram.Allocate(512), 256);
  dram.Free(a);
  dram.Free(256);
  EXPECT_EQ(*dram.Allocate(768), 0);  // both were joined
  EXPECT_EQ(dram.high_water(), 1024);
  EXPECT_EQ(*dram.Allocate(3072), 1024);
  EXPECT_EQ(Slug(dram.Allocate(1).status()), "vta.driver.memory");
  dram.Free(c);
  const absl::Status refused = dram.Allocate(257).status();
  EXPECT_THAT(support::StatusText(refused), HasSubstr("at most 256 bytes")) << refused;
  EXPECT_EQ(*dram.Allocate(256), c);
}

TEST(DramAllocatorTest, RefusesSizesThatNoMemoryHas) {
  DramAllocator dram(4096, 256);
  EXPECT_EQ(Slug(dram.Allocate(0).status()), "vta.driver.bytes");
  EXPECT_EQ(Slug(dram.Allocate(-1).status()), "vta.driver.bytes");
  EXPECT_EQ(Slug(dram.Allocate(INT64_MAX).status()), "vta.driver.memory");
}

// Against a list of ranges: none overlap, and what is all free is one range again.
TEST(DramAllocatorTest, RandomAllocationsNeverOverlap) {
  support::Rng rng(tests::TestSeed());
  constexpr int64_t kCapacity = 1 << 16;
  DramAllocator dram(kCapacity, 64);
  std::map<int64_t, int64_t> live;
  for (int step = 0; step < 5000; ++step) {
    if (!live.empty() && rng.Uniform(2) == 0) {
      const auto at = std::next(live.begin(), static_cast<int64_t>(rng.Uniform(live.size())));
      dram.Free(at->first);
      live.erase(at);
      continue;
    }
    const auto bytes = static_cast<int64_t>(1 + rng.Uniform(4000));
    const auto offset = dram.Allocate(bytes);
    if (!offset.ok()) continue;
    ASSERT_EQ(*offset % 64, 0);
    ASSERT_LE(*offset + bytes, kCapacity);
    const auto next = live.lower_bound(*offset);
    ASSERT_TRUE(next == live.end() || *offset + bytes <= next->first);
    if (next != live.begin()) {
      const auto before = std::prev(next);
      ASSERT_LE(before->first + before->second, *offset);
    }
    live[*offset] = bytes;
  }
  for (const auto& [offset, bytes] : live) dram.Free(offset);
  EXPECT_EQ(dram.used_bytes(), 0);
  EXPECT_EQ(*dram.Allocate(kCapacity), 0);
}

TEST(StreamRelocationTest, MovesEachOperandByItself) {
  const Isa isa = IsaOf(kConfig);
  const Program program = ScaleProgram(kConfig, kVectors, 3);
  auto moved = Relocate(isa, program, {.params = {8192, 65536}, .own = 4096});
  ASSERT_TRUE(moved.ok()) << moved.status();
  std::vector<Instruction> expected = program.stream;
  expected[0].dram_base = 4096 / 4;
  expected[1].dram_base = 8192 / 64;
  expected[4].dram_base = 65536 / 16;
  EXPECT_EQ(*moved, expected);
  EXPECT_EQ(*StoredParams(isa, program), (std::vector<bool>{false, true}));
}

TEST(StreamRelocationTest, KeepsThePlaceInsideOfAnOperand) {
  const Isa isa = IsaOf(kConfig);
  Program program = ScaleProgram(kConfig, kVectors, 3);
  program.stream[4].dram_base += 2;
  program.stream[4].x_size = program.stream[4].x_stride = kVectors - 2;
  auto moved = Relocate(isa, program, {.params = {0, 4096}, .own = 0});
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ((*moved)[4].dram_base, 4096 / 16 + 2);
}

struct BadAddress {
  const char* name;
  size_t instruction;
  void (*spoil)(Instruction*);
};
class RefusedAddresses : public testing::TestWithParam<BadAddress> {};
TEST_P(RefusedAddresses, NameTheInstruction) {
  Program program = ScaleProgram(kConfig, kVectors, 3);
  const size_t index = GetParam().instruction;
  GetParam().spoil(&program.stream[index]);
  const absl::Status status =
      Relocate(IsaOf(kConfig), program, {.params = {0, 4096}, .own = 0}).status();
  EXPECT_EQ(Slug(status), "vta.driver.address");
  EXPECT_THAT(support::StatusText(status), HasSubstr(StrCat("instruction ", index, ":")));
  EXPECT_THAT(support::StatusText(status), HasSubstr(Disassemble(program.stream[index])));
}
INSTANTIATE_TEST_SUITE_P(
    All, RefusedAddresses,
    testing::Values(
        BadAddress{"PastTheEnd", 1, [](Instruction* i) { ++i->x_size; }},
        BadAddress{"RowsPastTheEnd", 1, [](Instruction* i) { i->y_size = 2, i->x_stride = 1; }},
        BadAddress{"BeforeAnyParameter", 4, [](Instruction* i) { --i->dram_base; }},
        BadAddress{"DataAsMicroOps", 0, [](Instruction* i) { i->dram_base = 0; }},
        BadAddress{"MoreMicroOpsThanThereAre", 0, [](Instruction* i) { ++i->x_size; }},
        BadAddress{"StoreIntoMicroOps", 4, [](Instruction* i) { i->dram_base = 2048 / 16; }}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(StreamRelocationTest, RefusesPlacesBetweenElements) {
  const Isa isa = IsaOf(kConfig);
  const Program program = ScaleProgram(kConfig, kVectors, 3);
  const absl::Status status = Relocate(isa, program, {.params = {32, 4096}, .own = 0}).status();
  EXPECT_EQ(Slug(status), "vta.driver.alignment");
  EXPECT_THAT(support::StatusText(status), HasSubstr("x: expected a multiple of 64 bytes"));
}

// Instructions one after the other take longer than any run of them, and the limit follows that.
TEST(StreamCyclesTest, BoundsEveryRun) {
  support::Rng rng(tests::TestSeed());
  for (const tests::VtaStreamKind kind : tests::kVtaStreamKinds) {
    for (const NamedConfig& named : NamedConfigs()) {
      for (int round = 0; round < 6; ++round) {
        const Isa isa = IsaOf(named.config);
        CycleTiming timing;
        timing.dram_latency = static_cast<int64_t>(rng.Uniform(200));
        timing.bytes_per_beat = int64_t{1} << rng.Uniform(6);
        timing.burst_beats = static_cast<int64_t>(1 + rng.Uniform(64));
        timing.outstanding = static_cast<int64_t>(1 + rng.Uniform(4));
        const tests::VtaCase c = tests::RandomStream(isa, kind, 40, &rng);
        std::vector<uint8_t> dram = c.dram;
        const std::vector<Word128> words = tests::Encoded(isa, c.stream);
        auto report = RunCycles(isa, words, timing, 1, &dram);
        ASSERT_TRUE(report.ok()) << report.status();
        EXPECT_GE(SerialCycles(isa, c.stream, timing), report->cycles);
        dram = c.dram;
        EXPECT_TRUE(RunCycles(isa, words, timing, 1, &dram, report->cycles).ok());
        dram = c.dram;
        EXPECT_EQ(Slug(RunCycles(isa, words, timing, 1, &dram, report->cycles - 1).status()),
                  "vta.sim.timeout");
      }
    }
  }
}

TEST(StreamCyclesTest, LongLoopsDoNotOverflow) {
  const Isa isa = IsaOf(kConfig);
  Instruction gemm = tests::Once(Opcode::kGemm, 8192);
  gemm.iter_out = gemm.iter_in = (1 << 14) - 1;
  const std::vector<Instruction> stream(100'000, gemm);
  EXPECT_EQ(SerialCycles(isa, stream, {}), kMostSerialCycles);
}

// A board without the board.
class MockedBoard final : public Backend {
 public:
  MockedBoard() : mock_({.config = kConfig}) {
    const auto places = FindBoards(mock_.root());
    TW_CHECK(places.ok() && places->size() == 1) << support::StatusText(places.status());
    auto opened = OpenBoard((*places)[0], &clock_);
    TW_CHECK(opened.ok()) << support::StatusText(opened.status());
    board_ = *std::move(opened);
  }
  const BackendInfo& info() const override { return board_->info(); }
  absl::Status CheckConfig(const Config& config) const override {
    return board_->CheckConfig(config);
  }
  absl::Status Grow(int64_t bytes) override { return board_->Grow(bytes); }
  std::span<uint8_t> memory() override { return board_->memory(); }
  absl::StatusOr<int64_t> Run(const Isa& isa, const StreamRun& run) override {
    return board_->Run(isa, run);
  }

 private:
  support::SystemClock clock_;
  tests::MockBoard mock_;
  std::unique_ptr<Backend> board_;  // ends before the mock
};

struct BackendRow {
  const char* name;
  std::unique_ptr<Backend> (*make)();
};
const BackendRow kBackends[] = {
    {"CycleModel", [] { return MakeCycleModel(); }},
    {"Functional", [] { return MakeFunctionalSimulator(); }},
#ifdef TILEWRIGHT_BUILD_RTL
    {"Rtl", [] { return MakeRtl(CycleTiming().dram_latency); }},
#endif
    {"Board", [] { return std::unique_ptr<Backend>(new MockedBoard); }},
};

// A device with numbers in its memory.
class VtaDeviceTest : public testing::TestWithParam<BackendRow> {
 protected:
  VtaDeviceTest() : device_(GetParam().make()) {}

  template <typename T>
  DramRange Numbers(const std::vector<T>& values) {
    auto range = device_.Allocate(static_cast<int64_t>(values.size() * sizeof(T)));
    EXPECT_TRUE(range.ok()) << range.status();
    std::memcpy(device_.Bytes(*range).data(), values.data(), values.size() * sizeof(T));
    return *range;
  }
  std::vector<int8_t> Bytes(const DramRange& range) {
    const std::span<uint8_t> bytes = device_.Bytes(range);
    return {bytes.begin(), bytes.end()};
  }
  VtaKernel* Loaded(const std::vector<Program>& programs, const Config& config = kConfig) {
    auto code = device_.Load(CodeBytes(config, programs));
    EXPECT_TRUE(code.ok()) << code.status();
    if (!code.ok()) return nullptr;
    codes_.push_back(*std::move(code));
    return codes_.back()->Find(programs[0].name);
  }

  VtaDevice device_;
  std::vector<std::unique_ptr<VtaCode>> codes_;
};

std::vector<int32_t> Ramp(int64_t vectors, int32_t first, int64_t block = 16) {
  std::vector<int32_t> x;
  for (int32_t i = 0; i < vectors * block; ++i) x.push_back(first + 7 * i);
  return x;
}

TEST_P(VtaDeviceTest, RunsOnOperandsWhereverTheyAre) {
  VtaKernel* kernel = Loaded({ScaleProgram(kConfig, kVectors, 3)});
  ASSERT_NE(kernel, nullptr);
  int64_t cycles = 0;
  for (const int32_t first : {-40, 1000, 3}) {
    const std::vector<int32_t> values = Ramp(kVectors, first);
    const DramRange x = Numbers(values), y = Numbers(std::vector<int8_t>(kVectors * 16, 0x55));
    // A part of an allocation has room in front and behind.
    const DramRange wide = Numbers(std::vector<int8_t>(4096 + kVectors * 16 + 64, 0x55));
    const DramRange part{wide.address + 4096, wide.bytes - 4096};
    for (const DramRange& result : {y, part}) {
      const std::vector<DramRange> operands = {x, result};
      for (int again = 0; again < 2; ++again) {
        const absl::Status ran = device_.Launch(kernel, operands);
        ASSERT_TRUE(ran.ok()) << ran;
        EXPECT_GT(device_.cycles(), cycles);
        cycles = device_.cycles();
      }
    }
    EXPECT_EQ(Bytes(y), Scaled(values, 3));
    const std::vector<int8_t> all = Bytes(wide), expected = Scaled(values, 3);
    for (size_t i = 0; i < all.size(); ++i) {
      const size_t at = i - 4096;  // wraps in front
      ASSERT_EQ(all[i], at < expected.size() ? expected[at] : 0x55) << i;
    }
  }
}

TEST_P(VtaDeviceTest, EveryConfigurationAndSeveralProgramsOfACode) {
  int64_t configs = 0;
  const std::vector<std::string> accepted = support::Split(device_.info().configs, ',');
  for (const NamedConfig& named : NamedConfigs()) {
    std::vector<Program> programs = {ScaleProgram(named.config, 2, 3),
                                     ScaleProgram(named.config, kVectors, -2)};
    programs[1].name = "other";
    if (std::find(accepted.begin(), accepted.end(), named.name) == accepted.end()) {
      EXPECT_EQ(Slug(device_.Load(CodeBytes(named.config, programs)).status()), "vta.config.other");
      continue;
    }
    ++configs;
    VtaKernel* first = Loaded(programs, named.config);
    ASSERT_NE(first, nullptr);
    VtaKernel* other = codes_.back()->Find("other");
    EXPECT_EQ(codes_.back()->Find("third"), nullptr);
    ASSERT_NE(other, nullptr);
    const std::vector<int32_t> values = Ramp(kVectors, -9, named.config.block);
    const DramRange x = Numbers(values);
    const DramRange y = Numbers(std::vector<int8_t>(values.size(), 0));
    ASSERT_TRUE(device_.Launch(first, std::vector{x, y}).ok());
    std::vector<int8_t> expected = Scaled(values, 3);
    std::fill(expected.begin() + 2 * named.config.block, expected.end(), int8_t{0});
    EXPECT_EQ(Bytes(y), expected) << named.name;
    ASSERT_TRUE(device_.Launch(other, std::vector{x, y}).ok());
    EXPECT_EQ(Bytes(y), Scaled(values, -2)) << named.name;
  }
  EXPECT_EQ(configs, static_cast<int64_t>(accepted.size()));
}

TEST_P(VtaDeviceTest, LaunchesCostTheSameEachTime) {
  VtaKernel* kernel = Loaded({ScaleProgram(kConfig, kVectors, 3)});
  const DramRange x = Numbers(Ramp(kVectors, 0)), y = Numbers(std::vector<int8_t>(kVectors * 16));
  ASSERT_TRUE(device_.Launch(kernel, std::vector{x, y}).ok());
  const int64_t once = device_.cycles();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(device_.Launch(kernel, std::vector{x, y}).ok());
  EXPECT_EQ(device_.cycles(), 4 * once);
}

TEST_P(VtaDeviceTest, RefusesOperandsThatDoNotFit) {
  VtaKernel* kernel = Loaded({ScaleProgram(kConfig, kVectors, 3)});
  const DramRange x = Numbers(Ramp(kVectors, 0)), y = Numbers(std::vector<int8_t>(kVectors * 16));
  const DramRange inside{x.address + 128, kVectors * 16};
  struct Row {
    std::vector<DramRange> operands;
    const char* slug;
    const char* says;
  };
  const Row rows[] = {
      {{x}, "vta.driver.operands", "expected 2 operands, found 1"},
      {{x, y, y}, "vta.driver.operands", "expected 2 operands, found 3"},
      {{{x.address, x.bytes - 1}, y}, "vta.driver.operands", "x: expected 384 bytes, found 383"},
      {{x, {y.address, 0}}, "vta.driver.operands", "y: expected 96 bytes, found 0"},
      {{x, inside}, "vta.driver.operands", "apart from x"},
      {{x, {y.address + 1, y.bytes + 64}}, "vta.driver.alignment", "instruction 4: y:"},
  };
  for (const Row& row : rows) {
    const absl::Status status = device_.Launch(kernel, row.operands);
    EXPECT_EQ(Slug(status), row.slug) << status;
    EXPECT_THAT(support::StatusText(status), HasSubstr(row.says));
    EXPECT_THAT(support::StatusText(status), HasSubstr("program scale"));
  }
  EXPECT_EQ(device_.cycles(), 0);
  EXPECT_TRUE(device_.Launch(kernel, std::vector{x, y}).ok());
}

TEST_P(VtaDeviceTest, RefusesBadStreamsBeforeTheyRun) {
  struct Row {
    const char* slug;
    void (*spoil)(Program*);
    const char* says;
  };
  const Row rows[] = {
      {"vta.tokens.race", [](Program* p) { p->stream[3].push_next = p->stream[4].pop_prev = 0; },
       "store"},
      {"vta.tokens.deadlock", [](Program* p) { p->stream[3].push_next = 0; }, "waits for ever"},
      {"vta.tokens.balance", [](Program* p) { p->stream[2].push_next = 1; }, "compute to store"},
      {"vta.sim.finish", [](Program* p) { p->stream.pop_back(); }, "finish"},
      {"vta.driver.address", [](Program* p) { p->stream[4].dram_base = p->uop_offset / 16; },
       "instruction 4"},
      {"vta.driver.address", [](Program* p) { ++p->stream[1].x_size; }, "instruction 1"},
      // Hardware would use other elements of its memories.
      {"vta.sim.bounds", [](Program* p) { p->stream[1].sram_base = 2047; },
       "instruction 1: load memory=acc"},
      {"vta.sim.bounds", [](Program* p) { p->stream[2].iter_in = 2049; }, "acc: expected elements"},
      {"vta.sim.bounds", [](Program* p) { p->stream[2].uop_end = 8193; }, "uop: expected elements"},
      {"vta.driver.cycles",
       [](Program* p) {
         p->stream[2].iter_out = p->stream[2].iter_in = 16000;
         p->stream[2].uop_end = 8192;
       },
       "cycles of work"},
      {"vta.driver.memory",
       [](Program* p) {
         p->params.push_back({"z", p->uop_offset, int64_t{1} << 40});
         p->uop_offset += int64_t{1} << 40;
         p->image_bytes += int64_t{1} << 40;
         p->stream[0].dram_base = p->uop_offset / 4 % (int64_t{1} << 32);
       },
       "image"},
  };
  for (const Row& row : rows) {
    Program program = ScaleProgram(kConfig, kVectors, 3);
    row.spoil(&program);
    const absl::Status status = device_.Load(CodeBytes(kConfig, {program})).status();
    EXPECT_EQ(Slug(status), row.slug) << status;
    EXPECT_THAT(support::StatusText(status), HasSubstr("program scale"));
    EXPECT_THAT(support::StatusText(status), HasSubstr(row.says));
  }
}

TEST_P(VtaDeviceTest, RefusesBytesThatAreNoCode) {
  const std::string good = CodeBytes(kConfig, {ScaleProgram(kConfig, kVectors, 3)});
  EXPECT_EQ(Slug(device_.Load("").status()), "vta.code.format");
  EXPECT_EQ(Slug(device_.Load("no code").status()), "vta.code.format");
  // Cut off anywhere, or with a byte changed, code is refused or runs: nothing crashes.
  for (size_t length = 0; length < good.size(); length += 3)
    EXPECT_FALSE(device_.Load(good.substr(0, length)).ok()) << length;
  support::Rng rng(tests::TestSeed());
  const DramRange x = Numbers(Ramp(kVectors, 0)), y = Numbers(std::vector<int8_t>(kVectors * 16));
  int ran = 0;
  for (int round = 0; round < 300; ++round) {
    std::string bytes = good;
    bytes[rng.Uniform(bytes.size())] ^= static_cast<char>(1 << rng.Uniform(8));
    auto code = device_.Load(bytes);
    if (!code.ok()) continue;
    VtaKernel* kernel = (*code)->Find("scale");
    if (kernel != nullptr) ran += device_.Launch(kernel, std::vector{x, y}).ok() ? 1 : 0;
    device_.Unload(*std::move(code));
  }
  EXPECT_GT(ran, 0);
}

// A stream that takes too long, or never ends, ends with an error, and the next one runs.
TEST_P(VtaDeviceTest, BackendsTakeAnotherStreamAfterAnError) {
  const Isa isa = IsaOf(kConfig);
  const std::unique_ptr<Backend> backend = GetParam().make();
  ASSERT_TRUE(backend->Grow(1 << 16).ok());
  constexpr int64_t kStream = 1 << 15;
  Program program = ScaleProgram(kConfig, kVectors, 3);
  const std::vector<int32_t> values = Ramp(kVectors, 11);
  const auto run = [&](bool waits_for_ever, int64_t max_cycles) {
    program.stream[3].push_next = waits_for_ever ? 0 : 1;
    const int64_t base = backend->info().base_address;
    const std::vector<Instruction> moved = *Relocate(
        isa, program,
        {.params = {base, base + program.params[1].offset}, .own = base + program.uop_offset});
    const std::vector<Word128> words = *isa.Encode(moved);
    const std::vector<uint8_t> image = *program.Image(isa);
    const std::span<uint8_t> memory = backend->memory();
    std::copy(image.begin(), image.end(), memory.begin());
    std::memcpy(memory.data(), values.data(), values.size() * sizeof(int32_t));
    std::memcpy(memory.data() + kStream, words.data(), words.size() * sizeof(Word128));
    return backend
        ->Run(isa, {.address = kStream,
                    .count = static_cast<int64_t>(words.size()),
                    .max_cycles = max_cycles})
        .status();
  };
  for (int round = 0; round < 2; ++round) {
    const absl::Status late = run(false, 10), stuck = run(true, 100'000);
    EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
    EXPECT_FALSE(stuck.ok());
    const absl::Status good = run(false, 100'000);
    ASSERT_TRUE(good.ok()) << good;
    const uint8_t* y = backend->memory().data() + program.params[1].offset;
    EXPECT_EQ(std::vector<int8_t>(y, y + kVectors * 16), Scaled(values, 3));
  }
}

TEST_P(VtaDeviceTest, UnloadedCodeGivesItsMemoryBack) {
  const std::string bytes = CodeBytes(kConfig, {ScaleProgram(kConfig, kVectors, 3)});
  auto code = device_.Load(bytes);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(device_.used_bytes(), 2 * kDramAlignment);  // commands and micro-ops
  device_.Unload(*std::move(code));
  EXPECT_EQ(device_.used_bytes(), 0);
  Program bad = ScaleProgram(kConfig, kVectors, 3);
  bad.name = "bad";
  bad.stream[3].push_next = 0;
  // The first of the two programs was in memory when the second was refused.
  EXPECT_FALSE(device_.Load(CodeBytes(kConfig, {ScaleProgram(kConfig, kVectors, 3), bad})).ok());
  EXPECT_EQ(device_.used_bytes(), 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, VtaDeviceTest, testing::ValuesIn(kBackends),
                         [](const auto& row) { return std::string(row.param.name); });

// Memory that never answers in time.
TEST(VtaTimeoutTest, AStreamThatDoesNotEndIsAnError) {
  CycleTiming slow;
  slow.dram_latency = 1'000'000;
  VtaDevice device(MakeCycleModel(slow));
  auto code = device.Load(CodeBytes(kConfig, {ScaleProgram(kConfig, kVectors, 3)}));
  ASSERT_TRUE(code.ok()) << code.status();
  const DramRange x = *device.Allocate(384), y = *device.Allocate(96);
  const absl::Status status = device.Launch((*code)->Find("scale"), std::vector{x, y});
  EXPECT_EQ(Slug(status), "vta.sim.timeout");
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(support::StatusText(status), HasSubstr("of 6 instructions done"));
  EXPECT_EQ(device.cycles(), 0);
}

// The same through the table of the plug-in, as the runtime sees it.
TEST(VtaPluginTest, DevicesHaveNamesAndCountCycles) {
  auto plugin = runtime::DevicePlugin::Open(TILEWRIGHT_DEVICE_VTA);
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  const TwDevicePlugin& table = plugin->table();
  int32_t devices = 0;
  ASSERT_EQ(table.count(&devices), TW_DEVICE_OK);
  std::vector<std::string> names = {"vta cycle model", "vta functional simulator"};
  std::vector<std::string> units = {"simulated_cycles", "simulated_cycles"};
#ifdef TILEWRIGHT_BUILD_RTL
  names.emplace_back("vta rtl");
  units.emplace_back("rtl_cycles");
#endif
  ASSERT_EQ(static_cast<size_t>(devices), names.size());
  std::vector<std::string> fingerprints;
  for (int32_t index = 0; index < devices; ++index) {
    TwDevice* device = nullptr;
    ASSERT_EQ(table.open(index, &device, nullptr, 0), TW_DEVICE_OK);
    TwDeviceInfo info = {};
    info.struct_bytes = sizeof(info);
    ASSERT_EQ(table.describe(device, &info), TW_DEVICE_OK);
    EXPECT_EQ(info.name, names[static_cast<size_t>(index)]);
    EXPECT_EQ(info.unit, units[static_cast<size_t>(index)]);
    EXPECT_EQ(info.device_timer, 1);
    fingerprints.emplace_back(info.fingerprint);
    EXPECT_THAT(fingerprints.back(), HasSubstr("config_accepts=block16,block8,block32\n"));
    // The RTL was built for those with a name.
    const bool any = fingerprints.back().find("\nweights_accepts=*\n") != std::string::npos;
    EXPECT_EQ(any, index < 2);
    table.close(device);
  }
  EXPECT_EQ(std::set(fingerprints.begin(), fingerprints.end()).size(), names.size());
}

// The program has no products. Reads: a micro-op, 96 numbers, 6 instructions of 16 bytes.
void ExpectTraceOfScale(const TwDeviceTrace& trace, int64_t cycles) {
  EXPECT_STREQ(trace.program, "scale");
  EXPECT_EQ(trace.time, cycles) << "a launch takes the same, seen or not";
  EXPECT_EQ(trace.work, 0);
  EXPECT_EQ(trace.bytes, 8 + 4 * 96 + 6 * 16);
  EXPECT_EQ(trace.peak_work, 1);
  EXPECT_EQ(trace.peak_bytes, 8);
  EXPECT_THAT(trace.picture, testing::StartsWith("<svg"));
  EXPECT_THAT(trace.events, HasSubstr("\"traceEvents\""));
}

TEST(VtaPluginTest, LaunchesThroughTheTable) {
  auto plugin = runtime::DevicePlugin::Open(TILEWRIGHT_DEVICE_VTA);
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  const TwDevicePlugin& table = plugin->table();
  const std::string bytes = CodeBytes(kConfig, {ScaleProgram(kConfig, kVectors, 3)});
  int32_t devices = 0;
  ASSERT_EQ(table.count(&devices), TW_DEVICE_OK);
  for (int32_t index = 0; index < devices; ++index) {
    TwDevice* d = nullptr;
    ASSERT_EQ(table.open(index, &d, nullptr, 0), TW_DEVICE_OK);
    const auto error = [&] { return std::string(table.last_error(d)); };
    TwDeviceCode* code = nullptr;
    ASSERT_EQ(table.load(d, "vta-stream", "x", 1, &code), TW_DEVICE_BAD_CODE);
    ASSERT_EQ(table.load(d, "vta-stream", bytes.data(), bytes.size(), &code), TW_DEVICE_OK)
        << error();
    TwDeviceMemory *x = nullptr, *y = nullptr;
    const std::vector<int32_t> values = Ramp(kVectors, 5);
    ASSERT_EQ(table.alloc(d, 384, &x), TW_DEVICE_OK);
    ASSERT_EQ(table.alloc(d, 96, &y), TW_DEVICE_OK);
    ASSERT_EQ(table.write(d, {x, 0}, values.data(), 384), TW_DEVICE_OK);
    TwDeviceEvent *from = nullptr, *to = nullptr;
    ASSERT_EQ(table.event_create(d, &from), TW_DEVICE_OK);
    ASSERT_EQ(table.event_create(d, &to), TW_DEVICE_OK);
    const TwDeviceSlice buffers[] = {{x, 0}, {y, 0}};
    TwDeviceLaunch launch = {};
    launch.struct_bytes = sizeof(launch);
    for (int a = 0; a < 3; ++a) launch.grid[a] = launch.group[a] = 1;
    launch.buffers = buffers;
    launch.num_buffers = 2;
    ASSERT_EQ(table.find(d, code, "scale", &launch.kernel), TW_DEVICE_OK) << error();
    ASSERT_EQ(table.event_record(d, from), TW_DEVICE_OK);
    ASSERT_EQ(table.launch(d, &launch), TW_DEVICE_OK) << error();
    ASSERT_EQ(table.event_record(d, to), TW_DEVICE_OK);
    ASSERT_EQ(table.synchronize(d), TW_DEVICE_OK);
    int64_t cycles = 0;
    ASSERT_EQ(table.event_elapsed(d, from, to, &cycles), TW_DEVICE_OK);
    EXPECT_GT(cycles, kVectors);
    std::vector<int8_t> result(96);
    ASSERT_EQ(table.read(d, {y, 0}, result.data(), 96), TW_DEVICE_OK);
    EXPECT_EQ(result, Scaled(values, 3));
    const TwDeviceTrace* trace = nullptr;
    const TwDeviceResult traced = table.trace(d, &launch, &trace);
    if (index == 0) {
      ASSERT_EQ(traced, TW_DEVICE_OK) << error();
      ExpectTraceOfScale(*trace, cycles);
    } else {
      EXPECT_EQ(traced, TW_DEVICE_UNSUPPORTED);
      EXPECT_THAT(error(), HasSubstr("vta.driver.trace"));
    }
    // What no launch of this device has.
    launch.grid[1] = 2;
    EXPECT_EQ(table.launch(d, &launch), TW_DEVICE_UNSUPPORTED);
    launch.grid[1] = 1;
    const int64_t size = 1;
    launch.sizes = &size;
    launch.num_sizes = 1;
    EXPECT_EQ(table.launch(d, &launch), TW_DEVICE_INVALID);
    launch.num_sizes = 0;
    launch.num_buffers = 1;
    EXPECT_EQ(table.launch(d, &launch), TW_DEVICE_INVALID);
    EXPECT_THAT(error(), HasSubstr("vta.driver.operands: program scale"));
    for (TwDeviceEvent* event : {from, to}) table.event_destroy(d, event);
    table.free(d, x);
    table.free(d, y);
    table.unload(d, code);
    table.close(d);
  }
}

}  // namespace
}  // namespace tilewright::vta
