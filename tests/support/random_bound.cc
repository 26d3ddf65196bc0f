#include "tests/support/random_bound.h"

#include <string>
#include <vector>

#include "deploy/support/rng.h"
#include "deploy/support/strings.h"
#include "tests/support/random_ir.h"
#include "tests/support/random_schedule.h"
#include "tests/support/te_programs.h"

namespace tilewright::tests {
namespace {

using schedule::Handle;
using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;
using support::Rng;
using support::StrCat;

constexpr int kSteps = 40;

int AnyHandle(const Schedule& s, Handle::Kind kind, Rng* rng) {
  const std::vector<int> live = LiveHandles(s, kind);
  return live.empty() ? -1 : rng->Choice(live);
}

// Block axes for the outermost loop of a nest, where a launch has them; seldom elsewhere.
std::string AnyAxis(const Schedule& s, int loop, Rng* rng) {
  const ir::Stmt& body = s.function().body;
  ir::Stmt stmt = s.StmtOf(loop);
  bool outermost = body == stmt;
  for (const ir::Stmt& top : body->stmts) outermost = outermost || top == stmt;
  bool block = rng->Bernoulli(outermost ? 0.7 : 0.01);
  return StrCat(block ? "blockIdx." : "threadIdx.", std::string(1, "xyz"[rng->Uniform(3)]));
}

Step RandomStep(const Schedule& s, Rng* rng) {
  static const std::vector<StepKind> kKinds = {
      StepKind::kSplit,         StepKind::kReorder,
      StepKind::kComputeAt,     StepKind::kReverseComputeAt,
      StepKind::kCacheWrite,    StepKind::kSetScope,
      StepKind::kBind,          StepKind::kBind,
      StepKind::kBind,          StepKind::kDoubleBuffer,
      StepKind::kVirtualThread, StepKind::kSoftwarePipeline,
      StepKind::kSwizzle,       StepKind::kDivide,
      StepKind::kAnnotate};
  Step step{.kind = rng->Choice(kKinds)};
  const schedule::StepRow& row = schedule::RowOf(step.kind);
  for (char operand : row.operands)
    step.handles.push_back(
        AnyHandle(s, operand == 'b' ? Handle::Kind::kBlock : Handle::Kind::kLoop, rng));
  if (step.kind == StepKind::kReorder || (step.kind == StepKind::kDivide && rng->Bernoulli(0.5)))
    step.handles.push_back(AnyHandle(s, Handle::Kind::kLoop, rng));
  if (step.kind == StepKind::kSwizzle) step.options["vector"] = rng->Bernoulli(0.5) ? "1" : "2";
  if (step.kind == StepKind::kDivide) step.factors = {rng->UniformInt(1, 5)};
  // Launches that are one with the next; groups that share out the iterations of a block axis.
  if (step.kind == StepKind::kAnnotate && rng->Bernoulli(0.5)) {
    step.options["with_next"] = "1";
  } else if (step.kind == StepKind::kAnnotate) {
    step.options["groups"] = std::to_string(rng->UniformInt(1, 4));
  }
  if (step.kind == StepKind::kSplit) step.factors = {schedule::kInfer, rng->UniformInt(2, 4)};
  if (step.kind == StepKind::kSoftwarePipeline) {
    ir::Stmt loop = s.StmtOf(step.handles[0]);
    size_t parts =
        loop != nullptr && loop->body->kind == ir::StmtKind::kSeq ? loop->body->stmts.size() : 2;
    for (size_t i = 0; i < parts && i < 8; ++i)
      step.factors.push_back(i == 0 ? 1 : step.factors.back() + rng->UniformInt(0, 1));
  }
  if (step.kind == StepKind::kSetScope) step.word = rng->Bernoulli(0.7) ? "shared" : "local";
  if (step.kind == StepKind::kBind) step.word = AnyAxis(s, step.handles[0], rng);
  for (const schedule::StepOption& o : row.options) {
    const std::string& value = rng->Choice(o.values);
    if (value != o.values.front()) step.options[o.key] = value;
  }
  return step;
}

}  // namespace

ir::Function GpuProgram(uint64_t seed) {
  switch (seed % 5) {
    case 0:
      return MatmulProgram(6, 8, 7);
    case 1:
      return DenseReluProgram(5, 7, 6);
    case 2:
      return SoftmaxProgram(4, 6);
    case 3:
      return StencilProgram(11);
    default:
      return RandomTe(seed, {.max_elements = 200, .max_work = 600, .symbolic = false}).function;
  }
}

ir::Function SpaceProgram(uint64_t seed) {
  switch (seed % 8) {
    case 0:
      return ConvProgram(
          {.channels_in = 4, .height = 6, .width = 8, .channels_out = 16, .kernel = 3});
    case 1:
      return MatmulProgram(12, 64, 16);
    case 2:
      return DenseReluProgram(8, 48, 20);
    case 3:
      return SoftmaxProgram(4, 64);
    case 4:
      return MeanProgram(6, 96);
    case 5:
      return MaxPoolProgram(4, 12, 3, 2);
    case 6:
      return PackedInt8ConvProgram(2, 6, 8);
    default:
      return RandomTe(seed, {.max_elements = 300, .max_work = 2000, .symbolic = false}).function;
  }
}

Schedule RandomBoundSchedule(const ir::Function& program, uint64_t seed) {
  Rng rng = Rng(seed).Split("gpu");
  Schedule s(program);
  for (int i = 0; i < kSteps; ++i) (void)s.Apply(RandomStep(s, &rng));
  return s;
}

}  // namespace tilewright::tests
