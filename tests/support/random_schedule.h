// Random legal schedules: steps are drawn from the table of primitives, tried, and kept where the
// schedule accepts them. A new row of steps.def is drawn without further code as long as its
// operands and parameters are of known kinds. The same seed gives the same schedule. Stateless.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/schedule/schedule.h"
#include "deploy/support/rng.h"

namespace tilewright::tests {

struct RandomScheduleOptions {
  int attempts = 24;                             // steps tried
  bool verify_each = true;                       // ir::Verify after every step
  std::vector<schedule::Variant> variants = {};  // other algorithms of the same operator
  std::vector<std::string> without = {};         // primitives that are not drawn
};

struct RandomScheduleResult {
  schedule::Steps steps;  // accepted
  ir::Function function;
  std::map<std::string, int> accepted, refused;  // per primitive
  std::string broken;  // what a step did that none may do: a refusal that changed something, a
                       // result that does not verify; empty when all is well
};

// The blocks or the loops that steps may still name, in the order of their handles.
std::vector<int> LiveHandles(const schedule::Schedule& s, schedule::Handle::Kind kind);

// The function and its alternatives, as a schedule starts from them.
std::vector<schedule::Variant> VariantsOf(const ir::Function& f,
                                          const RandomScheduleOptions& options);

RandomScheduleResult RandomSchedule(const ir::Function& f, support::Rng rng,
                                    const RandomScheduleOptions& options = {});

// The fewest steps found for which `fails` still holds; steps whose operands are gone with a
// dropped step are dropped with it.
schedule::Steps ShrinkSteps(const std::vector<schedule::Variant>& variants,
                            const schedule::Steps& steps,
                            const std::function<bool(const ir::Function&)>& fails);

}  // namespace tilewright::tests
