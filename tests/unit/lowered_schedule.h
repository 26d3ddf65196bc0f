// Steps that must be accepted and keep the meaning, interpreted as they are and lowered. Failures
// are gtest expectations.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/schedule/schedule.h"

namespace tilewright::schedule {

Schedule Scheduled(const ir::Function& f, std::string_view steps, std::vector<int64_t> sizes = {});

}  // namespace tilewright::schedule
