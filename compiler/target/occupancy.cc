#include "compiler/target/occupancy.h"

#include <algorithm>

namespace tilewright::target {
namespace {

constexpr int64_t kAddressRegisters = 16;  // addresses, counters, the condition of a tail

}  // namespace

int64_t GroupsPerUnit(const LaunchLimits& limits, int64_t threads, int64_t shared_bytes,
                      int64_t registers) {
  if (threads < 1 || threads > limits.group_threads || shared_bytes > limits.most_shared_bytes())
    return 0;
  const int64_t warp = std::max<int64_t>(1, limits.warp);
  const int64_t in_step = (threads + warp - 1) / warp * warp;
  int64_t groups = limits.unit_threads / in_step;
  if (limits.unit_groups > 0) groups = std::min(groups, limits.unit_groups);
  if (limits.unit_shared_bytes > 0 && shared_bytes > 0)
    groups = std::min(groups, limits.unit_shared_bytes / shared_bytes);
  if (limits.unit_registers > 0 && registers > 0)
    groups = std::min(groups, limits.unit_registers / (in_step * registers));
  return std::max<int64_t>(1, groups);
}

double Occupancy(const LaunchLimits& limits, int64_t threads, int64_t shared_bytes,
                 int64_t registers) {
  const int64_t groups = GroupsPerUnit(limits, threads, shared_bytes, registers);
  const auto held = static_cast<double>(std::max<int64_t>(1, limits.unit_threads));
  return std::min(1.0, static_cast<double>(groups * threads) / held);
}

int64_t FreeRegisters(const LaunchLimits& limits, int64_t threads) {
  const int64_t warp = std::max<int64_t>(1, limits.warp);
  const int64_t in_step = (threads + warp - 1) / warp * warp;
  const int64_t groups = GroupsPerUnit(limits, threads, 0, 0);
  return groups == 0 ? 0 : limits.unit_registers / (in_step * groups);
}

int64_t TileRegisters(int64_t sums, int64_t operands) {
  return sums + operands + kAddressRegisters;
}

}  // namespace tilewright::target
