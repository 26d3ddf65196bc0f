// Inputs and weights that measurements ask for again and again: every candidate of a task gets the
// same tensors, so the worker makes them once and its measuring processes, forked from it, copy.
// A tensor is named by type, number of elements, law and seed. One owner; reading is safe from the
// forked processes.
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

// invalid_argument measure.inputs.distribution where the message has no law.
absl::StatusOr<module::Distribution> DistributionOf(const v1::Distribution& from);

class InputCache {
 public:
  explicit InputCache(int64_t max_bytes = int64_t{128} << 20) : max_bytes_(max_bytes) {}

  // Makes what is not there yet, as far as it fits; forgets the tensors of earlier tasks where that
  // makes room. What cannot be made here is left to the measuring process, which says why.
  void Prepare(const v1::InputSpec& inputs);

  // The tensor's bytes, valid until the next Prepare; empty when it is not here.
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
