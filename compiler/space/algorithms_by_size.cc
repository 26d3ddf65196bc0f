#include "compiler/space/algorithms_by_size.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "compiler/space/default_schedule.h"
#include "compiler/space/run_loops.h"
#include "deploy/support/status.h"

namespace tilewright::space {
namespace {

// From one step outwards to the next: twice the size of each.
constexpr double kStep = 2;
constexpr size_t kMostSteps = 4;
constexpr int kHalvings = 5;  // of a step: finds where the faster one changes to 2 % of each size

class Regimes {
 public:
  // `compared`: the variants that may be the faster ones.
  Regimes(std::span<const schedule::Variant> variants, const std::vector<size_t>& compared,
          const target::Target& target, const SizeSpan& span)
      : variants_(variants), compared_(compared), target_(target), span_(span) {}

  // Outwards from the typical sizes, by this factor at each step.
  absl::Status Walk(double step, const ir::Function& scheduled) {
    std::vector<double> factors;
    for (double at = step; At(at) != At(at / step) && factors.size() < kMostSteps; at *= step)
      factors.push_back(at);
    if (factors.empty()) return absl::OkStatus();
    // If nothing is faster there, nothing is nearer: most tasks have no other algorithm.
    TW_ASSIGN(std::optional<Faster> faster, FasterAt(At(factors.back()), scheduled));
    if (!faster) return absl::OkStatus();
    double at = factors.back();
    for (size_t i = 0; i + 1 < factors.size(); ++i) {
      TW_ASSIGN(std::optional<Faster> nearer, FasterAt(At(factors[i]), scheduled));
      if (!nearer) continue;
      faster = std::move(nearer);
      at = factors[i];
      break;
    }
    const ir::Function& other = faster->schedule.function();
    TW_ASSIGN(const double bound, BoundBetween(at / step, at, scheduled, other));
    found_.push_back({faster->variant, other, schedule::ToText(faster->schedule.steps()),
                      Product(At(bound)), step > 1});
    return absl::OkStatus();
  }

  std::vector<AlgorithmAtSizes> Take() { return std::move(found_); }

 private:
  struct Faster {
    size_t variant;
    schedule::Schedule schedule;
  };

  Sizes At(double factor) const {
    Sizes sizes = Scaled(span_.typical, factor);
    for (auto& [name, size] : sizes)
      size = std::clamp(size, span_.least.at(name), span_.most.at(name));
    return sizes;
  }

  static int64_t Product(const Sizes& sizes) {
    constexpr double kMost = int64_t{1} << 62;
    double product = 1;
    for (const auto& [name, size] : sizes) product *= static_cast<double>(size);
    return static_cast<int64_t>(std::min(product, kMost));
  }

  absl::StatusOr<std::optional<Faster>> FasterAt(const Sizes& sizes,
                                                 const ir::Function& best) const {
    TW_ASSIGN(const double now, EstimateRunNs(best, target_, sizes));
    double least = now * target_.machine.estimate.sure_share;
    std::optional<Faster> faster;
    for (const size_t v : compared_) {
      schedule::Schedule schedule(variants_[v].function);
      ApplyDefaultSchedule(target_, {}, &schedule, nullptr, sizes);
      TW_ASSIGN(const double ns, EstimateRunNs(schedule.function(), target_, sizes));
      if (ns >= least) continue;
      least = ns;
      faster.emplace(v, std::move(schedule));
    }
    return faster;
  }

  // Where one ceases to be the faster.
  absl::StatusOr<double> BoundBetween(double inner, double outer, const ir::Function& near,
                                      const ir::Function& far) const {
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = std::sqrt(inner * outer);
      TW_ASSIGN(const double near_ns, EstimateRunNs(near, target_, At(middle)));
      TW_ASSIGN(const double far_ns, EstimateRunNs(far, target_, At(middle)));
      (far_ns < near_ns * target_.machine.estimate.sure_share ? outer : inner) = middle;
    }
    return std::sqrt(inner * outer);
  }

  const std::span<const schedule::Variant> variants_;
  const std::vector<size_t>& compared_;
  const target::Target& target_;
  const SizeSpan& span_;
  std::vector<AlgorithmAtSizes> found_;
};

}  // namespace

absl::StatusOr<std::vector<AlgorithmAtSizes>> AlgorithmsBySize(
    std::span<const schedule::Variant> variants, const target::Target& target, const SizeSpan& span,
    const ir::Function& scheduled) {
  SizeSpan own;
  for (const ir::Var& size : scheduled.size_params) {
    const auto at = span.typical.find(size->name);
    if (at == span.typical.end()) return std::vector<AlgorithmAtSizes>();
    own.typical.insert(*at);
    own.least[size->name] = span.least.at(size->name);
    own.most[size->name] = span.most.at(size->name);
  }
  if (own.typical.empty()) return std::vector<AlgorithmAtSizes>();
  const std::vector<size_t> compared = ComparedVariants(variants, target);
  if (compared.size() < 2) return std::vector<AlgorithmAtSizes>();
  Regimes regimes(variants, compared, target, own);
  TW_TRY(regimes.Walk(kStep, scheduled));
  TW_TRY(regimes.Walk(1 / kStep, scheduled));
  return regimes.Take();
}

}  // namespace tilewright::space
