// What a family of processors adds to the LLVM back end: a row of functions, which lives in the
// folder of its target (compiler/targets). Everything else of the back end is plain LLVM IR that
// all families share. Included by the llvm_*.cc files and by the targets' own files only. Pure
// functions; thread-safe.
#pragma once

#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/Support/CodeGen.h>

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/link_elf.h"
#include "compiler/target/target.h"

namespace tilewright::codegen {

// sum[j] + Σ_k a[4j + k] * b[4j + k], k in 0..4, exact in 32 bits.
struct Dot4 {
  llvm::Value* sum;  // `lanes` words
  llvm::Value* a;    // `lanes` words of four bytes
  llvm::Value* b;    // 4 * `lanes` bytes
  bool a_signed, b_signed;
  int lanes;
  int b_most = 255;  // no byte of b is larger, without a sign; below 128 it is the same with one
};

// sum[j] + Σ_k a[2j + k] * b[2j + k] of bf16, k in 0..2: `lanes` of f32, `lanes` words of a pair.
struct PairDot {
  llvm::Value *sum, *a, *b;
  int lanes;
};

// ir::Intrinsic::kDotTile: two rows of `columns` sums in squares of two rows and two columns, eight
// products for each.
struct DotTile {
  llvm::Value* sum;       // 2 * `columns` words
  llvm::Value* rows[2];   // 8 bytes
  llvm::Value* terms[2];  // 4 * `columns` bytes
  bool a_signed, b_signed;
  int columns;
};

// f32 lanes, inside the range of i32, to the nearest integers, ties to even.
using WordRounding = llvm::Value* (*)(llvm::IRBuilderBase& builder, llvm::Value* lanes);
// p * 2^n for whole numbers n, with one rounding; NaN stays.
using PowerScaling = llvm::Value* (*)(llvm::IRBuilderBase& builder, llvm::Value* p, llvm::Value* n);
// The number in the lowest four bits of each word, as f32; the other bits may be anything.
using NibbleFloats = llvm::Value* (*)(llvm::IRBuilderBase& builder, llvm::Value* words);
// c + f32(a) * f32(b) with one rounding, of `a` and `b` of f16.
using HalfProducts = llvm::Value* (*)(llvm::IRBuilderBase& builder, llvm::Value* a, llvm::Value* b,
                                      llvm::Value* c);

struct LlvmTarget {
  std::string_view arch;  // of target strings
  const char* triple;
  void (*initialize)();  // registers LLVM's back end
  void (*add_attributes)(const target::Target& target, llvm::Function& function);
  llvm::Value* (*dot4)(llvm::IRBuilderBase& builder, const target::Target& target, const Dot4& dot);
  // Null, or returns null, if the target has no such instruction.
  llvm::Value* (*pair_dot)(llvm::IRBuilderBase& builder, const target::Target& target,
                           const PairDot& dot) = nullptr;
  llvm::Value* (*dot_tile)(llvm::IRBuilderBase& builder, const target::Target& target,
                           const DotTile& tile) = nullptr;
  // Return null if one instruction does not do it for that many lanes.
  WordRounding (*word_rounding)(const target::Target& target, int lanes);
  PowerScaling (*power_scaling)(const target::Target& target, int lanes);
  NibbleFloats (*nibble_floats)(const target::Target& target, int lanes) = nullptr;  // or null
  HalfProducts (*half_products)(const target::Target& target, int lanes) = nullptr;  // or null
  // Orders non-temporal stores before all later ones.
  void (*fence_stores)(llvm::IRBuilderBase& builder);
  // Rewrites a function that is complete, with its slots as values. Or null.
  void (*finish)(llvm::Function& function) = nullptr;
  // a * b + c of floats of 32 bits with one rounding, for any number of lanes. Null, or returns
  // null: LLVM's fma, which is a call of libm where the target has no instruction.
  llvm::Value* (*fused)(llvm::IRBuilderBase& builder, const target::Target& target, llvm::Value* a,
                        llvm::Value* b, llvm::Value* c) = nullptr;
  // Whether vectors of f32 become vectors of i32 by an instruction that saturates, with NaN as 0.
  bool saturates = false;
  // Whether maxnum and minnum are instructions; else LLVM calls libm for each lane.
  bool has_maxnum = true;
  // LLVM's name of the processor, and its features beyond what the name says. Null: the `cpu` of
  // the target is such a name.
  const char* cpu = nullptr;
  const char* (*features)(const target::Target& target) = nullptr;
  const char* option = nullptr;  // of LLVM's command line, for the whole process; or null
  llvm::Reloc::Model relocation = llvm::Reloc::PIC_;
  // Of one buffer: what the target's addresses reach.
  int64_t most_bytes = std::numeric_limits<int64_t>::max();
  // Whether the runtime shares out parallel loops among threads; else they are loops.
  bool threads = true;
  // Makes the code object of an object file. codegen.link.*
  absl::StatusOr<std::string> (*link)(const std::string& object) = LinkSharedObject;
};

// The table (compiler/targets/llvm_targets.cc).
std::span<const LlvmTarget> LlvmTargets();
// Returns null if no row has this architecture.
const LlvmTarget* FindLlvmTarget(std::string_view arch);

// `count` lanes from `first` on. REQUIRES: a vector.
llvm::Value* LanesOf(llvm::IRBuilderBase& builder, llvm::Value* vector, int first, int count);
// The pieces side by side, all of one width; their number is a power of two.
llvm::Value* JoinLanes(llvm::IRBuilderBase& builder, std::vector<llvm::Value*> pieces);

}  // namespace tilewright::codegen
