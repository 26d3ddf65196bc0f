// Code generation: one request (lowered functions and their target) becomes one artifact (a code
// object, and for each function the calls that compute it). The generator of every kind of target
// has this form; compiler/targets/backend.h says which one a target uses. LLVM's is declared here
// and lives in its own target (tilewright_codegen_llvm); nothing else includes LLVM.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/target/target.h"
#include "deploy/support/dim.h"

namespace tilewright::codegen {

// Attribute of a function: names of input parameters, separated by commas, whose storage the output
// may share. Code of such a function assumes nothing about them and the output.
inline constexpr std::string_view kMayAlias = "may_alias";

struct CodegenOptions {
  std::string dump_dir;  // gets the code as texts, NAME.ll, NAME.s, NAME.cl; none where empty
};

struct Request {
  const std::vector<ir::Function>& functions;  // what the pipeline of the target's kind gives
  const target::Target& target;
  CodegenOptions options;
};

// A call of one entry of the code object.
struct Call {
  std::string symbol;  // TW_KERNEL_SYMBOL_PREFIX and a name
  // Groups of the launch and threads of a group, along x y z. Zeros: one call holds all loops.
  std::array<int64_t, 3> grid{}, group{};
  std::vector<int> buffers;  // in the entry's order: positions among the function's parameters,
                             // then its temporaries
  int num_outputs = 1;       // the last ones are written, the others only read
};

// What computes one function: calls in order.
struct Program {
  std::vector<Call> calls;
  std::vector<ir::Buffer> temporaries;  // constant sizes; hold values from one call to a later one
  // Scratch of each call: an expression over the size parameters where intermediates have open
  // sizes.
  support::Dim workspace_bytes = 0;
};

// What a device's compiler says of a kernel.
struct KernelResources {
  std::string name;
  int64_t registers = 0;     // of one thread
  int64_t spill_bytes = 0;   // that one thread stores and loads because it has no more registers
  int64_t stack_bytes = 0;   // of one thread
  int64_t shared_bytes = 0;  // of one group
};

struct Artifact {
  // The target family's code_format: "elf-x86_64", a shared object without undefined symbols but
  // those of libc and libm; "opencl-c", text; "cubin".
  std::string format;
  std::string bytes;
  std::vector<Program> programs;               // in the order of the functions
  std::vector<std::string> required_features;  // of the processor or device that runs it
  std::vector<KernelResources> resources;      // of kernels, where a compiler says so
  double codegen_seconds = 0, link_seconds = 0;
};

// The program of a function whose entry holds all its loops: one call with its parameters. The
// outputs come last among the parameters.
Program WholeFunction(const ir::Function& f, const support::Dim& workspace_bytes);

// codegen.resources.spills: a kernel has too few registers, so that its threads store and load some
// of their values again and again.
absl::Status CheckSpills(const std::vector<KernelResources>& kernels);

// Writes `text` to the file NAME SUFFIX of the folder for dumps, if there is one.
absl::Status WriteDump(const CodegenOptions& options, const std::string& name,
                       std::string_view suffix, const std::string& text);

// For the processors that LLVM knows. codegen.*. Thread-safe; one mutex serialises linking (lld).
absl::StatusOr<Artifact> Generate(const std::vector<ir::Function>& functions,
                                  const target::Target& target, const CodegenOptions& options = {});
std::string ToolchainName();  // "llvm-19.1.7"; part of a record's key

}  // namespace tilewright::codegen
