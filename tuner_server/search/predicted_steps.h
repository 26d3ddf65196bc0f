// What a builder predicted, as part of what it is to compile. Without the compiler.
#pragma once

#include "tilewright/v1/builder.pb.h"

namespace tilewright::search {

// Adds the schedules to the request, as ones that were never measured.
inline void UsePredicted(const v1::SchedulesPredicted& predicted, v1::CompileModule* request) {
  for (const v1::SchedulesPredicted::Schedule& one : predicted.schedules()) {
    (*request->mutable_steps_by_task())[one.task()] = one.steps();
    (*request->mutable_program_hash_by_task())[one.task()] = one.program_hash();
    request->add_predicted_tasks(one.task());
  }
}

}  // namespace tilewright::search
