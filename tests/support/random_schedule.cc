#include "tests/support/random_schedule.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/ir/structural.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {
namespace {

using schedule::Handle;
using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;
using schedule::StepRow;
using schedule::Steps;
using support::Rng;
using support::StrCat;

// Several loops: mostly of one block, in order or shuffled, mostly neighbours.
std::vector<int> LoopChain(const Schedule& s, Rng* rng) {
  std::vector<int> blocks = LiveHandles(s, Handle::Kind::kBlock);
  std::vector<int> loops = s.LoopsOf(rng->Choice(blocks));
  if (loops.size() < 2) return loops;
  size_t first = rng->Uniform(loops.size() - 1);
  size_t count = 2 + rng->Uniform(std::min<size_t>(loops.size() - first - 1, 4));
  std::vector<int> chain(loops.begin() + static_cast<std::ptrdiff_t>(first), loops.end());
  if (chain.size() > count) {
    if (rng->Bernoulli(0.3)) rng->Shuffle(&chain);
    chain.resize(count);
  }
  return chain;
}

int64_t ExtentOf(const Schedule& s, int loop) {
  ir::Stmt stmt = s.StmtOf(loop);
  const int64_t* extent = stmt == nullptr ? nullptr : ir::AsInt(stmt->range.extent);
  return extent == nullptr ? -1 : *extent;
}

// The outermost loops of up to three nests at the top that follow each other.
std::vector<int> RootLoops(const Schedule& s, Rng* rng) {
  const ir::Stmt& body = s.function().body;
  const std::vector<ir::Stmt> tops =
      body->kind == ir::StmtKind::kSeq ? body->stmts : std::vector<ir::Stmt>{body};
  std::vector<int> loops;
  for (size_t i = rng->Uniform(tops.size()); i < tops.size() && loops.size() < 3; ++i) {
    if (tops[i]->kind != ir::StmtKind::kFor) break;
    loops.push_back(s.LoopHandle(tops[i]->var));
    if (rng->Bernoulli(0.2)) break;
  }
  return loops;
}

// Mostly covers the loop with little waste, sometimes not at all.
std::vector<int64_t> Factors(int64_t extent, Rng* rng) {
  std::vector<int64_t> factors;
  size_t count = 2 + rng->Uniform(2);
  for (size_t i = 0; i < count; ++i) {
    int64_t top = std::max<int64_t>(2, std::min<int64_t>(extent, 8));
    factors.push_back(1 + static_cast<int64_t>(rng->Uniform(static_cast<uint64_t>(top))));
  }
  if (rng->Bernoulli(0.9)) {
    factors[extent < 0 ? 0 : rng->Uniform(count)] = schedule::kInfer;
  }
  return factors;
}

// One small multiple per iterator of the block.
std::vector<int64_t> PadFactors(const Schedule& s, int block, Rng* rng) {
  ir::Stmt stmt = s.StmtOf(block);
  std::vector<int64_t> factors;
  size_t count = stmt == nullptr ? 1 : std::max<size_t>(stmt->iters.size(), 1);
  for (size_t i = 0; i < std::min<size_t>(count, 8); ++i) {
    factors.push_back(rng->Bernoulli(0.5) ? 1 : rng->UniformInt(2, 4));
  }
  return factors;
}

constexpr size_t kMaxDigits = 16;

// Digits of each dimension, shuffled; sometimes not a map of the buffer at all.
std::string RandomMap(const Schedule& s, int block, Rng* rng) {
  ir::Stmt stmt = s.StmtOf(block);
  size_t rank = stmt == nullptr || stmt->writes.empty() ? 1 : stmt->writes[0].region.size();
  schedule::IndexMap map;
  for (size_t d = 0; d < rank; ++d) {
    int dim = static_cast<int>(d);
    // Three digits at most for each dimension; a longer map is no text of a step.
    const bool fits = map.size() + 3 + (rank - d - 1) <= kMaxDigits;
    if (!rng->Bernoulli(0.5) || !fits) {
      map.push_back({dim, 1, 0});
      continue;
    }
    int64_t low = rng->UniformInt(2, 5), high = rng->UniformInt(2, 3);
    const int64_t* size = stmt == nullptr || stmt->writes.empty()
                              ? nullptr
                              : ir::AsInt(stmt->writes[0].buffer->shape[d]);
    for (int64_t n = 5; size != nullptr && n > 1 && *size % low != 0; --n) low = n;
    map.push_back({dim, 1, low});
    if (rng->Bernoulli(0.3)) {
      map.push_back({dim, low, high});
      low *= high;
    }
    map.push_back({dim, low, 0});
  }
  if (map.empty()) map.push_back({0, 1, 0});
  rng->Shuffle(&map);
  if (rng->Bernoulli(0.05)) map.pop_back();
  return map.empty() ? "(0)" : schedule::ToText(map);
}

// A step that has a chance: the inner loops of some block, an intrinsic that every CPU has.
Step RandomTensorize(const Schedule& s, const std::vector<int>& blocks,
                     const std::vector<std::string>& names, Rng* rng) {
  Step step{.kind = StepKind::kTensorize};
  int block = rng->Choice(blocks);
  std::vector<int> loops = s.LoopsOf(block);
  size_t inner = std::min<size_t>(loops.size(), 1 + rng->Uniform(4));
  step.handles = {inner == 0 || rng->Bernoulli(0.1) ? block : loops[loops.size() - inner]};
  std::vector<std::string> portable;
  for (const std::string& name : names) {
    if (name.starts_with("generic.")) portable.push_back(name);
  }
  step.options["intrin"] = rng->Bernoulli(0.6) ? "generic.fma_tile" : rng->Choice(portable);
  return step;
}

// A loop over several nests, and a stage for each of them; mostly in their order.
bool RandomStages(const Schedule& s, const std::vector<int>& loops, Rng* rng, Step* step) {
  std::vector<int> wide;
  for (int l : loops) {
    if (s.StmtOf(l)->body->kind == ir::StmtKind::kSeq) wide.push_back(l);
  }
  if (wide.empty()) return false;
  step->handles = {rng->Choice(wide)};
  size_t parts = std::min<size_t>(s.StmtOf(step->handles[0])->body->stmts.size(), 8);
  for (size_t i = 0; i < parts; ++i)
    step->factors.push_back(i == 0 ? 1 : step->factors.back() + rng->UniformInt(0, 1));
  if (rng->Bernoulli(0.1)) rng->Shuffle(&step->factors);
  return true;
}

std::optional<Step> RandomStep(const Schedule& s, const StepRow& row, Rng* rng) {
  Step step{.kind = row.kind};
  std::vector<int> loops = LiveHandles(s, Handle::Kind::kLoop),
                   blocks = LiveHandles(s, Handle::Kind::kBlock);
  if (loops.empty() || blocks.empty()) return std::nullopt;
  if (row.kind == StepKind::kTensorize) {
    return RandomTensorize(s, blocks, row.options[0].values, rng);
  }
  if (row.variadic) {
    step.handles = row.kind == StepKind::kDivide ? RootLoops(s, rng) : LoopChain(s, rng);
    if (row.kind == StepKind::kReorder) rng->Shuffle(&step.handles);
    if (step.handles.empty()) return std::nullopt;
  } else {
    for (char operand : row.operands) {
      bool block = operand == 'b' || (operand == 'h' && rng->Bernoulli(0.5));
      step.handles.push_back(rng->Choice(block ? blocks : loops));
    }
  }
  if (row.kind == StepKind::kSoftwarePipeline) {
    if (!RandomStages(s, loops, rng, &step)) return std::nullopt;
  } else if (row.kind == StepKind::kPadEinsum) {
    step.factors = PadFactors(s, step.handles[0], rng);
  } else if (row.kind == StepKind::kDivide) {
    step.factors = {rng->UniformInt(1, std::max<int64_t>(1, ExtentOf(s, step.handles[0]) - 1))};
  } else if (row.has_factors) {
    step.factors = Factors(ExtentOf(s, step.handles[0]), rng);
  }
  if (!row.words.empty()) step.word = rng->Choice(row.words);
  if (row.has_map) step.word = RandomMap(s, step.handles[0], rng);
  if (row.has_name) {
    step.word = s.variants().empty() ? "nothing" : rng->Choice(s.variants()).name;
  }
  for (const schedule::StepOption& o : row.options) {
    // Of a long list (positions of operands) mostly the first few.
    size_t count = o.values.size() > 4 && !rng->Bernoulli(0.1) ? 3 : o.values.size();
    const std::string& value = o.values[rng->Uniform(count)];
    if (value != o.values.front()) step.options[o.key] = value;
  }
  if (row.has_annotation) {
    auto annotations = schedule::AnnotationRows();
    const schedule::AnnotationRow& a = annotations[rng->Uniform(annotations.size())];
    step.options[std::string(a.key)] = std::to_string(rng->UniformInt(a.min, a.max));
  }
  return step;
}

// Results of each step, so that handles can be renumbered when one is left out.
struct Numbered {
  Step step;
  std::vector<int> results;
};

std::vector<Numbered> Number(const std::vector<schedule::Variant>& variants, const Steps& steps) {
  Schedule s(variants);
  std::vector<Numbered> numbered;
  for (const Step& step : steps) {
    if (!s.Apply(step).ok()) continue;
    numbered.push_back({step, s.LastResults()});
  }
  return numbered;
}

// Replays without step `left_out`; what cannot be applied any more is left out too.
std::pair<Steps, ir::Function> Without(const std::vector<schedule::Variant>& variants,
                                       const std::vector<Numbered>& all, size_t left_out) {
  Schedule s(variants);
  std::map<int, int> moved;
  auto start = [&] {
    for (size_t i = 0; i < s.handles().size(); ++i) {
      moved[static_cast<int>(i)] = static_cast<int>(i);
    }
  };
  start();
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == left_out) continue;
    Step step = all[i].step;
    bool known = true;
    for (int& h : step.handles) {
      auto it = moved.find(h);
      known = known && it != moved.end();
      if (known) h = it->second;
    }
    if (!known || !s.Apply(step).ok()) continue;
    if (step.kind == StepKind::kVariant) start();
    for (size_t r = 0; r < all[i].results.size() && r < s.LastResults().size(); ++r) {
      moved[all[i].results[r]] = s.LastResults()[r];
    }
  }
  return {s.steps(), s.function()};
}

}  // namespace

std::vector<int> LiveHandles(const Schedule& s, Handle::Kind kind) {
  std::vector<int> live;
  for (size_t i = 0; i < s.handles().size(); ++i) {
    if (!s.handles()[i].dead && s.handles()[i].kind == kind) live.push_back(static_cast<int>(i));
  }
  return live;
}

namespace {

// Tries one step; true when it was accepted.
bool TryStep(Schedule* s, const Step& step, RandomScheduleResult* result) {
  ir::Stmt body = s->function().body;
  size_t handles = s->handles().size(), allocs = s->function().allocs.size();
  absl::Status status = s->Apply(step);
  const std::string& name = schedule::RowOf(step.kind).name;
  if (status.ok()) {
    ++result->accepted[name];
    return true;
  }
  ++result->refused[name];
  std::string slug = support::Slug(status);
  if (slug.ends_with(".verify")) {
    result->broken =
        StrCat("`", schedule::ToText(step), "` does not verify: ", support::StatusText(status));
  } else if (!slug.starts_with(StrCat("schedule.", name, ".")) &&
             !slug.starts_with("schedule.handle.")) {
    result->broken =
        StrCat("`", schedule::ToText(step), "` has a foreign error: ", support::StatusText(status));
  } else if (body != s->function().body || handles != s->handles().size() ||
             allocs != s->function().allocs.size()) {
    result->broken = StrCat("refused `", schedule::ToText(step), "` changed the schedule");
  }
  return false;
}

}  // namespace

std::vector<schedule::Variant> VariantsOf(const ir::Function& f,
                                          const RandomScheduleOptions& options) {
  std::vector<schedule::Variant> variants = {{"direct", f}};
  variants.insert(variants.end(), options.variants.begin(), options.variants.end());
  return variants;
}

RandomScheduleResult RandomSchedule(const ir::Function& f, Rng rng,
                                    const RandomScheduleOptions& options) {
  RandomScheduleResult result;
  const std::vector<schedule::Variant> variants = VariantsOf(f, options);
  Schedule s(variants);
  s.set_verify_each(options.verify_each);
  auto rows = schedule::StepRows();
  if (!options.variants.empty() && rng.Bernoulli(0.7)) {
    TryStep(&s, {.kind = StepKind::kVariant, .word = rng.Choice(variants).name}, &result);
  }
  for (int i = 0; i < options.attempts && result.broken.empty(); ++i) {
    const StepRow& row = rows[rng.Uniform(rows.size())];
    if (std::find(options.without.begin(), options.without.end(), row.name) !=
        options.without.end()) {
      continue;
    }
    // Few pairs of a block and a loop go together.
    bool picky = row.operands.size() > 1 || row.kind == StepKind::kTensorize;
    int choices = picky ? 6 : 1;
    for (int c = 0; c < choices && result.broken.empty(); ++c) {
      std::optional<Step> step = RandomStep(s, row, &rng);
      if (step.has_value() && TryStep(&s, *step, &result)) break;
    }
  }
  result.steps = s.steps();
  result.function = s.function();
  auto replayed = schedule::Replay(variants, schedule::ToText(result.steps));
  if (result.broken.empty() &&
      (!replayed.ok() || ir::StructuralHash(*replayed) != ir::StructuralHash(result.function))) {
    result.broken = StrCat("replay gives another program: ", replayed.status().ToString());
  }
  return result;
}

Steps ShrinkSteps(const std::vector<schedule::Variant>& variants, const Steps& steps,
                  const std::function<bool(const ir::Function&)>& fails) {
  Steps best = steps;
  for (bool smaller = true; smaller;) {
    smaller = false;
    std::vector<Numbered> numbered = Number(variants, best);
    for (size_t i = numbered.size(); i-- > 0;) {
      auto [fewer, function] = Without(variants, numbered, i);
      if (fewer.size() >= best.size() || !fails(function)) continue;
      best = fewer;
      smaller = true;
      break;
    }
  }
  return best;
}

}  // namespace tilewright::tests
