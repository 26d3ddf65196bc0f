#include "deploy/support/version.h"

namespace tilewright::support {

const char* Version() { return TILEWRIGHT_VERSION; }

}  // namespace tilewright::support
