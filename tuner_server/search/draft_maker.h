// Makes drafts from points of a space: programs with features. Remembers which program a point
// gives and which features a program has, because a search meets the same points and programs many
// times. The memory changes only the cost of an answer. One owner; not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/space.h"
#include "compiler/target/target.h"
#include "tuner_server/search/search.h"

namespace tilewright::search {

// The cost of drafts in seconds of the wall clock.
struct DraftTimes {
  double search_seconds = 0, features_seconds = 0;
};

class DraftMaker {
 public:
  // `space` must outlive it; `flops` of one run of the task.
  DraftMaker(const Space* space, double flops, target::Target target)
      : space_(space), flops_(flops), target_(std::move(target)) {}

  // Makes a draft of the point's program. already_exists search.known: `wanted` refused the
  // program's hash, and nothing was lowered. resource_exhausted search.code_size: a compiler would
  // take seconds (code_size.h). Other errors are bugs of the rule that made the sketch. REQUIRES:
  // the point is feasible.
  absl::StatusOr<Candidate> Make(const Point& point, Origin origin,
                                 const std::function<bool(const std::string&)>& wanted,
                                 DraftTimes* times);
  // Makes the same from steps, without a point, whose estimate it does not have then. Errors:
  // schedule.* if a step fails.
  absl::StatusOr<Candidate> MakeFromSteps(std::string_view steps);
  // Gives it the space's estimate of its point, where there is one.
  void SetEstimate(const Point& point, Candidate* candidate) const;
  // Returns what the steps' program costs at other sizes than the typical ones
  // (compiler/space/open_cost.h), in log2; 0 for programs of fixed sizes. Errors: schedule.*, and
  // those of the passes.
  absl::StatusOr<double> OpenCost(std::string_view steps) const;

 private:
  using Features = std::shared_ptr<const cost_model::FeatureVector>;
  struct Program {
    std::string hash, steps;
  };

  absl::StatusOr<Features> FeaturesOf(const std::string& hash, const schedule::Schedule& schedule,
                                      double max_code_size, DraftTimes* times);

  const Space* space_;
  double flops_;
  target::Target target_;
  std::optional<schedule::Schedule> start_;                            // remembers its steps
  std::unordered_map<std::string, absl::StatusOr<Program>> programs_;  // by the point's text
  std::unordered_map<std::string, Features> features_;                 // by program hash
};

}  // namespace tilewright::search
