// Runs one of lld's linkers in this process, on one object file. Thread-safe: lld is not, so calls
// queue. For the linkers of code objects only, since it shows lld's types: link_elf.h has the usual
// one, and the folder of a target whose code is no ELF has its own.
#pragma once

#include <lld/Common/Driver.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tilewright::codegen {

// Returns the file that the linker makes of `object`. `arguments` begin with the linker's name; the
// names of the output and of the object follow them. codegen.link.*: `failed` has the linker's
// words.
absl::StatusOr<std::string> RunLld(const lld::DriverDef& driver, std::vector<std::string> arguments,
                                   const std::string& object);

}  // namespace tilewright::codegen
