#include "compiler/space/trace.h"

#include <utility>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::space {

void Trace::Decide(std::string_view block, std::string_view rule, std::string decision,
                   std::string reason) {
  entries_.push_back(
      {std::string(block), std::string(rule), std::move(decision), std::move(reason)});
}

void Trace::Refuse(std::string_view block, std::string_view rule, const schedule::Step& step,
                   const absl::Status& why) {
  entries_.push_back({std::string(block), std::string(rule), schedule::ToText(step),
                      std::string(support::Slug(why)), /*refused=*/true});
}

std::string ToText(const Trace& trace) {
  std::string text;
  const Trace::Entry* before = nullptr;
  for (const Trace::Entry& entry : trace.entries()) {
    if (before == nullptr || before->block != entry.block) text += entry.block + "\n";
    before = &entry;
    text += "  " + entry.rule + ": ";
    text += entry.refused
                ? support::StrCat("refused ", entry.decision, " (", entry.reason, ")")
                : support::StrCat(entry.decision, entry.reason.empty() ? "" : "; ", entry.reason);
    text += "\n";
  }
  return text;
}

}  // namespace tilewright::space
