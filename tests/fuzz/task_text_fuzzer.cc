// libFuzzer entry for task text, which travels between machines: it becomes a function or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "compiler/driver/tasks.h"
#include "compiler/ir/verify.h"
#include "deploy/support/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto function =
      tilewright::driver::TaskFunction(std::string_view(reinterpret_cast<const char*>(data), size));
  if (function.ok()) TW_CHECK(tilewright::ir::Verify(*function).ok());
  return 0;
}
