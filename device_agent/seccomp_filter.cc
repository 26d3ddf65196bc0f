#include "device_agent/seccomp_filter.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

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

absl::StatusOr<FilterProgram> SeccompFilter::Compile() {
  if (context_ == nullptr) return Unavailable("sandbox.filter.init", "libseccomp refuses");
  const int fd = memfd_create("filter", MFD_CLOEXEC);
  if (error_ == 0 && fd >= 0) error_ = -seccomp_export_bpf(context_, fd);
  const off_t bytes = fd >= 0 ? lseek(fd, 0, SEEK_END) : -1;
  FilterProgram program(bytes > 0 ? static_cast<size_t>(bytes) / sizeof(sock_filter) : 0);
  const bool read = !program.empty() && pread(fd, program.data(), bytes, 0) == bytes;
  if (fd >= 0) close(fd);
  if (error_ == 0 && read) return program;
  return Unavailable("sandbox.filter.load", ErrnoError(error_, "", "").ToString());
}

absl::Status LoadProgram(FilterProgram program) {
  for (sock_filter& step : program) {
    const bool compares = BPF_CLASS(step.code) == BPF_JMP && BPF_OP(step.code) == BPF_JEQ;
    if (compares && step.k == kSelf) step.k = static_cast<uint32_t>(getpid());
  }
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0) return absl::OkStatus();
  return Unavailable("sandbox.filter.load", ErrnoError(errno, "", "").ToString());
}

absl::StatusOr<int> SeccompFilter::LoadListener() {
  if (context_ == nullptr) return Unavailable("sandbox.filter.init", "libseccomp refuses");
  if (error_ == 0) error_ = -seccomp_load(context_);
  if (error_ == 0) return seccomp_notify_fd(context_);
  return Unavailable("sandbox.filter.load", ErrnoError(error_, "", "").ToString());
}

}  // namespace tilewright::device_agent
