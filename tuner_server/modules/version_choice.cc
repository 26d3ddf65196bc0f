#include "tuner_server/modules/version_choice.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "deploy/support/strings.h"
#include "tuner_server/log/target_text.h"

namespace tilewright::modules {
namespace {

using log::ModuleVersionRow;
using support::StrCat;

constexpr double kNoise = 0.03;     // as kNear of the finals, see tuner_server/jobs/job_finals.cc
constexpr double kMaxNoise = 0.10;  // a time known worse than this still counts

// Where a version stands for a wish; less is better.
struct Rank {
  Match match = Match::kExact;
  int64_t more_threads = 0;  // than wanted
  log::SizeFit fit = log::SizeFit::kTuned;

  auto operator<=>(const Rank&) const = default;
};

std::optional<Rank> RankOfTarget(const std::string& tuned, const VersionWish& wish) {
  if (wish.target.empty() || tuned == wish.target) return Rank{};
  if (wish.exact) return std::nullopt;
  const auto a = log::ParseTargetText(tuned);
  const auto b = log::ParseTargetText(wish.target);
  if (a.ok() && b.ok() && a->WithoutThreads() == b->WithoutThreads()) {
    return Rank{Match::kCompatible, std::max<int64_t>(0, a->threads() - b->threads())};
  }
  if (wish.preference) return Rank{Match::kFallback};
  return std::nullopt;
}

// Nullopt: it does not answer.
absl::StatusOr<std::optional<Rank>> RankOf(const ModuleVersionRow& version,
                                           const VersionWish& wish) {
  std::optional<Rank> rank = RankOfTarget(version.target, wish);
  if (!rank || wish.sizes.empty()) return rank;
  TW_ASSIGN(const log::ModelSizes has, log::ParseSizesText(version.sizes));
  rank->fit = log::FitOf(has, wish.sizes);
  if (rank->fit == log::SizeFit::kNone) return std::nullopt;
  return rank;
}

bool SameModel(const ModuleVersionRow& a, const ModuleVersionRow& b) {
  return a.model_sha256 == b.model_sha256 && (!a.model_sha256.empty() || a.module == b.module);
}

bool Comparable(const ModuleVersionRow& a, const ModuleVersionRow& b, bool same_target) {
  return SameModel(a, b) && a.device_class == b.device_class && a.sizes == b.sizes &&
         (!same_target || a.target == b.target);
}

std::string Explain(const Choice& choice, const ModuleVersionRow& newest, size_t compared,
                    const VersionWish& wish) {
  const ModuleVersionRow& version = choice.version;
  std::string why;
  if (compared == 1) {
    why = "the only version";
  } else if (version.number == newest.number && version.module == newest.module) {
    why = StrCat("the newest of ", compared, " versions, and none is faster");
  } else {
    why = StrCat("the fastest of ", compared, " versions with ", MedianText(version),
                 "; the newest, ", ShortName(newest), ", takes ", MedianText(newest));
  }
  if (choice.match == Match::kExact && !wish.target.empty()) return why + "; tuned for this target";
  if (choice.match == Match::kCompatible) {
    return StrCat(why, "; tuned for ", version.target,
                  ", the same processor with another number of threads; none was tuned for ",
                  wish.target);
  }
  if (choice.match == Match::kFallback) {
    return StrCat(why, "; tuned for ", version.target, "; none was tuned for ", wish.target);
  }
  return why;
}

// "batch=1..32, specialised at batch=8", or what is not known.
std::string SizesWords(const ModuleVersionRow& version) {
  const auto sizes = log::ParseSizesText(version.sizes);
  return sizes.ok() && !sizes->empty() ? sizes->Words() : "the sizes of its model";
}

absl::Status NoneFits(const std::vector<ModuleVersionRow>& versions, const VersionWish& wish) {
  std::set<std::string> targets, sizes;
  for (const ModuleVersionRow& version : versions) {
    targets.insert(version.target);
    if (RankOfTarget(version.target, wish)) sizes.insert(SizesWords(version));
  }
  if (!sizes.empty()) {
    return support::NotFound("module.not_found",
                             StrCat("none takes the sizes ", wish.sizes.Words(),
                                    "; there are versions for ", support::Join(sizes, "; ")));
  }
  return support::NotFound("module.not_found",
                           StrCat("none is tuned for ", wish.target, "; there are versions for ",
                                  support::Join(targets, "; ")));
}

}  // namespace

bool NotSlower(const ModuleVersionRow& version, const ModuleVersionRow& best) {
  const double noise = std::clamp(version.ci_rel + best.ci_rel, kNoise, kMaxNoise);
  return version.median_us > 0 && version.median_us <= best.median_us * (1 + noise);
}

absl::StatusOr<Choice> ChooseVersion(const std::vector<ModuleVersionRow>& newest_first,
                                     const VersionWish& wish) {
  std::optional<Rank> best_rank;
  const ModuleVersionRow* newest = nullptr;
  std::vector<std::optional<Rank>> ranks;
  for (const ModuleVersionRow& version : newest_first) {
    // A mere preference never leads to the module of an older model.
    const bool older = wish.preference && !SameModel(version, newest_first.front());
    TW_ASSIGN(const std::optional<Rank> rank, RankOf(version, wish));
    ranks.push_back(older ? std::nullopt : rank);
    if (older) continue;
    if (!rank || (best_rank && !(*rank < *best_rank))) continue;
    best_rank = rank;
    newest = &version;
  }
  if (newest == nullptr) return NoneFits(newest_first, wish);
  const bool any_target = wish.target.empty() || best_rank->match == Match::kFallback;
  std::vector<const ModuleVersionRow*> compared;
  const ModuleVersionRow* fastest = nullptr;
  for (size_t i = 0; i < newest_first.size(); ++i) {
    const ModuleVersionRow& version = newest_first[i];
    if (ranks[i] != best_rank) continue;
    if (!Comparable(version, *newest, any_target)) continue;
    compared.push_back(&version);
    if (version.median_us <= 0) continue;
    if (fastest == nullptr || version.median_us < fastest->median_us) fastest = &version;
  }
  const ModuleVersionRow* chosen = newest;
  if (fastest != nullptr) {
    chosen = *std::find_if(compared.begin(), compared.end(),
                           [&](const auto* version) { return NotSlower(*version, *fastest); });
  }
  Choice choice{best_rank->match, *chosen, ""};
  choice.explanation = Explain(choice, *newest, compared.size(), wish);
  return choice;
}

std::string ShortName(const ModuleVersionRow& version) {
  return StrCat(version.module, "/", version.number);
}

std::string MedianText(const ModuleVersionRow& version) {
  if (version.median_us <= 0) return "an unknown time";
  return support::FormatFixed(version.median_us, 1) + " µs";
}

}  // namespace tilewright::modules
