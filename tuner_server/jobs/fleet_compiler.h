// The driver compiler of a job's devices. Times of code from two compilers do not compare, so a job
// measures with one: that which most of the devices have when the first of them is online. For one
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tilewright/v1/dispatch.pb.h"

namespace tilewright::jobs {

class FleetCompiler {
 public:
  // The job has this one already; empty: its code is not compiled by drivers.
  void Fix(std::string_view compiler) { name_ = compiler; }
  // Takes what is online. Returns a text for people when there are other compilers than the job's,
  // once for the same ones; otherwise an empty text.
  std::string Note(const v1::PoolLoad& load);

  bool known() const { return name_.has_value(); }
  // As in a record's toolchain; empty while unknown.
  std::string name() const { return name_.value_or(""); }

 private:
  std::optional<std::string> name_;
  std::string others_told_;
};

}  // namespace tilewright::jobs
