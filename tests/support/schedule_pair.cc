#include "tests/support/schedule_pair.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/race_check.h"
#include "tests/support/te_programs.h"

namespace tilewright::tests {
namespace {

using support::StrCat;

// Smaller programs that are tried for a failure, and schedules tried on each.
constexpr int kShrinkSeeds = 40;

RandomIrOptions SmallOptions(bool symbolic) {
  RandomIrOptions options;
  options.symbolic = symbolic;
  options.max_work = 1500;
  options.max_elements = 400;
  return options;
}

bool IsCutOff(const absl::Status& status) {
  return support::StatusText(status).find("step_limit") != std::string::npos;
}

// What is wrong with a scheduled program; OK when nothing is.
absl::Status Judge(const RandomProgram& p, const ir::Function& scheduled, uint64_t seed,
                   const PairOptions& options) {
  if (options.check_races) {
    absl::Status races = CheckRaces(scheduled, p.sizes);
    if (!races.ok() && support::Slug(races) != "test.race.budget") return races;
  }
  EquivalenceOptions equal;
  equal.seed = seed;
  equal.sizes = p.sizes;
  equal.max_steps = options.max_steps;
  equal.run_other = options.runner;
  return SameResults(p.function, scheduled, equal);
}

struct Failure {
  RandomProgram program;
  schedule::Steps steps;
  std::string what;
};

// The failure of a program under the schedule of `rng`; nothing when there is none.
std::optional<Failure> Try(const RandomProgram& p, support::Rng rng, uint64_t seed,
                           const PairOptions& options, PairTally* tally) {
  RandomScheduleOptions random;
  random.without = options.without;
  if (p.function.name == "stencil") {
    const int64_t n = *ir::AsInt(p.function.params.back()->shape[0]);
    random.variants = {{"composed", ComposedStencilProgram(n)}};
  }
  RandomScheduleResult r = RandomSchedule(p.function, std::move(rng), random);
  const std::vector<schedule::Variant> variants = VariantsOf(p.function, random);
  if (tally != nullptr) tally->Add(r);
  if (!r.broken.empty()) return Failure{p, r.steps, r.broken};
  absl::Status good = Judge(p, r.function, seed, options);
  if (IsCutOff(good)) {
    if (tally != nullptr) ++tally->cut_off;
    return std::nullopt;
  }
  if (good.ok()) return std::nullopt;
  const std::string slug = support::Slug(good);
  schedule::Steps fewest = ShrinkSteps(variants, r.steps, [&](const ir::Function& f) {
    return support::Slug(Judge(p, f, seed, options)) == slug;
  });
  auto function = schedule::Replay(variants, schedule::ToText(fewest));
  if (!function.ok()) return Failure{p, fewest, support::StatusText(function.status())};
  absl::Status smallest = Judge(p, *function, seed, options);
  return Failure{p, fewest, StrCat(support::StatusText(smallest), "\n", ir::Print(*function))};
}

// A failure of a smaller random program, if one of a few seeds shows one.
Failure Smaller(Failure failure, uint64_t seed, const PairOptions& options) {
  for (int64_t extent : {3, 5, 8}) {
    for (int stages = 1; stages <= 2; ++stages) {
      RandomIrOptions small = SmallOptions(false);
      small.max_extent = extent;
      small.max_stages = stages;
      for (int i = 0; i < kShrinkSeeds; ++i) {
        RandomProgram p = RandomTe(seed + static_cast<uint64_t>(i), small);
        std::optional<Failure> found = Try(
            p, support::Rng(seed).Split("shrink").Split(std::to_string(i)), seed, options, nullptr);
        if (found.has_value()) return *std::move(found);
      }
    }
  }
  return failure;
}

}  // namespace

void PairTally::Add(const RandomScheduleResult& result) {
  for (const auto& [name, n] : result.accepted) accepted[name] += n;
  for (const auto& [name, n] : result.refused) refused[name] += n;
  ++pairs;
  steps += static_cast<int64_t>(result.steps.size());
}

void PairTally::Add(const PairTally& other) {
  for (const auto& [name, n] : other.accepted) accepted[name] += n;
  for (const auto& [name, n] : other.refused) refused[name] += n;
  pairs += other.pairs;
  cut_off += other.cut_off;
  steps += other.steps;
}

std::string PairTally::Table() const {
  std::string text = StrCat(pairs, " pairs, ", steps, " steps, ", cut_off, " cut off\n");
  auto count = [](const std::map<std::string, int>& m, const std::string& name) {
    auto it = m.find(name);
    return it == m.end() ? 0 : it->second;
  };
  for (const schedule::StepRow& row : schedule::StepRows()) {
    std::string name = row.name;
    name.resize(std::max<size_t>(name.size(), 22), ' ');
    text += StrCat("  ", name, count(accepted, row.name), " applied, ", count(refused, row.name),
                   " refused\n");
  }
  return text;
}

std::string PairTally::AppliedLessThan(int least, const std::vector<std::string>& without) const {
  std::string names;
  for (const schedule::StepRow& row : schedule::StepRows()) {
    if (std::find(without.begin(), without.end(), row.name) != without.end()) continue;
    auto it = accepted.find(row.name);
    if (it == accepted.end() || it->second < least) names += " " + row.name;
  }
  return names;
}

// Fixed kernels take part too: the generator's programs have few shared loops.
RandomProgram PairProgram(uint64_t seed, bool symbolic) {
  switch (seed % 20) {
    case 0:
      return {ConvProgram({.channels_in = 2, .height = 4, .width = 5, .channels_out = 3}), {}};
    case 1:
      return {SoftmaxProgram(3, 7), {}};
    case 2:
      return {StencilProgram(11), {}};
    case 3:
      return {DenseReluProgram(5, 7, 6), {}};
    case 4:
      return {MeanProgram(3, 5), {}};
    case 5:
      return {AddedRowsProgram(4, 6), {}};
    case 6:
      return {QuantizedDenseProgram(4, 6, 8), {}};
    case 7:
      return {MaxPoolProgram(2, 5, 3, 2), {}};
    case 8:
      if (symbolic) return {SymbolicDenseProgram(5, 6), {static_cast<int64_t>(1 + seed % 7)}};
      return {MatmulProgram(6, 8, 4), {}};
    case 9:
      if (symbolic) return {Bf16DenseProgram(4, 5, 6), {}};  // no code generation for it yet
      return {MatmulProgram(5, 7, 9), {}};
    default:
      return RandomTe(seed, SmallOptions(symbolic));
  }
}

std::string CheckPair(uint64_t seed, const PairOptions& options, PairTally* tally) {
  RandomProgram p = PairProgram(seed, options.symbolic);
  std::optional<Failure> failure =
      Try(p, support::Rng(seed).Split("schedule"), seed, options, tally);
  if (!failure.has_value()) return "";
  Failure small = Smaller(*std::move(failure), seed, options);
  return StrCat("seed ", seed, "\nprogram:\n", small.program.Describe(),
                "\nsteps: ", schedule::ToText(small.steps), "\nfound: ", small.what);
}

}  // namespace tilewright::tests
