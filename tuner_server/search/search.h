// The values of the search: candidates made from points of a design space, and results told about
// them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/space/space.h"
#include "cost_model/features.h"
#include "tilewright/v1/common.pb.h"

namespace tilewright::search {

using space::Point;
using space::Sketch;
using space::Space;

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
  // Of a thread of its kernel that has most, as the device's compiler says; 0: it says nothing.
  int64_t registers = 0;
};

}  // namespace tilewright::search
