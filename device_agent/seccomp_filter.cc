#include "device_agent/seccomp_filter.h"

#include "deploy/support/file.h"

namespace tilewright::device_agent {

using support::ErrnoError;
using support::Unavailable;

absl::Status SeccompFilter::Load() {
  if (context_ == nullptr) return Unavailable("sandbox.filter.init", "libseccomp refuses");
  // For every thread: a pool's or a driver's may be there already.
  if (error_ == 0) error_ = -seccomp_attr_set(context_, SCMP_FLTATR_CTL_TSYNC, 1);
  if (error_ == 0) error_ = -seccomp_load(context_);
  if (error_ == 0) return absl::OkStatus();
  return Unavailable("sandbox.filter.load", ErrnoError(error_, "", "").ToString());
}

}  // namespace tilewright::device_agent
