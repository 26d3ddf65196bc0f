#include "compiler/space/rules/rules.h"

#include <algorithm>
#include <iterator>

namespace tilewright::space {
namespace {

constexpr Rule kRules[] = {
#define TW_RULE(set, Name, name, use, source) \
  {target::RuleSet::set, name, Make##Name, RuleUse::use},
#include "compiler/space/rules/rules.def"
};

}  // namespace

bool FirstPointApplies(const Sketch& sketch, const ir::Function& function) {
  Point first;
  first.choices.assign(sketch.knobs().size(), 0);
  schedule::Schedule trial(function);
  return sketch.Apply(first, &trial).ok();
}

std::span<const Rule> Rules(const target::Target& target) {
  const auto begin = std::ranges::find(kRules, target.machine.rule_set, &Rule::set);
  const auto is_other = [&](const Rule& rule) { return rule.set != target.machine.rule_set; };
  return {begin, std::ranges::find_if(begin, std::end(kRules), is_other)};
}

}  // namespace tilewright::space
