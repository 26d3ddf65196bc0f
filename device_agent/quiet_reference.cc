#include "device_agent/quiet_reference.h"

#include <algorithm>
#include <vector>

namespace tilewright::device_agent {

void QuietReference::Add(double probe_ns) {
  probes_.push_back(probe_ns);
  if (probes_.size() > kWindow) probes_.pop_front();
}

double QuietReference::ns() const {
  if (probes_.empty()) return 0;
  std::vector<double> sorted(probes_.begin(), probes_.end());
  const auto at = static_cast<std::ptrdiff_t>(kShare * static_cast<double>(sorted.size()));
  std::nth_element(sorted.begin(), sorted.begin() + at, sorted.end());
  return sorted[static_cast<size_t>(at)];
}

}  // namespace tilewright::device_agent
