// The values of --shape. Pure function; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::cli {

// "NAME=1x3x224x224", each name once; cli.usage.shape for anything else.
absl::StatusOr<std::map<std::string, std::vector<int64_t>>> ParseShapes(
    const std::vector<std::string>& texts);

// Of a dimension that stays open, both ends included.
struct SizeRange {
  int64_t min = 1, max = 1;
};
// Takes the ranges, "NAME=1..64", out of the texts. cli.usage.shape for bad ones.
absl::StatusOr<std::map<std::string, SizeRange>> TakeSizeRanges(std::vector<std::string>* texts);

// Sizes of dimensions that stay open, by name.
using SizePoint = std::map<std::string, int64_t>;
// The values of --specialise. "batch=1,8,32" is three points; "batch=1,8,seq=128" are the points of
// all combinations, (1, 128) and (8, 128). cli.usage.specialise for anything else, and for a point
// that comes twice.
absl::StatusOr<std::vector<SizePoint>> ParseSizePoints(const std::vector<std::string>& texts);

// --state: inputs that a module keeps, by name, with the outputs that continue them.
struct StateFlags {
  std::map<std::string, std::string> pairs;
  bool known = false;  // those that exporters name as a cache, too
};
// "PAST=PRESENT", each input once, or "known". cli.usage.state for anything else.
absl::StatusOr<StateFlags> ParseStates(const std::vector<std::string>& texts);

}  // namespace tilewright::cli
