#include "tests/support/kernel_process.h"

#include <cstring>
#include <string_view>

#include "deploy/runtime/c_abi.h"
#include "deploy/support/process.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {
namespace {

constexpr int64_t kTimeoutMs = 120'000;

void AppendNumber(int64_t value, std::string* to) {
  to->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

absl::Status SizeArguments(const ir::Function& f, const std::vector<int64_t>& sizes,
                           const std::vector<ir::TensorData*>& args) {
  for (size_t i = 0; i < f.params.size(); ++i) {
    TW_ASSIGN(const int64_t elements, ir::BufferElements(f, f.params[i], sizes));
    args[i]->bytes.resize(static_cast<size_t>(elements * f.params[i]->dtype.bytes()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CallKernelProcess(const std::vector<std::string>& command,
                                              const ir::Function& f,
                                              const std::vector<ir::TensorData*>& args) {
  std::string input;
  for (size_t i = 0; i < args.size(); ++i) {
    AppendNumber(static_cast<int64_t>(args[i]->bytes.size()), &input);
    AppendNumber(f.params[i]->role == ir::Role::kOutput ? 1 : 0, &input);
    input.append(reinterpret_cast<const char*>(args[i]->bytes.data()), args[i]->bytes.size());
  }
  support::ChildOptions options;
  options.program = command[0];
  options.args.assign(command.begin() + 1, command.end());
  TW_ASSIGN(const support::CommandResult ran, support::RunCommand(options, input, kTimeoutMs));
  if (!ran.status.ok()) {
    return support::Internal("tests.kernel.failed",
                             support::StrCat(ran.status.ToString(), ": ", ran.stderr_text));
  }
  std::string_view left = ran.stdout_text;
  const auto take = [&left](void* to, size_t bytes) {
    const bool enough = left.size() >= bytes;
    if (enough && bytes > 0) std::memcpy(to, left.data(), bytes);
    left.remove_prefix(enough ? bytes : left.size());
    return enough;
  };
  int32_t result = 0;
  bool whole = take(&result, sizeof(result));
  for (size_t i = 0; i < args.size(); ++i) {
    if (f.params[i]->role != ir::Role::kOutput) continue;
    whole = whole && take(args[i]->bytes.data(), args[i]->bytes.size());
  }
  if (!whole || !left.empty()) return support::Internal("tests.kernel.failed", "not all outputs");
  if (result == TW_OK) return ran.stderr_text;
  return support::Internal("tests.kernel.failed", support::StrCat("code ", result));
}

}  // namespace tilewright::tests
