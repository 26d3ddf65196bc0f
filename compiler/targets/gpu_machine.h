// What the rows of GPUs have in common, so that a row says what differs. Constants.
#pragma once

#include <cstdint>
#include <string_view>

#include "compiler/target/machine.h"

namespace tilewright::targets {

inline constexpr int64_t KiB = 1 << 10;
inline constexpr int64_t MiB = 1 << 20;

// A condition in a body: threads in step, and drivers for processors, mask what it guards.
inline constexpr target::EstimateWeights kGroupWeights = {
    .round_cycles = 2, .guarded_body = 1.2, .sure_share = 0.65};

// A GPU whose threads go in step, one float in an operation of a thread. The caller sets its
// caches, memory and clock, and the units and the costs of its launches.
constexpr target::Machine WarpMachine(std::string_view name, std::string_view features) {
  target::Machine m{.name = name, .features = features};
  m.loads_per_cycle = 1;
  m.sums_in_flight = 16;
  m.special_cycles = 4;
  m.searched_body_ops = 512;
  m.searched_tile = {.rows = 16, .steps = 64};
  m.short_reduction = 16;
  m.estimate = kGroupWeights;
  m.launch = {.group_threads = 1024,
              .warp = 32,
              .sub_groups = true,
              .thread_bytes = 4,
              .load_bytes = 16,
              .shared_banks = 32,
              .barrier_cycles = 4};
  m.attention.group_rows = 32;
  m.rule_set = target::RuleSet::kGroups;
  m.feature_set = target::FeatureSet::kGroups;
  m.predictor = target::Predictor::kEstimate;
  return m;
}

// Units that each run so many threads, and as many threads as keep all of them busy.
constexpr void SetUnits(int64_t units, int64_t unit_threads, target::LaunchLimits* launch) {
  launch->units = units;
  launch->unit_threads = unit_threads;
  launch->busy_threads = units * unit_threads;
}

// Any device of a kind whose targets name none. Limits of a launch are what devices of these days
// have. Two units, as the drivers for processors have that such kinds are tested on, which run the
// threads of a group one after the other: dot products of bytes are those of a processor
// without an instruction for them. The caller sets registers, lanes and costs.
constexpr target::Machine AnyDevice() {
  target::Machine m{.features = "fma"};
  m.dots_per_cycle = 0.5;
  m.searched_body_ops = 256;
  m.searched_tile = {.steps = 256};
  m.short_reduction = 8;
  m.estimate = kGroupWeights;
  m.launch = {.group_threads = 256,
              .shared_bytes = 32 * KiB,
              .usual_threads = 64,
              .units = 2,
              .busy_threads = 1 << 14,
              .launch_ns = 10'000};
  m.rule_set = target::RuleSet::kGroups;
  m.feature_set = target::FeatureSet::kGroups;
  return m;
}

}  // namespace tilewright::targets
