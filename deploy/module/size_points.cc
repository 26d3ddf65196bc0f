#include "deploy/module/size_points.h"

#include <set>
#include <vector>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::module {
namespace {

using support::StrCat;

std::string NamesText(const std::map<std::string, SizeRange>& open) {
  std::vector<std::string> names;
  for (const auto& [name, range] : open)
    names.push_back(StrCat(support::Quote(name, 64), " (", range.min, " to ", range.max, ")"));
  return support::Join(names, ", ");
}

absl::Status CheckSize(const std::map<std::string, SizeRange>& open, const std::string& name,
                       int64_t size) {
  const auto range = open.find(name);
  if (range == open.end()) {
    return support::InvalidArgument("driver.specialise.name",
                                    StrCat("expected one of the open dimensions ", NamesText(open),
                                           ", found ", support::Quote(name, 64)));
  }
  if (size >= range->second.min && size <= range->second.max) return absl::OkStatus();
  return support::InvalidArgument(
      "driver.specialise.size",
      StrCat("expected ", support::Quote(name, 64), " from ", range->second.min, " to ",
             range->second.max, ", found ", size));
}

}  // namespace

std::string PointText(const SizePoint& point) {
  std::vector<std::string> parts;
  for (const auto& [name, size] : point) parts.push_back(StrCat(name, "=", size));
  return support::Join(parts, ",");
}

absl::Status CheckSizePoints(const std::map<std::string, SizeRange>& open,
                             std::span<const SizePoint> points) {
  if (points.empty()) return absl::OkStatus();
  if (open.empty()) {
    return support::InvalidArgument(
        "driver.specialise.fixed",
        StrCat("expected dimensions that stay open, found none: all sizes are "
               "fixed, so there is nothing to specialise at ",
               PointText(points[0])));
  }
  if (points.size() > kMaxSizePoints) {
    return support::InvalidArgument(
        "driver.specialise.too_many",
        StrCat("expected at most ", kMaxSizePoints, " points, found ", points.size()));
  }
  std::set<SizePoint> seen;
  for (const SizePoint& point : points) {
    if (point.empty())
      return support::InvalidArgument("driver.specialise.empty",
                                      "expected a size in each point, found none");
    for (const auto& [name, size] : point) TW_TRY(CheckSize(open, name, size));
    if (!seen.insert(point).second) {
      return support::InvalidArgument(
          "driver.specialise.twice",
          StrCat("expected each point once, found ", PointText(point), " twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tilewright::module
