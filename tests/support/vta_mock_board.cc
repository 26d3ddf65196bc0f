#include "tests/support/vta_mock_board.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <sstream>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/vta_streams.h"
#include "vta/sim/cycle_model.h"

namespace tilewright::tests {
namespace {

using support::StrCat;
using vta::Register;
using vta::Status;

constexpr int64_t kPage = 4096;
constexpr int64_t kMostCycles = 50'000'000;  // a stream that takes longer waits for ever
constexpr uint32_t kCyclesPerLook = 1'000'000;
constexpr char kUio[] = "uio3";

support::TempDir MadeFolder(bool for_agents) {
  auto folder = support::TempDir::Create("vta-board", for_agents ? "/dev/shm" : "");
  TW_CHECK(folder.ok()) << support::StatusText(folder.status());
  return *std::move(folder);
}

std::string Hex(int64_t value) {
  std::ostringstream out;
  out << std::hex << value;
  return out.str();
}

}  // namespace

// The hardware's view of a file that the driver maps, too.
struct MockBoard::Mapping {
  Mapping(const std::string& path, int64_t size) : bytes(static_cast<size_t>(size)) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    TW_CHECK(fd >= 0 && ftruncate(fd, size) == 0) << path;
    data = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    TW_CHECK(data != MAP_FAILED) << path;
    close(fd);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(data, bytes); }

  const size_t bytes;
  uint8_t* data = nullptr;
};

MockBoard::MockBoard(const Options& options)
    : options_(options), folder_(MadeFolder(options.for_agents)), fault_(options.fault) {
  MakeTree();
  registers_ = std::make_shared<Mapping>(StrCat(root(), "/dev/", kUio), kPage);
  memory_ = std::make_shared<Mapping>(StrCat(root(), "/dev/", support::BaseName(MemoryFolder())),
                                      options.memory_bytes);
  if (options.for_agents) OpenToAll();
  Set(Register::kIdentity, options.config.Identity());
  Set(Register::kClockKhz, options.clock_khz);
  SetStatus(Status::kBusy, options.busy);
  if (options.fault == BoardFault::kDies) Set(Register::kStatus, 0xffff'ffff);
  thread_ = std::jthread([this](const std::stop_token& stop) { Play(stop); });
}

std::string MockBoard::MemoryFolder() const {
  return StrCat("sys/class/u-dma-buf/tilewright-vta-", Hex(options_.register_address));
}

void MockBoard::Write(const std::string& name, const std::string& text) {
  const std::string path = folder_.File(name);
  ASSERT_TRUE(support::MakeDirs(support::DirName(path)).ok());
  ASSERT_TRUE(support::WriteFileAtomic(path, text).ok());
}

void MockBoard::MakeTree() {
  ASSERT_TRUE(support::MakeDirs(folder_.File("dev")).ok());
  const std::string uio = StrCat("sys/class/uio/", kUio);
  Write(uio + "/name", "tilewright-vta\n");
  Write(uio + "/maps/map0/addr", StrCat("0x", Hex(options_.register_address), "\n"));
  Write(uio + "/maps/map0/size", StrCat("0x", Hex(kPage), "\n"));
  Write("sys/class/uio/uio0/name", "another device\n");
  Write(MemoryFolder() + "/phys_addr", StrCat("0x", Hex(options_.memory_address), "\n"));
  Write(MemoryFolder() + "/size", StrCat(options_.memory_bytes, "\n"));
  Write(MemoryFolder() + "/sync_mode", "2\n");
  Write(MemoryFolder() + "/dma_coherent", "0\n");
}

void MockBoard::OpenToAll() const {
  using std::filesystem::perms;
  constexpr perms kAll = perms::all & ~(perms::group_write | perms::others_write);
  std::filesystem::permissions(root(), kAll);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root())) {
    constexpr perms kFile = perms::owner_read | perms::owner_write | perms::group_read |
                            perms::group_write | perms::others_read | perms::others_write;
    std::filesystem::permissions(entry.path(), entry.is_directory() ? kAll : kFile);
  }
}

uint32_t MockBoard::Read(Register number) const {
  auto* word = reinterpret_cast<uint32_t*>(registers_->data + static_cast<size_t>(number));
  return std::atomic_ref<uint32_t>(*word).load();
}

void MockBoard::Set(Register number, uint32_t value) {
  auto* word = reinterpret_cast<uint32_t*>(registers_->data + static_cast<size_t>(number));
  std::atomic_ref<uint32_t>(*word).store(value);
}

void MockBoard::SetStatus(Status bit, bool on) {
  const uint32_t mask = uint32_t{1} << static_cast<int>(bit), old = Read(Register::kStatus);
  Set(Register::kStatus, on ? old | mask : old & ~mask);
}

void MockBoard::Play(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const uint32_t command = Read(Register::kControl);
    if (command == vta::kControlStart) Start();
    if (command == vta::kControlStop) Stop();
    if (command != 0) Set(Register::kControl, 0);
    if (counting_) Set(Register::kCyclesLow, Read(Register::kCyclesLow) + kCyclesPerLook);
    support::SleepMs(command == 0 ? 1 : 0);
  }
}

void MockBoard::Stop() {
  if (fault_ == BoardFault::kStaysBusy) return;
  counting_ = false;
  SetStatus(Status::kBusy, false);
}

// A stream that is wrong does what the RTL does with it: it stops counting at nothing, says that an
// instruction means nothing, or that something is left.
void MockBoard::Start() {
  ++runs_;
  Set(Register::kCyclesLow, 0);
  Set(Register::kCyclesHigh, 0);
  Set(Register::kStatus, uint32_t{1} << static_cast<int>(Status::kBusy));
  if (fault_ == BoardFault::kDies) return Set(Register::kStatus, 0xffff'ffff);
  counting_ = fault_ == BoardFault::kNeverDone;
  if (fault_ != BoardFault::kNone) return;

  const vta::Isa isa = IsaOf(options_.config);
  std::vector<uint8_t> dram(static_cast<size_t>(options_.memory_address));
  dram.insert(dram.end(), memory_->data, memory_->data + memory_->bytes);
  const std::vector<uint8_t> before(dram);
  const int64_t address = static_cast<int64_t>(Read(Register::kStreamHigh)) << 32 |
                          static_cast<int64_t>(Read(Register::kStreamLow));
  std::vector<vta::Word128> words(Read(Register::kStreamLength));
  std::memcpy(words.data(), dram.data() + address, words.size() * sizeof(vta::Word128));
  const auto ran =
      RunCycles(isa, words, {}, /*seed=*/static_cast<uint64_t>(runs_.load()), &dram, kMostCycles);
  if (ran.ok()) {
    // Only what the stream stored: meanwhile the driver may have written other memory.
    const auto base = static_cast<size_t>(options_.memory_address);
    for (size_t i = 0; i < memory_->bytes; ++i) {
      if (dram[base + i] != before[base + i]) memory_->data[i] = dram[base + i];
    }
    Set(Register::kCyclesLow, static_cast<uint32_t>(ran->cycles));
    Set(Register::kStatus, uint32_t{1} << static_cast<int>(Status::kDone));
    return;
  }
  const std::string slug = support::Slug(ran.status());
  const bool left = slug == "vta.sim.tokens" || slug == "vta.sim.finish";
  if (slug == "vta.sim.deadlock" || slug == "vta.sim.timeout") {
    counting_ = true;
  } else {
    SetStatus(left ? Status::kUnfinished : Status::kIllegal, true);
  }
}

}  // namespace tilewright::tests
