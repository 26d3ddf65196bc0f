// Which of a task's algorithms is its default.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>

#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/field_sums.h"
#include "compiler/space/rules/rules.h"
#include "compiler/space/run_loops.h"

namespace tilewright::space {
namespace {

// Dozens of layers by default must stay within 1e-5 of the exact results, in norm. ResNet-50 on
// small images has an error of 1.1e-5 with Winograd's tiles of five, for which 32 is allowed.
constexpr double kMostTolerance = 16;

// Of algorithms in dot products of bytes, which the estimate of loops knows too little of: whether
// the machine is fast enough at these. nullopt: it is none of them.
std::optional<bool> PaysInDots(const ir::Function& function, const target::Target& target) {
  const target::Machine& machine = target.machine;
  // Floats of fields cost a mask, a shift and a conversion next to each multiply-add: as much
  // again. Instead of four of them, three limbs of an activation have a dot product each
  // (op/fixed_point_dense.h).
  if (const std::optional<FieldSums> fields = FindFieldSums(function, machine)) {
    const double dots = fields->intrinsic == ir::kNibbleDots
                            ? std::max(machine.dots_per_cycle, machine.small_dots_per_cycle)
                            : machine.dots_per_cycle;
    return dots > machine.fma_per_cycle / 2;
  }
  if (MakeDepthwiseDots(function, target).empty()) return std::nullopt;
  return machine.dots_per_cycle >= machine.fma_per_cycle;
}

// Of an algorithm for open sizes: half of the typical ones, these, and twice as much.
constexpr double kJudgedAt[] = {0.5, 1, 2};

// The time of its default schedule: of open sizes the geometric mean at some of them.
absl::StatusOr<double> EstimateNs(const ir::Function& function, const target::Target& target,
                                  const Sizes& typical) {
  schedule::Schedule schedule(function);
  ApplyDefaultSchedule(target, {}, &schedule, nullptr, typical);
  if (function.size_params.empty()) return EstimateRunNs(schedule.function(), target);
  double log_sum = 0;
  for (const double factor : kJudgedAt) {
    TW_ASSIGN(const double ns, EstimateRunNs(schedule.function(), target, Scaled(typical, factor)));
    log_sum += std::log2(std::max(ns, 1.0));
  }
  return std::exp2(log_sum / std::size(kJudgedAt));
}

}  // namespace

std::vector<size_t> ComparedVariants(std::span<const schedule::Variant> variants,
                                     const target::Target& target) {
  if (target.machine.has_groups() || target.machine.has_matrix()) return {0};
  std::vector<size_t> estimated = {0};
  for (size_t v = 1; v < variants.size(); ++v) {
    const std::optional<bool> pays = PaysInDots(variants[v].function, target);
    if (pays.value_or(false)) return {v};
    if (!pays.has_value() && variants[v].tolerance <= kMostTolerance) estimated.push_back(v);
  }
  return estimated;
}

std::vector<VariantEstimate> EstimateVariants(std::span<const schedule::Variant> variants,
                                              const target::Target& target, const Sizes& typical) {
  std::vector<VariantEstimate> estimates;
  const auto is_judged = [&](const ir::Var& size) { return typical.contains(size->name); };
  const std::vector<size_t> compared = ComparedVariants(variants, target);
  if (compared.size() == 1 || !std::ranges::all_of(variants[0].function.size_params, is_judged))
    return estimates;
  for (const size_t v : compared) {
    const absl::StatusOr<double> ns = EstimateNs(variants[v].function, target, typical);
    estimates.push_back({v, ns.value_or(std::numeric_limits<double>::infinity())});
  }
  return estimates;
}

size_t DefaultVariant(std::span<const schedule::Variant> variants, const target::Target& target,
                      const Sizes& typical) {
  const std::vector<VariantEstimate> estimates = EstimateVariants(variants, target, typical);
  if (estimates.empty()) return ComparedVariants(variants, target)[0];
  return std::ranges::min_element(estimates, {}, &VariantEstimate::ns)->variant;
}

}  // namespace tilewright::space
