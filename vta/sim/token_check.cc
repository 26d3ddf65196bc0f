#include "vta/sim/token_check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <string>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

constexpr int IdOf(Memory memory) { return static_cast<int>(memory); }

using Clock = std::array<int64_t, kModules>;  // instructions of each module that are done before

struct Node {
  Instruction instruction;
  Module module;
  int64_t place = 0;  // in its module
  Clock clock = {};
  std::vector<Access> accesses;
};

// Sorted, without neighbours that touch: one write of many rows stays few ranges.
void AddElements(std::vector<int64_t> elements, int memory, bool is_write,
                 std::vector<Access>* accesses) {
  std::sort(elements.begin(), elements.end());
  for (int64_t e : elements) {
    bool joins = !accesses->empty() && accesses->back().memory == memory &&
                 accesses->back().is_write == is_write && accesses->back().end >= e;
    if (joins) {
      accesses->back().end = std::max(accesses->back().end, e + 1);
    } else {
      accesses->push_back({memory, e, e + 1, is_write});
    }
  }
}

void AddLoops(const Instruction& i, std::span<const MicroOp> uops, std::vector<Access>* accesses) {
  std::vector<int64_t> dst, src, wgt;
  // The simulator reports micro-ops beyond the memory.
  const int64_t uop_end = std::min(i.uop_end, static_cast<int64_t>(uops.size()));
  for (int64_t o = 0; o < i.iter_out; ++o) {
    for (int64_t n = 0; n < i.iter_in; ++n) {
      for (int64_t u = i.uop_begin; u < uop_end; ++u) {
        const MicroOp& op = uops[static_cast<size_t>(u)];
        dst.push_back(op.dst + o * i.dst_factor_out + n * i.dst_factor_in);
        src.push_back(op.src + o * i.src_factor_out + n * i.src_factor_in);
        wgt.push_back(op.wgt + o * i.wgt_factor_out + n * i.wgt_factor_in);
      }
    }
  }
  accesses->push_back({IdOf(Memory::kUop), i.uop_begin, i.uop_end, false});
  AddElements(dst, IdOf(Memory::kAcc), true, accesses);
  AddElements(std::move(dst), IdOf(Memory::kOut), true, accesses);
  if (i.op == Opcode::kGemm && i.reset == 0) {
    AddElements(std::move(src), IdOf(Memory::kInp), false, accesses);
    AddElements(std::move(wgt), IdOf(Memory::kWgt), false, accesses);
  } else if (i.op == Opcode::kAlu && i.use_imm == 0) {
    AddElements(std::move(src), IdOf(Memory::kAcc), false, accesses);
  }
}

class Checker {
 public:
  Checker(const Isa& isa, const std::vector<uint8_t>& dram)
      : isa_(isa), dram_(dram), uops_(static_cast<size_t>(isa.config().uop)) {}

  absl::Status Read(std::span<const Word128> stream) {
    for (const Word128& word : stream) {
      Node node;
      TW_ASSIGN(node.instruction, isa_.Decode(word));
      node.module = ModuleOf(node.instruction);
      node.place = static_cast<int64_t>(queues_[static_cast<size_t>(node.module)].size());
      LoadUops(node.instruction);
      node.accesses = AccessesOf(isa_, node.instruction, uops_);
      queues_[static_cast<size_t>(node.module)].push_back(nodes_.size());
      nodes_.push_back(std::move(node));
    }
    return absl::OkStatus();
  }
  absl::Status Order();
  absl::Status FindRaces() const;

 private:
  // Micro-ops are loaded and used by one module, so in the order of the stream.
  void LoadUops(const Instruction& i) {
    if (i.op != Opcode::kLoad || i.memory != IdOf(Memory::kUop)) return;
    for (int64_t x = 0; x < i.x_size * i.y_size; ++x) {
      size_t byte = static_cast<size_t>((i.dram_base + x) * 4);
      size_t to = static_cast<size_t>(i.sram_base + x);
      if (byte + 4 > dram_.size() || to >= uops_.size()) continue;  // the simulator reports it
      uint32_t word;
      std::memcpy(&word, dram_.data() + byte, sizeof word);
      uops_[to] = isa_.DecodeUop(word);
    }
  }

  const Isa& isa_;
  const std::vector<uint8_t>& dram_;
  std::vector<MicroOp> uops_;
  std::vector<Node> nodes_;
  std::array<std::vector<size_t>, kModules> queues_;
};

// Runs the stream abstractly, in any one order: clocks do not depend on which.
absl::Status Checker::Order() {
  std::map<std::pair<int, int>, std::deque<Clock>> tokens;
  std::array<Clock, kModules> now = {};
  std::array<size_t, kModules> next = {};
  auto queue = [&](int from, int to) -> std::deque<Clock>& { return tokens[{from, to}]; };
  for (bool moved = true; moved;) {
    moved = false;
    for (int m = 0; m < kModules; ++m) {
      if (next[m] == queues_[m].size()) continue;
      Node& node = nodes_[queues_[m][next[m]]];
      const Instruction& i = node.instruction;
      if ((i.pop_prev != 0 && queue(m - 1, m).empty()) ||
          (i.pop_next != 0 && queue(m + 1, m).empty())) {
        continue;
      }
      for (int step : {-1, 1}) {
        if ((step < 0 ? i.pop_prev : i.pop_next) == 0) continue;
        std::deque<Clock>& from = queue(m + step, m);
        for (int k = 0; k < kModules; ++k) now[m][k] = std::max(now[m][k], from.front()[k]);
        from.pop_front();
      }
      node.clock = now[m];
      now[m][m] = node.place + 1;
      if (i.push_prev != 0) queue(m, m - 1).push_back(now[m]);
      if (i.push_next != 0) queue(m, m + 1).push_back(now[m]);
      ++next[m];
      moved = true;
    }
  }
  for (int m = 0; m < kModules; ++m) {
    if (next[m] == queues_[m].size()) continue;
    size_t index = queues_[m][next[m]];
    return support::FailedPrecondition(
        "vta.tokens.deadlock", StrCat("expected that every instruction runs, found that ", index,
                                      " waits for ever: ", Disassemble(nodes_[index].instruction)));
  }
  for (const auto& [ends, left] : tokens) {
    if (left.empty()) continue;
    return support::FailedPrecondition(
        "vta.tokens.balance",
        StrCat("expected as many pops as pushes, found ", left.size(), " tokens left from ",
               ModuleText(static_cast<Module>(ends.first)), " to ",
               ModuleText(static_cast<Module>(ends.second))));
  }
  return absl::OkStatus();
}

absl::Status Checker::FindRaces() const {
  for (size_t a = 0; a < nodes_.size(); ++a) {
    for (size_t b = a + 1; b < nodes_.size(); ++b) {
      const Node &x = nodes_[a], &y = nodes_[b];
      if (x.module == y.module) continue;
      bool ordered = y.clock[static_cast<size_t>(x.module)] > x.place ||
                     x.clock[static_cast<size_t>(y.module)] > y.place;
      if (ordered) continue;
      for (const Access& p : x.accesses) {
        for (const Access& q : y.accesses) {
          bool conflict = p.memory == q.memory && (p.is_write || q.is_write) && p.begin < q.end &&
                          q.begin < p.end;
          if (!conflict) continue;
          return support::FailedPrecondition(
              "vta.tokens.race",
              StrCat("expected an order between ", a, " and ", b, ", found none: ",
                     Disassemble(x.instruction), " / ", Disassemble(y.instruction), " share ",
                     p.memory == Access::kDram ? "dram" : MemoryText(static_cast<Memory>(p.memory)),
                     " [", std::max(p.begin, q.begin), ", ", std::min(p.end, q.end), ")"));
        }
      }
    }
  }
  return absl::OkStatus();
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
      AddLoops(i, uops, &accesses);
      break;
    case Opcode::kLoad:
    case Opcode::kStore: {
      if (i.x_size == 0) break;
      const MemoryInfo& info = isa.InfoOf(static_cast<Memory>(i.memory));
      bool is_store = i.op == Opcode::kStore;
      int64_t rows = i.y_pad_0 + i.y_size + i.y_pad_1;
      int64_t width = i.x_pad_0 + i.x_size + i.x_pad_1;
      accesses.push_back(
          {static_cast<int>(i.memory), i.sram_base, i.sram_base + rows * width, !is_store});
      for (int64_t y = 0; y < i.y_size; ++y) {
        int64_t first = (i.dram_base + y * i.x_stride) * info.element_bytes;
        accesses.push_back({Access::kDram, first, first + i.x_size * info.element_bytes, is_store});
      }
      break;
    }
  }
  return accesses;
}

absl::Status CheckTokens(const Isa& isa, std::span<const Word128> stream,
                         const std::vector<uint8_t>& dram) {
  Checker checker(isa, dram);
  TW_TRY(checker.Read(stream));
  TW_TRY(checker.Order());
  return checker.FindRaces();
}

}  // namespace tilewright::vta
