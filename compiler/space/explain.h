// What can be decided about a function on a target, and what is decided by default, as text for
// people: facts of its blocks, the default schedule with its reasons, the sketches of its space.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target/target.h"

namespace tilewright::space {

// Of the first of an operator's algorithms; the space is that of all. invalid_argument
// space.function for a function that is not freshly built. REQUIRES: not empty.
absl::StatusOr<std::string> Explain(const std::vector<schedule::Variant>& variants,
                                    const target::Target& target);

}  // namespace tilewright::space
