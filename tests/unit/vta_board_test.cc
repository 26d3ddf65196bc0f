// The board back end of the accelerator's driver, on a mock board (tests/support/vta_mock_board.h):
// how boards are found, what hardware that fails looks like, who may use a board, the table of the
// plug-in. No board was at hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "deploy/runtime/device_loader.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "tests/support/vta_mock_board.h"
#include "tests/support/vta_programs.h"
#include "tests/support/vta_streams.h"
#include "vta/driver/board_backend.h"
#include "vta/driver/board_registers.h"
#include "vta/driver/simulated_backends.h"
#include "vta/driver/vta_device.h"

namespace tilewright::vta {
namespace {

using support::Slug;
using support::StatusText;
using testing::HasSubstr;
using tests::BoardFault;
using tests::MockBoard;

constexpr int64_t kVectors = 6;
constexpr BoardTimes kTimes = {.stuck_ms = 60};

class VtaBoard : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Backend>> Open(const MockBoard& mock) {
    TW_ASSIGN(const std::vector<BoardPlace> places, FindBoards(mock.root()));
    EXPECT_EQ(places.size(), 1U);
    return OpenBoard(places.at(0), &clock_, kTimes);
  }

  support::SystemClock clock_;
};

// A stream with one program and its operands.
struct Job {
  Job(std::unique_ptr<Backend> backend, const Config& config)
      : Job(std::make_shared<Accelerator>(std::move(backend)), config, 3) {}
  Job(std::shared_ptr<Accelerator> accelerator, const Config& config, int64_t factor)
      : device(std::move(accelerator)) {
    const std::string bytes =
        tests::CodeBytes(config, {tests::ScaleProgram(config, kVectors, factor)});
    code = *device.Load(bytes);
    for (int32_t i = 0; i < kVectors * config.block; ++i) values.push_back(7 * i - 40);
    const auto count = static_cast<int64_t>(values.size());
    operands = {*device.Allocate(4 * count), *device.Allocate(count)};
    std::memcpy(device.Bytes(operands[0]).data(), values.data(), 4 * values.size());
  }
  absl::Status Launch() { return device.Launch(code->Find("scale"), operands); }
  std::vector<int8_t> Result() {
    const std::span<uint8_t> bytes = device.Bytes(operands[1]);
    return {bytes.begin(), bytes.end()};
  }

  VtaDevice device;
  std::unique_ptr<VtaCode> code;
  std::vector<int32_t> values;
  std::vector<DramRange> operands;
};

TEST_F(VtaBoard, EveryConfigurationCountsWhatTheModelCounts) {
  for (const NamedConfig& named : NamedConfigs()) {
    const MockBoard mock({.config = named.config, .clock_khz = 50'000});
    auto board = Open(mock);
    ASSERT_TRUE(board.ok()) << board.status();
    EXPECT_EQ((*board)->info().name, "vta board " + std::string(named.name));
    EXPECT_EQ((*board)->info().configs, named.name);
    EXPECT_EQ((*board)->info().unit, "device_ns");
    Job on_board(*std::move(board), named.config), on_model(MakeCycleModel(), named.config);
    ASSERT_TRUE(on_board.Launch().ok());
    ASSERT_TRUE(on_model.Launch().ok());
    EXPECT_EQ(on_board.Result(), tests::Scaled(on_board.values, 3));
    EXPECT_EQ(on_board.device.cycles(), on_model.device.cycles() * 20);  // 20 ns each
    EXPECT_EQ(mock.runs(), 1);
  }
}

// The files of sysfs, and what is said about each that is wrong.
TEST_F(VtaBoard, FindsItsPlace) {
  const MockBoard mock({.config = {}, .memory_bytes = 3000, .memory_address = 1 << 21});
  const auto places = FindBoards(mock.root());
  ASSERT_TRUE(places.ok()) << places.status();
  ASSERT_EQ(places->size(), 1U);  // the other UIO device is none
  const BoardPlace& place = places->front();
  EXPECT_EQ(place.registers, mock.root() + "/dev/uio3");
  EXPECT_EQ(place.register_address, 0x43c0'0000);
  EXPECT_EQ(place.register_bytes, 4096);
  EXPECT_EQ(place.memory, mock.root() + "/dev/tilewright-vta-43c00000");
  EXPECT_EQ(place.memory_bytes, 2048);  // whole allocations
  EXPECT_EQ(place.memory_address, 1 << 21);
  EXPECT_TRUE(place.uncached);
  EXPECT_EQ(FindBoards(mock.root() + "/nothing")->size(), 0U);
}

TEST_F(VtaBoard, SaysWhatIsWrongWithItsPlace) {
  struct Row {
    const char* file;
    const char* text;
    const char* slug;
    const char* says;
  };
  const Row rows[] = {
      {"sys/class/uio/uio3/maps/map0/addr", "0x", "vta.board.sysfs", "maps/map0/addr: expected"},
      {"sys/class/uio/uio3/maps/map0/size", "-4", "vta.board.sysfs", "found \"-4\""},
      {"sys/class/uio/uio3/maps/map0/addr", "0x44", "vta.board.memory",
       "expected a buffer tilewright-vta-44"},
      {"*/phys_addr", "0x100200", "vta.board.memory", "at 0x100200"},
      {"*/size", "100", "vta.board.memory", "found 0 bytes"},
      {"*/sync_mode", "1", "vta.board.memory", "sync-mode = <2>"},
  };
  for (const Row& row : rows) {
    MockBoard mock({});
    std::string file = row.file;
    if (file.starts_with("*")) file = mock.MemoryFolder() + file.substr(1);
    mock.Write(file, row.text);
    const absl::Status status = FindBoards(mock.root()).status();
    EXPECT_EQ(Slug(status), row.slug) << row.file << ": " << status;
    EXPECT_THAT(StatusText(status), HasSubstr(row.says));
  }
  MockBoard coherent({});  // the cache sees what the hardware writes
  coherent.Write(coherent.MemoryFolder() + "/sync_mode", "1");
  coherent.Write(coherent.MemoryFolder() + "/dma_coherent", "1");
  const auto places = FindBoards(coherent.root());
  ASSERT_TRUE(places.ok()) << places.status();
  EXPECT_FALSE(places->front().uncached);
}

TEST_F(VtaBoard, RefusesHardwareThatItDoesNotKnow) {
  EXPECT_EQ(Slug(Open(MockBoard({.config = {.uop = 64}})).status()), "vta.board.identity");
  EXPECT_EQ(Slug(Open(MockBoard({.clock_khz = 0})).status()), "vta.board.clock");
  EXPECT_EQ(Slug(Open(MockBoard({.fault = BoardFault::kDies})).status()), "vta.board.dead");
  MockBoard small({});
  small.Write("sys/class/uio/uio3/maps/map0/size", "0x10");
  EXPECT_EQ(Slug(Open(small).status()), "vta.board.registers");
  const BoardPlace nowhere{.registers = "/nowhere", .register_bytes = RegisterBytes()};
  EXPECT_EQ(Slug(OpenBoard(nowhere, &clock_, kTimes).status()), "vta.board.open");
}

TEST_F(VtaBoard, EndsWhatAKilledProcessLeftRunning) {
  const MockBoard mock({.busy = true});
  auto board = Open(mock);
  ASSERT_TRUE(board.ok()) << board.status();
  Job job(*std::move(board), {});
  EXPECT_TRUE(job.Launch().ok());
  const MockBoard stuck({.fault = BoardFault::kStaysBusy, .busy = true});
  EXPECT_EQ(Slug(Open(stuck).status()), "vta.board.stuck");
}

TEST_F(VtaBoard, HasOneUserAtATime) {
  const MockBoard mock({});
  auto first = Open(mock);
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = Open(mock).status();
  EXPECT_EQ(Slug(second), "vta.board.busy");
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  first->reset();
  EXPECT_TRUE(Open(mock).ok());
}

// As two modules of a process: nobody waits for ever, nobody sees the other's memory, and cycles
// are those of a stream's own launches.
TEST_F(VtaBoard, StreamsOfAProcessShareIt) {
  constexpr int kLaunches = 12;
  const MockBoard mock({.clock_khz = 50'000});
  auto board = Open(mock);
  ASSERT_TRUE(board.ok()) << board.status();
  const auto shared = std::make_shared<Accelerator>(*std::move(board));
  auto first = std::make_unique<Job>(shared, Config{}, 3),
       second = std::make_unique<Job>(shared, Config{}, 5);
  const auto work = [](Job* job, int factor) {
    for (int i = 0; i < kLaunches; ++i) {
      for (int32_t& value : job->values) value = (value + i) % 40;
      std::memcpy(job->device.Bytes(job->operands[0]).data(), job->values.data(),
                  4 * job->values.size());
      const absl::Status launched = job->Launch();
      ASSERT_TRUE(launched.ok()) << launched;
      ASSERT_EQ(job->Result(), tests::Scaled(job->values, factor));
    }
  };
  std::thread other(work, second.get(), 5);
  work(first.get(), 3);
  other.join();
  Job alone(MakeCycleModel(), {});
  ASSERT_TRUE(alone.Launch().ok());
  EXPECT_EQ(first->device.cycles(), kLaunches * alone.device.cycles() * 20);  // 20 ns each
  EXPECT_EQ(second->device.cycles(), first->device.cycles());
  second.reset();
  EXPECT_EQ(shared->used_bytes(), alone.device.used_bytes());
  EXPECT_TRUE(first->Launch().ok());
  first.reset();
  EXPECT_EQ(shared->used_bytes(), 0);
}

struct FaultRow {
  const char* name;
  BoardFault fault;
  const char* slug;
  absl::StatusCode code;
  bool for_ever;  // until the board is reset
};
class VtaBoardFaults : public VtaBoard, public testing::WithParamInterface<FaultRow> {};

TEST_P(VtaBoardFaults, AreErrorsOfTheLaunch) {
  MockBoard mock({});
  auto board = Open(mock);
  ASSERT_TRUE(board.ok()) << board.status();
  Job job(*std::move(board), {});
  ASSERT_TRUE(job.Launch().ok());
  const int64_t cycles = job.device.cycles();
  mock.set_fault(GetParam().fault);
  const absl::Status failed = job.Launch();
  EXPECT_EQ(Slug(failed), GetParam().slug) << failed;
  EXPECT_EQ(failed.code(), GetParam().code);
  EXPECT_THAT(StatusText(failed), HasSubstr("program scale"));
  EXPECT_EQ(job.device.cycles(), cycles);
  mock.set_fault(BoardFault::kNone);
  const absl::Status next = job.Launch();
  EXPECT_EQ(next.code(),
            GetParam().for_ever ? absl::StatusCode::kUnavailable : absl::StatusCode::kOk)
      << next;
  EXPECT_EQ(job.Result(), tests::Scaled(job.values, 3));
}
INSTANTIATE_TEST_SUITE_P(
    All, VtaBoardFaults,
    testing::Values(FaultRow{"NeverDone", BoardFault::kNeverDone, "vta.board.timeout",
                             absl::StatusCode::kDeadlineExceeded, false},
                    FaultRow{"Frozen", BoardFault::kFrozen, "vta.board.hang",
                             absl::StatusCode::kUnavailable, false},
                    FaultRow{"StaysBusy", BoardFault::kStaysBusy, "vta.board.hang",
                             absl::StatusCode::kUnavailable, true},
                    FaultRow{"Dies", BoardFault::kDies, "vta.board.dead",
                             absl::StatusCode::kUnavailable, true}),
    [](const auto& row) { return std::string(row.param.name); });

// The driver's checks keep such streams away; the board says it all the same.
TEST_F(VtaBoard, WrongStreamsAreNamed) {
  const MockBoard mock({});
  auto opened = Open(mock);
  ASSERT_TRUE(opened.ok()) << opened.status();
  Backend& board = **opened;
  const Isa isa = tests::IsaOf({});
  struct Row {
    const char* slug;
    std::vector<Instruction> stream;
  };
  Instruction padded = tests::Move(Opcode::kStore, Memory::kOut, 0, 1 << 16, 1);
  padded.x_pad_0 = 1;
  Instruction token = tests::Move(Opcode::kLoad, Memory::kInp, 0, 0, 0);
  token.push_next = 1;
  const Instruction finish{.op = Opcode::kFinish};
  Instruction waits = finish;
  waits.pop_prev = 1;
  const Row rows[] = {{"vta.board.illegal", {padded, finish}},
                      {"vta.board.unfinished", {token, finish}},
                      {"vta.board.timeout", {waits}},
                      {"", {finish}}};
  for (const Row& row : rows) {
    const std::vector<Word128> words = *isa.Encode(row.stream);
    std::memcpy(board.memory().data(), words.data(), words.size() * sizeof(Word128));
    const absl::Status status =
        board.Run(isa, {.count = static_cast<int64_t>(words.size()), .max_cycles = 1'000'000})
            .status();
    EXPECT_EQ(Slug(status), row.slug) << status;
  }
  EXPECT_EQ(Slug(board.Grow((1 << 20) + 1)), "vta.driver.memory");
}

// As the runtime and the agent see it: after the simulators, with a name of its own, and with a
// self-test that suits the configuration of the hardware.
TEST_F(VtaBoard, IsADeviceOfThePlugin) {
  const Config block8 = *FindConfig("block8");
  MockBoard mock({.config = block8});
  ASSERT_EQ(setenv("TILEWRIGHT_VTA_ROOT", mock.root().c_str(), 1), 0);
  auto plugin = runtime::DevicePlugin::Open(TILEWRIGHT_DEVICE_VTA);
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  const TwDevicePlugin& table = plugin->table();
  int32_t devices = 0;
  ASSERT_EQ(table.count(&devices), TW_DEVICE_OK);
  TwDevice* d = nullptr;
  char error[256] = {};
  ASSERT_EQ(table.open(devices - 1, &d, error, sizeof(error)), TW_DEVICE_OK) << error;
  TwDeviceInfo info = {};
  info.struct_bytes = sizeof(info);
  ASSERT_EQ(table.describe(d, &info), TW_DEVICE_OK);
  EXPECT_STREQ(info.name, "vta board block8");
  EXPECT_STREQ(info.unit, "device_ns");
  EXPECT_THAT(info.fingerprint, HasSubstr("config_accepts=block8\n"));
  EXPECT_EQ(table.open(devices, &d, error, sizeof(error)), TW_DEVICE_NOT_FOUND);
  TwDevice* stream = nullptr;
  ASSERT_EQ(table.open(devices - 1, &stream, error, sizeof(error)), TW_DEVICE_OK) << error;
  table.close(stream);

  const TwDeviceSelfTest* test = runtime::WholeSelfTestOf(table);
  ASSERT_NE(test, nullptr);
  TwDeviceCode* code = nullptr;
  ASSERT_EQ(table.load(d, test->format, test->code, test->code_bytes, &code), TW_DEVICE_OK)
      << table.last_error(d);
  const std::string other = tests::CodeBytes({}, {tests::ScaleProgram({}, kVectors, 3)});
  TwDeviceCode* refused = nullptr;
  EXPECT_EQ(table.load(d, "vta-stream", other.data(), other.size(), &refused), TW_DEVICE_BAD_CODE);
  EXPECT_THAT(table.last_error(d), HasSubstr("vta.config.other"));
  constexpr int64_t kNumbers = TW_WHOLE_SELF_TEST_ELEMENTS;
  TwDeviceMemory *x = nullptr, *y = nullptr;
  ASSERT_EQ(table.alloc(d, 4 * kNumbers, &x), TW_DEVICE_OK);
  ASSERT_EQ(table.alloc(d, kNumbers, &y), TW_DEVICE_OK);
  std::vector<int32_t> values(kNumbers, 2);
  ASSERT_EQ(table.write(d, {x, 0}, values.data(), 4 * kNumbers), TW_DEVICE_OK);
  const TwDeviceSlice buffers[] = {{x, 0}, {y, 0}};
  TwDeviceLaunch launch = {};
  launch.struct_bytes = sizeof(launch);
  for (int a = 0; a < 3; ++a) launch.grid[a] = launch.group[a] = 1;
  launch.buffers = buffers;
  launch.num_buffers = 2;
  ASSERT_EQ(table.find(d, code, test->kernel, &launch.kernel), TW_DEVICE_OK);
  ASSERT_EQ(table.launch(d, &launch), TW_DEVICE_OK) << table.last_error(d);
  std::vector<int8_t> result(kNumbers);
  ASSERT_EQ(table.read(d, {y, 0}, result.data(), kNumbers), TW_DEVICE_OK);
  EXPECT_EQ(result, std::vector<int8_t>(kNumbers, 2 * 3 + 5));
  mock.set_fault(BoardFault::kDies);
  EXPECT_EQ(table.launch(d, &launch), TW_DEVICE_LOST);
  table.free(d, x);
  table.free(d, y);
  table.unload(d, code);
  table.close(d);
  // What is wrong with a board is said when it is opened, and the other devices are there.
  mock.Write(mock.MemoryFolder() + "/sync_mode", "0");
  ASSERT_EQ(table.count(&devices), TW_DEVICE_OK);
  EXPECT_EQ(table.open(devices, &d, error, sizeof(error)), TW_DEVICE_FAILED);
  EXPECT_THAT(error, HasSubstr("vta.board.memory"));
  ASSERT_EQ(table.open(0, &d, error, sizeof(error)), TW_DEVICE_OK) << error;
  table.close(d);
  unsetenv("TILEWRIGHT_VTA_ROOT");
}

}  // namespace
}  // namespace tilewright::vta
