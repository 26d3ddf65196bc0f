// Which build of this program is running.
#pragma once

#include <string>

namespace tilewright::support {

// The build ID that the linker left in this program (an ELF note, of the contents of its sections),
// in hexadecimal; empty where there is none. Libraries that it loads are not part of it.
// Thread-safe.
std::string BuildId();

}  // namespace tilewright::support
