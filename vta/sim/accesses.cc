#include "vta/sim/accesses.h"

#include <algorithm>

#include "vta/sim/dma.h"

namespace tilewright::vta {
namespace {

constexpr int64_t kWordBits = 64;

// Elements of one memory, a bit each.
class ElementSet {
 public:
  explicit ElementSet(int64_t size)
      : size_(size), words_(static_cast<size_t>((size + kWordBits - 1) / kWordBits)) {}

  void Add(int64_t element) {
    if (element >= size_) return;
    words_[static_cast<size_t>(element / kWordBits)] |= uint64_t{1} << (element % kWordBits);
  }

  // Becomes the union of `count` copies of itself, `step` elements apart. Each round doubles the
  // copies. REQUIRES: count >= 1.
  void Repeat(int64_t count, int64_t step) {
    for (int64_t copies = 1; copies < count && step > 0;) {
      const int64_t more = std::min(copies, count - copies);
      if (copies * step >= size_) break;  // what is missing lies beyond the memory
      OrShifted(more * step);
      copies += more;
    }
  }

  void AppendRanges(Memory memory, bool is_write, std::vector<Access>* accesses) const {
    for (int64_t begin = Next(0, true); begin < size_;) {
      const int64_t end = Next(begin, false);
      accesses->push_back({static_cast<int>(memory), begin, end, is_write});
      begin = Next(end, true);
    }
  }

 private:
  void OrShifted(int64_t distance) {
    const auto words = static_cast<size_t>(distance / kWordBits);
    const int64_t bits = distance % kWordBits;
    for (size_t w = words_.size(); w-- > words;) {
      uint64_t moved = words_[w - words] << bits;
      if (bits > 0 && w > words) moved |= words_[w - words - 1] >> (kWordBits - bits);
      words_[w] |= moved;
    }
    if (size_ % kWordBits != 0) words_.back() &= (uint64_t{1} << (size_ % kWordBits)) - 1;
  }

  // The first element from `from` that is in the set, or that is not; size_ if there is none.
  int64_t Next(int64_t from, bool in) const {
    if (from >= size_) return size_;
    auto w = static_cast<size_t>(from / kWordBits);
    uint64_t word = (in ? words_[w] : ~words_[w]) & (~uint64_t{0} << (from % kWordBits));
    while (word == 0 && ++w < words_.size()) word = in ? words_[w] : ~words_[w];
    if (word == 0) return size_;
    return std::min(size_, static_cast<int64_t>(w) * kWordBits + __builtin_ctzll(word));
  }

  int64_t size_;
  std::vector<uint64_t> words_;
};

// What the loops do to one operand: its start in a micro-op, and its steps.
struct Operand {
  Memory memory;
  int64_t MicroOp::* start;
  int64_t Instruction::* factor_out;
  int64_t Instruction::* factor_in;
};
constexpr Operand kDst = {Memory::kAcc, &MicroOp::dst, &Instruction::dst_factor_out,
                          &Instruction::dst_factor_in};
constexpr Operand kInpSrc = {Memory::kInp, &MicroOp::src, &Instruction::src_factor_out,
                             &Instruction::src_factor_in};
constexpr Operand kAccSrc = {Memory::kAcc, &MicroOp::src, &Instruction::src_factor_out,
                             &Instruction::src_factor_in};
constexpr Operand kWgt = {Memory::kWgt, &MicroOp::wgt, &Instruction::wgt_factor_out,
                          &Instruction::wgt_factor_in};

ElementSet ElementsOf(const Isa& isa, const Instruction& i, std::span<const MicroOp> uops,
                      const Operand& operand) {
  ElementSet set(isa.InfoOf(operand.memory).elements);
  for (const MicroOp& uop : uops) set.Add(uop.*operand.start);
  set.Repeat(i.iter_in, i.*operand.factor_in);
  set.Repeat(i.iter_out, i.*operand.factor_out);
  return set;
}

void AppendLoops(const Isa& isa, const Instruction& i, std::span<const MicroOp> all,
                 std::vector<Access>* accesses) {
  const auto size = static_cast<int64_t>(all.size());
  const int64_t begin = std::min(i.uop_begin, size), end = std::min(i.uop_end, size);
  if (i.iter_out == 0 || i.iter_in == 0 || begin >= end) return;
  const auto uops = all.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  accesses->push_back({static_cast<int>(Memory::kUop), begin, end, false});
  const ElementSet dst = ElementsOf(isa, i, uops, kDst);
  dst.AppendRanges(Memory::kAcc, true, accesses);
  dst.AppendRanges(Memory::kOut, true, accesses);
  const auto read = [&](const Operand& operand) {
    ElementsOf(isa, i, uops, operand).AppendRanges(operand.memory, false, accesses);
  };
  if (i.op == Opcode::kGemm && i.reset == 0) {
    read(kInpSrc);
    read(kWgt);
  } else if (i.op == Opcode::kAlu && i.use_imm == 0) {
    read(kAccSrc);
  }
}

void AppendTransfer(const Isa& isa, const Instruction& i, std::vector<Access>* accesses) {
  const bool is_store = i.op == Opcode::kStore;
  const int64_t end =
      std::min(i.sram_base + ElementsOnChip(i), isa.InfoOf(static_cast<Memory>(i.memory)).elements);
  if (i.sram_base < end)
    accesses->push_back({static_cast<int>(i.memory), i.sram_base, end, !is_store});
  int64_t last = -1;
  for (const ByteRange& row : RowsInDram(isa, i)) {
    if (row.begin == last) {
      accesses->back().end = row.end;
    } else {
      accesses->push_back({Access::kDram, row.begin, row.end, is_store});
    }
    last = row.end;
  }
}

}  // namespace

std::vector<Access> AccessesOf(const Isa& isa, const Instruction& i,
                               std::span<const MicroOp> uops) {
  std::vector<Access> accesses;
  switch (i.op) {
    case Opcode::kFinish:
      break;
    case Opcode::kGemm:
    case Opcode::kAlu:
      AppendLoops(isa, i, uops, &accesses);
      break;
    case Opcode::kLoad:
    case Opcode::kStore:
      AppendTransfer(isa, i, &accesses);
      break;
  }
  return accesses;
}

}  // namespace tilewright::vta
