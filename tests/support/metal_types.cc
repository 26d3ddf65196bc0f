#include "tests/support/metal_types.h"

#include <regex>

#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {
namespace {

using support::StrCat;

constexpr int64_t kTimeoutMs = 60'000;

// In a namespace, where names of OpenCL's own functions may be defined anew.
std::string AsOpenClCpp(const std::string& text) {
  static const std::regex kInclude(R"(#include <metal_stdlib>)");
  static const std::regex kKernel(R"(\[\[kernel[^\]]*\]\])");
  static const std::regex kPlace(R"( \[\[\w+(\(\d+\))?\]\])");
  static const std::regex kSize(R"(constant long& )");
  std::string cpp = std::regex_replace(text, kInclude, "");
  cpp = std::regex_replace(cpp, kKernel, "__kernel");
  cpp = std::regex_replace(std::regex_replace(cpp, kPlace, ""), kSize, "long ");
  return StrCat("#include \"", TILEWRIGHT_METAL_WORDS, "\"\nnamespace text {\n", cpp, "}\n");
}

}  // namespace

absl::Status CheckMetalTypes(const std::string& text) {
  support::ChildOptions clang;
  clang.program = TILEWRIGHT_CLANG;
  if (!support::FileExists(clang.program))
    return support::Unavailable("test.metal_types.no_clang", "expected clang, found none");
  clang.args = {"--target=spir64",
                "-x",
                "clcpp",
                "-cl-std=clc++2021",
                "-Xclang",
                "-cl-ext=-__opencl_c_generic_address_space,-__opencl_c_pipes,"
                "-__opencl_c_device_enqueue",
                "-Xclang",
                "-finclude-default-header",
                "-fsyntax-only",
                "-Wno-everything",
                "-"};
  TW_ASSIGN(const support::CommandResult result,
            support::RunCommand(clang, AsOpenClCpp(text), kTimeoutMs));
  if (result.status.ok()) return absl::OkStatus();
  return support::InvalidArgument("test.metal_types", result.stderr_text.substr(0, 4000));
}

}  // namespace tilewright::tests
