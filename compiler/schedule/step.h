// A schedule step as data: name, handle operands, parameters; and its canonical text line. The same
// text is log record, wire format, golden file and mutation substrate. Value types, pure functions;
// thread-safe.
//
// GRAMMAR
//   steps   := [step] { (';' | newline) [step] }     `#` starts a comment to the end of the line
//   step    := NAME operand* param*
//   operand := '%' INT                               a handle, numbered as schedule.h says
//   param   := '[' (INT|'?') {',' (INT|'?')} ']' | MAP | WORD | KEY '=' (INT|WORD)
//   MAP     := '(' DIGIT {',' DIGIT} ')'
//   DIGIT   := DIM ['/' INT] ['%' INT]
// Canonical text: one space between parts, no space inside brackets, defaults omitted, key=value
// parameters last and in key order, steps joined by "; ". Parsing also accepts more spaces and
// stated defaults.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tilewright::schedule {

enum class StepKind : uint8_t {
#define TW_STEP(Name, text, operands, parameters) k##Name,
#include "compiler/schedule/steps.def"
};
inline constexpr size_t kMaxNameBytes =
    40;                                // longer names of loops are cut before they are extended
inline constexpr int64_t kInfer = -1;  // the `?` of a factor list

struct Step {
  StepKind kind = StepKind::kSplit;
  std::vector<int> handles = {};
  std::vector<int64_t> factors = {};                // Split
  std::string word = {};                            // SetScope; an index map; a name
  std::map<std::string, std::string> options = {};  // tail=…, scope=…, annotate's key=value;
                                                    // a default is left out

  bool operator==(const Step&) const = default;
  // The option's value, or its default.
  std::string_view Option(std::string_view key) const;
};
using Steps = std::vector<Step>;

// The row of steps.def, taken apart.
struct StepOption {
  std::string key;
  std::vector<std::string> values;  // the first is the default
  bool required = false;            // no default: always stated
};
struct StepRow {
  StepKind kind;
  std::string name;
  std::string operands;   // letters, without the '+'
  bool variadic = false;  // the last operand may repeat
  bool has_factors = false;
  std::vector<std::string> words = {};  // empty: no word
  std::vector<StepOption> options = {};
  bool has_annotation = false;  // kv
  bool has_map = false;         // an index map, held in Step::word
  bool has_name = false;        // a name, held in Step::word
};
std::span<const StepRow> StepRows();  // in the order of steps.def
const StepRow& RowOf(StepKind kind);
const StepRow* FindRow(std::string_view name);

// One dimension of a new layout: floor(i / div) mod `mod` of the old dimension's index i; mod 0:
// whole.
struct IndexDigit {
  int dim = 0;
  int64_t div = 1, mod = 0;
  bool operator==(const IndexDigit&) const = default;
};
using IndexMap = std::vector<IndexDigit>;
// "(0,1/16,2,1%16,3/4%2)"
absl::StatusOr<IndexMap> ParseIndexMap(std::string_view text);  // schedule.step.map
std::string ToText(const IndexMap& map);

// What `annotate` may say: hints that a lowering pass reads. Values are integers in [min, max].
struct AnnotationRow {
  std::string_view key;
  int64_t min, max;
  char on;  // l = loop, b = block, h = either
  std::string_view meaning;
};
std::span<const AnnotationRow> AnnotationRows();

// Whether a step made by a program is one that ParseStep could return (schedule.step.*).
absl::Status CheckStep(const Step& step);
std::string ToText(const Step& step);
std::string ToText(const Steps& steps);                 // joined by "; "
absl::StatusOr<Step> ParseStep(std::string_view line);  // schedule.step.*
absl::StatusOr<Steps> ParseSteps(std::string_view text);
// Parsed and printed again.
absl::StatusOr<std::string> CanonicalText(std::string_view text);

}  // namespace tilewright::schedule
