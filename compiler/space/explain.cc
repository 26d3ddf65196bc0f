#include "compiler/space/explain.h"

#include <algorithm>
#include <string_view>

#include "compiler/space/block_info.h"
#include "compiler/space/field_sums.h"
#include "compiler/space/space.h"
#include "compiler/space/trace.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

using support::StrCat;

std::string TextOf(const BlockInfo& block) {
  std::string text = "  " + block.name + ":";
  for (const IterInfo& iter : block.iters) {
    text += StrCat(" ", iter.name, "=", iter.extent == 0 ? "open" : std::to_string(iter.extent),
                   iter.reduce ? " (reduced)" : "");
  }
  for (const ir::Buffer& read : block.reads) {
    text += StrCat(read == block.reads.front() ? "; reads " : ", ", read->name);
  }
  if (block.dot.has_value()) text += "; dot products of bytes";
  return text + "\n";
}

std::string TextOf(const Sketch& sketch, const std::string& variant,
                   std::string_view about_default) {
  double points = 1;
  std::string knobs;
  for (const Knob& knob : sketch.knobs()) {
    points *= static_cast<double>(knob.menu.size());
    knobs += StrCat(knobs.empty() ? "" : ", ", knob.name, " ", knob.menu.front());
    if (knob.menu.size() > 1) knobs += StrCat("..", knob.menu.back());
  }
  return StrCat("  ", sketch.name(), " of variant ", variant, ": ", points, " points",
                about_default, "\n    ", knobs, "\n");
}

// Of all that were compared, the default first.
std::string TextOf(std::vector<VariantEstimate> estimates,
                   const std::vector<schedule::Variant>& variants) {
  std::ranges::stable_sort(estimates, {}, &VariantEstimate::ns);
  std::string text = "algorithms, by the estimate of their default schedules\n";
  for (const VariantEstimate& estimate : estimates) {
    text += StrCat("  ", variants[estimate.variant].name, ": ",
                   support::FormatFixed(estimate.ns / 1000, 1), " us\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> Explain(const std::vector<schedule::Variant>& variants,
                                    const target::Target& target, const Sizes& typical) {
  TW_ASSIGN(const std::unique_ptr<Space> space, Space::Create(variants, target, typical));
  std::string text = "blocks\n";
  schedule::Schedule schedule(variants);
  if (const size_t variant = DefaultVariant(variants, target, typical); variant > 0) {
    TW_TRY(schedule.Apply({.kind = schedule::StepKind::kVariant, .word = variants[variant].name}));
  }
  for (const BlockInfo& block : DescribeBlocks(schedule.function())) text += TextOf(block);
  const std::vector<VariantEstimate> estimates = EstimateVariants(variants, target, typical);
  if (!estimates.empty()) text += TextOf(estimates, variants);
  Trace trace;
  ApplyDefaultSchedule(target, {}, &schedule, &trace, typical);
  text += StrCat("default schedule, block by block: decision; reason\n", ToText(trace), "steps\n  ",
                 schedule::ToText(schedule.steps()), "\nspace\n");
  const std::optional<Point> by_default = space->DefaultPoint();
  for (size_t i = 0; i < space->sketches().size(); ++i) {
    std::string_view about;
    if (by_default.has_value() && static_cast<size_t>(by_default->sketch) == i) {
      const bool first = std::ranges::all_of(by_default->choices, [](int at) { return at == 0; });
      about = first ? ", the first is the default" : ", one of them is the default";
    }
    text += TextOf(*space->sketches()[i], space->VariantOf(i), about);
  }
  return text;
}

}  // namespace tilewright::space
