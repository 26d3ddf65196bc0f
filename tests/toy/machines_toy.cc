// One machine: groups of a single thread, which needs no barriers.
#include "compiler/targets/kind_table.h"

namespace tilewright::toy {
namespace {

constexpr target::Machine kToyMachines[] = {
    {.features = "dots",
     .launch = {.group_threads = 1, .shared_bytes = 16 << 10, .registers = 16, .usual_threads = 1},
     .rule_set = target::RuleSet::kGroups,
     .feature_set = target::FeatureSet::kGroups},
};

}  // namespace

constinit const target::Family kFamily = {.machines = kToyMachines, .code_format = "toy-c"};

}  // namespace tilewright::toy
