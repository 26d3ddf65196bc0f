// Compiles a function for this machine and runs it inside the test process: the other side of every
// comparison with the interpreter. It runs twice, with all buffers right behind a guard page and
// right before one: an access beyond the ABI's promise stops the test. The bytes around them are
// checked afterwards. Objects belong to one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir.h"
#include "compiler/target/target.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/runtime/code_loader.h"

namespace tilewright::tests {

// The x86-64 levels that this machine executes, narrowest vectors first. Says on stderr which it
// lacks.
std::vector<target::Target> RunnableTargets();
// The same for dot products of bytes: without an instruction for them in vectors of 128 and of 256
// bits, with AVX-VNNI and with AVX512-VNNI.
std::vector<target::Target> RunnableDotTargets();
// The widest of them.
target::Target WidestTarget();

// Scheduled or lowered → kFlat, verified after every pass. `block_terms`: see PassContext; 0 is
// what modules have.
absl::StatusOr<ir::Function> LowerChecked(const ir::Function& f, const target::Target& target,
                                          const std::string& miscompile = "",
                                          int64_t block_terms = 0);

class LoadedKernel {
 public:
  // `sizes`: of the function's size parameters, by their names.
  static absl::StatusOr<LoadedKernel> Load(const codegen::Artifact& artifact, size_t function = 0,
                                           const support::Sizes& sizes = {});
  LoadedKernel(LoadedKernel&& other) noexcept;
  ~LoadedKernel();

  // Raw call. With one thread, tasks run in reverse order on the calling thread.
  int32_t Call(void* const* buffers, const int64_t* sizes, int threads) const;
  TwKernelFn entry() const { return entry_; }
  void* workspace() const { return workspace_; }

 private:
  LoadedKernel(runtime::LoadedCode code, TwKernelFn entry, int64_t workspace_bytes);
  runtime::LoadedCode code_;
  TwKernelFn entry_;
  void* workspace_;
};

// A context whose parallel_for runs tasks on `threads` threads of its own.
TwContext TestContext(int threads);

// Lowers, compiles and runs; `args` in parameter order, outputs are resized and overwritten.
// From four terms on, sums of floats are sums of blocks.
absl::Status RunCompiled(const ir::Function& f, const target::Target& target, int threads,
                         const std::vector<int64_t>& sizes, std::vector<ir::TensorData*> args);

}  // namespace tilewright::tests
