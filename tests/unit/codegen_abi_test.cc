// What generated code promises to the runtime: symbols, versions, sizes, errors, determinism; and
// what machine code it consists of where no machine here could run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "compiler/codegen/codegen.h"
#include "compiler/codegen/link_elf.h"
#include "compiler/ir/build.h"
#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/transform/passes.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/run_compiled.h"
#include "tests/support/te_programs.h"

namespace tilewright::codegen {
namespace {

target::Target Cpu(const std::string& name) {
  return *target::ParseTarget("cpu,arch=x86_64,cpu=" + name);
}

ir::Function Parsed(const std::string& text) {
  absl::StatusOr<ir::Function> f = ir::ParseFunction(text);
  EXPECT_TRUE(f.ok()) << support::StatusText(f.status());
  return *f;
}

// Y[i] = X[i] + 1 over a symbolic length, one task per element.
constexpr char kSymbolic[] = R"(
fn inc(n: size, X: f32[n] input, Y: f32[n] output) stage=flat {
  for i in 0..n parallel {
    Y[i] = X[i] + 1.0f32;
  }
}
)";

TEST(CodegenAbi, SymbolsAndWorkspaces) {
  ir::Function inc = Parsed(kSymbolic);
  ir::Function other = Parsed(R"(
fn other(Y: f32[40000] output) stage=flat {
  alloc T: f32[40000] scope=global {
    for i in 0..40000 {
      T[i] = 2.0f32;
    }
    for i in 0..40000 {
      Y[i] = T[39999 - i];
    }
  }
}
)");
  absl::StatusOr<Artifact> artifact = Generate({inc, other}, Cpu("x86-64"));
  ASSERT_TRUE(artifact.ok()) << support::StatusText(artifact.status());
  EXPECT_EQ(artifact->format, "elf-x86_64");
  ASSERT_EQ(artifact->programs.size(), 2u);
  EXPECT_EQ(artifact->programs[0].calls[0].symbol, "tw_kernel_inc");
  EXPECT_EQ(artifact->programs[1].calls[0].symbol, "tw_kernel_other");
  EXPECT_EQ(artifact->programs[0].workspace_bytes, 0);
  EXPECT_EQ(artifact->programs[1].workspace_bytes, 160000);
  absl::StatusOr<tests::LoadedKernel> kernel = tests::LoadedKernel::Load(*artifact, 1);
  ASSERT_TRUE(kernel.ok()) << support::StatusText(kernel.status());
  std::vector<float> y(40000);
  void* buffers[] = {y.data()};
  EXPECT_EQ(kernel->Call(buffers, nullptr, 1), TW_OK);
  EXPECT_EQ(y[0], 2.0f);
  EXPECT_EQ(y[39999], 2.0f);
}

TEST(CodegenAbi, WorkspaceOfSiblingsOverlapsAndTasksHaveSlices) {
  ir::Function f = Parsed(R"(
fn slices(Y: f32[4,20000] output) stage=loops {
  for t in 0..4 parallel {
    alloc A: f32[20000] scope=global {
      for i in 0..20000 {
        A[i] = f32(t);
      }
      for i in 0..20000 {
        Y[t, i] = A[i];
      }
    }
    alloc B: f32[20000] scope=global {
      for i in 0..20000 {
        B[i] = f32(i);
      }
      for i in 0..20000 {
        Y[t, i] = Y[t, i] + B[i];
      }
    }
  }
}
)");
  transform::PassContext ctx;
  ctx.target = Cpu("x86-64");
  const transform::PassRow rows[] = {*transform::FindPass("flatten_buffers"),
                                     *transform::FindPass("unroll_loops")};
  absl::StatusOr<ir::Function> flat = transform::RunPipeline(f, rows, ctx);
  ASSERT_TRUE(flat.ok()) << support::StatusText(flat.status());
  absl::StatusOr<Artifact> artifact = Generate({*flat}, ctx.target);
  ASSERT_TRUE(artifact.ok()) << support::StatusText(artifact.status());
  EXPECT_EQ(artifact->programs[0].workspace_bytes, 4 * 80000);
  absl::StatusOr<tests::LoadedKernel> kernel = tests::LoadedKernel::Load(*artifact);
  ASSERT_TRUE(kernel.ok()) << support::StatusText(kernel.status());
  std::vector<float> y(4 * 20000);
  void* buffers[] = {y.data()};
  EXPECT_EQ(kernel->Call(buffers, nullptr, 3), TW_OK);
  EXPECT_EQ(y[3 * 20000 + 7], 10.0f);
  EXPECT_EQ(y[2 * 20000], 2.0f);
}

class SymbolicKernel : public testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<Artifact> artifact = Generate({Parsed(kSymbolic)}, Cpu("x86-64"));
    ASSERT_TRUE(artifact.ok()) << support::StatusText(artifact.status());
    absl::StatusOr<tests::LoadedKernel> kernel = tests::LoadedKernel::Load(*artifact);
    ASSERT_TRUE(kernel.ok()) << support::StatusText(kernel.status());
    kernel_ = std::make_unique<tests::LoadedKernel>(*std::move(kernel));
  }
  int32_t Call(TwContext context, int64_t size) {
    return kernel_->entry()(&context, buffers_, &size, nullptr);
  }
  alignas(64) float x_[16] = {1, 2, 3, 4, 5, 6, 7, 8};
  alignas(64) float y_[16] = {};
  void* buffers_[2] = {x_, y_};
  std::unique_ptr<tests::LoadedKernel> kernel_;
};

TEST_F(SymbolicKernel, RunsForAnySize) {
  EXPECT_EQ(Call(tests::TestContext(2), 7), TW_OK);
  EXPECT_EQ(y_[6], 8.0f);
  EXPECT_EQ(y_[7], 0.0f);
}

TEST_F(SymbolicKernel, RefusesSizesBelowOne) {
  EXPECT_EQ(Call(tests::TestContext(1), 0), TW_ERROR_SIZE);
  EXPECT_EQ(Call(tests::TestContext(1), -3), TW_ERROR_SIZE);
  EXPECT_EQ(y_[0], 0.0f);
}

TEST_F(SymbolicKernel, RefusesAnOlderRuntime) {
  TwContext context = tests::TestContext(1);
  context.abi_version = TW_ABI_VERSION - 1;
  EXPECT_EQ(Call(context, 4), TW_ERROR_ABI);
  context.abi_version = TW_ABI_VERSION + 1;
  EXPECT_EQ(Call(context, 4), TW_OK);
}

TEST_F(SymbolicKernel, ReturnsWhatParallelForReturns) {
  TwContext context = tests::TestContext(1);
  context.parallel_for = [](TwContext*, TwTaskBody body, void* closure, int64_t tasks) -> int32_t {
    EXPECT_EQ(tasks, 5);
    EXPECT_EQ(body(closure, 2), TW_OK);
    return 42;
  };
  EXPECT_EQ(Call(context, 5), 42);
  EXPECT_EQ(y_[2], 4.0f);
  EXPECT_EQ(y_[0], 0.0f);
}

TEST(Codegen, SameInputSameBytes) {
  ir::Function flat = *tests::LowerChecked(tests::DenseReluProgram(9, 20, 7), Cpu("x86-64-v3"));
  std::string first = Generate({flat}, Cpu("x86-64-v3"))->bytes;
  // Also with others at work: target machines and the linker are shared.
  std::vector<std::string> digests(4);
  std::vector<std::thread> threads;
  for (std::string& digest : digests) {
    threads.emplace_back([&] {
      absl::StatusOr<Artifact> again = Generate({flat}, Cpu("x86-64-v3"));
      digest = again.ok() ? support::Sha256Hex(again->bytes) : support::StatusText(again.status());
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(digests, testing::Each(support::Sha256Hex(first)));
  EXPECT_NE(support::Sha256Hex(Generate({flat}, Cpu("x86-64"))->bytes), support::Sha256Hex(first));
}

// lld used to reset LLVM's options at the start of each link, also while another thread emitted.
TEST(Codegen, LinkingChangesNoOptionOfOtherThreads) {
  const ir::Function flat = *tests::LowerChecked(tests::DenseReluProgram(9, 20, 7), Cpu("znver4"));
  absl::StatusOr<Artifact> reference = Generate({flat}, Cpu("znver4"));
  ASSERT_TRUE(reference.ok()) << support::StatusText(reference.status());
  std::atomic<bool> done = false;
  std::thread linker([&] {
    while (!done) EXPECT_FALSE(LinkSharedObject("no object").ok());
  });
  int changed = 0;
  for (int i = 0; i < 100; ++i) {
    auto again = Generate({flat}, Cpu("znver4"));
    changed += !again.ok() || again->bytes != reference->bytes;
  }
  done = true;
  linker.join();
  EXPECT_EQ(changed, 0);
}

TEST(Codegen, RefusesWithReasons) {
  auto slug = [](const absl::StatusOr<Artifact>& a) {
    return a.ok() ? "ok" : support::Slug(a.status());
  };
  ir::Function scheduled = tests::MatmulProgram(4, 4, 4);
  EXPECT_EQ(slug(Generate({scheduled}, Cpu("x86-64"))), "codegen.function.not_flat");
  EXPECT_EQ(slug(Generate({}, Cpu("x86-64"))), "codegen.function.none");
  ir::Function inc = Parsed(kSymbolic);
  target::Target vax = Cpu("x86-64");
  vax.arch = "vax";
  EXPECT_EQ(slug(Generate({inc}, vax)), "codegen.target.unsupported");
  target::Target odd = Cpu("x86-64");
  odd.cpu = "no-such-cpu";
  EXPECT_EQ(slug(Generate({inc}, odd)), "codegen.target.unknown_cpu");
  EXPECT_EQ(slug(Generate({Parsed(R"(
fn half(X: f16[4] input, Y: f16[4] output) stage=flat {
  for i in 0..4 {
    Y[i] = X[i] + X[i];
  }
}
)")},
                          Cpu("x86-64"))),
            "codegen.type.unsupported");
  EXPECT_EQ(slug(Generate({Parsed(R"(
fn open(n: size, Y: f32[n] output) stage=flat {
  for t in 0..4 parallel {
    alloc T: f32[n] scope=global {
      for i in 0..n {
        T[i] = 1.0f32;
      }
      for i in 0..n {
        Y[i] = T[i];
      }
    }
  }
}
)")},
                          Cpu("x86-64"))),
            "codegen.alloc.open");
}

struct AssemblyCounts {
  int fma = 0, wide_fma = 0, spills = 0;
};
// Fused multiply-adds, those of a register kind, and moves of that kind to or from the stack.
AssemblyCounts CountIn(const std::string& assembly, const std::string& wide) {
  AssemblyCounts counts;
  for (size_t start = 0; start < assembly.size();) {
    size_t end = std::min(assembly.find('\n', start), assembly.size());
    std::string line = assembly.substr(start, end - start);
    bool is_wide = line.find(wide) != std::string::npos;
    if (line.find("vfmadd") != std::string::npos) {
      ++counts.fma;
      if (is_wide) ++counts.wide_fma;
    }
    if (is_wide && line.find("(%rsp)") != std::string::npos) ++counts.spills;
    start = end + 1;
  }
  return counts;
}

// A register tile of 6 x 4 vectors of 16 lanes: one register per accumulator, nothing on the stack.
// Read from the assembly, because not every machine executes AVX-512.
TEST(Codegen, Avx512TilesStayInWholeRegisters) {
  ir::Function f = tests::MatmulProgram(24, 128, 64);
  auto scheduled = schedule::Replay(
      f,
      "cache_write %3; split %5 [?,6]; split %6 [?,64]; reorder %7 %9 %8 %10; compute_at %3 %9; "
      "split %12 [?,16]; reorder %13 %11 %14 %15; unroll %11; unroll %14; vectorize %15; "
      "split %10 [?,16]; vectorize %17; unroll %16; unroll %8");
  ASSERT_TRUE(scheduled.ok()) << support::StatusText(scheduled.status());
  for (const char* cpu : {"x86-64-v4", "skylake-avx512", "znver4"}) {
    SCOPED_TRACE(cpu);
    absl::StatusOr<ir::Function> flat = tests::LowerChecked(*scheduled, Cpu(cpu));
    ASSERT_TRUE(flat.ok()) << support::StatusText(flat.status());
    auto folder = support::TempDir::Create();
    ASSERT_TRUE(folder.ok());
    absl::StatusOr<Artifact> artifact = Generate({*flat}, Cpu(cpu), {.dump_dir = folder->path()});
    ASSERT_TRUE(artifact.ok()) << support::StatusText(artifact.status());
    AssemblyCounts counts =
        CountIn(*support::ReadFile(folder->File(f.name + ".s"), 1 << 20), "%zmm");
    EXPECT_EQ(counts.wide_fma, 24);
    EXPECT_EQ(counts.fma, 24);
    EXPECT_EQ(counts.spills, 0);
  }
}

// Neighbouring taps of a strided convolution read the same inputs. Kept in registers from tap to
// tap, they would push accumulators onto the stack.
TEST(Codegen, UnrolledTapsDoNotSpill) {
  ir::FunctionBuilder b("taps");
  auto shape = [](std::vector<int64_t> dims) {
    std::vector<ir::Expr> result;
    for (int64_t d : dims) result.push_back(ir::Int(d));
    return result;
  };
  ir::Buffer x = b.Input("X", ir::kF32, shape({8, 12}));
  ir::Buffer w = b.Constant("W", ir::kF32, shape({8, 4, 16}));
  ir::Axis channel = b.ReduceAxis("ic", ir::Int(8)), tap = b.ReduceAxis("kw", ir::Int(4));
  ir::Buffer y =
      b.Reduce("Y", ir::kF32, shape({5, 16}), {"ow", "oc"}, {channel, tap}, ir::Combiner::kSum,
               [&](const std::vector<ir::Var>& v) {
                 ir::Expr at = v[0] * ir::Int(2) + tap.var;
                 return ir::Load(x, {channel.var, at}) * ir::Load(w, {channel.var, tap.var, v[1]});
               });
  ir::Function f = b.Finish({y});
  auto scheduled = schedule::Replay(
      f,
      "cache_write %4; reorder %2 %3 %0 %1; split %1 [2,8]; unroll %3; unroll %0; unroll %8; "
      "vectorize %9; split %7 [2,8]; vectorize %11; unroll %10; unroll %6");
  ASSERT_TRUE(scheduled.ok()) << support::StatusText(scheduled.status());
  absl::StatusOr<ir::Function> flat = tests::LowerChecked(*scheduled, Cpu("x86-64-v3"));
  ASSERT_TRUE(flat.ok()) << support::StatusText(flat.status());
  auto folder = support::TempDir::Create();
  ASSERT_TRUE(folder.ok());
  absl::StatusOr<Artifact> artifact =
      Generate({*flat}, Cpu("x86-64-v3"), {.dump_dir = folder->path()});
  ASSERT_TRUE(artifact.ok()) << support::StatusText(artifact.status());
  AssemblyCounts counts = CountIn(*support::ReadFile(folder->File("taps.s"), 1 << 20), "%ymm");
  EXPECT_EQ(counts.wide_fma, 40) << ir::Print(*flat);
  EXPECT_EQ(counts.spills, 0);
}

// Weights are unpacked in loops that are deep but short, and multiplied in one that is long: twelve
// sums, three weights and a factor fill all registers. The constants of the first loops leave
// theirs.
TEST(Codegen, ConstantsOfShortLoopsDoNotSpillTheSumsOfLongOnes) {
  constexpr int kRows = 4, kVectors = 3;
  std::string start, multiply, store;
  for (int tile = 0; tile < kRows * kVectors; ++tile) {
    const int row = tile / kVectors, vector = tile % kVectors;
    const std::string sum = support::StrCat("S[ramp(", 8 * tile, ", 1, 8)]");
    start += support::StrCat(sum, " = broadcast(0.0f32, 8);\n");
    multiply += support::StrCat(sum, " = fma(broadcast(X[i * 1024 + k + ", 256 * row,
                                "], 8), P[ramp(k * 24 + ", 8 * vector, ", 1, 8)], ", sum, ");\n");
    store += support::StrCat("Y[ramp(i * 9216 + t * 24 + ", 2304 * row + 8 * vector,
                             ", 1, 8)] = ", sum, ";\n");
  }
  const ir::Function f = Parsed(support::StrCat(
      "fn trips(n: size, X: f32[1024 * n] input, W: i32[589824] input, Y: f32[9216 * n] output) "
      "stage=flat {\n for t in 0..96 {\n alloc P: f32[6144] scope=global {\n for a in 0..2 {\n "
      "for k in 0..128 {\n for b in 0..3 {\n P[ramp(a * 3072 + k * 24 + b * 8, 1, 8)] = "
      "f32x8(bit_and(shift_right(W[ramp(t * 6144 + a * 3072 + k * 24 + b * 8, 1, 8)], "
      "broadcast(i32(floormod(k, 8) * 4), 8)), broadcast(15i32, 8))) - broadcast(8.0f32, 8);\n}\n"
      "}\n}\n for i in 0..n {\n alloc S: f32[96] scope=local {\n",
      start, "for k in 0..256 {\n", multiply, "}\n", store, "}\n}\n}\n}\n}\n"));
  auto folder = support::TempDir::Create();
  ASSERT_TRUE(folder.ok());
  const auto artifact = Generate({f}, Cpu("x86-64-v3"), {.dump_dir = folder->path()});
  ASSERT_TRUE(artifact.ok()) << support::StatusText(artifact.status());
  // The block that multiplies: from its label to its last product.
  const std::string assembly = *support::ReadFile(folder->File("trips.s"), 1 << 20);
  const size_t first = assembly.find("vfmadd"), last = assembly.rfind("vfmadd");
  ASSERT_NE(first, std::string::npos);
  const size_t label = assembly.rfind(".LBB", first);
  const AssemblyCounts counts =
      CountIn(assembly.substr(label, assembly.find('\n', last) - label), "%ymm");
  EXPECT_EQ(counts.wide_fma, kRows * kVectors);
  EXPECT_EQ(counts.spills, 0);
}

// Whole aligned registers go past the caches, the masked rest does not; a fence at the end of each
// task.
TEST(Codegen, StreamedOutputsAreWrittenPastTheCaches) {
  for (const auto& [columns, streamed] : {std::pair(64, 1), std::pair(65, 0)}) {
    const auto scheduled =
        schedule::Replay(tests::DenseReluProgram(24, columns, 8),
                         "split %5 [?,16]; vectorize %8; parallel %4; stream_writes %6");
    ASSERT_TRUE(scheduled.ok()) << support::StatusText(scheduled.status());
    const auto flat = tests::LowerChecked(*scheduled, Cpu("x86-64-v4"));
    ASSERT_TRUE(flat.ok()) << support::StatusText(flat.status());
    auto folder = support::TempDir::Create();
    ASSERT_TRUE(folder.ok());
    const auto artifact = Generate({*flat}, Cpu("x86-64-v4"), {.dump_dir = folder->path()});
    ASSERT_TRUE(artifact.ok()) << support::StatusText(artifact.status());
    const std::string assembly = *support::ReadFile(folder->File(scheduled->name + ".s"), 1 << 20);
    EXPECT_EQ(assembly.find("vmovntps") != std::string::npos, streamed > 0);
    EXPECT_EQ(assembly.find("sfence") != std::string::npos, streamed > 0);
  }
}

}  // namespace
}  // namespace tilewright::codegen
