// The values of --shape, --specialise and --state. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "deploy/module/size_points.h"
#include "deploy/support/status.h"
#include "tuner_server/log/model_sizes.h"

namespace tilewright::cli {

// "NAME=1x3x224x224", each name once; cli.usage.shape for anything else.
absl::StatusOr<std::map<std::string, std::vector<int64_t>>> ParseShapes(
    const std::vector<std::string>& texts);

using module::SizePoint;
using module::SizeRange;

// Takes the ranges, "NAME=1..64", out of the texts. cli.usage.shape for bad ones.
absl::StatusOr<std::map<std::string, SizeRange>> TakeSizeRanges(std::vector<std::string>* texts);

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

// The flags of a command that imports a model, as they were given.
struct SizeFlags {
  std::vector<std::string> shapes;      // NAME=1x3x224x224, NAME=8 or NAME=1..64
  std::vector<std::string> specialise;  // NAME=1,8,32
  std::vector<std::string> states;      // PAST=PRESENT, or known
};
// The errors of the functions above.
absl::StatusOr<log::ModelSizes> ParseSizes(const SizeFlags& flags);

// {"shapes": {...}, "open": {"batch": [1, 32]}, "points": [{"batch": 1}], ...}: what there is.
nlohmann::json SizesJson(const log::ModelSizes& sizes);
// Of a job in a log; none if its text cannot be read.
log::ModelSizes SizesOfSpec(const std::string& spec_json);

}  // namespace tilewright::cli
