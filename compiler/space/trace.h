// Why a function has its default schedule: what each rule decided about each block, for which
// reason, and the steps that were tried and refused. A value; one owner.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "compiler/schedule/step.h"

namespace tilewright::space {

class Trace {
 public:
  struct Entry {
    std::string block, rule;  // of which block, by which rule
    std::string decision;     // of a refusal: the step
    std::string reason;       // of a refusal: the slug of the error
    bool refused = false;
  };
  void Decide(std::string_view block, std::string_view rule, std::string decision,
              std::string reason);
  void Refuse(std::string_view block, std::string_view rule, const schedule::Step& step,
              const absl::Status& why);
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

// One line for each entry, under a line for each block:
//   y
//     lanes: along oc, 16 wide; oc costs 1.2 loads a result, ow 4
//     unroll: refused unroll %9 (schedule.unroll.extent)
std::string ToText(const Trace& trace);

}  // namespace tilewright::space
