// What tests of schedule primitives share: steps that must be accepted and keep the meaning, steps
// that must be refused by slug and change nothing, the golden text of the result. Failures are
// gtest expectations.
#pragma once

#include <string_view>

#include "compiler/ir/ir.h"
#include "compiler/schedule/schedule.h"
#include "tests/support/equivalence.h"

namespace tilewright::tests {

// After `steps`, each verified; expects that all are accepted.
schedule::Schedule Applied(const ir::Function& f, std::string_view steps);

// The same; expects results equal to those of `f`, no races, and a text that parses.
schedule::Schedule Scheduled(const ir::Function& f, std::string_view steps,
                             const EquivalenceOptions& options = {});

// The last of `steps` must be refused with `slug` and a message that has `says`, and change
// nothing, verified or not; the others are applied.
void ExpectRefused(const ir::Function& f, std::string_view steps, std::string_view slug,
                   std::string_view says = "expected");

// tests/golden/schedule/<name>.txt is what the schedule prints.
void ExpectGolden(const schedule::Schedule& s, std::string_view name);

}  // namespace tilewright::tests
