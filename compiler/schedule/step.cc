#include "compiler/schedule/step.h"

#include <algorithm>
#include <cstddef>

#include "compiler/ir/tensor_intrinsics.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using support::InvalidArgument;
using support::Quote;
using support::StrCat;

constexpr size_t kMaxHandles = 64;
constexpr size_t kMaxFactors = 8;
constexpr size_t kMaxDigits = 16;
constexpr int64_t kMaxHandle = 1 << 20;
constexpr int64_t kMaxFactor = int64_t{1} << 31;
constexpr size_t kMaxTextBytes = 1 << 20;

// `key=a|b`, or `key=@tensor`: the names of the tensor intrinsics, no default.
StepOption MakeOption(std::string_view parameter) {
  size_t eq = parameter.find('=');
  StepOption option{std::string(parameter.substr(0, eq)), {}};
  if (parameter.substr(eq + 1) != "@tensor") {
    option.values = support::Split(parameter.substr(eq + 1), '|');
    return option;
  }
  option.required = true;
  for (const ir::TensorIntrinsic& row : ir::TensorIntrinsics()) {
    if (option.values.empty() || option.values.back() != row.name)
      option.values.push_back(row.name);
  }
  return option;
}

StepRow MakeRow(StepKind kind, const char* name, std::string_view operands,
                std::string_view parameters) {
  StepRow row{.kind = kind, .name = name, .operands = std::string(operands)};
  if (!row.operands.empty() && row.operands.back() == '+') {
    row.operands.pop_back();
    row.variadic = true;
  }
  for (const std::string& p : support::Split(parameters, ' ')) {
    if (p == "factors") {
      row.has_factors = true;
    } else if (p == "kv") {
      row.has_annotation = true;
    } else if (p == "map") {
      row.has_map = true;
    } else if (p == "name") {
      row.has_name = true;
    } else if (p.starts_with("word:")) {
      row.words = support::Split(p.substr(5), '|');
    } else if (p.find('=') != std::string::npos) {
      row.options.push_back(MakeOption(p));
    } else {
      TW_CHECK(p.empty()) << "steps.def: unknown parameter kind " << p;
    }
  }
  return row;
}

const StepOption* FindOption(const StepRow& row, std::string_view key) {
  for (const StepOption& o : row.options) {
    if (o.key == key) return &o;
  }
  return nullptr;
}

// Splits one line into words; a list in brackets or parentheses is one word with its blanks
// removed.
absl::StatusOr<std::vector<std::string>> Words(std::string_view line) {
  std::vector<std::string> words;
  size_t i = 0;
  auto blank = [&](size_t at) { return line[at] == ' ' || line[at] == '\t' || line[at] == '\r'; };
  while (i < line.size()) {
    if (blank(i)) {
      ++i;
      continue;
    }
    std::string word;
    if (line[i] == '[' || line[i] == '(') {
      const char closing = line[i] == '[' ? ']' : ')';
      size_t close = line.find(closing, i);
      if (close == std::string_view::npos) {
        return InvalidArgument("schedule.step.syntax", StrCat("expected '", std::string(1, closing),
                                                              "', found end of ", Quote(line)));
      }
      for (; i <= close; ++i) {
        if (!blank(i)) word += line[i];
      }
    } else {
      while (i < line.size() && !blank(i) && line[i] != '[' && line[i] != '(') word += line[i++];
    }
    words.push_back(std::move(word));
  }
  return words;
}

absl::Status ParseHandle(const std::string& word, Step* step) {
  auto number = support::ParseInt64(std::string_view(word).substr(1));
  if (!number.has_value() || *number < 0 || *number > kMaxHandle || word[1] == '+' ||
      std::to_string(*number).size() + 1 != word.size()) {
    return InvalidArgument("schedule.step.handle",
                           StrCat("expected % and a number, found ", Quote(word)));
  }
  if (step->handles.size() == kMaxHandles) {
    return InvalidArgument("schedule.step.operands",
                           StrCat("expected at most ", kMaxHandles, " operands, found more"));
  }
  step->handles.push_back(static_cast<int>(*number));
  return absl::OkStatus();
}

absl::Status ParseFactors(const std::string& word, Step* step) {
  if (!step->factors.empty()) {
    return InvalidArgument("schedule.step.factors", "expected one factor list, found two");
  }
  for (const std::string& f : support::Split(word.substr(1, word.size() - 2), ',')) {
    auto number = support::ParseInt64(f);
    bool infer = f == "?";
    if (!infer && (!number.has_value() || *number < 1 || *number > kMaxFactor)) {
      return InvalidArgument("schedule.step.factors", StrCat("expected a factor in 1..", kMaxFactor,
                                                             " or ?, found ", Quote(f)));
    }
    if (infer && std::count(step->factors.begin(), step->factors.end(), kInfer) != 0) {
      return InvalidArgument("schedule.step.factors", "expected at most one ?, found two");
    }
    step->factors.push_back(infer ? kInfer : *number);
  }
  if (step->factors.size() > kMaxFactors) {
    return InvalidArgument(
        "schedule.step.factors",
        StrCat("expected at most ", kMaxFactors, " factors, found ", step->factors.size()));
  }
  return absl::OkStatus();
}

absl::Status ParseAnnotation(const std::string& key, const std::string& value, Step* step) {
  for (const AnnotationRow& row : AnnotationRows()) {
    if (row.key != key) continue;
    auto number = support::ParseInt64(value);
    if (!number.has_value() || *number < row.min || *number > row.max) {
      return InvalidArgument("schedule.step.option", StrCat("expected ", key, " in ", row.min, "..",
                                                            row.max, ", found ", Quote(value)));
    }
    if (!step->options.empty()) {
      return InvalidArgument("schedule.step.option", "expected one key=value, found two");
    }
    step->options[key] = std::to_string(*number);
    return absl::OkStatus();
  }
  return InvalidArgument("schedule.step.option",
                         StrCat("expected a known annotation, found ", Quote(key)));
}

absl::Status ParseOption(const StepRow& row, const std::string& word, Step* step) {
  size_t eq = word.find('=');
  std::string key = word.substr(0, eq), value = word.substr(eq + 1);
  if (row.has_annotation) return ParseAnnotation(key, value, step);
  const StepOption* option = FindOption(row, key);
  if (option == nullptr) {
    return InvalidArgument("schedule.step.option",
                           StrCat("expected an option of ", row.name, ", found ", Quote(word)));
  }
  if (std::find(option->values.begin(), option->values.end(), value) == option->values.end()) {
    return InvalidArgument("schedule.step.option",
                           StrCat("expected ", key, "=", support::Join(option->values, "|"),
                                  ", found ", Quote(value)));
  }
  // A stated default is the same step; stated twice it is a mistake like any other.
  if (!step->options.emplace(key, value).second) {
    return InvalidArgument("schedule.step.option", StrCat("expected ", key, " once, found twice"));
  }
  return absl::OkStatus();
}

bool IsName(std::string_view word) {
  return !word.empty() && word.size() <= kMaxNameBytes &&
         std::all_of(word.begin(), word.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

absl::Status CheckComplete(const StepRow& row, const Step& step) {
  size_t wanted = row.operands.size();
  if (step.handles.size() < wanted || (!row.variadic && step.handles.size() > wanted)) {
    return InvalidArgument("schedule.step.operands",
                           StrCat("expected ", row.variadic ? "at least " : "", wanted,
                                  " operands of ", row.name, ", found ", step.handles.size()));
  }
  if (row.has_factors && step.factors.empty()) {
    return InvalidArgument("schedule.step.factors",
                           StrCat("expected a factor list after ", row.name, ", found none"));
  }
  if (!row.words.empty() && step.word.empty()) {
    return InvalidArgument("schedule.step.word", StrCat("expected ", support::Join(row.words, "|"),
                                                        " after ", row.name, ", found none"));
  }
  if ((row.has_map || row.has_name) && step.word.empty()) {
    return InvalidArgument("schedule.step.word",
                           StrCat("expected ", row.has_map ? "an index map" : "a name", " after ",
                                  row.name, ", found none"));
  }
  for (const StepOption& option : row.options) {
    if (option.required && !step.options.contains(option.key)) {
      return InvalidArgument("schedule.step.option", StrCat("expected ", option.key, "=… after ",
                                                            row.name, ", found none"));
    }
  }
  if (row.has_annotation && step.options.empty()) {
    return InvalidArgument("schedule.step.option",
                           StrCat("expected key=value after ", row.name, ", found none"));
  }
  return absl::OkStatus();
}

absl::Status ParseWord(const StepRow& row, const std::string& word, Step* step) {
  if (word[0] == '%') return ParseHandle(word, step);
  if (word[0] == '[' && row.has_factors) return ParseFactors(word, step);
  if (word.find('=') != std::string::npos) return ParseOption(row, word, step);
  if (word[0] == '(' && row.has_map && step->word.empty()) {
    TW_ASSIGN(IndexMap map, ParseIndexMap(word));
    step->word = ToText(map);
    return absl::OkStatus();
  }
  if (row.has_name && step->word.empty() && IsName(word)) {
    step->word = word;
    return absl::OkStatus();
  }
  bool known = std::find(row.words.begin(), row.words.end(), word) != row.words.end();
  if (known && step->word.empty()) {
    step->word = word;
    return absl::OkStatus();
  }
  return InvalidArgument("schedule.step.syntax", StrCat("expected an operand or parameter of ",
                                                        row.name, ", found ", Quote(word)));
}

}  // namespace

std::span<const StepRow> StepRows() {
  static const std::vector<StepRow>* const kRows = new std::vector<StepRow>{
#define TW_STEP(Name, text, operands, parameters) \
  MakeRow(StepKind::k##Name, text, operands, parameters),
#include "compiler/schedule/steps.def"
  };
  return *kRows;
}

const StepRow& RowOf(StepKind kind) { return StepRows()[static_cast<size_t>(kind)]; }

const StepRow* FindRow(std::string_view name) {
  for (const StepRow& row : StepRows()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::span<const AnnotationRow> AnnotationRows() {
  static constexpr AnnotationRow kRows[] = {
      {"unroll_max", 0, 4096, 'l',
       "loops inside are unrolled, innermost first, while that gives at most so many statements"},
      {"sub_group", 1, 1, 'l',
       "the loop's sum (or minimum, maximum) may be reassociated: the threads of a sub-group share "
       "its terms out, where a device has sub-groups and all threads of a group run the loop "
       "alike"},
      {"fragment", 1, 1, 'l',
       "this loop and the one inside run over the rows and columns of a fragment of sums (or "
       "vectors of neighbours in them), scope wmma.acc: threads in step share the elements out, "
       "each those that it has"},
      {"bulk_copy", 1, 1, 'l',
       "this loop and the one inside copy a tile from global to shared memory, in an asynchronous "
       "stage of a pipeline: a unit next to the threads may do it for the first one"},
      {"local_sums", 1, 1, 'l',
       "of a loop whose body is a reduction: its sums are in registers while it runs (local_sums)"},
      {"with_next", 1, 1, 'l',
       "of a loop that is bound to blockIdx.x: its launch and the next one are one, if they do not "
       "depend on each other (merge_launches)"},
      {"groups", 1, 1 << 20, 'l',
       "of a loop that is bound to a block axis: the launch has no more groups than that, and each "
       "does its share of the iterations (share_tiles)"},
  };
  return kRows;
}

namespace {

// "1/16%4"
absl::StatusOr<IndexDigit> ParseDigit(const std::string& text) {
  auto bad = [&] {
    return InvalidArgument("schedule.step.map",
                           StrCat("expected DIM[/INT][%INT] with numbers in 1..", kMaxFactor,
                                  ", found ", Quote(text)));
  };
  size_t slash = text.find('/'), percent = text.find('%');
  if (slash != std::string::npos && percent != std::string::npos && percent < slash) return bad();
  auto number = [&](size_t from, size_t to) { return text.substr(from, to - from); };
  size_t end = std::min({slash, percent, text.size()});
  IndexDigit digit;
  auto parse = [](const std::string& word, int64_t lowest, int64_t* value) {
    auto parsed = support::ParseInt64(word);
    if (!parsed.has_value() || *parsed < lowest || *parsed > kMaxFactor ||
        std::to_string(*parsed) != word) {
      return false;
    }
    *value = *parsed;
    return true;
  };
  int64_t dim = 0;
  if (!parse(number(0, end), 0, &dim) || dim >= static_cast<int64_t>(kMaxDigits)) return bad();
  digit.dim = static_cast<int>(dim);
  if (slash != std::string::npos &&
      !parse(number(slash + 1, std::min(percent, text.size())), 2, &digit.div)) {
    return bad();
  }
  if (percent != std::string::npos && !parse(number(percent + 1, text.size()), 1, &digit.mod)) {
    return bad();
  }
  return digit;
}

}  // namespace

absl::StatusOr<IndexMap> ParseIndexMap(std::string_view text) {
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') {
    return InvalidArgument("schedule.step.map",
                           StrCat("expected an index map in parentheses, found ", Quote(text)));
  }
  IndexMap map;
  for (const std::string& part : support::Split(text.substr(1, text.size() - 2), ',')) {
    TW_ASSIGN(IndexDigit digit, ParseDigit(part));
    map.push_back(digit);
  }
  if (map.size() > kMaxDigits) {
    return InvalidArgument("schedule.step.map", StrCat("expected at most ", kMaxDigits,
                                                       " dimensions, found ", map.size()));
  }
  return map;
}

std::string ToText(const IndexMap& map) {
  std::string text = "(";
  for (const IndexDigit& d : map) {
    if (text.size() > 1) text += ',';
    text += std::to_string(d.dim);
    if (d.div != 1) text += "/" + std::to_string(d.div);
    if (d.mod != 0) text += "%" + std::to_string(d.mod);
  }
  return text + ")";
}

std::string_view Step::Option(std::string_view key) const {
  auto it = options.find(std::string(key));
  if (it != options.end()) return it->second;
  const StepOption* option = FindOption(RowOf(kind), key);
  return option == nullptr ? std::string_view() : std::string_view(option->values.front());
}

absl::Status CheckStep(const Step& step) {
  const StepRow& row = RowOf(step.kind);
  TW_TRY(CheckComplete(row, step));
  bool handles = step.handles.size() <= kMaxHandles &&
                 std::all_of(step.handles.begin(), step.handles.end(),
                             [](int h) { return h >= 0 && h <= kMaxHandle; });
  bool factors = step.factors.size() <= kMaxFactors && (row.has_factors || step.factors.empty()) &&
                 std::count(step.factors.begin(), step.factors.end(), kInfer) <= 1 &&
                 std::all_of(step.factors.begin(), step.factors.end(),
                             [](int64_t f) { return f == kInfer || (f >= 1 && f <= kMaxFactor); });
  bool word = row.words.empty()
                  ? step.word.empty()
                  : std::find(row.words.begin(), row.words.end(), step.word) != row.words.end();
  if (row.has_map) {
    absl::StatusOr<IndexMap> map = ParseIndexMap(step.word);
    word = map.ok() && ToText(*map) == step.word;
  }
  if (row.has_name) word = IsName(step.word);
  if (!handles || !factors || !word) {
    return InvalidArgument("schedule.step.value",
                           StrCat("expected parameters of ", row.name, ", found ", ToText(step)));
  }
  Step parsed{.kind = step.kind};
  for (const auto& [key, value] : step.options) {
    TW_TRY(ParseOption(row, StrCat(key, "=", value), &parsed));
  }
  return absl::OkStatus();
}

std::string ToText(const Step& step) {
  std::string text = RowOf(step.kind).name;
  for (int h : step.handles) text += " %" + std::to_string(h);
  if (!step.factors.empty()) {
    text += " [";
    for (size_t i = 0; i < step.factors.size(); ++i) {
      if (i > 0) text += ',';
      text += step.factors[i] == kInfer ? "?" : std::to_string(step.factors[i]);
    }
    text += ']';
  }
  if (!step.word.empty()) text += " " + step.word;
  for (const auto& [key, value] : step.options) {
    const StepOption* option = FindOption(RowOf(step.kind), key);
    bool stated = option == nullptr || option->required || option->values.front() != value;
    if (stated) text += " " + key + "=" + value;
  }
  return text;
}

std::string ToText(const Steps& steps) {
  std::string text;
  for (const Step& s : steps) {
    if (!text.empty()) text += "; ";
    text += ToText(s);
  }
  return text;
}

absl::StatusOr<Step> ParseStep(std::string_view line) {
  TW_ASSIGN(std::vector<std::string> words, Words(line));
  if (words.empty()) return InvalidArgument("schedule.step.syntax", "expected a step, found none");
  const StepRow* row = FindRow(words[0]);
  if (row == nullptr) {
    return InvalidArgument("schedule.step.unknown",
                           StrCat("expected a primitive's name, found ", Quote(words[0])));
  }
  Step step{.kind = row->kind};
  for (size_t i = 1; i < words.size(); ++i) TW_TRY(ParseWord(*row, words[i], &step));
  TW_TRY(CheckComplete(*row, step));
  std::erase_if(step.options, [&](const auto& kv) {
    const StepOption* option = FindOption(*row, kv.first);
    return option != nullptr && !option->required && option->values.front() == kv.second;
  });
  return step;
}

absl::StatusOr<Steps> ParseSteps(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return InvalidArgument("schedule.step.too_long", StrCat("expected at most ", kMaxTextBytes,
                                                            " bytes, found ", text.size()));
  }
  Steps steps;
  for (const std::string& raw : support::Split(text, '\n')) {
    std::string_view line = raw;
    line = line.substr(0, line.find('#'));
    for (const std::string& part : support::Split(line, ';')) {
      if (support::Trim(part).empty()) continue;
      TW_ASSIGN(Step step, ParseStep(part));
      steps.push_back(std::move(step));
    }
  }
  return steps;
}

absl::StatusOr<std::string> CanonicalText(std::string_view text) {
  TW_ASSIGN(Steps steps, ParseSteps(text));
  return ToText(steps);
}

}  // namespace tilewright::schedule
