// C for the system's compiler, as a dialect of c_like. An entry for each kernel, which device_toy.c
// calls for each group of a launch, has one signature: toy_NAME(group, sizes, buffers).
#include <string>

#include "compiler/codegen/c_artifact.h"
#include "compiler/targets/backend.h"
#include "deploy/module/manifest.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::toy {
namespace {

constexpr codegen::CDialect kToyC = {
    .name = "toy",
    .suffix = ".c",
    .prologue = R"(#include <math.h>
static const long* toy_group;
static int toy_dot4(int sum, int a0, int a1, int a2, int a3, int b0, int b1, int b2, int b3) {
  return (int)((unsigned)sum + (unsigned)(a0 * b0 + a1 * b1 + a2 * b2 + a3 * b3));
}
)",
    .kernel = "static ",
    .global = "",
    .shared = "",
    .block_index = "toy_group[%]",
    .thread_index = "0",
    .axis_names = "012",
    .barrier = "",
    .global_barrier = "",
    .group_size = "",
    .types = {"signed char", "short", "int", "long", "unsigned char", "unsigned short", "unsigned",
              "unsigned long", "", "float", "double"},
    .vectors = false,
    .dot4 = "toy_dot4",
};

std::string EntryOf(const codegen::Call& call) {
  const std::string name = call.symbol.substr(sizeof(TW_KERNEL_SYMBOL_PREFIX) - 1);
  std::string buffers;
  for (size_t i = 0; i < call.buffers.size(); ++i)
    buffers += support::StrCat(i == 0 ? "" : ", ", "buffers[", i, "]");
  return support::StrCat("\nvoid toy_", name,
                         "(const long* group, const long* sizes, void* const* buffers) {\n",
                         "  toy_group = group;\n  ", name, "(", buffers, ");\n}\n");
}

absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request) {
  TW_ASSIGN(codegen::Artifact artifact, codegen::GenerateC(request, kToyC));
  for (const codegen::Program& program : artifact.programs) {
    for (const codegen::Call& call : program.calls) artifact.bytes += EntryOf(call);
  }
  return artifact;
}

std::string ToolchainName() { return "c99"; }

}  // namespace

constinit const targets::Backend kBackend = {.pipeline = transform::GpuPipeline,
                                             .generate = Generate,
                                             .toolchain = ToolchainName,
                                             .alignment = module::kTensorAlignment,
                                             .on_device = true};

}  // namespace tilewright::toy
