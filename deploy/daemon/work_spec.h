// Tells whether two work items ask for the same work. The tracker keeps the hash of what was
// submitted, and tuners compare it with their own: both ends share this one function. Pure.
#pragma once

#include <cstdint>

#include "tilewright/v1/dispatch.pb.h"

namespace tilewright::daemon {

// Names the content of a work item. Attempts do not count: they change from one submission to the
// next. The tracker stores these values, so they never change.
uint64_t WorkSpecHash(const v1::WorkItem& item);

}  // namespace tilewright::daemon
