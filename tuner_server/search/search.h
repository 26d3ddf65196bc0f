// The values of the search: points of a design space, candidates made from them, and results told
// about them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cost_model/features.h"
#include "tilewright/v1/common.pb.h"

namespace tilewright::search {

// A point of a space: one choice per knob of one sketch (positions in the knobs' menus).
struct Point {
  int sketch = 0;
  std::vector<int> choices;
  bool operator==(const Point&) const = default;
};

// Convert a point to and from its text in the log, "sketch:choice,choice,…". ParsePoint returns
// nullopt for any other text. It does not check that the space has such a point.
std::string PointText(const Point& point);
std::optional<Point> ParsePoint(std::string_view text);

enum class Origin { kDraft, kMutation, kCrossover, kRandom, kTransfer };
// Returns the name in the log: draft, mutation, crossover, random, transfer.
std::string_view OriginText(Origin origin);

// A legal program of a space, lowered as far as the cost model needs.
struct Candidate {
  Point point;
  Origin origin = Origin::kDraft;
  std::string steps;
  std::string program_hash;
  cost_model::FeatureVector features;
  bool has_point = true;  // false: known only by its steps (from a log, or the default)
};

struct Told {
  std::string program_hash;
  v1::Outcome outcome = v1::OUTCOME_UNSPECIFIED;
  double median_ns = 0;  // 0 unless OK
  bool pending = false;  // picked, not measured yet
};

}  // namespace tilewright::search
