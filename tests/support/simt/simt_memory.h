// The memory of an emulated device: allocations far apart, so that an access beyond one meets no
// other, and for each element who touched it when. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tilewright::simt {

// One access of a thread.
struct Access {
  uintptr_t address = 0;
  size_t bytes = 0, align = 1;
  bool write = false;
  bool by_unit = false;  // that sees writes to shared memory once their threads have ordered them
  const void* site = nullptr;
};

// Who runs, and between which barriers. Groups are numbered through all launches, from 1; so are
// the intervals between two barriers.
struct Actor {
  uint32_t group = 0, thread = 0;
  uint32_t shared_interval = 0, global_interval = 0;
  uint32_t first_group = 1;  // of the launch: earlier groups are done
};

// Why an access is not allowed; empty: it is. `kind` is a slug.
struct Fault {
  std::string kind, detail;
  bool none() const { return kind.empty(); }
};

class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Global memory: zeroed, but no element has been written as far as checks go. `element`: its
  // smallest access; smaller ones are checked for their place only. Null if the device has no room.
  void* Allocate(size_t bytes, size_t element, std::string name);
  void Free(void* address);
  // The host wrote, or vouches for, a part of an allocation.
  void MarkWritten(const void* address, size_t bytes);
  // Whether kernels may read a global element that was never written. Default: no.
  void AllowUnwritten(bool allow) { allow_unwritten_ = allow; }

  // The shared arrays of a group. All are unwritten when a group begins.
  void BeginGroup();
  void* Shared(const char* name, size_t bytes, size_t element, size_t align);
  size_t shared_bytes() const { return shared_bytes_; }
  // Addresses as the device has them: arrays one behind the other, each at a multiple of its
  // alignment and of no larger power of two. Without an array there: 0, or null.
  uint32_t SharedAddress(const void* element);
  const void* SharedAt(uint32_t address) const;
  void OrderWrites(uint32_t thread);

  // Checks an access and remembers it.
  Fault Check(const Access& access, const Actor& actor);
  // Of an address that Check allowed.
  bool IsShared(uintptr_t address) const;
  const std::string& NameOf(uintptr_t address);

 private:
  struct Cell;
  class Cells;
  struct Block;

  Block* BlockOf(uintptr_t address);
  Fault CheckCell(const Block& block, Cell& cell, size_t element, const Access& access,
                  const Actor& actor);

  char* base_ = nullptr;
  std::vector<std::unique_ptr<Block>> slots_;  // of global memory; null: free
  std::vector<std::unique_ptr<Block>> shared_;
  size_t shared_in_use_ = 0;  // arrays of the running group
  size_t shared_bytes_ = 0;
  uint32_t shared_writes_ = 0;            // by the running group
  std::map<uint32_t, uint32_t> ordered_;  // by thread: writes before its last order
  bool allow_unwritten_ = false;
};

}  // namespace tilewright::simt
