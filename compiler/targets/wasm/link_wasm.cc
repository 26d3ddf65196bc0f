#include "compiler/targets/wasm/link_wasm.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "compiler/codegen/link_lld.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

LLD_HAS_DRIVER(wasm)

namespace tilewright::wasm {
namespace {

// Of Debian's package wasi-libc; its libm.a is empty.
constexpr char kMathLibrary[] = "/usr/lib/wasm32-wasi/libc.a";
// Twice what the C ABI promises (TW_TASK_STACK_BYTES): engines keep no spilled vectors here.
constexpr char kStackSize[] = "stack-size=1048576";
// What the memory has at least, 32 pages: runtimes give it before they know more of the module.
constexpr char kMemory[] = "--initial-memory=2097152";

// Reads the imports of a module that lld has written.
class ImportReader {
 public:
  explicit ImportReader(std::string_view module) : rest_(module.substr(kHeaderBytes)) {}

  // The names of the functions that the module imports.
  std::vector<std::string> Functions() {
    while (!rest_.empty()) {
      const int id = Byte();
      const uint64_t size = Number();
      if (id == kImports) return ReadImports();
      rest_.remove_prefix(std::min<size_t>(size, rest_.size()));
    }
    return {};
  }

 private:
  static constexpr size_t kHeaderBytes = 8;
  static constexpr int kImports = 2, kFunction = 0, kMemoryImport = 2;

  std::vector<std::string> ReadImports() {
    std::vector<std::string> names;
    for (uint64_t left = Number(); left > 0; --left) {
      Text();  // of the module
      const std::string_view name = Text();
      const int kind = Byte();
      if (kind == kFunction) {
        Number();
        names.emplace_back(name);
      } else if (kind == kMemoryImport) {
        const bool has_most = (Byte() & 1) != 0;
        Number();
        if (has_most) Number();
      } else {
        names.emplace_back(name);  // no import that kernels have
        break;
      }
    }
    return names;
  }

  int Byte() {
    if (rest_.empty()) return 0;
    const int byte = static_cast<unsigned char>(rest_[0]);
    rest_.remove_prefix(1);
    return byte;
  }
  uint64_t Number() {  // LEB128
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const int byte = Byte();
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  std::string_view Text() {
    const size_t size = std::min<size_t>(Number(), rest_.size());
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return text;
  }

  std::string_view rest_;
};

}  // namespace

absl::StatusOr<std::string> Link(const std::string& object) {
  // The stack comes first, so that an overflow is a trap. What is not found becomes an import, of
  // which we say more than the linker would; a link that failed would also leave it in a state that
  // the next one must not meet.
  std::vector<std::string> arguments = {
      "wasm-ld",  "--no-entry",    "--import-memory", "--allow-undefined", "-z",
      kStackSize, "--stack-first", kMemory,           "--strip-all",       "--export=__heap_base"};
  if (support::FileExists(kMathLibrary)) arguments.push_back(kMathLibrary);
  TW_ASSIGN(std::string linked,
            codegen::RunLld({lld::Wasm, &lld::wasm::link}, std::move(arguments), object));
  const std::vector<std::string> missing = ImportReader(linked).Functions();
  if (missing.empty()) return linked;
  return support::FailedPrecondition(
      "codegen.link.libm",
      support::StrCat("expected ", kMathLibrary, ", which has ", support::Join(missing, ", "),
                      "; install wasi-libc (Debian: apt-get install wasi-libc)"));
}

}  // namespace tilewright::wasm
