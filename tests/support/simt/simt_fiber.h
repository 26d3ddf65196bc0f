// Stacks that a scheduler switches between: one for each thread of an emulated group. One scheduler
// and its fibers are of one thread of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tilewright::simt {

// A set of stacks that run one body each. A fiber runs until it calls Yield or its body returns.
class Fibers {
 public:
  Fibers() = default;
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  // Prepares `count` fibers, each of which will run `body(index)` from its beginning. What ran on
  // them before is forgotten, without destructors.
  void Start(size_t count, std::function<void(size_t)> body);
  // Runs a fiber to its next Yield or its end. REQUIRES: it has not ended.
  void Resume(size_t index);
  // Of the running fiber: back to Resume.
  void Yield();
  bool Ended(size_t index) const { return ended_[index]; }
  // Whether an address is on the stack of a fiber.
  bool OnStack(size_t index, uintptr_t address) const {
    return address - reinterpret_cast<uintptr_t>(stacks_[index]) < kStackBytes;
  }

 private:
  static constexpr size_t kStackBytes = 256 << 10;
  static void Enter();

  std::function<void(size_t)> body_;
  std::vector<char*> stacks_;  // mapped once, then used again
  std::vector<void*> contexts_;
  std::vector<bool> ended_;
  void* scheduler_ = nullptr;
  size_t running_ = 0;
};

}  // namespace tilewright::simt
