// A board with the accelerator, without the board: a folder with the files that Linux would show
// (vta/driver/board_place.h), and a thread that plays the hardware on the other side of the mapped
// files. It runs streams by the cycle model, on the memory that the driver maps, and can fail in
// the ways in which hardware fails. The object owns the folder and the thread; set_fault and runs
// are safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "deploy/support/file.h"
#include "vta/isa/isa.h"

namespace tilewright::tests {

enum class BoardFault {
  kNone,
  kNeverDone,  // the next streams never end; their cycles are counted
  kFrozen,     // and no cycles are counted
  kStaysBusy,  // and a stop does not end them
  kDies,       // and the bus reads as ones
};

class MockBoard {
 public:
  struct Options {
    vta::Config config = {};
    uint32_t clock_khz = 100'000;
    int64_t memory_bytes = 1 << 20;
    int64_t memory_address = 1 << 20;
    int64_t register_address = 0x43c0'0000;
    BoardFault fault = BoardFault::kNone;
    bool busy = false;  // as a process leaves it that was killed
    // In /dev, and open to all users: for agents, whose measuring processes get nodes of /dev only.
    bool for_agents = false;
  };
  explicit MockBoard(const Options& options);

  // What stands for "/".
  const std::string& root() const { return folder_.path(); }
  // A file of the tree: "sys/class/uio/uio0/name".
  void Write(const std::string& name, const std::string& text);
  std::string MemoryFolder() const;

  void set_fault(BoardFault fault) { fault_ = fault; }
  int64_t runs() const { return runs_; }  // streams that were started

 private:
  struct Mapping;

  void MakeTree();
  void OpenToAll() const;
  void Play(const std::stop_token& stop);
  void Start();
  void Stop();
  uint32_t Read(vta::Register number) const;
  void Set(vta::Register number, uint32_t value);
  void SetStatus(vta::Status bit, bool on);

  const Options options_;
  support::TempDir folder_;
  std::shared_ptr<Mapping> registers_, memory_;
  std::atomic<BoardFault> fault_;
  std::atomic<int64_t> runs_ = 0;
  bool counting_ = false;
  std::jthread thread_;  // the last member: ends before the others
};

}  // namespace tilewright::tests
