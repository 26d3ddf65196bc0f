// Which version this is: that of project() in the top CMakeLists.txt, which every program, package
// and message takes from here.
#pragma once

namespace tilewright::support {

// "MAJOR.MINOR.PATCH"; static storage, thread-safe.
const char* Version();

}  // namespace tilewright::support
