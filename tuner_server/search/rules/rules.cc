#include "tuner_server/search/rules/rules.h"

namespace tilewright::search {
namespace {

constexpr Rule kBoundRules[] = {
    {"thread_tiles", MakeThreadTiles, /*of_variants=*/false, /*beside=*/true},
    {"tree_reduction", MakeTreeReduction, /*of_variants=*/false, /*beside=*/true},
    {"bound_default", MakeBoundDefault},
};
constexpr Rule kRules[] = {
    {"around_default", MakeAroundDefault, /*of_variants=*/false, /*beside=*/true},
    {"split_reduction", MakeSplitReduction, /*of_variants=*/false, /*beside=*/true},
    {"winograd", MakeWinograd, /*of_variants=*/true},
    {"depthwise_dots", MakeDepthwiseDots, /*of_variants=*/true},
    {"multi_level_tiling", MakeMultiLevelTiling},
    {"parallel_vectorize_unroll", MakeParallelVectorizeUnroll},
};

}  // namespace

std::span<const Rule> Rules(const target::Target& target) {
  if (target.machine.has_groups()) return kBoundRules;
  return kRules;
}

}  // namespace tilewright::search
