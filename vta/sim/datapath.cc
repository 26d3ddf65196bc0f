#include "vta/sim/datapath.h"

#include <algorithm>
#include <cstring>

#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/sim/dma.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

// Wrapping 32-bit arithmetic.
int32_t Wrap(int64_t value) { return static_cast<int32_t>(static_cast<uint32_t>(value)); }

// Amounts beyond the width shift everything out; a negative one shifts left.
int32_t Shifted(int64_t a, int64_t amount) {
  if (amount >= 0) return Wrap(a >> std::min<int64_t>(amount, 31));
  return amount <= -32 ? 0 : Wrap(a << -amount);
}

int32_t Requantised(int64_t a, int64_t b, int64_t shift) {
  const int64_t half = shift == 0 ? 0 : int64_t{1} << (shift - 1);
  return static_cast<int32_t>(std::clamp<int64_t>((a * b + half) >> shift, INT8_MIN, INT8_MAX));
}

// One lane.
int32_t AluResult(const Instruction& i, int64_t a, int64_t b) {
  switch (static_cast<AluOp>(i.operation)) {
    case AluOp::kMin:
      return Wrap(std::min(a, b));
    case AluOp::kMax:
      return Wrap(std::max(a, b));
    case AluOp::kAdd:
      return Wrap(a + b);
    case AluOp::kShr:
      return Shifted(a, b);
    case AluOp::kMul:
      return Wrap(a * b);
    case AluOp::kRequantise:
      return Requantised(a, b, i.imm);
  }
  TW_CHECK(false) << "no operation " << i.operation;
}

}  // namespace

Datapath::Datapath(const Isa& isa, uint64_t seed, std::vector<uint8_t>* dram)
    : isa_(isa), block_(static_cast<size_t>(isa.config().block)), dram_(*dram) {
  support::Rng rng(seed);
  for (const MemoryInfo& m : isa.Memories()) {
    std::vector<uint8_t>& bytes = sram_[static_cast<size_t>(m.memory)];
    bytes.resize(static_cast<size_t>(m.element_bytes * m.elements));
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      const uint64_t drawn = rng.NextU64();
      std::memcpy(bytes.data() + at, &drawn, std::min(sizeof drawn, bytes.size() - at));
    }
  }
}

absl::StatusOr<uint8_t*> Datapath::Element(Memory memory, int64_t index) {
  const MemoryInfo& info = isa_.InfoOf(memory);
  if (index < 0 || index >= info.elements) {
    return support::InvalidArgument(
        "vta.sim.bounds",
        StrCat(info.text, ": expected an element below ", info.elements, ", found ", index));
  }
  return sram_[static_cast<size_t>(memory)].data() + index * info.element_bytes;
}

absl::Status Datapath::Transfer(const Instruction& i) {
  TW_TRY(CheckTransfer(i));
  const Memory memory = static_cast<Memory>(i.memory);
  const MemoryInfo& info = isa_.InfoOf(memory);
  const bool is_store = i.op == Opcode::kStore;
  const auto bytes = static_cast<size_t>(info.element_bytes);
  return ForEachElement(i, [&](int64_t sram, int64_t dram) -> absl::Status {
    TW_ASSIGN(uint8_t* element, Element(memory, sram));
    if (dram < 0) {
      std::memset(element, 0, bytes);
      return absl::OkStatus();
    }
    const int64_t byte = dram * info.element_bytes;
    if (byte + info.element_bytes > static_cast<int64_t>(dram_.size())) {
      return support::InvalidArgument(
          "vta.sim.bounds", StrCat("expected a DRAM address below ", dram_.size(), ", found ", byte,
                                   " of ", Disassemble(i)));
    }
    uint8_t* image = dram_.data() + byte;
    std::memcpy(is_store ? image : element, is_store ? element : image, bytes);
    (is_store ? counters_.bytes_stored : counters_.bytes_loaded) += info.element_bytes;
    return absl::OkStatus();
  });
}

absl::StatusOr<Datapath::Lanes> Datapath::LoadAcc(int64_t index) {
  TW_ASSIGN(uint8_t* element, Element(Memory::kAcc, index));
  Lanes values = {};
  std::memcpy(values.data(), element, block_ * sizeof values[0]);
  return values;
}

absl::Status Datapath::StoreAcc(int64_t index, const Lanes& values) {
  TW_ASSIGN(uint8_t* acc, Element(Memory::kAcc, index));
  TW_ASSIGN(uint8_t* out, Element(Memory::kOut, index));
  std::memcpy(acc, values.data(), block_ * sizeof values[0]);
  for (size_t lane = 0; lane < block_; ++lane) out[lane] = static_cast<uint8_t>(values[lane]);
  return absl::OkStatus();
}

absl::Status Datapath::Gemm(const Instruction& i, const MicroOp& at) {
  ++counters_.gemm_iterations;
  if (i.reset != 0) return StoreAcc(at.dst, {});
  TW_ASSIGN(uint8_t* input, Element(Memory::kInp, at.src));
  TW_ASSIGN(uint8_t* weights, Element(Memory::kWgt, at.wgt));
  Lanes acc = {};
  if (i.overwrite == 0) {
    TW_ASSIGN(acc, LoadAcc(at.dst));
  }
  for (size_t out = 0; out < block_; ++out) {
    int64_t sum = acc[out];
    for (size_t in = 0; in < block_; ++in) {
      sum += static_cast<int8_t>(input[in]) * static_cast<int8_t>(weights[out * block_ + in]);
    }
    acc[out] = Wrap(sum);
  }
  return StoreAcc(at.dst, acc);
}

absl::Status Datapath::Alu(const Instruction& i, const MicroOp& at) {
  ++counters_.alu_iterations;
  TW_ASSIGN(Lanes values, LoadAcc(at.dst));
  Lanes other;
  other.fill(static_cast<int32_t>(i.imm));
  if (i.use_imm == 0) {
    TW_ASSIGN(other, LoadAcc(at.src));
  }
  for (size_t lane = 0; lane < block_; ++lane)
    values[lane] = AluResult(i, values[lane], other[lane]);
  return StoreAcc(at.dst, values);
}

absl::Status Datapath::CheckLoops(const Instruction& i) const {
  const bool requantises =
      i.op == Opcode::kAlu && static_cast<AluOp>(i.operation) == AluOp::kRequantise;
  std::string_view wrong;
  if (i.op == Opcode::kAlu && i.reset != 0) wrong = "no reset";
  if (i.op == Opcode::kAlu && i.overwrite != 0) wrong = "no overwrite";
  if (i.op == Opcode::kGemm && i.reset != 0 && i.overwrite != 0) wrong = "reset or overwrite";
  if (requantises && i.use_imm != 0) wrong = "a multiplier in acc";
  if (requantises && (i.imm < 0 || i.imm > kMaxRequantiseShift)) wrong = "a shift of 0 to 62";
  if (wrong.empty()) return absl::OkStatus();
  return support::InvalidArgument("vta.sim.illegal",
                                  StrCat("expected ", wrong, ", found ", Disassemble(i)));
}

absl::Status Datapath::Loops(const Instruction& i) {
  TW_TRY(CheckLoops(i));
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

absl::Status Datapath::Execute(const Instruction& i) {
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
  return absl::OkStatus();
}

}  // namespace tilewright::vta
