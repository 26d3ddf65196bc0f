#include "tests/bench/vta_layer_run.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/ir/interp.h"
#include "compiler/space/block_info.h"
#include "compiler/space/default_schedule.h"
#include "compiler/targets/backend.h"
#include "compiler/transform/passes.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/bench/layers.h"
#include "tests/support/matrix_tasks.h"
#include "vta/sim/functional_sim.h"
#include "vta/sim/stream_cycles.h"

namespace tilewright::bench {
namespace {

constexpr size_t kLeastResults = 12;  // that differ

using support::StrCat;

void CountCycles(VtaProgram* program) {
  const vta::Program& code = program->code.programs.at(0);
  for (const vta::Instruction& i : code.stream) {
    if (i.op == vta::Opcode::kAlu) program->operations += vta::LoopCycles(i, 0);
    if (i.op == vta::Opcode::kGemm && i.reset != 0) program->resets += vta::LoopCycles(i, 0);
  }
  for (size_t i = 0; i + 1 < code.params.size(); ++i)
    program->operand_bytes += code.params[i].bytes;
}

// Writes random numbers from `low` to `high` over a parameter, as integers of type T.
template <typename T>
void Fill(const vta::Program::Param& param, int64_t low, int64_t high, support::Rng* rng,
          std::vector<uint8_t>* image) {
  for (int64_t at = param.offset; at < param.offset + param.bytes; at += sizeof(T)) {
    const T value = static_cast<T>(rng->UniformInt(low, high));
    std::memcpy(image->data() + at, &value, sizeof value);
  }
}

// The parameters are image, weights, bias, multipliers and result. The ranges are such that relu
// and saturation meet some sums and not others.
std::vector<uint8_t> FilledImage(const vta::Program& code, std::vector<uint8_t> image) {
  TW_CHECK(code.params.size() == 5);
  support::Rng rng(kImageSeed);
  Fill<int8_t>(code.params[0], -128, 127, &rng, &image);
  Fill<int8_t>(code.params[1], -16, 16, &rng, &image);
  Fill<int32_t>(code.params[2], -4000, 4000, &rng, &image);
  Fill<int32_t>(code.params[3], 1, 20, &rng, &image);
  return image;
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
  return vta::RunCycles(isa, words, {}, kImageSeed, &dram);
}

absl::Status CheckSameImage(std::string_view device, const std::vector<uint8_t>& expected,
                            const std::vector<uint8_t>& found) {
  const auto at = std::mismatch(expected.begin(), expected.end(), found.begin()).first;
  if (at == expected.end()) return absl::OkStatus();
  return support::Internal("bench.image",
                           StrCat(device,
                                  ": expected the image of the functional simulator, found "
                                  "another byte at ",
                                  at - expected.begin()));
}

absl::StatusOr<SimulatedRun> RunOnSimulators(const VtaProgram& program) {
  TW_ASSIGN(const vta::Isa isa, vta::Isa::Make(program.code.config));
  const vta::Program& code = program.code.programs.at(0);
  TW_ASSIGN(const std::vector<vta::Word128> words, code.Encoded(isa));
  TW_ASSIGN(std::vector<uint8_t> image, code.Image(isa));
  SimulatedRun run;
  run.operands = FilledImage(code, std::move(image));
  run.image = run.operands;
  std::vector<uint8_t> modelled = run.operands;
  TW_TRY(vta::RunFunctional(isa, words, kImageSeed, &run.image));
  const vta::Program::Param& result = code.params.back();
  const auto first = run.image.begin() + result.offset;
  if (std::set<uint8_t>(first, first + result.bytes).size() < kLeastResults)
    return support::Internal("bench.image", "expected results that differ from each other");
  TW_TRY(vta::RunCycles(isa, words, {}, kImageSeed, &modelled).status());
  TW_TRY(CheckSameImage("cycle model", run.image, modelled));
  return run;
}

absl::StatusOr<int64_t> CompareWithInterpreter(const VtaLayer& layer, const VtaProgram& program) {
  TW_ASSIGN(const SimulatedRun run, RunOnSimulators(program));
  const std::vector<vta::Program::Param>& params = program.code.programs.at(0).params;
  const auto bytes = [](const std::vector<uint8_t>& image, const vta::Program::Param& param) {
    const auto first = image.begin() + param.offset;
    return std::vector<uint8_t>(first, first + param.bytes);
  };
  std::vector<ir::TensorData> data;
  for (const vta::Program::Param& param : params) data.push_back({bytes(run.operands, param)});
  std::vector<ir::TensorData*> arguments;
  for (ir::TensorData& d : data) arguments.push_back(&d);
  TW_TRY(ir::Interpret(layer.function, {}, arguments, {.max_steps = INT64_MAX}));
  const std::vector<uint8_t> found = bytes(run.image, params.back());
  const std::vector<uint8_t>& expected = data.back().bytes;
  if (found == expected) return params.back().bytes;
  const auto at = std::mismatch(expected.begin(), expected.end(), found.begin(), found.end()).first;
  return support::Internal(
      "bench.interpreter",
      StrCat(layer.name, ": the simulators differ from the interpreter at byte ",
             at - expected.begin(), " of ", expected.size()));
}

}  // namespace tilewright::bench
