// The schedule that a function gets when nothing has been measured: correct for every operator, in
// the same language as tuned ones, with register tiles, vector lanes and parallel outer loops where
// they fit. Pure function; deterministic.
#pragma once

#include "compiler/ir/ir.h"
#include "compiler/ir/target.h"
#include "compiler/schedule/step.h"

namespace tilewright::schedule {

// Steps that Schedule(function).ApplyAll accepts. Never fails: what a primitive refuses is left
// out.
Steps DefaultSchedule(const ir::Function& function, const ir::Target& target);

}  // namespace tilewright::schedule
