// The tuning log without a file: for tests and for runs whose measurements nobody keeps.
// Thread-safe.
#pragma once

#include <memory>

#include "tuner_server/log/tuning_log.h"

namespace tilewright::log {

std::unique_ptr<TuningLog> MakeMemoryLog();

}  // namespace tilewright::log
