// The sizes at which a model of open sizes gets functions of its own: what a user asks for, before
// there is a module. Plain values and pure functions; thread-safe.
#ifndef DEPLOY_MODULE_SIZE_POINTS_H_
#define DEPLOY_MODULE_SIZE_POINTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace tilewright::module {

// What a dimension that stays open may be, both ends included.
struct SizeRange {
  int64_t min = 1, max = 1;
  bool operator==(const SizeRange&) const = default;
};

// Sizes of open dimensions by their names in the model, of some or of all. Dimensions that it does
// not name stay open.
using SizePoint = std::map<std::string, int64_t>;

// A module has "main" and so many others at most.
inline constexpr size_t kMaxSizePoints = 63;

// INVALID_ARGUMENT driver.specialise.<reason>: fixed (no dimension is open), name (a dimension that
// is not open), size (out of its range), empty (a point that names none), twice, too_many.
absl::Status CheckSizePoints(const std::map<std::string, SizeRange>& open,
                             std::span<const SizePoint> points);

// "batch=1,seq=128"
std::string PointText(const SizePoint& point);

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_SIZE_POINTS_H_
