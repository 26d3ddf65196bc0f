// Sequences of statements: where stores form a run (llvm_store_runs.cc), and where loads must not
// be shared.
//
// Unrolled reduction steps visit the same accumulators again and again. Loads that two steps share
// (neighbouring taps of a convolution read the same input) would be loaded once by instruction
// selection, which looks at one basic block, and kept in registers that the accumulators need.
// Where accumulators and shared loads exceed the registers, each step loads for itself.
#include <llvm/IR/InlineAsm.h>

#include <map>
#include <set>

#include "compiler/codegen/llvm_emitter.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"

namespace tilewright::codegen {

using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

namespace {

// Registers for what a step uses up at once.
constexpr int kScratchRegisters = 2;

int RegistersOf(ir::DType type, int vector_bytes) {
  return std::max(1, (type.bytes() * type.lanes + vector_bytes - 1) / vector_bytes);
}

}  // namespace

// An empty piece of assembly that may change memory: loads after it are not those before it. (A
// basic block of its own would be merged away.)
void FunctionEmitter::SeparateLoads() {
  auto* type = llvm::FunctionType::get(builder_.getVoidTy(), false);
  builder_.CreateCall(llvm::InlineAsm::get(type, "", "~{memory}", /*hasSideEffects=*/true));
  shared_block_ = nullptr;
}

// True at the statements before which a new step begins; empty when loads may be shared.
std::vector<bool> FunctionEmitter::RevisitBoundaries(const std::vector<Stmt>& stmts) {
  std::vector<bool> boundary(stmts.size(), false);
  std::set<std::pair<const ir::BufferNode*, int>> visited, accumulators;
  std::map<int, std::pair<int, int>> loads;  // number → first step, registers where shared
  int step = 0, accumulator_registers = 0, shared_registers = 0;
  int vector_bytes = module_.target().machine.vector_bytes;
  for (size_t i = 0; i < stmts.size(); ++i) {
    const Stmt& s = stmts[i];
    if (s->kind != StmtKind::kStore) continue;
    auto binding = buffers_.find(s->buffer.get());
    std::vector<int64_t> elements;
    bool slot = binding != buffers_.end() && binding->second.plan != nullptr &&
                ConstantElements(s->indices[0], &elements);
    if (slot) {
      std::pair key(s->buffer.get(), binding->second.plan->elements.at(elements[0]).slot);
      if (!visited.insert(key).second) {
        boundary[i] = true;
        ++step;
        visited = {key};
      }
      if (accumulators.insert(key).second)
        accumulator_registers += RegistersOf(s->value->dtype, vector_bytes);
    }
    ir::VisitExprs(s->value, [&](const Expr& e) {
      if (e->kind != ExprKind::kBroadcast && e->kind != ExprKind::kLoad) return true;
      if (!e->dtype.is_vector() || table_.IsVolatile(e)) return true;
      auto [it, first] = loads.try_emplace(table_.Number(e), step, 0);
      if (!first && it->second.first != step && it->second.second == 0) {
        it->second.second = RegistersOf(e->dtype, vector_bytes);
        shared_registers += it->second.second;
      }
      return false;
    });
  }
  bool crowded = accumulator_registers + shared_registers + kScratchRegisters >
                 module_.target().machine.vector_registers;
  return shared_registers > 0 && crowded ? boundary : std::vector<bool>();
}

absl::Status FunctionEmitter::EmitSeq(const std::vector<Stmt>& stmts) {
  std::vector<bool> boundary = RevisitBoundaries(stmts);
  for (size_t i = 0; i < stmts.size();) {
    if (!boundary.empty() && boundary[i]) SeparateLoads();
    std::vector<RunStore> run;
    size_t length = RunLength(stmts, i, &run);
    if (length < 2) {
      TW_TRY(EmitStmt(stmts[i++]));
      continue;
    }
    TW_TRY(EmitStoreRun(std::move(run)));
    i += length;
  }
  return absl::OkStatus();
}

}  // namespace tilewright::codegen
