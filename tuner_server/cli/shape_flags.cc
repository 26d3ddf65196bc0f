#include "tuner_server/cli/shape_flags.h"

#include "deploy/support/strings.h"

namespace tilewright::cli {

absl::StatusOr<std::map<std::string, std::vector<int64_t>>> ParseShapes(
    const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const std::string& text : texts) {
    const size_t eq = text.find('=');
    bool good = eq != std::string::npos && eq > 0;
    std::vector<int64_t> dims;
    if (good) {
      for (const std::string& dim : support::Split(text.substr(eq + 1), 'x')) {
        const auto extent = support::ParseInt64(dim);
        good = good && extent && *extent >= 1;
        dims.push_back(extent.value_or(0));
      }
    }
    if (!good) {
      return support::InvalidArgument(
          "cli.usage.shape", "--shape expects NAME=1x3x224x224, found " + support::Quote(text));
    }
    if (!shapes.emplace(text.substr(0, eq), dims).second) {
      return support::InvalidArgument(
          "cli.usage.shape", "--shape names " + support::Quote(text.substr(0, eq)) + " twice");
    }
  }
  return shapes;
}

absl::StatusOr<std::map<std::string, SizeRange>> TakeSizeRanges(std::vector<std::string>* texts) {
  std::map<std::string, SizeRange> ranges;
  std::vector<std::string> others;
  for (const std::string& text : *texts) {
    const size_t eq = text.find('='), dots = text.find("..", eq == std::string::npos ? 0 : eq);
    if (eq == std::string::npos || dots == std::string::npos) {
      others.push_back(text);
      continue;
    }
    const auto min = support::ParseInt64(text.substr(eq + 1, dots - eq - 1));
    const auto max = support::ParseInt64(text.substr(dots + 2));
    const bool good = eq > 0 && min && max && *min >= 0 && *max >= 1 && *max >= *min;
    if (!good || !ranges.emplace(text.substr(0, eq), SizeRange{*min, *max}).second) {
      return support::InvalidArgument(
          "cli.usage.shape",
          "--shape expects NAME=1..64 once for a dimension that stays open, found " +
              support::Quote(text));
    }
  }
  *texts = std::move(others);
  return ranges;
}

absl::StatusOr<StateFlags> ParseStates(const std::vector<std::string>& texts) {
  StateFlags flags;
  for (const std::string& text : texts) {
    const size_t eq = text.find('=');
    if (text == "known") {
      flags.known = true;
      continue;
    }
    const bool good = eq != std::string::npos && eq > 0 && eq + 1 < text.size() &&
                      flags.pairs.emplace(text.substr(0, eq), text.substr(eq + 1)).second;
    if (!good) {
      return support::InvalidArgument(
          "cli.usage.state", "--state expects known, or PAST=PRESENT once for an input, found " +
                                 support::Quote(text));
    }
  }
  return flags;
}

}  // namespace tilewright::cli
