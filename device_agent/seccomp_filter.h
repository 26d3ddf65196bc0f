// A system-call filter under construction. Load returns the first error of the calls before it.
#pragma once

#include <seccomp.h>

#include <cstdint>

#include "deploy/support/status.h"

namespace tilewright::device_agent {

// A condition on an argument of a system call.
inline scmp_arg_cmp When(unsigned argument, scmp_compare comparison, uint64_t a, uint64_t b = 0) {
  return {argument, comparison, a, b};
}

class SeccompFilter {
 public:
  explicit SeccompFilter(uint32_t default_action) : context_(seccomp_init(default_action)) {}
  ~SeccompFilter() {
    if (context_ != nullptr) seccomp_release(context_);
  }
  SeccompFilter(const SeccompFilter&) = delete;
  SeccompFilter& operator=(const SeccompFilter&) = delete;

  template <typename... Comparisons>
  void Add(uint32_t action, int call, Comparisons... comparisons) {
    if (context_ == nullptr) return;
    const int result =
        seccomp_rule_add(context_, action, call, sizeof...(comparisons), comparisons...);
    if (result != 0 && error_ == 0) error_ = -result;
  }
  template <typename Calls>
  void AddAll(uint32_t action, const Calls& calls) {
    for (const int call : calls) Add(action, call);
  }

  // Applies the filter to the calling process with all its threads. unavailable
  // (sandbox.filter.init, .load).
  absl::Status Load();

 private:
  scmp_filter_ctx context_;
  int error_ = 0;
};

}  // namespace tilewright::device_agent
