#include "tests/support/vta_random_transfers.h"

#include <cstring>

#include "vta/sim/dma.h"

namespace tilewright::tests {
namespace {

using vta::Instruction;
using vta::Memory;
using vta::MicroOp;
using vta::Opcode;

// DRAM: random bytes, then micro-ops, a table of random ones and one for each step, then results.
constexpr int64_t kDataBytes = 1 << 17;
constexpr int64_t kTable = 64;
constexpr int64_t kTargets = 16;  // accumulators that the micro-ops of the table name

class TransferDrawer {
 public:
  TransferDrawer(const vta::Isa& isa, int steps, support::Rng* rng)
      : isa_(isa), steps_(steps), rng_(*rng) {
    while (uops_.size() < kTable)
      uops_.push_back({.dst = Below(kTargets), .src = Below(kTargets), .wgt = 0});
  }

  VtaCase Draw() {
    Accumulators(Move(Opcode::kLoad, Memory::kAcc, 0, 0, kTargets));
    for (int step = 1; step < steps_; ++step) {
      const int64_t kind = Below(3);
      if (kind == 0) Accumulators(Transfer(Memory::kAcc, Below(8) == 0 ? 70 : 12, 6, 0));
      if (kind == 1) MicroOps();
      if (kind == 2) Product();
    }
    stream_.push_back({.op = Opcode::kFinish});
    return {stream_, Image()};
  }

 private:
  int64_t Below(int64_t n) { return rng_.UniformInt(0, n - 1); }
  int64_t Pad(int64_t least) { return Below(2) == 0 ? 0 : least + Below(4); }
  int64_t Bytes(Memory memory) const { return isa_.InfoOf(memory).element_bytes; }
  int64_t FirstUop() const { return kDataBytes / Bytes(Memory::kUop); }

  // A load of elements from `least_sram` on.
  Instruction Transfer(Memory memory, int64_t max_x, int64_t max_y, int64_t least_sram) {
    for (;;) {
      Instruction i = Move(Opcode::kLoad, memory, 0, 0, 1 + Below(max_x));
      i.y_size = Below(max_y + 1);
      i.x_stride = i.x_size + Below(5);
      i.x_pad_0 = Pad(1), i.x_pad_1 = Pad(1), i.y_pad_0 = Pad(0), i.y_pad_1 = Pad(0);
      const int64_t room = isa_.InfoOf(memory).elements - least_sram - ElementsOnChip(i);
      const int64_t dram = kDataBytes / Bytes(memory) - i.y_size * i.x_stride;
      if (room < 0 || dram <= 0 || ElementsOnChip(i) == 0) continue;
      i.sram_base = least_sram + Below(room + 1);
      i.dram_base = Below(dram);
      return i;
    }
  }

  // The number of a micro-op of the stream, which is loaded to the place of this number.
  int64_t Uop(const MicroOp& uop) {
    const auto number = static_cast<int64_t>(uops_.size()) - kTable;
    uops_.push_back(uop);
    Add(Move(Opcode::kLoad, Memory::kUop, number, FirstUop() + kTable + number, 1));
    return number;
  }

  Instruction Loop(Opcode op, int64_t uop, int64_t count) {
    Instruction i = Once(op);
    i.uop_begin = uop, i.uop_end = uop + 1;
    i.iter_in = count, i.dst_factor_in = 1;
    return i;
  }

  void Add(const Instruction& i) { stream_.push_back(i); }
  Instruction& Last() { return stream_.back(); }

  // Adds 0, since out has what an operation last wrote to acc; stores; waits for the store.
  void Show(int64_t element, int64_t count) {
    Instruction touch = Loop(Opcode::kAlu, Uop({.dst = element}), count);
    touch.operation = static_cast<int64_t>(vta::AluOp::kAdd), touch.use_imm = 1;
    touch.push_next = 1;
    Add(touch);
    Instruction store = Move(Opcode::kStore, Memory::kOut, element, results_, count);
    if (count % 3 == 0) {
      store.x_size = count / 3, store.y_size = 3;
      store.x_stride = store.x_size + Below(3);
    }
    results_ += store.y_size * store.x_stride;
    store.pop_prev = store.push_prev = 1;
    Add(store);
    Relay();
    Last().pop_next = 1;
  }
  void Relay() { Add(Move(Opcode::kLoad, Memory::kUop, 0, 0, 0)); }

  void Accumulators(const Instruction& load) {
    Add(load);
    Show(load.sram_base, ElementsOnChip(load));
  }

  // Micro-ops that each add to an accumulator.
  void MicroOps() {
    Instruction load = Transfer(Memory::kUop, 9, 4, steps_ * 2);
    load.x_stride = load.x_size + Below(3);
    const int64_t span = load.y_size == 0 ? 0 : (load.y_size - 1) * load.x_stride + load.x_size;
    load.dram_base = FirstUop() + Below(kTable - span + 1);
    Add(load);
    Instruction add = Once(Opcode::kAlu);
    add.uop_begin = load.sram_base, add.uop_end = load.sram_base + ElementsOnChip(load);
    add.operation = static_cast<int64_t>(Below(2) == 0 ? vta::AluOp::kAdd : vta::AluOp::kMax);
    add.use_imm = Below(2);
    add.imm = add.use_imm != 0 ? 1 + Below(50) : 0;
    Add(add);
    Show(0, kTargets);
  }

  // Every element of inp with the sum of those of wgt.
  void Product() {
    Relay();
    Last().push_prev = 1;
    Instruction inp = Transfer(Memory::kInp, 8, 4, 0);
    inp.x_pad_0 %= 2, inp.y_pad_1 %= 3;
    Instruction wgt = Transfer(Memory::kWgt, 3, 2, 0);
    inp.pop_next = wgt.push_next = 1;
    Add(inp);
    Add(wgt);
    const int64_t count = ElementsOnChip(inp);
    const int64_t acc = Below(isa_.config().acc - count + 1);
    const int64_t uop = Uop({.dst = acc, .src = inp.sram_base, .wgt = wgt.sram_base});
    Instruction clear = Loop(Opcode::kGemm, uop, count);
    clear.reset = clear.pop_prev = 1;
    Add(clear);
    Instruction gemm = Loop(Opcode::kGemm, uop, count);
    gemm.src_factor_in = 1;
    gemm.iter_out = ElementsOnChip(wgt), gemm.wgt_factor_out = 1;
    Add(gemm);
    Show(acc, count);
  }

  std::vector<uint8_t> Image() {
    const int64_t bytes = isa_.config().block * results_;
    std::vector<uint8_t> image(static_cast<size_t>(bytes));
    for (int64_t at = 0; at < kDataBytes; ++at)
      image[static_cast<size_t>(at)] = static_cast<uint8_t>(rng_.NextU64());
    PutUops(isa_, uops_, static_cast<size_t>(kDataBytes), &image);
    return image;
  }

  const vta::Isa& isa_;
  const int steps_;
  support::Rng& rng_;
  std::vector<MicroOp> uops_;
  std::vector<Instruction> stream_;
  // In elements of out: behind the micro-ops, of which a step has two at most.
  int64_t results_ = (kDataBytes + 4 * (kTable + 2 * steps_)) / isa_.config().block + 1;
};

}  // namespace

VtaCase RandomTransfers(const vta::Isa& isa, int steps, support::Rng* rng) {
  return TransferDrawer(isa, steps, rng).Draw();
}

}  // namespace tilewright::tests
