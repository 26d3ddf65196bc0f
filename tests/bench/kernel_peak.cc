// How close compiled kernels come to the machine: GFLOP/s of scheduled kernels beside the FMA peak,
// measured in turns in one run, because the machine is shared. Prints a table; a trend to watch,
// not a gate.
//   kernel_peak [CPU]
//     CPU: an LLVM name of this machine, e.g. znver3 (default: the widest level that runs)
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/ir/build.h"
#include "compiler/schedule/schedule.h"
#include "compiler/transform/passes.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "tests/support/run_compiled.h"

namespace tilewright {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Int;
using ir::Var;

double ThreadSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Ten independent accumulators, so that latency does not show. Written for a register kind, because
// the rest of this program must run on machines without it.
#define TW_FMA(reg, n) "vfmadd213ps %%" reg "11, %%" reg "10, %%" reg #n "\n"
#define TW_PEAK_LOOP(reg, rounds)                                                                \
  asm volatile("1:\n" TW_FMA(reg, 0) TW_FMA(reg, 1) TW_FMA(reg, 2) TW_FMA(reg, 3) TW_FMA(reg, 4) \
                   TW_FMA(reg, 5) TW_FMA(reg, 6) TW_FMA(reg, 7) TW_FMA(reg, 8)                   \
                       TW_FMA(reg, 9) "dec %[count]\n jnz 1b\n vzeroupper\n"                     \
               : [count] "+r"(rounds)                                                            \
               :                                                                                 \
               : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",   \
                 "xmm9", "xmm10", "xmm11")

double PeakSlice(bool wide) {
  constexpr int64_t kRounds = 400'000;
  int64_t rounds = kRounds;
  double start = ThreadSeconds();
  if (wide) {
    TW_PEAK_LOOP("zmm", rounds);
  } else {
    TW_PEAK_LOOP("ymm", rounds);
  }
  return 2.0 * 10 * (wide ? 16 : 8) * kRounds / (ThreadSeconds() - start) * 1e-9;
}

struct Kernel {
  std::string name;
  ir::Function function;
  std::string steps;
  double flops;
};

std::vector<Expr> Shape(std::vector<int64_t> dims) {
  std::vector<Expr> shape;
  for (int64_t d : dims) shape.push_back(Int(d));
  return shape;
}

// Applies steps written with block names: `%C.2` is the third loop of block C.
std::string Schedule(const ir::Function& f, const std::vector<std::string>& lines) {
  schedule::Schedule s(f);
  for (const std::string& line : lines) {
    std::string text;
    for (size_t i = 0; i < line.size();) {
      if (line[i] != '%') {
        text += line[i++];
        continue;
      }
      size_t end = std::min(line.find(' ', i), line.size()), dot = line.find('.', i);
      bool loop = dot < end;
      int handle = s.BlockHandle(line.substr(i + 1, (loop ? dot : end) - i - 1));
      if (loop) handle = s.LoopsOf(handle)[std::stoi(line.substr(dot + 1, end - dot - 1))];
      text += "%" + std::to_string(handle);
      i = end;
    }
    absl::StatusOr<schedule::Step> step = schedule::ParseStep(text);
    absl::Status status = step.ok() ? s.Apply(*step) : step.status();
    TW_CHECK(status.ok()) << line << ": " << support::StatusText(status);
  }
  return schedule::ToText(s.steps());
}

Kernel Gemm(int64_t m, int64_t n, int64_t k, int mr, int nv, int lanes) {
  ir::FunctionBuilder b("gemm");
  Buffer x = b.Input("A", ir::kF32, Shape({m, k}));
  Buffer w = b.Constant("B", ir::kF32, Shape({n / (nv * lanes), k, nv * lanes}));
  ir::Axis r = b.ReduceAxis("k", Int(k));
  Buffer c = b.Reduce("C", ir::kF32, Shape({m, n / (nv * lanes), nv * lanes}), {"i", "jo", "j"},
                      {r}, ir::Combiner::kSum, [&](const std::vector<Var>& v) {
                        return ir::Load(x, {v[0], r.var}) * ir::Load(w, {v[1], r.var, v[2]});
                      });
  ir::Function f = b.Finish({c});
  std::string vectors = std::to_string(lanes);
  std::string steps =
      Schedule(f, {"cache_write %C", "split %C_copy.0 [?," + std::to_string(mr) + "] tail=peel",
                   "reorder %C_copy.2 %C_copy.0 %C_copy.1 %C_copy.3", "compute_at %C %C_copy.1",
                   "split %C.4 [?," + vectors + "]", "reorder %C.6 %C.2 %C.3 %C.4 %C.5",
                   "unroll %C.3", "unroll %C.5", "vectorize %C.6", "decompose_reduction %C %C.2",
                   "split %C_copy.3 [?," + vectors + "]", "vectorize %C_copy.4", "unroll %C_copy.3",
                   "unroll %C_copy.2"});
  std::string name = "gemm " + std::to_string(m) + "x" + std::to_string(n) + "x" +
                     std::to_string(k) + " tile " + std::to_string(mr) + "x" +
                     std::to_string(nv * lanes);
  return {name, f, steps, 2.0 * static_cast<double>(m * n * k)};
}

// DQN's convolutions: bias and relu fused, weights packed [ic, kh, kw, oc], output NCHW.
Kernel Conv(const std::string& name, int64_t ic, int64_t size, int64_t oc, int64_t kernel,
            int64_t stride, int tile_w, int nv, int lanes) {
  ir::FunctionBuilder b("conv");
  int64_t out = (size - kernel) / stride + 1;
  Buffer x = b.Input("X", ir::kF32, Shape({ic, size, size}));
  Buffer w = b.Constant("W", ir::kF32, Shape({ic, kernel, kernel, oc}));
  Buffer bias = b.Constant("bias", ir::kF32, Shape({oc}));
  ir::Axis rc = b.ReduceAxis("ic", Int(ic)), rh = b.ReduceAxis("kh", Int(kernel)),
           rw = b.ReduceAxis("kw", Int(kernel));
  Buffer conv =
      b.Reduce("conv", ir::kF32, Shape({oc, out, out}), {"oc", "oh", "ow"}, {rc, rh, rw},
               ir::Combiner::kSum, [&](const std::vector<Var>& v) {
                 Expr h = v[1] * Int(stride) + rh.var, c = v[2] * Int(stride) + rw.var;
                 return ir::Load(x, {rc.var, h, c}) * ir::Load(w, {rc.var, rh.var, rw.var, v[0]});
               });
  Buffer y = b.Compute(
      "Y", ir::kF32, Shape({oc, out, out}), {"oc", "oh", "ow"}, [&](const std::vector<Var>& v) {
        return ir::Max(ir::Load(conv, {v[0], v[1], v[2]}) + ir::Load(bias, {v[0]}), ir::Float(0));
      });
  ir::Function f = b.Finish({y});
  // Y: oc_o oc_i oh ow_o ow_i → oc_o oh ow_o | ow_i oc_i;  conv there over [oc tile, 1, ow tile,
  // ic, kh, kw]
  std::string oc_tile = std::to_string(nv * lanes), vectors = std::to_string(lanes);
  std::string steps =
      Schedule(f, {"set_scope %conv local", "split %Y.0 [?," + oc_tile + "]",
                   "split %Y.3 [?," + std::to_string(tile_w) + "] tail=peel",
                   "reorder %Y.0 %Y.2 %Y.3 %Y.4 %Y.1", "compute_at %conv %Y.2",
                   "split %conv.3 [?," + vectors + "]",
                   // conv: oc_o oh ow_o | oc_0 oc_1 oh ow ic kh kw
                   "reorder %conv.7 %conv.8 %conv.9 %conv.5 %conv.6 %conv.3 %conv.4",
                   "unroll %conv.5", "unroll %conv.7", "unroll %conv.8", "vectorize %conv.9",
                   "decompose_reduction %conv %conv.3", "split %Y.4 [?," + vectors + "]",
                   "vectorize %Y.5", "unroll %Y.4", "unroll %Y.3"});
  return {name + " tile " + std::to_string(tile_w) + "x" + oc_tile, f, steps,
          2.0 * static_cast<double>(oc * out * out * ic * kernel * kernel)};
}

struct Prepared {
  Kernel kernel;
  tests::LoadedKernel loaded;
  std::vector<void*> buffers;
  codegen::Artifact artifact;
  double best = 0;                                                   // GFLOP/s
  double replay_ms = 0, loops_ms = 0, lower_ms = 0, codegen_ms = 0;  // CPU time, best of some
  std::vector<double> share;
};

// CPU milliseconds of the quickest of some runs.
template <typename F>
double Quickest(const F& f) {
  double best = 1e30;
  for (int i = 0; i < 7; ++i) {
    double start = ThreadSeconds();
    f();
    best = std::min(best, ThreadSeconds() - start);
  }
  return best * 1e3;
}

Prepared Prepare(const Kernel& kernel, const target::Target& target, const std::string& dump) {
  transform::PassContext ctx;
  ctx.target = target;
  absl::StatusOr<ir::Function> scheduled, loops, flat;
  absl::StatusOr<codegen::Artifact> artifact;
  double replay_ms = Quickest([&] { scheduled = schedule::Replay(kernel.function, kernel.steps); });
  TW_CHECK(scheduled.ok()) << support::StatusText(scheduled.status());
  double loops_ms = Quickest([&] { loops = transform::LowerToLoops(*scheduled, ctx); });
  TW_CHECK(loops.ok()) << support::StatusText(loops.status());
  double lower_ms =
      Quickest([&] { flat = transform::RunPipeline(*scheduled, transform::CpuPipeline(), ctx); });
  TW_CHECK(flat.ok()) << support::StatusText(flat.status());
  double codegen_ms = Quickest([&] { artifact = codegen::Generate({*flat}, target); });
  TW_CHECK(artifact.ok()) << support::StatusText(artifact.status());
  if (!dump.empty()) TW_CHECK(codegen::Generate({*flat}, target, {.dump_dir = dump}).ok()) << dump;
  absl::StatusOr<tests::LoadedKernel> loaded = tests::LoadedKernel::Load(*artifact);
  TW_CHECK(loaded.ok()) << support::StatusText(loaded.status());
  Prepared p{kernel,    *std::move(loaded), {},       *artifact,  0,
             replay_ms, loops_ms,           lower_ms, codegen_ms, {}};
  for (const Buffer& param : kernel.function.params) {
    int64_t bytes = 4;
    for (const Expr& d : param->shape) bytes *= *ir::AsInt(d);
    auto* data = static_cast<float*>(aligned_alloc(64, (bytes + 63) / 64 * 64));
    for (int64_t i = 0; i < bytes / 4; ++i) data[i] = static_cast<float>(i % 13) * 0.25f - 1.5f;
    p.buffers.push_back(data);
  }
  return p;
}

// GFLOP/s of one slice of about 2 ms, or 0 when the scheduler took the core away in it.
double Slice(const Prepared& p) {
  int64_t calls = std::max<int64_t>(1, static_cast<int64_t>(2e-3 * 50e9 / p.kernel.flops));
  rusage before, after;
  getrusage(RUSAGE_THREAD, &before);
  double start = ThreadSeconds();
  for (int64_t i = 0; i < calls; ++i) p.loaded.Call(p.buffers.data(), nullptr, 1);
  double seconds = ThreadSeconds() - start;
  getrusage(RUSAGE_THREAD, &after);
  return after.ru_nivcsw != before.ru_nivcsw
             ? 0
             : p.kernel.flops * static_cast<double>(calls) / seconds * 1e-9;
}

int Main(int argc, char** argv) {
  target::Target target = tests::WidestTarget();
  if (argc > 1) {
    absl::StatusOr<target::Target> named =
        target::ParseTarget("cpu,arch=x86_64,cpu=" + std::string(argv[1]));
    TW_CHECK(named.ok()) << support::StatusText(named.status());
    target = *named;
  }
  if (target.machine.vector_bytes < 32) {
    printf("[SKIP] kernel_peak: needs AVX2 and FMA\n");
    return 0;
  }
  const char* dump = argc > 2 ? argv[2] : "";
  int lanes = target.machine.vector_bytes / 4;
  bool wide = lanes == 16;
  std::vector<Kernel> kernels = {
      Gemm(240, 256, 256, wide ? 14 : 6, 2, lanes),
      Gemm(240, 256, 512, 6, wide ? 4 : 2, lanes),
      Gemm(240, 192, 256, wide ? 8 : 4, 3, lanes),
      Conv("dqn conv1", 4, 84, 32, 8, 4, wide ? 10 : 5, 2, lanes),
      Conv("dqn conv2", 32, 20, 64, 4, 2, wide ? 9 : 5, 2, lanes),
      Conv("dqn conv3", 64, 9, 64, 3, 1, wide ? 7 : 4, wide ? 4 : 2, lanes)};
  std::vector<Prepared> prepared;
  for (const Kernel& k : kernels) {
    std::string folder =
        *dump == 0 ? "" : std::string(dump) + "/" + std::to_string(prepared.size());
    prepared.push_back(Prepare(k, target, folder));
  }
  double peak = 0;
  for (int round = 0; round < 200; ++round) {
    double now = PeakSlice(wide);
    peak = std::max(peak, now);
    for (Prepared& p : prepared) {
      double rate = Slice(p);
      p.best = std::max(p.best, rate);
      if (rate > 0) p.share.push_back(rate / now);
    }
  }
  printf("%s, FMA peak %.1f GFLOP/s\n", target.ToString().c_str(), peak);
  printf("%-34s %9s %7s %8s | CPU ms: %7s %7s %7s %8s\n", "kernel", "GFLOP/s", "best %", "median %",
         "replay", "loops", "lower", "codegen");
  for (Prepared& p : prepared) {
    std::sort(p.share.begin(), p.share.end());
    double median = p.share.empty() ? 0 : p.share[p.share.size() / 2];
    printf("%-34s %9.1f %7.1f %8.1f | %15.3f %7.3f %7.3f %8.2f\n", p.kernel.name.c_str(), p.best,
           100 * p.best / peak, 100 * median, p.replay_ms, p.loops_ms, p.lower_ms, p.codegen_ms);
  }
  return 0;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) { return tilewright::Main(argc, argv); }
