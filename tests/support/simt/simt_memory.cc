#include "tests/support/simt/simt_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::simt {
namespace {

using support::StrCat;

// Each allocation is in the middle of an address range of its own.
constexpr size_t kSlotBytes = size_t{1} << 30, kSlots = 512, kOffset = kSlotBytes / 2;
// The last slot has the shared arrays, with gaps between them.
constexpr size_t kSharedSlot = kSlots - 1, kSharedStep = size_t{1} << 20;
constexpr uint32_t kMany = ~uint32_t{0};

}  // namespace

// The last write of an element, and its reads since: one thread's, or those of several.
struct Memory::Cell {
  uint32_t write_group = 0, write_thread = 0, write_interval = 0;
  uint32_t read_group = 0, read_thread = 0, read_interval = 0;
  uint32_t read_launch = 0;   // Actor::first_group of the reads
  uint32_t write_number = 0;  // of the group's writes to shared memory
  bool written = false;
};

// One for each element. A page of them takes memory once an element of it is touched.
class Memory::Cells {
 public:
  Cells() = default;
  ~Cells() { Unmap(); }
  Cells(const Cells&) = delete;
  Cells& operator=(const Cells&) = delete;

  Cell& operator[](size_t i) { return cells_[i]; }
  // All are as new.
  void Reset(size_t count) {
    static_assert(std::is_trivially_copyable_v<Cell>);
    if (count <= count_) {
      std::fill_n(cells_, count, Cell());
      return;
    }
    Unmap();
    void* pages = mmap(nullptr, count * sizeof(Cell), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TW_CHECK(pages != MAP_FAILED) << "no address space for the emulated device";
    cells_ = static_cast<Cell*>(pages);  // zeros are a new cell's
    count_ = count;
  }

 private:
  void Unmap() {
    if (cells_ != nullptr) munmap(cells_, count_ * sizeof(Cell));
  }

  Cell* cells_ = nullptr;
  size_t count_ = 0;
};

struct Memory::Block {
  std::string name;
  char* address = nullptr;
  size_t bytes = 0, element = 1;
  bool shared = false;
  Cells cells;
  uint32_t device_address = 0;  // of a shared array
};

Memory::Memory() : slots_(kSharedSlot) {
  void* base = mmap(nullptr, kSlotBytes * kSlots, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TW_CHECK(base != MAP_FAILED) << "no address space for the emulated device";
  base_ = static_cast<char*>(base);
}

Memory::~Memory() { munmap(base_, kSlotBytes * kSlots); }

void* Memory::Allocate(size_t bytes, size_t element, std::string name) {
  if (bytes == 0 || bytes > kOffset) return nullptr;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] != nullptr) continue;
    char* address = base_ + i * kSlotBytes + kOffset;
    if (mprotect(address, bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
    slots_[i] = std::make_unique<Block>();
    Block& block = *slots_[i];
    block.name = std::move(name);
    block.address = address;
    block.bytes = bytes;
    block.element = element;
    block.cells.Reset((bytes + element - 1) / element);
    return address;
  }
  return nullptr;
}

void Memory::Free(void* address) {
  Block* block = BlockOf(reinterpret_cast<uintptr_t>(address));
  TW_CHECK(block != nullptr && block->address == address && !block->shared);
  madvise(address, block->bytes, MADV_DONTNEED);
  mprotect(address, block->bytes, PROT_NONE);
  slots_[static_cast<size_t>(static_cast<char*>(address) - base_) / kSlotBytes] = nullptr;
}

void Memory::MarkWritten(const void* address, size_t bytes) {
  Block* block = BlockOf(reinterpret_cast<uintptr_t>(address));
  TW_CHECK(block != nullptr) << "no allocation";
  const auto first = static_cast<size_t>(static_cast<const char*>(address) - block->address);
  for (size_t i = first / block->element; i * block->element < first + bytes; ++i)
    block->cells[i].written = true;
}

void Memory::BeginGroup() {
  shared_in_use_ = 0;
  shared_bytes_ = 0;
  shared_writes_ = 0;
  ordered_.clear();
}

void* Memory::Shared(const char* name, size_t bytes, size_t element, size_t align) {
  for (size_t i = 0; i < shared_in_use_; ++i) {
    if (shared_[i]->name == name) return shared_[i]->address;
  }
  TW_CHECK(bytes <= kSharedStep / 2 && shared_in_use_ < kSlotBytes / kSharedStep) << bytes;
  if (shared_.size() == shared_in_use_) shared_.push_back(std::make_unique<Block>());
  Block& block = *shared_[shared_in_use_];
  char* address = base_ + kSharedSlot * kSlotBytes + shared_in_use_ * kSharedStep;
  if (block.bytes < bytes || block.name.empty()) mprotect(address, bytes, PROT_READ | PROT_WRITE);
  // The gap behind an array is never touched: Check refuses it.
  block.name = name;
  block.address = address;
  block.bytes = bytes;
  block.element = element;
  block.shared = true;
  const size_t before = shared_in_use_ == 0 ? 0
                                            : shared_[shared_in_use_ - 1]->device_address +
                                                  shared_[shared_in_use_ - 1]->bytes;
  block.device_address =
      static_cast<uint32_t>((before + align) / (2 * align) * (2 * align) + align);
  block.cells.Reset((bytes + element - 1) / element);
  std::memset(address, 0xFE, bytes);
  ++shared_in_use_;
  shared_bytes_ += bytes;
  return address;
}

uint32_t Memory::SharedAddress(const void* element) {
  const auto at = reinterpret_cast<uintptr_t>(element);
  const Block* block = IsShared(at) ? BlockOf(at) : nullptr;
  if (block == nullptr) return 0;
  return block->device_address +
         static_cast<uint32_t>(at - reinterpret_cast<uintptr_t>(block->address));
}

const void* Memory::SharedAt(uint32_t address) const {
  for (size_t i = 0; i < shared_in_use_; ++i) {
    const Block& block = *shared_[i];
    if (address >= block.device_address && address < block.device_address + block.bytes)
      return block.address + (address - block.device_address);
  }
  return nullptr;
}

void Memory::OrderWrites(uint32_t thread) { ordered_[thread] = shared_writes_; }

bool Memory::IsShared(uintptr_t address) const {
  return (address - reinterpret_cast<uintptr_t>(base_)) / kSlotBytes == kSharedSlot;
}

const std::string& Memory::NameOf(uintptr_t address) { return BlockOf(address)->name; }

// The allocation of the slot, wherever in it the address is.
Memory::Block* Memory::BlockOf(uintptr_t address) {
  const size_t offset = address - reinterpret_cast<uintptr_t>(base_);
  if (offset >= kSlotBytes * kSlots) return nullptr;
  if (offset / kSlotBytes != kSharedSlot) return slots_[offset / kSlotBytes].get();
  // An access shortly before an array is nearer to it than to the end of the one before.
  const size_t index = (offset % kSlotBytes + kSharedStep / 4) / kSharedStep;
  return index < shared_in_use_ ? shared_[index].get() : nullptr;
}

Fault Memory::CheckCell(const Block& block, Cell& cell, size_t element, const Access& access,
                        const Actor& actor) {
  const uint32_t interval = block.shared ? actor.shared_interval : actor.global_interval;
  const auto race = [&](const char* earlier, uint32_t group, uint32_t thread) {
    const std::string who = thread == kMany        ? "several threads"
                            : group != actor.group ? StrCat("thread ", thread, " of another group")
                                                   : StrCat("thread ", thread);
    return Fault{block.shared ? "simt.race.shared" : "simt.race.global",
                 StrCat("expected a barrier between two accesses of ", block.name, "[", element,
                        "], found that thread ", actor.thread, access.write ? " writes" : " reads",
                        " what ", who, " ", earlier)};
  };
  if (!access.write && !cell.written && (block.shared || !allow_unwritten_)) {
    return {block.shared ? "simt.uninitialised.shared" : "simt.uninitialised.global",
            StrCat("expected a value, found that thread ", actor.thread, " reads ", block.name, "[",
                   element, "], which nothing has written")};
  }
  if (cell.write_group >= actor.first_group) {
    const bool own = cell.write_group == actor.group && cell.write_thread == actor.thread;
    const bool before = cell.write_group == actor.group && cell.write_interval != interval;
    if (!own && !before) return race("has written", cell.write_group, cell.write_thread);
  }
  if (access.by_unit) {
    const auto ordered = ordered_.find(cell.write_thread);
    if (ordered == ordered_.end() || cell.write_number > ordered->second) {
      return {"simt.unordered.shared",
              StrCat("expected that thread ", cell.write_thread, " orders its writes, found that ",
                     block.name, "[", element, "] is read by a unit before")};
    }
  }
  if (access.write) {
    if (block.shared) cell.write_number = ++shared_writes_;
    if (cell.read_launch == actor.first_group) {
      const bool own = cell.read_group == actor.group && cell.read_thread == actor.thread;
      const bool before = cell.read_group == actor.group && cell.read_interval != interval;
      if (!own && !before) return race("has read", cell.read_group, cell.read_thread);
    }
    cell.write_group = actor.group;
    cell.write_thread = actor.thread;
    cell.write_interval = interval;
    cell.written = true;
    return {};
  }
  if (cell.read_launch != actor.first_group) {
    cell.read_group = actor.group;
    cell.read_thread = actor.thread;
  } else if (cell.read_group != actor.group) {
    cell.read_group = kMany;
    cell.read_thread = kMany;
  } else if (cell.read_interval != interval) {
    cell.read_thread = actor.thread;
  } else if (cell.read_thread != actor.thread) {
    cell.read_thread = kMany;
  }
  cell.read_interval = interval;
  cell.read_launch = actor.first_group;
  return {};
}

Fault Memory::Check(const Access& access, const Actor& actor) {
  Block* block = BlockOf(access.address);
  const char* what = access.write ? "write" : "read";
  if (block == nullptr) {
    return {"simt.out_of_bounds",
            StrCat("expected memory of the device, found a ", what, " of ", access.bytes,
                   " bytes elsewhere by thread ", actor.thread)};
  }
  const auto at = static_cast<int64_t>(access.address) -
                  static_cast<int64_t>(reinterpret_cast<uintptr_t>(block->address));
  if (at < 0 || static_cast<size_t>(at) + access.bytes > block->bytes) {
    return {"simt.out_of_bounds",
            StrCat("expected a ", what, " within the ", block->bytes, " bytes of ", block->name,
                   ", found ", access.bytes, " bytes at ", at, " by thread ", actor.thread)};
  }
  if (access.address % access.align != 0) {
    return {"simt.misaligned", StrCat("expected a ", what, " of ", access.bytes, " bytes of ",
                                      block->name, " at a multiple of ", access.align,
                                      ", found one at ", at, " by thread ", actor.thread)};
  }
  const size_t first = static_cast<size_t>(at) / block->element;
  const size_t last = (static_cast<size_t>(at) + access.bytes - 1) / block->element;
  if (access.bytes < block->element) {  // no element of its own: no race is seen
    block->cells[first].written |= access.write;
    return {};
  }
  for (size_t i = first; i <= last; ++i) {
    Fault fault = CheckCell(*block, block->cells[i], i, access, actor);
    if (!fault.none()) return fault;
  }
  return {};
}

}  // namespace tilewright::simt
