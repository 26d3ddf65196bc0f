// Links an object file to a WebAssembly module, by lld in this process. Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tilewright::wasm {

// Returns a module that imports its memory (`env.memory`, 32 pages or more) and nothing else. It
// exports the kernels' entries and the global `__heap_base`: what lies below belongs to the
// module's stack and tables. Functions of libm come from wasi-libc, which must be installed for
// kernels that call some: `codegen.link.libm`. Others: `codegen.link.*`.
absl::StatusOr<std::string> Link(const std::string& object);

}  // namespace tilewright::wasm
