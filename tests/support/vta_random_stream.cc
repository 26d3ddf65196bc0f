#include "tests/support/vta_random_stream.h"

#include <algorithm>
#include <array>

#include "vta/sim/accesses.h"

namespace tilewright::tests {
namespace {

using vta::Access;
using vta::Instruction;
using vta::Memory;
using vta::MicroOp;
using vta::Module;
using vta::Opcode;

// Elements of each memory that streams use, and micro-ops in DRAM.
constexpr int64_t kUsed = 16, kUopsInDram = 32;
// The image has room for so many elements of the largest memory. Micro-ops come first.
constexpr int64_t kImageElements = 48;
constexpr double kNeedlessTokens = 0.2;

// Adds tokens to a stream while it is made.
class Builder {
 public:
  Builder(const vta::Isa& isa, std::vector<MicroOp> in_dram, support::Rng* rng)
      : isa_(isa),
        in_dram_(std::move(in_dram)),
        uops_(static_cast<size_t>(isa.config().uop)),
        rng_(*rng) {}

  void Add(const Instruction& i) {
    if (i.op == Opcode::kLoad && static_cast<Memory>(i.memory) == Memory::kUop) {
      std::copy_n(in_dram_.begin() + i.dram_base, i.x_size, uops_.begin() + i.sram_base);
    }
    const std::vector<Access> accesses = vta::AccessesOf(isa_, i, uops_);
    const size_t mine = ModuleIndex(i);
    Event event{i, accesses};
    if (mine == kCompute) {
      Wait(&event, mine, kLoad, 0);
      Wait(&event, mine, kStore, 0);
    } else {
      const size_t relay = Relay(accesses, mine, kLoad + kStore - mine);
      Wait(&event, mine, kCompute, relay);
    }
    queues_[mine].push_back(events_.size());
    events_.push_back(std::move(event));
  }

  std::vector<Instruction> Take() {
    Event finish{Instruction{.op = Opcode::kFinish}, {}};
    for (size_t other : {kLoad, kStore}) Connect(&finish, kCompute, other, queues_[other].size());
    events_.push_back(finish);
    std::vector<Instruction> stream;
    for (const Event& e : events_) stream.push_back(e.instruction);
    return stream;
  }

 private:
  struct Event {
    Instruction instruction;
    std::vector<Access> accesses;
  };
  static constexpr size_t kLoad = static_cast<size_t>(Module::kLoad);
  static constexpr size_t kCompute = static_cast<size_t>(Module::kCompute);
  static constexpr size_t kStore = static_cast<size_t>(Module::kStore);
  static size_t ModuleIndex(const Instruction& i) { return static_cast<size_t>(ModuleOf(i)); }

  static bool Conflict(const std::vector<Access>& a, const std::vector<Access>& b) {
    for (const Access& x : a) {
      for (const Access& y : b) {
        if (x.memory == y.memory && (x.is_write || y.is_write) && x.begin < y.end &&
            y.begin < x.end) {
          return true;
        }
      }
    }
    return false;
  }

  // How many instructions of `other` must be done before one with these accesses; 0 if its first
  // `known` suffice.
  size_t LastConflict(const std::vector<Access>& accesses, size_t other, size_t known) const {
    for (size_t n = queues_[other].size(); n > known; --n) {
      if (Conflict(events_[queues_[other][n - 1]].accesses, accesses)) return n;
    }
    return 0;
  }

  // `later`, of module `mine`, waits for the n-th instruction of `other`.
  void Connect(Event* later, size_t mine, size_t other, size_t n) {
    if (n <= done_[mine][other]) return;
    Instruction& earlier = events_[queues_[other][n - 1]].instruction;
    (other < mine ? earlier.push_next : earlier.push_prev) = 1;
    (other < mine ? later->instruction.pop_prev : later->instruction.pop_next) = 1;
    done_[mine][other] = n;
  }

  // Waits for what conflicts, and for the first `least` instructions in any case.
  void Wait(Event* later, size_t mine, size_t other, size_t least) {
    size_t n = std::max(least, LastConflict(later->accesses, other, done_[mine][other]));
    if (n == 0 && rng_.Bernoulli(kNeedlessTokens)) n = queues_[other].size();
    Connect(later, mine, other, n);
  }

  // Load and store are no neighbours: an instruction of compute that only moves tokens waits for
  // the earlier one, and the later one for it. Returns how many of compute the later one needs.
  size_t Relay(const std::vector<Access>& accesses, size_t mine, size_t other) {
    const size_t n = LastConflict(accesses, other, relayed_[mine]);
    if (n == 0) return 0;
    relayed_[mine] = n;
    Event relay{Move(Opcode::kLoad, Memory::kUop, 0, 0, 0), {}};
    Connect(&relay, kCompute, other, n);
    queues_[kCompute].push_back(events_.size());
    events_.push_back(std::move(relay));
    return queues_[kCompute].size();
  }

  const vta::Isa& isa_;
  const std::vector<MicroOp> in_dram_;
  std::vector<MicroOp> uops_;
  support::Rng& rng_;
  std::vector<Event> events_;
  std::array<std::vector<size_t>, vta::kModules> queues_;
  // How many instructions of the second module the tokens make the first one wait for so far:
  // straight from it, and over compute.
  size_t done_[vta::kModules][vta::kModules] = {};
  std::array<size_t, vta::kModules> relayed_ = {};
};

// Draws instructions one by one.
class Drawer {
 public:
  Drawer(const vta::Isa& isa, VtaStreamKind kind, support::Rng* rng)
      : isa_(isa), kind_(kind), rng_(*rng) {}

  std::vector<uint8_t> Image() {
    std::vector<uint8_t> image(
        static_cast<size_t>(kImageElements * isa_.InfoOf(Memory::kWgt).element_bytes));
    for (uint8_t& byte : image) byte = static_cast<uint8_t>(rng_.NextU64());
    return image;
  }

  // From here, loops of at most three iterations with steps of at most two stay within kUsed.
  std::vector<MicroOp> Uops() {
    std::vector<MicroOp> uops = {{}};
    while (uops.size() < kUopsInDram)
      uops.push_back({.dst = Below(8), .src = Below(8), .wgt = Below(8)});
    return uops;
  }

  // Writes everything that later instructions read.
  std::vector<Instruction> Start() {
    std::vector<Instruction> start = {Move(Opcode::kLoad, Memory::kUop, 0, 0, kUsed)};
    for (Memory memory : {Memory::kInp, Memory::kWgt, Memory::kAcc})
      start.push_back(Move(Opcode::kLoad, memory, 0, FirstElement(memory), kUsed));
    Instruction touch = Once(Opcode::kAlu);  // out has what an operation last wrote to acc
    touch.iter_in = kUsed, touch.dst_factor_in = 1;
    touch.operation = static_cast<int64_t>(vta::AluOp::kAdd), touch.use_imm = 1;
    start.push_back(touch);
    return start;
  }

  Instruction Next() {
    const bool products = kind_ != VtaStreamKind::kElementwise;
    const bool elementwise = kind_ != VtaStreamKind::kProducts;
    for (;;) {
      switch (Below(8)) {
        case 0:
          if (products) return Transfer(Opcode::kLoad, Memory::kInp);
          break;
        case 1:
          if (products) return Transfer(Opcode::kLoad, Memory::kWgt);
          break;
        case 2:
          if (products) return Gemm();
          break;
        case 3:
          if (elementwise) return Transfer(Opcode::kLoad, Memory::kAcc);
          break;
        case 4:
          if (elementwise || Below(3) == 0) return Alu();
          break;
        case 5:
          if (kind_ == VtaStreamKind::kMixed)
            return Move(Opcode::kLoad, Memory::kUop, Below(kUsed - 4), Below(kUopsInDram - 4), 4);
          break;
        default:
          return Transfer(Opcode::kStore, Memory::kOut);
      }
    }
  }

 private:
  int64_t Below(int64_t n) { return rng_.UniformInt(0, n - 1); }

  // In DRAM, beyond the micro-ops.
  int64_t FirstElement(Memory memory) const {
    const int64_t bytes = isa_.InfoOf(memory).element_bytes;
    return (kUopsInDram * 4 + bytes - 1) / bytes;
  }

  // Mixed streams load from where they store; others store to the second half of the image.
  int64_t PlaceInDram(Opcode op, Memory memory) {
    const int64_t offset = kImageElements / 2 * isa_.InfoOf(Memory::kWgt).element_bytes /
                           isa_.InfoOf(memory).element_bytes;
    const bool apart = op == Opcode::kStore && kind_ != VtaStreamKind::kMixed;
    return (apart ? offset : FirstElement(memory)) + Below(8);
  }

  Instruction Transfer(Opcode op, Memory memory) {
    Instruction i = Move(op, memory, 0, PlaceInDram(op, memory), 1 + Below(3));
    i.y_size = 1 + Below(2);
    i.x_stride = i.x_size + Below(3);
    if (op == Opcode::kLoad && Below(3) == 0) i.y_pad_0 = Below(2), i.x_pad_1 = Below(2);
    const int64_t elements = (i.y_pad_0 + i.y_size) * (i.x_size + i.x_pad_1);
    i.sram_base = Below(kUsed - elements + 1);
    return i;
  }

  Instruction Loop(Opcode op) {
    Instruction i = Once(op);
    i.uop_begin = Below(kUsed - 2), i.uop_end = i.uop_begin + 1 + Below(2);
    i.iter_out = 1 + Below(3), i.iter_in = 1 + Below(3);
    i.dst_factor_out = Below(3), i.dst_factor_in = Below(3);
    i.src_factor_out = Below(3), i.src_factor_in = Below(3);
    return i;
  }

  Instruction Gemm() {
    Instruction i = Loop(Opcode::kGemm);
    i.wgt_factor_out = Below(3), i.wgt_factor_in = Below(3);
    const int64_t kind = Below(5);
    i.reset = kind == 0 ? 1 : 0;
    i.overwrite = kind == 1 ? 1 : 0;
    return i;
  }

  Instruction Alu() {
    Instruction i = Loop(Opcode::kAlu);
    i.operation = Below(vta::kAluOps);
    const bool requantises = i.operation == static_cast<int64_t>(vta::AluOp::kRequantise);
    i.use_imm = requantises ? 0 : Below(2);
    i.imm = requantises ? Below(63) : Below(20) - 4;
    return i;
  }

  const vta::Isa& isa_;
  const VtaStreamKind kind_;
  support::Rng& rng_;
};

}  // namespace

std::string_view VtaStreamKindText(VtaStreamKind kind) {
  constexpr std::string_view kTexts[] = {"products", "elementwise", "mixed"};
  return kTexts[static_cast<size_t>(kind)];
}

VtaCase RandomStream(const vta::Isa& isa, VtaStreamKind kind, int length, support::Rng* rng) {
  Drawer drawer(isa, kind, rng);
  VtaCase made;
  made.dram = drawer.Image();
  const std::vector<MicroOp> uops = drawer.Uops();
  PutUops(isa, uops, 0, &made.dram);
  Builder builder(isa, uops, rng);
  for (const Instruction& i : drawer.Start()) builder.Add(i);
  for (int n = 0; n < length; ++n) builder.Add(drawer.Next());
  made.stream = builder.Take();
  return made;
}

}  // namespace tilewright::tests
