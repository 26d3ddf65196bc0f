// Inputs and weights that many measurements share: every candidate of a task gets the same tensors.
// The worker makes them once; its measuring processes are forked from it and copy them. Type,
// number of elements, distribution and seed identify a tensor. One owner; forked processes may
// read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/module/dtype.h"
#include "deploy/module/manifest.h"
#include "deploy/support/status.h"
#include "tilewright/v1/common.pb.h"

namespace tilewright::device_agent {

// invalid_argument (measure.inputs.distribution) if the message has no distribution.
absl::StatusOr<module::Distribution> DistributionOf(const v1::Distribution& from);

class InputCache {
 public:
  explicit InputCache(int64_t max_bytes = int64_t{128} << 20) : max_bytes_(max_bytes) {}

  // Makes the missing tensors that fit; drops tensors of earlier tasks to make room. Tensors that
  // cannot be made are left to the measuring process, which reports the reason.
  void Prepare(const v1::InputSpec& inputs);

  // Returns the tensor's bytes, valid until the next Prepare; empty if it is not here.
  std::string_view Find(module::DType dtype, int64_t count,
                        const module::Distribution& distribution, uint64_t seed) const;

 private:
  struct Entry {
    std::vector<char> bytes;
    int64_t last_use = 0;
  };
  static std::string Key(module::DType dtype, int64_t count,
                         const module::Distribution& distribution, uint64_t seed);
  bool MakeRoom(int64_t bytes);

  const int64_t max_bytes_;
  int64_t bytes_ = 0;
  int64_t now_ = 0;  // calls of Prepare
  std::map<std::string, Entry> entries_;
};

}  // namespace tilewright::device_agent
