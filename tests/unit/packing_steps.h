// A schedule that packs weights, for tests of what is prepared once.
#pragma once

#include <string>
#include <string_view>

#include "compiler/driver/compile.h"
#include "compiler/driver/tasks.h"
#include "compiler/ir/structural.h"
#include "compiler/schedule/schedule.h"

namespace tilewright::tests {

// The task's schedule in which the block that reads the weights gets a copy of them; empty if no
// block reads any.
inline driver::ScheduleProvider::Found PackingSteps(std::string_view task_text) {
  driver::ScheduleProvider::Found found;
  auto function = driver::TaskFunction(task_text);
  if (!function.ok()) return found;
  const schedule::Schedule s(*function);
  for (const std::string& name : s.BlockNames()) {
    for (int read : {0, 1}) {
      schedule::Step step{.kind = schedule::StepKind::kCacheRead,
                          .handles = {s.BlockHandle(name)},
                          .options = {{"scope", "global"}}};
      if (read > 0) step.options["read"] = std::to_string(read);
      schedule::Schedule trial = s;
      if (!trial.Apply(step).ok()) continue;
      const ir::Stmt made = trial.StmtOf(trial.LastResults()[0]);
      if (made->reads[0].buffer->role != ir::Role::kConstant) continue;
      found.steps = schedule::ToText(trial.steps());
      found.program_hash = ir::ProgramHash(trial.function());
      found.measurement_id = "packed";
      return found;
    }
  }
  return found;
}

}  // namespace tilewright::tests
