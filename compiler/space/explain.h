// What can be decided about a function on a target, and what is decided by default, as text for
// people: facts of its blocks, the default schedule with its reasons, the sketches of its space.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/default_schedule.h"
#include "compiler/target/target.h"

namespace tilewright::space {

// Of the algorithm that is the default, for open sizes at their `typical` ones; the space is that
// of all. invalid_argument space.function for a function that is not freshly built. REQUIRES: not
// empty.
absl::StatusOr<std::string> Explain(const std::vector<schedule::Variant>& variants,
                                    const target::Target& target, const Sizes& typical = {});

}  // namespace tilewright::space
