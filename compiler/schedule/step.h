// A schedule step as data: name, handle operands, parameters; and its canonical text line. The same text is log record,
// wire format, golden file and mutation substrate. Steps are joined by "; " or newlines; `#` starts a comment.
//
// GRAMMAR   step   := NAME operand* parameter*
//           operand:= '%' INT                      a handle: see schedule.h for how handles are numbered
//           param  := '[' (INT|'?') {',' (INT|'?')} ']' | INT | WORD | KEY '=' (INT|WORD)
// Canonical: one space between parts, no space inside brackets, defaults omitted, key=value last in key order.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tilewright::schedule {

enum class StepKind : uint8_t {
#define TW_STEP(Name, text, operands, parameters) k##Name,
#include "compiler/schedule/steps.def"
};
inline constexpr int64_t kInfer = -1;  // the `?` of a factor list

struct Step {
  StepKind kind;
  std::vector<int> handles;
  std::vector<int64_t> factors;                 // Split
  std::string word;                             // SetScope
  std::map<std::string, std::string> options;   // tail=…, scope=…, annotate's key=value

  bool operator==(const Step&) const = default;
};
using Steps = std::vector<Step>;

std::string ToText(const Step& step);
std::string ToText(const Steps& steps);                        // joined by "; "
absl::StatusOr<Step> ParseStep(std::string_view line);         // schedule.step.*
absl::StatusOr<Steps> ParseSteps(std::string_view text);

}  // namespace tilewright::schedule
