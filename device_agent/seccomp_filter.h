// A system-call filter under construction. Load returns the first error of the calls before it.
#pragma once

#include <linux/filter.h>
#include <seccomp.h>

#include <cstdint>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::device_agent {

// A condition on an argument of a system call.
inline scmp_arg_cmp When(unsigned argument, scmp_compare comparison, uint64_t a, uint64_t b = 0) {
  return {argument, comparison, a, b};
}

// A filter as the kernel takes it. Making one takes a third of a millisecond, and applying it a
// tenth of that.
using FilterProgram = std::vector<sock_filter>;

// In a program: the process that applies it.
inline constexpr uint32_t kSelf = 0x51AB1E5;

// Applies a program to the calling thread. unavailable (sandbox.filter.load).
absl::Status LoadProgram(FilterProgram program);

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
  // unavailable (sandbox.filter.init, .load).
  absl::StatusOr<FilterProgram> Compile();
  // Applies a filter with SCMP_ACT_NOTIFY to the calling thread. Returns the descriptor, the
  // caller's, on which the kernel asks. unavailable (sandbox.filter.init, .load).
  absl::StatusOr<int> LoadListener();

 private:
  scmp_filter_ctx context_;
  int error_ = 0;
};

}  // namespace tilewright::device_agent
