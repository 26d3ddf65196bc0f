// The launches of a module from the programs of its code, and the tensors that programs pass
// between their launches and to later runs. Inside of the driver. One owner; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/driver/module_builder.h"
#include "deploy/module/manifest.h"

namespace tilewright::driver {

// Returns a module's tensor of this type. Where its sizes are open, `bytes` is 0.
absl::StatusOr<module::Tensor> TensorOf(const op::TensorType& type, module::TensorKind kind,
                                        int64_t id);
int64_t RoundUp(int64_t bytes, int64_t alignment);

// Where what passes between the launches of a program may lie: behind all intermediates of the
// function.
struct Scratch {
  int64_t offset = 0;               // in an arena of fixed places
  std::vector<int64_t> below = {};  // in one of open sizes: the tensors whose ends it begins at
};

// Turns programs into launches. What passes between the launches of one program lies behind the
// arena's intermediates, in one place that all programs use in turn; prepared tensors follow.
class LaunchWriter {
 public:
  // `parts` and `manifest` must outlive it. REQUIRES: the arena of fixed sizes is planned.
  LaunchWriter(const std::vector<CodePart>& parts, int64_t alignment, module::Manifest* manifest);

  // The launches of program `index` of a part on the tensors of its function's parameters. The last
  // launch carries what `about` says of the task.
  absl::StatusOr<std::vector<module::Launch>> Launches(size_t part, int index,
                                                       const std::vector<int64_t>& params,
                                                       const Scratch& scratch,
                                                       const module::Launch& about);
  // That of functions without open sizes of their own. `arena_bytes`: of the intermediates.
  Scratch ScratchBehind(int64_t arena_bytes) const;

  // Adds what a task has prepared: tensors at the end of the arena, and the launches that write
  // them once. `inputs` are the task's; returns the tensors. Where one program has prepared the
  // same inputs before, for this function or another, its tensors are shared.
  absl::StatusOr<std::vector<int64_t>> Prepare(size_t part, const PreparedKernel& prepared,
                                               const std::vector<int64_t>& inputs,
                                               const std::string& name, module::Function* function);

 private:
  using PreparedKey = std::tuple<size_t, int, std::vector<int64_t>>;  // part, program, reads
  struct Prepared {
    std::vector<int64_t> tensors;
    std::vector<module::Launch> launches;
    std::string function;  // the last that got the launches
  };

  int64_t ScratchBytes(const codegen::Program& program) const;
  absl::StatusOr<int64_t> AddTensor(const op::TensorType& type, module::TensorKind kind,
                                    int64_t offset, const std::string& name);
  absl::Status AddTemporaries(const codegen::Program& program, const std::string& name,
                              const Scratch& scratch, std::vector<int64_t>* tensors);
  absl::StatusOr<Prepared> MakePrepared(size_t part, const PreparedKernel& prepared,
                                        const std::vector<int64_t>& reads, const std::string& name);

  const std::vector<CodePart>& parts_;
  const int64_t alignment_;
  module::Manifest& manifest_;
  int64_t scratch_ = 0;
  int64_t prepared_end_ = 0;     // of their region in a module of open sizes
  std::vector<int64_t> object_;  // each part's code object, by index in the manifest
  std::map<PreparedKey, Prepared> prepared_;
};

}  // namespace tilewright::driver
