#include "vta/sim/tokens.h"

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

bool HasUnknownNeighbour(const Instruction& i) {
  const Module module = ModuleOf(i);
  return (module == Module::kLoad && (i.pop_prev != 0 || i.push_prev != 0)) ||
         (module == Module::kStore && (i.pop_next != 0 || i.push_next != 0));
}

}  // namespace

std::string TokenQueueText(size_t queue) {
  return StrCat(ModuleText(kTokenQueues[queue].from), " to ", ModuleText(kTokenQueues[queue].to));
}

TokenSet PopsOf(const Instruction& i) {
  TokenSet set = {};
  for (size_t q = 0; q < kNumTokenQueues; ++q) {
    const TokenQueue& queue = kTokenQueues[q];
    if (queue.to != ModuleOf(i)) continue;
    set[q] = (queue.from < queue.to ? i.pop_prev : i.pop_next) != 0;
  }
  return set;
}

TokenSet PushesOf(const Instruction& i) {
  TokenSet set = {};
  for (size_t q = 0; q < kNumTokenQueues; ++q) {
    const TokenQueue& queue = kTokenQueues[q];
    if (queue.from != ModuleOf(i)) continue;
    set[q] = (queue.to < queue.from ? i.push_prev : i.push_next) != 0;
  }
  return set;
}

absl::StatusOr<Stream> ReadStream(const Isa& isa, std::span<const Word128> words) {
  Stream stream;
  for (const Word128& word : words) {
    TW_ASSIGN(const Instruction i, isa.Decode(word));
    if (HasUnknownNeighbour(i)) {
      return support::InvalidArgument(
          "vta.sim.illegal", StrCat("expected tokens of neighbours, found ", Disassemble(i)));
    }
    const size_t at = stream.size();
    if ((i.op == Opcode::kFinish) != (at + 1 == words.size())) {
      return support::InvalidArgument(
          "vta.sim.finish", StrCat("expected a finish at the end only, found instruction ", at,
                                   " of ", words.size(), ": ", Disassemble(i)));
    }
    stream.of[static_cast<size_t>(ModuleOf(i))].push_back(at);
    stream.instructions.push_back(i);
  }
  if (words.empty())
    return support::InvalidArgument("vta.sim.finish", "expected a finish at the end, found none");
  return stream;
}

}  // namespace tilewright::vta
