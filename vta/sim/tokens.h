// Streams as the modules see them: each module's instructions in order, and the queues of tokens
// through which neighbours wait for each other. Simulators and token check share this. Value types
// and pure functions; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

struct TokenQueue {
  Module from, to;
};
inline constexpr TokenQueue kTokenQueues[] = {{Module::kLoad, Module::kCompute},
                                              {Module::kCompute, Module::kLoad},
                                              {Module::kCompute, Module::kStore},
                                              {Module::kStore, Module::kCompute}};
inline constexpr size_t kNumTokenQueues = std::size(kTokenQueues);
// "load to compute".
std::string TokenQueueText(size_t queue);

// Which of kTokenQueues an instruction takes a token from before it runs, or gives one to when it
// is done.
using TokenSet = std::array<bool, kNumTokenQueues>;
TokenSet PopsOf(const Instruction& instruction);
TokenSet PushesOf(const Instruction& instruction);

struct Stream {
  std::vector<Instruction> instructions;
  std::array<std::vector<size_t>, kModules> of;  // each module's, as indices of `instructions`
  size_t size() const { return instructions.size(); }
};

// vta.isa.opcode | memory | operation: as Isa::Decode; vta.sim.illegal: tokens of a neighbour that
// does not exist; vta.sim.finish: no finish at the end, or one before it.
absl::StatusOr<Stream> ReadStream(const Isa& isa, std::span<const Word128> words);

}  // namespace tilewright::vta
