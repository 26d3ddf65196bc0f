// libFuzzer entry for the IR text: whatever parses prints, parses again to the same text, and
// neither the verifier nor the printer may crash on it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/verify.h"
#include "deploy/support/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tilewright::ir::Function;
  absl::StatusOr<Function> f =
      tilewright::ir::ParseFunction({reinterpret_cast<const char*>(data), size});
  if (!f.ok()) return 0;
  (void)tilewright::ir::Verify(*f);
  std::string text = tilewright::ir::Print(*f);
  absl::StatusOr<Function> again = tilewright::ir::ParseFunction(text);
  TW_CHECK(again.ok()) << again.status() << "\n" << text;
  TW_CHECK(tilewright::ir::Print(*again) == text) << text;
  TW_CHECK(tilewright::ir::StructuralEqual(*f, *again)) << text;
  return 0;
}
