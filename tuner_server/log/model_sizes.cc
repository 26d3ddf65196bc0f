#include "tuner_server/log/model_sizes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "deploy/support/printable.h"
#include "deploy/support/strings.h"

namespace tilewright::log {
namespace {

using nlohmann::json;
using support::InvalidArgument;
using support::StrCat;

constexpr int64_t kMaxExtent = int64_t{1} << 31;

absl::Status Bad(std::string_view text) {
  return support::DataLoss("log.sizes.bad",
                           "expected sizes of a model, found " + support::Quote(text, 200));
}

// How one size fits. `at` gets those that are open in the module.
bool TakesShape(const ModelSizes& has, const std::string& name, const std::vector<int64_t>& dims,
                module::SizePoint* at) {
  const auto fixed = has.shapes.find(name);
  if (fixed != has.shapes.end()) return fixed->second == dims;
  const auto open = has.open.find(name);
  if (open == has.open.end() || dims.size() != 1) return false;
  (*at)[name] = dims[0];
  return dims[0] >= open->second.min && dims[0] <= open->second.max;
}

bool TakesRange(const ModelSizes& has, const std::string& name, const module::SizeRange& range) {
  const auto open = has.open.find(name);
  return open != has.open.end() && open->second.min <= range.min && open->second.max >= range.max;
}

}  // namespace

std::string ModelSizes::ToText() const {
  if (empty()) return "";
  json out = json::object();
  if (!shapes.empty()) out["shapes"] = shapes;
  for (const auto& [name, range] : open) out["open"][name] = {range.min, range.max};
  if (!points.empty()) out["points"] = points;
  if (!states.empty()) out["states"] = states;
  if (known_states) out["known_states"] = true;
  // A name may be any bytes in a model; text of the log is UTF-8.
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string ModelSizes::Words() const {
  std::vector<std::string> parts, at;
  for (const auto& [name, dims] : shapes) {
    parts.push_back(StrCat(name, "=", support::Join(dims, "x")));
  }
  for (const auto& [name, range] : open) {
    parts.push_back(StrCat(name, "=", range.min, "..", range.max));
  }
  for (const module::SizePoint& point : points) at.push_back(module::PointText(point));
  if (!at.empty()) parts.push_back("specialised at " + support::Join(at, "; "));
  for (const auto& [past, present] : states) {
    parts.push_back(StrCat("state ", past, "=", present));
  }
  if (known_states) parts.emplace_back("state known");
  return support::Printable(support::Join(parts, ", "));
}

absl::StatusOr<ModelSizes> ParseSizesText(std::string_view text) {
  ModelSizes sizes;
  if (text.empty()) return sizes;
  const json in = json::parse(text, nullptr, false);
  if (!in.is_object()) return Bad(text);
  try {
    sizes.shapes = in.value("shapes", decltype(sizes.shapes){});
    const json open = in.value("open", json::object());
    for (const auto& [name, range] : open.items()) {
      sizes.open[name] = {range.at(0).get<int64_t>(), range.at(1).get<int64_t>()};
    }
    sizes.points = in.value("points", decltype(sizes.points){});
    sizes.states = in.value("states", decltype(sizes.states){});
    sizes.known_states = in.value("known_states", false);
  } catch (const json::exception&) {
    return Bad(text);
  }
  return sizes;
}

absl::Status CheckJobSizes(const ModelSizes& sizes) {
  for (const auto& [name, dims] : sizes.shapes) {
    for (const int64_t extent : dims) {
      if (extent > 0 && extent <= kMaxExtent) continue;
      return InvalidArgument("job.shape.bad", StrCat("expected extents of 1..2^31 of input ",
                                                     support::Quote(name, 64), ", found ", extent));
    }
  }
  for (const auto& [name, range] : sizes.open) {
    if (range.min >= 0 && range.max >= std::max<int64_t>(1, range.min) && range.max <= kMaxExtent) {
      continue;
    }
    return InvalidArgument(
        "job.shape.bad", StrCat("expected a range within 0..2^31 of dimension ",
                                support::Quote(name, 64), ", found ", range.min, "..", range.max));
  }
  return module::CheckSizePoints(sizes.open, sizes.points);
}

SizeFit FitOf(const ModelSizes& has, const ModelSizes& wanted) {
  const bool any_state = !wanted.states.empty() || wanted.known_states;
  if (any_state && (has.states != wanted.states || has.known_states != wanted.known_states)) {
    return SizeFit::kNone;
  }
  module::SizePoint at;
  for (const auto& [name, dims] : wanted.shapes) {
    if (!TakesShape(has, name, dims, &at)) return SizeFit::kNone;
  }
  for (const auto& [name, range] : wanted.open) {
    if (!TakesRange(has, name, range)) return SizeFit::kNone;
  }
  const auto is_point = [&](const module::SizePoint& point) {
    return std::ranges::find(has.points, point) != has.points.end();
  };
  if (!std::ranges::all_of(wanted.points, is_point)) return SizeFit::kNone;
  const bool tuned = at.empty() ? !wanted.points.empty() || wanted.open.empty()
                                : at.size() == has.open.size() && is_point(at);
  return tuned ? SizeFit::kTuned : SizeFit::kOpen;
}

}  // namespace tilewright::log
