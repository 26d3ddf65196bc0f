#include "tests/support/run_compiled.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <thread>
#include <utility>

#include "compiler/transform/passes.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/support/status.h"

namespace tilewright::tests {
namespace {

constexpr int64_t kBlockTerms = 2;  // the sums of tests are short
constexpr uint8_t kCanary = 0xA5;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Where nothing may be touched: reads leave no other trace.
enum class Guard : uint8_t { kBefore, kBehind };

// `bytes` of memory right behind a guard page, or whose end, rounded up to the ABI's alignment, is
// right before one.
class GuardedBuffer {
 public:
  GuardedBuffer(int64_t bytes, Guard guard) : bytes_(bytes) {
    int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t padded = RoundUp(bytes, TW_BUFFER_ALIGNMENT);
    int64_t body = RoundUp(padded + 1, page);
    mapped_ = body + 2 * page;
    base_ = static_cast<uint8_t*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    TW_CHECK(base_ != MAP_FAILED) << "mmap of " << mapped_ << " bytes";
    start_ = base_ + page;
    end_ = start_ + body;
    data_ = guard == Guard::kBefore ? start_ : end_ - padded;
    memset(start_, kCanary, body);
    TW_CHECK(mprotect(base_, page, PROT_NONE) == 0 && mprotect(end_, page, PROT_NONE) == 0)
        << "mprotect";
  }
  GuardedBuffer(const GuardedBuffer&) = delete;
  ~GuardedBuffer() { munmap(base_, mapped_); }

  uint8_t* data() { return data_; }
  bool SurroundingsUntouched() const {
    for (const uint8_t* p = start_; p < data_; ++p) {
      if (*p != kCanary) return false;
    }
    for (const uint8_t* p = data_ + bytes_; p < end_; ++p) {
      if (*p != kCanary) return false;
    }
    return true;
  }

 private:
  int64_t bytes_, mapped_;
  uint8_t *base_, *start_, *end_, *data_;
};

int32_t TestParallelFor(TwContext* ctx, TwTaskBody body, void* closure, int64_t num_tasks) {
  if (ctx->num_threads <= 1) {
    for (int64_t task = num_tasks; task-- > 0;) {
      if (int32_t rc = body(closure, task); rc != TW_OK) return rc;
    }
    return TW_OK;
  }
  std::atomic<int64_t> next{0};
  std::atomic<int32_t> result{TW_OK};
  auto work = [&] {
    for (int64_t task = next++; task < num_tasks && result == TW_OK; task = next++) {
      if (int32_t rc = body(closure, task); rc != TW_OK) result = rc;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < ctx->num_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  return result;
}

}  // namespace

namespace {

// Those of `cpus` whose code this machine executes; says on stderr which it does not.
std::vector<target::Target> Runnable(std::initializer_list<const char*> cpus) {
  const runtime::CpuInfo machine = runtime::DetectCpu();
  std::vector<target::Target> targets;
  for (const char* cpu : cpus) {
    absl::StatusOr<target::Target> target =
        target::ParseTarget(std::string("cpu,arch=x86_64,cpu=") + cpu);
    TW_CHECK(target.ok()) << support::StatusText(target.status());
    if (runtime::MissingFeatures(machine, target->machine.FeatureList()).empty()) {
      targets.push_back(*std::move(target));
    } else {
      fprintf(stderr, "[SKIP] %s: this machine does not execute it\n", cpu);
    }
  }
  return targets;
}

}  // namespace

std::vector<target::Target> RunnableTargets() {
  static const auto* targets =
      new std::vector<target::Target>(Runnable({"x86-64", "x86-64-v3", "x86-64-v4"}));
  return *targets;
}

std::vector<target::Target> RunnableDotTargets() {
  static const auto* targets = new std::vector<target::Target>(
      Runnable({"x86-64-v2", "haswell", "alderlake", "cascadelake", "znver4"}));
  return *targets;
}

target::Target WidestTarget() { return RunnableTargets().back(); }

absl::StatusOr<ir::Function> LowerChecked(const ir::Function& f, const target::Target& target,
                                          const std::string& miscompile, int64_t block_terms) {
  if (f.stage == ir::Stage::kFlat) return f;
  transform::PassContext ctx;
  ctx.target = target;
  ctx.verify_each = true;
  if (block_terms != 0) ctx.block_terms = block_terms;
  ctx.test_miscompile = miscompile;
  return transform::RunPipeline(f, transform::CpuPipeline(), ctx);
}

LoadedKernel::LoadedKernel(runtime::LoadedCode code, TwKernelFn entry, int64_t workspace_bytes)
    : code_(std::move(code)),
      entry_(entry),
      workspace_(
          workspace_bytes == 0
              ? nullptr
              : aligned_alloc(TW_BUFFER_ALIGNMENT, RoundUp(workspace_bytes, TW_BUFFER_ALIGNMENT))) {
  if (workspace_ != nullptr) memset(workspace_, kCanary, workspace_bytes);
}

LoadedKernel::LoadedKernel(LoadedKernel&& other) noexcept
    : code_(std::move(other.code_)),
      entry_(other.entry_),
      workspace_(std::exchange(other.workspace_, nullptr)) {}

LoadedKernel::~LoadedKernel() { free(workspace_); }

absl::StatusOr<LoadedKernel> LoadedKernel::Load(const codegen::Artifact& artifact, size_t function,
                                                const support::Sizes& sizes) {
  TW_ASSIGN(runtime::LoadedCode code, runtime::LoadedCode::Load(artifact.format, artifact.bytes));
  const codegen::Program& program = artifact.programs[function];
  TW_ASSIGN(void* entry, code.Symbol(program.calls[0].symbol));
  TW_ASSIGN(const int64_t workspace_bytes, program.workspace_bytes.Evaluate(sizes));
  return LoadedKernel(std::move(code), reinterpret_cast<TwKernelFn>(entry), workspace_bytes);
}

TwContext TestContext(int threads) { return {TW_ABI_VERSION, threads, nullptr, TestParallelFor}; }

int32_t LoadedKernel::Call(void* const* buffers, const int64_t* sizes, int threads) const {
  TwContext context = TestContext(threads);
  return entry_(&context, buffers, sizes, workspace_);
}

namespace {

absl::Status CallGuarded(const LoadedKernel& kernel, const ir::Function& f, int threads,
                         const std::vector<int64_t>& sizes,
                         const std::vector<ir::TensorData*>& args, Guard guard) {
  std::vector<std::unique_ptr<GuardedBuffer>> buffers;
  std::vector<void*> pointers;
  for (size_t i = 0; i < f.params.size(); ++i) {
    buffers.push_back(std::make_unique<GuardedBuffer>(args[i]->bytes.size(), guard));
    bool output = f.params[i]->role == ir::Role::kOutput;
    if (output) {
      memset(buffers.back()->data(), kCanary, args[i]->bytes.size());
    } else {
      memcpy(buffers.back()->data(), args[i]->bytes.data(), args[i]->bytes.size());
    }
    pointers.push_back(buffers.back()->data());
  }
  int32_t rc = kernel.Call(pointers.data(), sizes.data(), threads);
  if (rc != TW_OK) return support::Internal("tests.kernel.failed", "code " + std::to_string(rc));
  for (size_t i = 0; i < f.params.size(); ++i) {
    const ir::Buffer& param = f.params[i];
    if (!buffers[i]->SurroundingsUntouched()) {
      return support::Internal("tests.kernel.overrun", "bytes around " + param->name + " changed");
    }
    size_t bytes = args[i]->bytes.size();
    if (param->role == ir::Role::kOutput) {
      memcpy(args[i]->bytes.data(), buffers[i]->data(), bytes);
    } else if (memcmp(args[i]->bytes.data(), buffers[i]->data(), bytes) != 0) {
      return support::Internal("tests.kernel.wrote_input", "bytes of " + param->name + " changed");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunCompiled(const ir::Function& f, const target::Target& target, int threads,
                         const std::vector<int64_t>& sizes, std::vector<ir::TensorData*> args) {
  TW_ASSIGN(ir::Function flat, LowerChecked(f, target, "", kBlockTerms));
  TW_ASSIGN(codegen::Artifact artifact, codegen::Generate({flat}, target));
  support::Sizes named;
  for (size_t i = 0; i < sizes.size(); ++i) named[flat.size_params[i]->name] = sizes[i];
  TW_ASSIGN(LoadedKernel kernel, LoadedKernel::Load(artifact, 0, named));
  for (size_t i = 0; i < f.params.size(); ++i) {
    TW_ASSIGN(int64_t elements, ir::BufferElements(f, f.params[i], sizes));
    args[i]->bytes.resize(elements * f.params[i]->dtype.bytes());
  }
  TW_TRY(CallGuarded(kernel, f, threads, sizes, args, Guard::kBefore));
  return CallGuarded(kernel, f, threads, sizes, args, Guard::kBehind);
}

}  // namespace tilewright::tests
