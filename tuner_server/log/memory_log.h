// The tuning log without a file: for tests and for runs that keep no measurements. Thread-safe.
#pragma once

#include <memory>

#include "tuner_server/log/tuning_log.h"

namespace tilewright::log {

std::unique_ptr<TuningLog> MakeMemoryLog();

}  // namespace tilewright::log
