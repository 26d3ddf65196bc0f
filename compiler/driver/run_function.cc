#include "compiler/driver/run_function.h"

#include <cstring>

#include "compiler/codegen/codegen.h"
#include "compiler/driver/tasks.h"
#include "deploy/runtime/buffer.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/runtime/code_loader.h"
#include "deploy/runtime/compare.h"
#include "deploy/runtime/input_gen.h"
#include "deploy/runtime/thread_pool.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::driver {
namespace {

using support::StrCat;

int32_t PoolParallelFor(TwContext* ctx, TwTaskBody body, void* closure, int64_t num_tasks) {
  return static_cast<runtime::ThreadPool*>(ctx->opaque)->ParallelFor(body, closure, num_tasks);
}

absl::StatusOr<std::vector<runtime::Buffer>> GuardedCopies(
    const std::vector<ir::TensorData>& arguments) {
  std::vector<runtime::Buffer> buffers;
  for (const ir::TensorData& a : arguments) {
    TW_ASSIGN(runtime::Buffer buffer, runtime::Buffer::AllocateGuarded(a.bytes.size()));
    std::memcpy(buffer.data(), a.bytes.data(), a.bytes.size());
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

}  // namespace

absl::StatusOr<std::vector<ir::TensorData>> SeededArguments(const ir::Function& f,
                                                            const std::vector<int64_t>& sizes,
                                                            uint64_t seed) {
  std::vector<ir::TensorData> arguments(f.params.size());
  for (size_t i = 0; i < f.params.size(); ++i) {
    const ir::Buffer& param = f.params[i];
    TW_ASSIGN(int64_t elements, ir::BufferElements(f, param, sizes));
    arguments[i].bytes.resize(elements * param->dtype.bytes());
    if (param->role == ir::Role::kOutput) continue;
    TW_ASSIGN(module::DType dtype, ModuleDType(param->dtype));
    TW_TRY(runtime::GenerateInput(dtype, elements, runtime::DefaultDistribution(dtype), seed + i,
                                  arguments[i].bytes.data()));
  }
  return arguments;
}

absl::StatusOr<CompiledRun> RunCompiledFunction(const ir::Function& f,
                                                const std::vector<int64_t>& sizes,
                                                std::vector<ir::TensorData> arguments,
                                                const transform::PassContext& ctx, int repeats) {
  ir::Function flat = f;
  if (f.stage != ir::Stage::kFlat) {
    TW_ASSIGN(flat, transform::RunPipeline(f, transform::CpuPipeline(), ctx));
  }
  codegen::CodegenOptions options;
  options.dump_dir = ctx.dump_dir;
  TW_ASSIGN(codegen::Artifact artifact, codegen::Generate({flat}, ctx.target, options));
  TW_ASSIGN(runtime::LoadedCode code, runtime::LoadedCode::Load(artifact.format, artifact.bytes));
  TW_ASSIGN(void* symbol, code.Symbol(artifact.programs[0].calls[0].symbol));
  support::Sizes named;
  for (size_t i = 0; i < sizes.size(); ++i) named[flat.size_params[i]->name] = sizes[i];
  TW_ASSIGN(const int64_t scratch, artifact.programs[0].workspace_bytes.Evaluate(named));
  TW_ASSIGN(runtime::Buffer workspace, runtime::Buffer::Allocate(static_cast<size_t>(scratch)));
  TW_ASSIGN(std::vector<runtime::Buffer> buffers, GuardedCopies(arguments));
  std::vector<void*> pointers;
  for (const runtime::Buffer& b : buffers) pointers.push_back(b.data());
  runtime::ThreadPool pool(ctx.target.threads);
  TwContext context{TW_ABI_VERSION, pool.num_threads(), &pool, PoolParallelFor};
  CompiledRun run;
  run.codegen_seconds = artifact.codegen_seconds;
  run.link_seconds = artifact.link_seconds;
  support::SystemClock clock;
  for (int i = 0; i < repeats; ++i) {
    int64_t start = clock.NowNs();
    int32_t rc = reinterpret_cast<TwKernelFn>(symbol)(
        &context, pointers.data(), sizes.empty() ? nullptr : sizes.data(), workspace.data());
    run.run_seconds.push_back(static_cast<double>(clock.NowNs() - start) * 1e-9);
    if (rc != TW_OK) return support::Internal("driver.run.failed", StrCat("kernel code ", rc));
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (!buffers[i].PaddingIntact()) {
      return support::Internal("driver.run.overrun",
                               StrCat("bytes outside ", f.params[i]->name, " changed"));
    }
    std::memcpy(arguments[i].bytes.data(), buffers[i].data(), arguments[i].bytes.size());
  }
  run.arguments = std::move(arguments);
  return run;
}

absl::StatusOr<std::vector<OutputDifference>> CompareOutputs(
    const ir::Function& f, const std::vector<ir::TensorData>& actual,
    const std::vector<ir::TensorData>& expected, double rtol, double atol) {
  std::vector<OutputDifference> rows;
  for (size_t i = 0; i < f.params.size(); ++i) {
    const ir::Buffer& param = f.params[i];
    if (param->role != ir::Role::kOutput) continue;
    TW_ASSIGN(module::DType dtype, ModuleDType(param->dtype));
    int64_t count = static_cast<int64_t>(expected[i].bytes.size()) / param->dtype.bytes();
    module::Tolerance tolerance;
    if (param->dtype.is_float()) tolerance = {atol, rtol};
    runtime::CompareResult result = runtime::CompareTensors(
        dtype, actual[i].bytes.data(), expected[i].bytes.data(), count, tolerance);
    rows.push_back({param->name, result.count, result.mismatches, runtime::CompareText(result)});
  }
  return rows;
}

}  // namespace tilewright::driver
