// The space rules, one file each: a rule looks at a function and a target and makes the sketches
// that fit, or none. To add one: a file here with its Make function, a row in rules.def, a test.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/space/space.h"
#include "compiler/target/target.h"

namespace tilewright::space {

enum class RuleUse : uint8_t {
  kAlone,       // the first that applies makes the sketches
  kInAddition,  // adds its own to those of the first that applies
  kOfVariants,  // as kAlone, for the stages of another algorithm than an operator's usual one; the
                // other rules are not asked about those
};
struct Rule {
  target::RuleSet set;
  std::string_view name;
  std::vector<std::unique_ptr<Sketch>> (*make)(const ir::Function& function,
                                               const target::Target& target);
  RuleUse use;
};
// Whether the point of all first values is legal for the function: facts of blocks do not say all
// that a primitive asks.
bool FirstPointApplies(const Sketch& sketch, const ir::Function& function);
// Those of the target's kind, in order of preference.
std::span<const Rule> Rules(const target::Target& target);

#define TW_RULE(set, Name, name, use, source)                                   \
  std::vector<std::unique_ptr<Sketch>> Make##Name(const ir::Function& function, \
                                                  const target::Target& target);
#include "compiler/space/rules/rules.def"

}  // namespace tilewright::space
