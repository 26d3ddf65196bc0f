#include "tests/bench/vta_layer_run.h"

#include <utility>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/space/block_info.h"
#include "compiler/space/default_schedule.h"
#include "compiler/targets/backend.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "tests/bench/layers.h"
#include "tests/support/matrix_tasks.h"
#include "vta/sim/stream_cycles.h"

namespace tilewright::bench {
namespace {

constexpr uint64_t kModelSeed = 1;  // of what on-chip memories hold at first

void CountCycles(VtaProgram* program) {
  const vta::Program& code = program->code.programs.at(0);
  for (const vta::Instruction& i : code.stream) {
    if (i.op == vta::Opcode::kAlu) program->operations += vta::LoopCycles(i, 0);
    if (i.op == vta::Opcode::kGemm && i.reset != 0) program->resets += vta::LoopCycles(i, 0);
  }
  for (size_t i = 0; i + 1 < code.params.size(); ++i)
    program->operand_bytes += code.params[i].bytes;
}

}  // namespace

absl::StatusOr<VtaLayer> MakeVtaLayer(const std::string& name, int64_t block) {
  TW_ASSIGN(const Layer layer, FindLayer(name));
  const tests::ConvolutionTask task{.inputs = layer.in / block,
                                    .columns = layer.out / block,
                                    .height = layer.size,
                                    .width = layer.size,
                                    .taps = layer.kernel,
                                    .stride = layer.stride,
                                    .pad = layer.kernel / 2};
  const int64_t out = layer.out_size();
  return VtaLayer{.name = name,
                  .function = tests::FunctionOf(task, block),
                  .products = out * out * task.columns * task.inputs * layer.kernel * layer.kernel,
                  .outputs = out * out * task.columns};
}

absl::StatusOr<VtaProgram> CompileTile(const VtaLayer& layer, const target::Target& target,
                                       const space::MatrixTile& given) {
  const target::MatrixUnit& unit = target.machine.matrix;
  const auto problem = space::MatrixProblemOf(layer.function, unit);
  TW_CHECK(problem.has_value());
  const auto tile = space::BestTile(unit, *problem, given);
  if (!tile.has_value()) return support::NotFound("bench.tile", "no tile fits the memories");
  schedule::Schedule scheduled(layer.function);
  space::Choices choices;
  space::BlockChoice& choice = choices[problem->key()];
  choice.rows = given.rows;
  choice.planes = given.width;
  choice.vectors = given.columns;
  choice.unroll = given.steps;
  choice.threads = given.threads;
  space::ApplyDefaultSchedule(target, choices, &scheduled);
  transform::PassContext context;
  context.target = target;
  const targets::Backend& backend = targets::BackendOf(target);
  TW_ASSIGN(ir::Function lowered,
            transform::RunPipeline(scheduled.function(), backend.pipeline(), context));
  const std::vector<ir::Function> functions = {std::move(lowered)};
  TW_ASSIGN(const codegen::Artifact artifact, backend.generate({functions, target, {}}));
  VtaProgram program{.tile = *tile, .code = {}};
  TW_ASSIGN(program.code, vta::ParseCode(artifact.bytes));
  CountCycles(&program);
  return program;
}

absl::StatusOr<vta::CycleReport> RunOnModel(const VtaProgram& program) {
  TW_ASSIGN(const vta::Isa isa, vta::Isa::Make(program.code.config));
  const vta::Program& code = program.code.programs.at(0);
  TW_ASSIGN(const std::vector<vta::Word128> words, code.Encoded(isa));
  TW_ASSIGN(std::vector<uint8_t> dram, code.Image(isa));
  return vta::RunCycles(isa, words, {}, kModelSeed, &dram);
}

}  // namespace tilewright::bench
