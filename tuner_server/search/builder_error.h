// The builder's errors on their way between its process and the parent: the code, the text, and
// what the machine was short of, if that may pass. Pure functions.
#pragma once

#include "deploy/support/shortage.h"
#include "deploy/support/status.h"
#include "tilewright/v1/builder.pb.h"

namespace tilewright::search {

// REQUIRES: status is an error.
v1::BuilderError ToBuilderError(const absl::Status& status);
// A code or a shortage that this version does not know becomes unknown or kNone.
absl::Status FromBuilderError(const v1::BuilderError& error);

}  // namespace tilewright::search
