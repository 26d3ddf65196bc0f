// Which server a command calls, and with which identity. Values only.
#pragma once

#include <string>

namespace tilewright::cli {

struct ServerPlace {
  std::string address;   // --server; empty: TILEWRIGHT_SERVER
  std::string identity;  // --identity; empty: TILEWRIGHT_IDENTITY; neither: plain text
};

}  // namespace tilewright::cli
