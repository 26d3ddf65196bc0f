#include "tuner_server/search/search_parts.h"

#include <array>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::search {
namespace {

struct Part {
  std::string_view name;
  bool SearchParts::* field;
};
constexpr std::array<Part, 10> kParts = {{{"adapt", &SearchParts::adapt},
                                          {"annealing", &SearchParts::annealing},
                                          {"descent", &SearchParts::descent},
                                          {"evolution", &SearchParts::evolution},
                                          {"finals", &SearchParts::finals},
                                          {"owed", &SearchParts::owed},
                                          {"quota", &SearchParts::quota},
                                          {"shipped-model", &SearchParts::shipped_model},
                                          {"training", &SearchParts::training},
                                          {"transfer", &SearchParts::transfer}}};

}  // namespace

absl::StatusOr<SearchParts> ParseSearchParts(const std::vector<std::string>& switches) {
  SearchParts parts;
  for (const std::string& text : switches) {
    const size_t equals = text.find('=');
    const std::string_view word = std::string_view(text).substr(0, equals);
    const std::string_view value =
        equals == std::string::npos ? "" : std::string_view(text).substr(equals + 1);
    bool known = false;
    for (const Part& part : kParts) {
      if (part.name != word || (value != "on" && value != "off")) continue;
      parts.*part.field = value == "on";
      known = true;
    }
    if (known) continue;
    return support::InvalidArgument(
        "search.part", support::StrCat("expected PART=on or PART=off with a part of ",
                                       SearchPartNames(), "; found ", support::Quote(text)));
  }
  return parts;
}

std::string SearchPartNames() {
  std::vector<std::string> names;
  for (const Part& part : kParts) names.emplace_back(part.name);
  return support::Join(names, ", ");
}

}  // namespace tilewright::search
