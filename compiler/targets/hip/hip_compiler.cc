#include "compiler/targets/hip/hip_compiler.h"

#include <algorithm>
#include <utility>

#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::hip {
namespace {

using support::StrCat;

constexpr int64_t kTimeoutMs = 300'000, kVersionTimeoutMs = 20'000;
constexpr uint64_t kMostCodeBytes = uint64_t{256} << 20;
constexpr size_t kMostMessageBytes = 4000;

// ROCm's own is the newest for these machines; then by version. Older ones lack expansions of
// functions that texts use.
constexpr std::string_view kRocmFolder = "/opt/rocm/llvm/bin";
constexpr std::string_view kNames[] = {"clang-20", "clang-19", "clang-18", "clang"};

// Where Debian's package has ROCm's device libraries, and clang does not look for them. Others are
// where clang looks, or where HIP_DEVICE_LIB_PATH says.
constexpr char kDebianLibraries[] = "/usr/lib/x86_64-linux-gnu/amdgcn/bitcode";

std::string FindClang() {
  std::vector<std::string> folders = {std::string(kRocmFolder)};
  for (const std::string& folder : support::Split(support::GetEnv("PATH").value_or(""), ':')) {
    if (!folder.empty()) folders.push_back(folder);
  }
  for (const std::string_view name : kNames) {
    for (const std::string& folder : folders) {
      const std::string path = support::PathJoin(folder, std::string(name));
      if (support::FileExists(path)) return path;
    }
  }
  return "";
}

// "clang version 19.1.7 (3)": the third word.
std::string VersionOf(const std::string& program) {
  support::ChildOptions version;
  version.program = program;
  version.args = {"--version"};
  const auto result = support::RunCommand(version, "", kVersionTimeoutMs);
  if (!result.ok() || !result->status.ok()) return "";
  constexpr std::string_view kBefore = "clang version ";
  const size_t at = result->stdout_text.find(kBefore);
  if (at == std::string::npos) return "";
  const size_t begin = at + kBefore.size();
  return result->stdout_text.substr(begin,
                                    result->stdout_text.find_first_of(" -+~\n", begin) - begin);
}

struct Clang {
  std::string program, version;  // empty: there is none
};
const Clang& TheClang() {
  static const Clang* const clang = [] {
    auto* found = new Clang{FindClang(), ""};
    if (!found->program.empty()) found->version = VersionOf(found->program);
    return found;
  }();
  return *clang;
}

absl::Status Missing(const std::string& found) {
  return support::FailedPrecondition(
      "codegen.device_compiler.missing",
      StrCat("expected clang 18 or later with the target amdgcn, and lld, in PATH or ", kRocmFolder,
             ", found ", found, "; the packages clang-19 and lld-19 have them"));
}

absl::StatusOr<support::CommandResult> RunClang(const std::string& text, const std::string& arch,
                                                bool with_libraries, const std::string& output) {
  support::ChildOptions compiler;
  compiler.program = TheClang().program;
  // Floats are contracted and loops unrolled where the IR says so, and nowhere else: by itself
  // clang unrolls some until threads spill. Without the id of a compilation the same text gives
  // the same bytes.
  compiler.args = {"-x",
                   "hip",
                   "--cuda-device-only",
                   "--no-gpu-bundle-output",
                   StrCat("--offload-arch=", arch),
                   "-nogpuinc",
                   "-std=c++17",
                   "-O3",
                   "-w",
                   "-ffp-contract=off",
                   "-fno-math-errno",
                   "-fno-unroll-loops",
                   "-fno-strict-aliasing",
                   "-fuse-cuid=none",
                   "-Rpass-analysis=kernel-resource-usage",
                   "-o",
                   output,
                   "-"};
  if (!with_libraries) {
    compiler.args.insert(compiler.args.begin(), "-nogpulib");
  } else if (support::FileExists(StrCat(kDebianLibraries, "/ocml.bc"))) {
    compiler.args.insert(compiler.args.begin(),
                         StrCat("--rocm-device-lib-path=", kDebianLibraries));
  }
  return support::RunCommand(compiler, text, kTimeoutMs);
}

absl::Status Refused(const std::string& messages, const std::string& arch) {
  const auto says = [&](std::string_view what) { return messages.find(what) != std::string::npos; };
  if (says("invalid target ID") || says("unsupported HIP gpu architecture"))
    return Missing(StrCat(ClangName(), ", which does not know ", arch));
  if (says("cannot find ROCm device library")) {
    return support::FailedPrecondition(
        "codegen.device_library.missing",
        "expected ROCm's device libraries, which have a function that this model uses, found none; "
        "the package rocm-device-libs has them");
  }
  return support::Internal("codegen.hip.compile",
                           StrCat("expected text that compiles for ", arch, ", found:\n",
                                  messages.substr(0, kMostMessageBytes)));
}

// "    VGPRs: 9 [-Rpass-analysis=…]" → 9.
int64_t NumberAfter(std::string_view line, size_t at) {
  const size_t end = std::min(line.find_first_not_of("0123456789", at), line.size());
  return support::ParseInt64(std::string(line.substr(at, end - at))).value_or(0);
}

}  // namespace

std::vector<codegen::KernelResources> ResourcesOf(std::string_view remarks) {
  constexpr int64_t kRegisterBytes = 4;
  std::vector<codegen::KernelResources> kernels;
  for (const std::string& line : support::Split(std::string(remarks), '\n')) {
    constexpr std::string_view kKernel = "Function Name: ";
    if (const size_t at = line.find(kKernel); at != std::string::npos) {
      const size_t name = at + kKernel.size();
      kernels.push_back({.name = line.substr(name, line.find_first_of(" \r", name) - name)});
    }
    if (kernels.empty()) continue;
    codegen::KernelResources& kernel = kernels.back();
    const auto add = [&](std::string_view what, int64_t unit, int64_t* sum) {
      if (const size_t at = line.find(what); at != std::string::npos)
        *sum += unit * NumberAfter(line, at + what.size());
    };
    add(" VGPRs: ", 1, &kernel.registers);
    add(" AGPRs: ", 1, &kernel.registers);
    add(" VGPRs Spill: ", kRegisterBytes, &kernel.spill_bytes);
    add(" ScratchSize [bytes/lane]: ", 1, &kernel.stack_bytes);
    add(" LDS Size [bytes/block]: ", 1, &kernel.shared_bytes);
  }
  std::sort(kernels.begin(), kernels.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return kernels;
}

std::string ClangName() {
  return StrCat("clang-", TheClang().version.empty() ? "none" : TheClang().version);
}

absl::StatusOr<codegen::DeviceCode> CompileText(const std::string& text, const std::string& arch) {
  if (TheClang().version.empty())
    return Missing(TheClang().program.empty() ? "none"
                                              : TheClang().program + ", which does not run");
  TW_ASSIGN(const support::TempDir folder, support::TempDir::Create("hip"));
  const std::string output = support::PathJoin(folder.path(), "kernels.hsaco");
  TW_ASSIGN(support::CommandResult result, RunClang(text, arch, /*with_libraries=*/false, output));
  if (!result.status.ok() && result.stderr_text.find("symbol: __ocml_") != std::string::npos) {
    TW_ASSIGN(result, RunClang(text, arch, /*with_libraries=*/true, output));
  }
  if (!result.status.ok()) return Refused(result.stderr_text, arch);
  codegen::DeviceCode code;
  TW_ASSIGN(code.bytes, support::ReadFile(output, kMostCodeBytes));
  code.kernels = ResourcesOf(result.stderr_text);
  return code;
}

}  // namespace tilewright::hip
