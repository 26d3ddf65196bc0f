#include "vta/driver/vta_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/sim/stream_bounds.h"
#include "vta/sim/stream_cycles.h"
#include "vta/sim/token_check.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

// A stream without a hang takes no more than its instructions one after the other, on memory of
// the latency that the limit is made for. Slower memory has this much room.
constexpr int64_t kSlack = 16, kLeastCycles = 100'000;

bool Overlap(const DramRange& a, const DramRange& b) {
  return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

}  // namespace

VtaKernel* VtaCode::Find(std::string_view name) {
  for (VtaKernel& kernel : kernels_) {
    if (kernel.program->name == name) return &kernel;
  }
  return nullptr;
}

VtaDevice::~VtaDevice() {
  for (const int64_t address : allocated_) accelerator_->Free({.address = address});
}

absl::StatusOr<DramRange> VtaDevice::Allocate(int64_t bytes) {
  TW_ASSIGN(const DramRange range, accelerator_->Allocate(bytes));
  allocated_.insert(range.address);
  return range;
}

void VtaDevice::Free(const DramRange& range) {
  allocated_.erase(range.address);
  accelerator_->Free(range);
}

absl::StatusOr<std::unique_ptr<VtaCode>> VtaDevice::Load(std::string_view bytes) {
  TW_ASSIGN(CodeObject object, ParseCode(bytes));
  TW_TRY(accelerator_->CheckConfig(object.config));
  TW_ASSIGN(Isa isa, Isa::Make(object.config));
  std::unique_ptr<VtaCode> code(new VtaCode(std::move(object), std::move(isa)));
  code->kernels_.reserve(code->object_.programs.size());  // callers keep pointers
  for (const Program& program : code->object_.programs) {
    VtaKernel& kernel = code->kernels_.emplace_back();
    kernel.code = code.get();
    kernel.program = &program;
    absl::Status prepared = Prepare(*code, &kernel);
    if (prepared.ok()) continue;
    prepared = support::WithContext(prepared, StrCat("program ", program.name));
    Unload(std::move(code));
    return prepared;
  }
  return code;
}

// Checks a program and puts its constants and micro-ops into DRAM.
absl::Status VtaDevice::Prepare(const VtaCode& code, VtaKernel* kernel) {
  const Program& program = *kernel->program;
  if (program.image_bytes > info().memory_bytes) {
    return support::ResourceExhausted("vta.driver.memory",
                                      StrCat("expected an image of at most ", info().memory_bytes,
                                             " bytes, found ", program.image_bytes));
  }
  TW_ASSIGN(kernel->stored, StoredParams(code.isa_, program));
  const int64_t serial = SerialCycles(code.isa_, program.stream, {});
  if (serial > kMostCycles) {
    return support::InvalidArgument("vta.driver.cycles", StrCat("expected at most ", kMostCycles,
                                                                " cycles of work, found ", serial));
  }
  kernel->max_cycles = kLeastCycles + kSlack * serial;
  TW_ASSIGN(const std::vector<Word128> words, program.Encoded(code.isa_));
  TW_ASSIGN(const std::vector<uint8_t> image, program.Image(code.isa_));
  TW_TRY(CheckTokens(code.isa_, words, image));
  TW_TRY(CheckOnChipBounds(code.isa_, program.stream, image));
  TW_ASSIGN(kernel->commands, Allocate(static_cast<int64_t>(words.size() * sizeof(Word128))));
  if (program.image_bytes == program.constant_offset()) return absl::OkStatus();
  TW_ASSIGN(kernel->own, Allocate(program.image_bytes - program.constant_offset()));
  std::memcpy(Bytes(kernel->own).data(), image.data() + program.constant_offset(),
              static_cast<size_t>(kernel->own.bytes));
  return absl::OkStatus();
}

void VtaDevice::Unload(std::unique_ptr<VtaCode> code) {
  for (const VtaKernel& kernel : code->kernels_) {
    if (kernel.commands.bytes > 0) Free(kernel.commands);
    if (kernel.own.bytes > 0) Free(kernel.own);
  }
}

absl::Status VtaDevice::CheckOperands(const VtaKernel& kernel,
                                      std::span<const DramRange> operands) const {
  const std::vector<Program::Param>& params = kernel.program->params;
  if (operands.size() != params.size()) {
    return support::InvalidArgument(
        "vta.driver.operands",
        StrCat("expected ", params.size(), " operands, found ", operands.size()));
  }
  for (size_t p = 0; p < params.size(); ++p) {
    if (operands[p].bytes < params[p].bytes) {
      return support::InvalidArgument("vta.driver.operands",
                                      StrCat(params[p].name, ": expected ", params[p].bytes,
                                             " bytes, found ", operands[p].bytes));
    }
    for (size_t q = 0; q < params.size(); ++q) {
      if (q == p || !kernel.stored[p]) continue;
      const DramRange written{operands[p].address, params[p].bytes};
      const DramRange other{operands[q].address, params[q].bytes};
      if (!Overlap(written, other)) continue;
      return support::InvalidArgument(
          "vta.driver.operands",
          StrCat("expected ", params[p].name, ", which is written, apart from ", params[q].name,
                 ", found shared bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status VtaDevice::WriteCommands(VtaKernel* kernel, std::span<const DramRange> operands) {
  const int64_t base = info().base_address;
  OperandPlaces places{.params = {}, .own = base + kernel->own.address};
  for (const DramRange& operand : operands) places.params.push_back(base + operand.address);
  const Isa& isa = kernel->code->isa_;
  TW_ASSIGN(const std::vector<Instruction> stream, Relocate(isa, *kernel->program, places));
  TW_ASSIGN(const std::vector<Word128> words, isa.Encode(stream));
  kernel->operands.emplace(operands.begin(), operands.end());
  std::memcpy(Bytes(kernel->commands).data(), words.data(), words.size() * sizeof(Word128));
  return absl::OkStatus();
}

absl::Status VtaDevice::Launch(VtaKernel* kernel, std::span<const DramRange> operands,
                               CycleReport* report) {
  const auto run = [&]() -> absl::StatusOr<int64_t> {
    TW_TRY(CheckOperands(*kernel, operands));
    if (kernel->operands != std::vector(operands.begin(), operands.end())) {
      TW_TRY(WriteCommands(kernel, operands));
    }
    return accelerator_->Run(kernel->code->isa_,
                             {.address = kernel->commands.address,
                              .count = static_cast<int64_t>(kernel->program->stream.size()),
                              .max_cycles = kernel->max_cycles,
                              .report = report});
  };
  const absl::StatusOr<int64_t> cycles = run();
  if (!cycles.ok()) {
    return support::WithContext(cycles.status(), StrCat("program ", kernel->program->name));
  }
  cycles_ += *cycles;
  return absl::OkStatus();
}

}  // namespace tilewright::vta
