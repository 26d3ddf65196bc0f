#include "vta/sim/functional_sim.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <string>

#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

// Wrapping 32-bit arithmetic.
int32_t Wrap(int64_t value) { return static_cast<int32_t>(static_cast<uint32_t>(value)); }

// An accumulator: the first lanes that the configuration has.
using Lanes = std::array<int32_t, 32>;

class Simulator {
 public:
  Simulator(const Isa& isa, uint64_t seed, std::vector<uint8_t>* dram)
      : isa_(isa), block_(static_cast<size_t>(isa.config().block)), rng_(seed), dram_(*dram) {
    for (const MemoryInfo& m : isa.Memories()) {
      std::vector<uint8_t>& bytes = sram_[static_cast<size_t>(m.memory)];
      bytes.resize(static_cast<size_t>(m.element_bytes * m.elements));
      for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng_.NextU64());
    }
  }

  absl::Status Run(std::span<const Word128> stream);
  const SimCounters& counters() const { return counters_; }

 private:
  struct Pending {
    size_t index;
    Instruction instruction;
  };

  int64_t& TokensTo(Module from, Module to) {
    return tokens_[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }
  // The tokens that an instruction pops and pushes.
  std::vector<int64_t*> Pops(const Instruction& i);
  std::vector<int64_t*> Pushes(const Instruction& i);
  bool Ready(const Instruction& i);
  absl::Status Step(Module module);
  absl::Status Execute(const Instruction& i);
  absl::Status Transfer(const Instruction& i);
  absl::Status Loops(const Instruction& i);
  absl::Status Gemm(const Instruction& i, const MicroOp& at);
  absl::Status Alu(const Instruction& i, const MicroOp& at);
  // An element of a memory; null with an error outside of it.
  absl::StatusOr<uint8_t*> Element(Memory memory, int64_t index);
  absl::Status StoreAcc(int64_t index, const Lanes& values);
  absl::StatusOr<Lanes> LoadAcc(int64_t index);

  const Isa& isa_;
  const size_t block_;
  support::Rng rng_;
  std::vector<uint8_t>& dram_;
  std::array<std::vector<uint8_t>, 8> sram_;
  std::array<std::deque<Pending>, kModules> queues_;
  int64_t tokens_[kModules][kModules] = {};
  SimCounters counters_;
};

std::vector<int64_t*> Simulator::Pops(const Instruction& i) {
  Module module = ModuleOf(i);
  std::vector<int64_t*> pops;
  auto neighbour = [&](int step) { return static_cast<Module>(static_cast<int>(module) + step); };
  if (i.pop_prev != 0) pops.push_back(&TokensTo(neighbour(-1), module));
  if (i.pop_next != 0) pops.push_back(&TokensTo(neighbour(+1), module));
  return pops;
}

std::vector<int64_t*> Simulator::Pushes(const Instruction& i) {
  Module module = ModuleOf(i);
  std::vector<int64_t*> pushes;
  auto neighbour = [&](int step) { return static_cast<Module>(static_cast<int>(module) + step); };
  if (i.push_prev != 0) pushes.push_back(&TokensTo(module, neighbour(-1)));
  if (i.push_next != 0) pushes.push_back(&TokensTo(module, neighbour(+1)));
  return pushes;
}

bool Simulator::Ready(const Instruction& i) {
  for (const int64_t* token : Pops(i)) {
    if (*token == 0) return false;
  }
  return true;
}

absl::StatusOr<uint8_t*> Simulator::Element(Memory memory, int64_t index) {
  const MemoryInfo& info = isa_.InfoOf(memory);
  if (index < 0 || index >= info.elements) {
    return support::InvalidArgument(
        "vta.sim.bounds",
        StrCat(info.text, ": expected an element below ", info.elements, ", found ", index));
  }
  return sram_[static_cast<size_t>(memory)].data() + index * info.element_bytes;
}

absl::Status Simulator::Transfer(const Instruction& i) {
  const Memory memory = static_cast<Memory>(i.memory);
  const MemoryInfo& info = isa_.InfoOf(memory);
  const bool is_store = i.op == Opcode::kStore;
  const bool padded = i.y_pad_0 != 0 || i.y_pad_1 != 0 || i.x_pad_0 != 0 || i.x_pad_1 != 0;
  if (i.x_size == 0) return absl::OkStatus();
  if ((memory == Memory::kOut) != is_store || (is_store && padded)) {
    return support::InvalidArgument(
        "vta.sim.illegal",
        StrCat("expected a load, or a store of out without padding, found ", Disassemble(i)));
  }
  int64_t sram = i.sram_base;
  const int64_t width = i.x_pad_0 + i.x_size + i.x_pad_1;
  for (int64_t y = 0; y < i.y_pad_0 + i.y_size + i.y_pad_1; ++y) {
    for (int64_t x = 0; x < width; ++x, ++sram) {
      TW_ASSIGN(uint8_t* element, Element(memory, sram));
      const int64_t row = y - i.y_pad_0, column = x - i.x_pad_0;
      if (row < 0 || row >= i.y_size || column < 0 || column >= i.x_size) {
        std::memset(element, 0, static_cast<size_t>(info.element_bytes));
        continue;
      }
      const int64_t byte = (i.dram_base + row * i.x_stride + column) * info.element_bytes;
      if (byte < 0 || byte + info.element_bytes > static_cast<int64_t>(dram_.size())) {
        return support::InvalidArgument(
            "vta.sim.bounds", StrCat("expected a DRAM address below ", dram_.size(), ", found ",
                                     byte, " of ", Disassemble(i)));
      }
      uint8_t* image = dram_.data() + byte;
      std::memcpy(is_store ? image : element, is_store ? element : image,
                  static_cast<size_t>(info.element_bytes));
      (is_store ? counters_.bytes_stored : counters_.bytes_loaded) += info.element_bytes;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Lanes> Simulator::LoadAcc(int64_t index) {
  TW_ASSIGN(uint8_t* element, Element(Memory::kAcc, index));
  Lanes values = {};
  std::memcpy(values.data(), element, block_ * sizeof values[0]);
  return values;
}

absl::Status Simulator::StoreAcc(int64_t index, const Lanes& values) {
  TW_ASSIGN(uint8_t* acc, Element(Memory::kAcc, index));
  TW_ASSIGN(uint8_t* out, Element(Memory::kOut, index));
  std::memcpy(acc, values.data(), block_ * sizeof values[0]);
  for (size_t lane = 0; lane < block_; ++lane) out[lane] = static_cast<uint8_t>(values[lane]);
  return absl::OkStatus();
}

absl::Status Simulator::Gemm(const Instruction& i, const MicroOp& at) {
  ++counters_.gemm_iterations;
  if (i.reset != 0) return StoreAcc(at.dst, {});
  TW_ASSIGN(uint8_t* input, Element(Memory::kInp, at.src));
  TW_ASSIGN(uint8_t* weights, Element(Memory::kWgt, at.wgt));
  TW_ASSIGN(Lanes acc, LoadAcc(at.dst));
  for (size_t out = 0; out < block_; ++out) {
    int64_t sum = acc[out];
    for (size_t in = 0; in < block_; ++in) {
      sum += static_cast<int8_t>(input[in]) * static_cast<int8_t>(weights[out * block_ + in]);
    }
    acc[out] = Wrap(sum);
  }
  return StoreAcc(at.dst, acc);
}

absl::Status Simulator::Alu(const Instruction& i, const MicroOp& at) {
  ++counters_.alu_iterations;
  TW_ASSIGN(Lanes values, LoadAcc(at.dst));
  Lanes other;
  other.fill(static_cast<int32_t>(i.imm));
  if (i.use_imm == 0) {
    TW_ASSIGN(other, LoadAcc(at.src));
  }
  for (size_t lane = 0; lane < block_; ++lane) {
    int64_t a = values[lane], b = other[lane];
    switch (static_cast<AluOp>(i.operation)) {
      case AluOp::kMin:
        values[lane] = Wrap(std::min(a, b));
        break;
      case AluOp::kMax:
        values[lane] = Wrap(std::max(a, b));
        break;
      case AluOp::kAdd:
        values[lane] = Wrap(a + b);
        break;
      case AluOp::kShr:
        // Amounts beyond the width shift everything out.
        if (b >= 0) {
          values[lane] = Wrap(a >> std::min<int64_t>(b, 31));
        } else {
          values[lane] = b <= -32 ? 0 : Wrap(a << -b);
        }
        break;
      case AluOp::kMul:
        values[lane] = Wrap(a * b);
        break;
    }
  }
  return StoreAcc(at.dst, values);
}

absl::Status Simulator::Loops(const Instruction& i) {
  if (i.op == Opcode::kAlu && i.reset != 0) {
    return support::InvalidArgument("vta.sim.illegal",
                                    StrCat("expected no reset, found ", Disassemble(i)));
  }
  for (int64_t o = 0; o < i.iter_out; ++o) {
    for (int64_t n = 0; n < i.iter_in; ++n) {
      for (int64_t u = i.uop_begin; u < i.uop_end; ++u) {
        TW_ASSIGN(uint8_t* element, Element(Memory::kUop, u));
        uint32_t word;
        std::memcpy(&word, element, sizeof word);
        MicroOp at = isa_.DecodeUop(word);
        at.dst += o * i.dst_factor_out + n * i.dst_factor_in;
        at.src += o * i.src_factor_out + n * i.src_factor_in;
        at.wgt += o * i.wgt_factor_out + n * i.wgt_factor_in;
        TW_TRY(i.op == Opcode::kGemm ? Gemm(i, at) : Alu(i, at));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Simulator::Execute(const Instruction& i) {
  ++counters_.instructions;
  switch (i.op) {
    case Opcode::kLoad:
    case Opcode::kStore:
      return Transfer(i);
    case Opcode::kGemm:
    case Opcode::kAlu:
      return Loops(i);
    case Opcode::kFinish:
      break;
  }
  for (const std::deque<Pending>& queue : queues_) {
    if (!queue.empty()) {
      return support::FailedPrecondition("vta.sim.finish",
                                         StrCat("expected all work to be done at finish, found ",
                                                Disassemble(queue.front().instruction)));
    }
  }
  return absl::OkStatus();
}

absl::Status Simulator::Step(Module module) {
  std::deque<Pending>& queue = queues_[static_cast<size_t>(module)];
  Pending next = std::move(queue.front());
  queue.pop_front();
  for (int64_t* token : Pops(next.instruction)) --*token;
  absl::Status status = Execute(next.instruction);
  if (!status.ok()) return support::WithContext(status, StrCat("instruction ", next.index));
  for (int64_t* token : Pushes(next.instruction)) ++*token;
  return absl::OkStatus();
}

absl::Status Simulator::Run(std::span<const Word128> stream) {
  bool finishes = false;
  for (size_t n = 0; n < stream.size(); ++n) {
    TW_ASSIGN(Instruction i, isa_.Decode(stream[n]));
    Module module = ModuleOf(i);
    bool outside = (module == Module::kLoad && (i.pop_prev != 0 || i.push_prev != 0)) ||
                   (module == Module::kStore && (i.pop_next != 0 || i.push_next != 0));
    if (outside) {
      return support::InvalidArgument(
          "vta.sim.illegal", StrCat("expected tokens of neighbours, found ", Disassemble(i)));
    }
    finishes = i.op == Opcode::kFinish;
    queues_[static_cast<size_t>(module)].push_back({n, i});
  }
  if (!finishes) {
    return support::InvalidArgument("vta.sim.finish", "expected a finish at the end, found none");
  }
  for (;;) {
    std::vector<Module> ready;
    bool work = false;
    for (int m = 0; m < kModules; ++m) {
      const std::deque<Pending>& queue = queues_[static_cast<size_t>(m)];
      work = work || !queue.empty();
      if (!queue.empty() && Ready(queue.front().instruction)) {
        ready.push_back(static_cast<Module>(m));
      }
    }
    if (!work) break;
    if (ready.empty()) {
      std::string heads;
      for (const std::deque<Pending>& queue : queues_) {
        if (!queue.empty()) {
          heads += StrCat("; ", queue.front().index, ": ", Disassemble(queue.front().instruction));
        }
      }
      return support::FailedPrecondition(
          "vta.sim.deadlock", StrCat("expected a module that can continue, found none", heads));
    }
    TW_TRY(Step(ready[rng_.Uniform(ready.size())]));
  }
  for (int from = 0; from < kModules; ++from) {
    for (int to = 0; to < kModules; ++to) {
      if (tokens_[from][to] == 0) continue;
      return support::FailedPrecondition(
          "vta.sim.tokens", StrCat("expected no tokens at the end, found ", tokens_[from][to],
                                   " from ", ModuleText(static_cast<Module>(from)), " to ",
                                   ModuleText(static_cast<Module>(to))));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunFunctional(const Isa& isa, std::span<const Word128> stream, uint64_t seed,
                           std::vector<uint8_t>* dram, SimCounters* counters) {
  Simulator simulator(isa, seed, dram);
  absl::Status status = simulator.Run(stream);
  if (counters != nullptr) *counters = simulator.counters();
  return status;
}

absl::Status RunFunctional(const Isa& isa, const CodeObject& code, size_t program, uint64_t seed,
                           std::vector<uint8_t>* dram, SimCounters* counters) {
  TW_TRY(CheckSameConfig(isa.config(), code.config));
  TW_ASSIGN(const std::vector<Word128> words, code.programs.at(program).Encoded(isa));
  return RunFunctional(isa, words, seed, dram, counters);
}

}  // namespace tilewright::vta
