#include "compiler/space/rules/rules.h"

namespace tilewright::space {
namespace {

constexpr Rule kGroupRules[] = {
    {"tensor_tiles", MakeTensorTiles, /*of_variants=*/false, /*beside=*/true},
    {"thread_tiles", MakeThreadTiles, /*of_variants=*/false, /*beside=*/true},
    {"tree_reduction", MakeTreeReduction, /*of_variants=*/false, /*beside=*/true},
    {"bound_default", MakeBoundDefault},
};
constexpr Rule kMatrixRules[] = {
    {"matrix_tiles", MakeMatrixTiles},
};
constexpr Rule kLoopRules[] = {
    {"around_default", MakeAroundDefault, /*of_variants=*/false, /*beside=*/true},
    {"split_reduction", MakeSplitReduction, /*of_variants=*/false, /*beside=*/true},
    {"winograd", MakeWinograd, /*of_variants=*/true},
    {"depthwise_dots", MakeDepthwiseDots, /*of_variants=*/true},
    {"field_sums", MakeFieldSums, /*of_variants=*/true},
    {"multi_level_tiling", MakeMultiLevelTiling},
    {"parallel_vectorize_unroll", MakeParallelVectorizeUnroll},
};

}  // namespace

bool FirstPointApplies(const Sketch& sketch, const ir::Function& function) {
  Point first;
  first.choices.assign(sketch.knobs().size(), 0);
  schedule::Schedule trial(function);
  return sketch.Apply(first, &trial).ok();
}

std::span<const Rule> Rules(const target::Target& target) {
  switch (target.machine.rule_set) {
    case target::RuleSet::kGroups:
      return kGroupRules;
    case target::RuleSet::kMatrix:
      return kMatrixRules;
    case target::RuleSet::kLoops:
      break;
  }
  return kLoopRules;
}

}  // namespace tilewright::space
