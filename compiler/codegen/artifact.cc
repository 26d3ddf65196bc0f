#include "compiler/codegen/codegen.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {

Program WholeFunction(const ir::Function& f, const support::Dim& workspace_bytes) {
  Program program;
  program.workspace_bytes = workspace_bytes;
  Call& call = program.calls.emplace_back();
  call.symbol = TW_KERNEL_SYMBOL_PREFIX + f.name;
  call.num_outputs = 0;
  for (const ir::Buffer& param : f.params) {
    call.buffers.push_back(static_cast<int>(call.buffers.size()));
    call.num_outputs += param->role == ir::Role::kOutput ? 1 : 0;
  }
  return program;
}

absl::Status CheckSpills(const std::vector<KernelResources>& kernels) {
  for (const KernelResources& k : kernels) {
    if (k.spill_bytes == 0) continue;
    return support::FailedPrecondition(
        "codegen.resources.spills",
        support::StrCat("expected registers enough for ", k.name, ", found that a thread spills ",
                        k.spill_bytes, " bytes from its ", k.registers, " registers"));
  }
  return absl::OkStatus();
}

absl::Status WriteDump(const CodegenOptions& options, const std::string& name,
                       std::string_view suffix, const std::string& text) {
  if (options.dump_dir.empty()) return absl::OkStatus();
  TW_TRY(support::MakeDirs(options.dump_dir));
  return support::WriteFileAtomic(
      support::PathJoin(options.dump_dir, support::StrCat(name, suffix)), text);
}

}  // namespace tilewright::codegen
