#include "cost_model/shipped_model.h"

#include "deploy/support/hash.h"
#include "deploy/support/status.h"

// The file becomes part of this object by the assembler: a source with its bytes as text would take
// the compiler longer than everything else in this folder.
asm(".section .rodata\n"
    ".global tilewright_shipped_model\n"
    "tilewright_shipped_model:\n"
    ".incbin \"" TILEWRIGHT_SHIPPED_MODEL
    "\"\n"
    ".global tilewright_shipped_model_end\n"
    "tilewright_shipped_model_end:\n"
    ".byte 0\n"
    ".previous\n");
extern "C" const char tilewright_shipped_model[];
extern "C" const char tilewright_shipped_model_end[];

namespace tilewright::cost_model {

std::string_view ShippedModel() {
  return {tilewright_shipped_model,
          static_cast<size_t>(tilewright_shipped_model_end - tilewright_shipped_model)};
}

const std::string& ShippedModelId() {
  static const std::string* const id =
      new std::string("shipped-" + support::Sha256Hex(ShippedModel()).substr(0, 16));
  return *id;
}

bool KnowsShippedModel(const target::Machine& machine) {
  return machine.rule_set == target::RuleSet::kLoops && machine.feature_set == FeatureSet::kLoops;
}

absl::StatusOr<std::unique_ptr<CostModel>> ModelBeforeMeasurements(const target::Machine& machine) {
  if (!KnowsShippedModel(machine)) return MakePriorModel(machine.feature_set);
  std::unique_ptr<CostModel> shipped = MakeXgbModel(/*seed=*/0);
  TW_TRY(shipped->Load(ShippedModel()));
  return shipped;
}

}  // namespace tilewright::cost_model
