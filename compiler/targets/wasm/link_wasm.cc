#include "compiler/targets/wasm/link_wasm.h"

#include <algorithm>

#include "compiler/codegen/link_lld.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

LLD_HAS_DRIVER(wasm)

namespace tilewright::wasm {
namespace {

// Of Debian's package wasi-libc; its libm.a is empty.
constexpr char kMathLibrary[] = "/usr/lib/wasm32-wasi/libc.a";
constexpr std::string_view kUndefined = "undefined symbol: ";
// Twice what the C ABI promises (TW_TASK_STACK_BYTES): engines keep no spilled vectors here.
constexpr char kStackSize[] = "stack-size=1048576";
// What the memory has at least, 32 pages: runtimes give it before they know more of the module.
constexpr char kMemory[] = "--initial-memory=2097152";

// The names behind "undefined symbol: ", each once.
std::string UndefinedNames(std::string_view words) {
  std::vector<std::string> names;
  for (size_t at = words.find(kUndefined); at != std::string_view::npos;
       at = words.find(kUndefined)) {
    words.remove_prefix(at + kUndefined.size());
    std::string name(words.substr(0, words.find_first_of(" \n")));
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(std::move(name));
    }
  }
  return support::Join(names, ", ");
}

}  // namespace

absl::StatusOr<std::string> Link(const std::string& object) {
  // The stack comes first, so that an overflow is a trap.
  std::vector<std::string> arguments = {"wasm-ld", "--no-entry",  "--import-memory",
                                        "-z",      kStackSize,    "--stack-first",
                                        kMemory,   "--strip-all", "--export=__heap_base"};
  const bool has_library = support::FileExists(kMathLibrary);
  if (has_library) arguments.push_back(kMathLibrary);
  absl::StatusOr<std::string> linked =
      codegen::RunLld({lld::Wasm, &lld::wasm::link}, std::move(arguments), object);
  if (linked.ok() || has_library) return linked;
  const std::string names = UndefinedNames(support::Detail(linked.status()));
  if (names.empty()) return linked;
  return support::FailedPrecondition(
      "codegen.link.libm",
      support::StrCat("expected ", kMathLibrary, ", which has ", names,
                      "; install wasi-libc (Debian: apt-get install wasi-libc)"));
}

}  // namespace tilewright::wasm
