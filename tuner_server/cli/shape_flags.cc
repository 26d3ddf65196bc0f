#include "tuner_server/cli/shape_flags.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "deploy/support/strings.h"
#include "tuner_server/jobs/size_messages.h"
#include "tuner_server/jobs/work_items.h"

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

namespace {

absl::Status BadPoint(std::string_view found) {
  return support::InvalidArgument(
      "cli.usage.specialise",
      support::StrCat("--specialise expects NAME=1,8,32, or NAME=1,8,OTHER=128, found ", found));
}

// "batch=1,8,seq=128" as the sizes of each name.
absl::StatusOr<std::map<std::string, std::vector<int64_t>>> ParseSizeLists(
    const std::string& text) {
  std::map<std::string, std::vector<int64_t>> lists;
  std::vector<int64_t>* list = nullptr;
  for (const std::string& part : support::Split(text, ',')) {
    // Names may have any characters; numbers have none of them.
    const size_t eq = part.rfind('=');
    if (eq != std::string::npos) {
      const auto [named, fresh] = lists.try_emplace(part.substr(0, eq));
      if (eq == 0 || !fresh) return BadPoint(support::Quote(text));
      list = &named->second;
    }
    const auto size = support::ParseInt64(eq == std::string::npos ? part : part.substr(eq + 1));
    if (list == nullptr || !size || *size < 1) return BadPoint(support::Quote(text));
    list->push_back(*size);
  }
  return lists;
}

}  // namespace

absl::StatusOr<std::vector<SizePoint>> ParseSizePoints(const std::vector<std::string>& texts) {
  constexpr size_t kMostPoints = 4096;  // far more than a module may have
  std::vector<SizePoint> points;
  for (const std::string& text : texts) {
    TW_ASSIGN(const auto lists, ParseSizeLists(text));
    std::vector<SizePoint> combined = {{}};
    for (const auto& [name, sizes] : lists) {
      std::vector<SizePoint> more;
      for (const SizePoint& point : combined) {
        for (const int64_t size : sizes) {
          more.push_back(point);
          more.back()[name] = size;
        }
      }
      combined = std::move(more);
      if (combined.size() > kMostPoints) return BadPoint("too many combinations");
    }
    for (SizePoint& point : combined) {
      if (std::ranges::count(points, point) > 0) {
        return BadPoint(support::StrCat("a point twice in ", support::Quote(text)));
      }
      points.push_back(std::move(point));
    }
  }
  return points;
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

absl::StatusOr<log::ModelSizes> ParseSizes(const SizeFlags& flags) {
  log::ModelSizes sizes;
  std::vector<std::string> fixed = flags.shapes;
  TW_ASSIGN(sizes.open, TakeSizeRanges(&fixed));
  TW_ASSIGN(sizes.shapes, ParseShapes(fixed));
  TW_ASSIGN(sizes.points, ParseSizePoints(flags.specialise));
  TW_ASSIGN(StateFlags states, ParseStates(flags.states));
  sizes.states = std::move(states.pairs);
  sizes.known_states = states.known;
  return sizes;
}

nlohmann::json SizesJson(const log::ModelSizes& sizes) {
  return sizes.empty() ? nlohmann::json::object() : nlohmann::json::parse(sizes.ToText());
}

log::ModelSizes SizesOfSpec(const std::string& spec_json) {
  const auto spec = jobs::SpecFromJson(spec_json);
  return spec.ok() ? jobs::SizesOf(*spec) : log::ModelSizes{};
}

}  // namespace tilewright::cli
