// Part of libtilewright_runtime.so only. Debian's Abseil archives are built for executables, and
// two of their members address thread-local variables in a way that shared objects may not. This
// file defines the functions of those two, so that the linker takes these and leaves the members
// out: sampling of absl::Cord for profiling (always off here) and facts about the system that
// Abseil's spin locks ask for. The contracts are those of the two Abseil headers.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <limits>

#include "absl/base/internal/sysinfo.h"
#include "absl/strings/internal/cordz_functions.h"

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace cord_internal {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

ABSL_CONST_INIT thread_local int64_t cordz_next_sample = kNever;

int32_t get_cordz_mean_interval() { return std::numeric_limits<int32_t>::max(); }
void set_cordz_mean_interval(int32_t) {}
bool cordz_should_profile_slow() {
  cordz_next_sample = kNever;
  return false;
}
void cordz_set_next_sample_for_testing(int64_t) {}

}  // namespace cord_internal

namespace base_internal {

double NominalCPUFrequency() { return 1.0; }
int NumCPUs() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }
pid_t GetTID() { return static_cast<pid_t>(syscall(SYS_gettid)); }
pid_t GetCachedTID() { return GetTID(); }

}  // namespace base_internal
ABSL_NAMESPACE_END
}  // namespace absl
