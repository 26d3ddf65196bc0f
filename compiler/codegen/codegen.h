// Code generation: lowered functions (kFlat) → one loadable code object with the C ABI of
// deploy/runtime/c_abi.h. The LLVM back end lives behind this header in its own target
// (tilewright_codegen_llvm); nothing else includes LLVM. Not thread-safe per process for linking
// (lld): the generator serialises it with one mutex.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/target.h"

namespace tilewright::codegen {

// Attribute of a function: names of input parameters, separated by commas, whose storage the output
// may share. Code of such a function assumes nothing about them and the output.
inline constexpr std::string_view kMayAlias = "may_alias";

struct CodegenOptions {
  std::string dump_dir;  // writes <name>.ll and <name>.s when set
};
struct Artifact {
  std::string format;  // "elf-x86_64"
  std::string bytes;   // a shared object: entries tw_kernel_<function name>, no undefined symbols
                       // but libc/libm
  std::vector<std::string> symbols;  // in the order of the functions
  std::vector<int64_t> workspace_bytes;
  double codegen_seconds = 0, link_seconds = 0;
};
absl::StatusOr<Artifact> Generate(const std::vector<ir::Function>& functions,
                                  const ir::Target& target,
                                  const CodegenOptions& options = {});  // codegen.*
std::string ToolchainName();  // "llvm-19.1.7"; part of a record's key

}  // namespace tilewright::codegen
