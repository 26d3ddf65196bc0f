#include "device_agent/driver_gate.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <limits>

#include "device_agent/driver_profile.h"
#include "device_agent/seccomp_filter.h"

namespace tilewright::device_agent {
namespace {

using support::Unavailable;

// One descriptor, with the one byte that a message must have.
struct Parcel {
  char byte = 0;
  iovec bytes{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  Parcel() {
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
};

bool Send(int socket, int fd) {
  Parcel parcel;
  cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(fd));
  memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  return sendmsg(socket, &parcel.message, MSG_NOSIGNAL) == 1;
}

int Receive(int socket) {
  Parcel parcel;
  if (recvmsg(socket, &parcel.message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return -1;
  int fd = -1;
  memcpy(&fd, CMSG_DATA(header), sizeof(fd));
  return fd;
}

void CloseOnce(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

}  // namespace

DriverGate::DriverGate(int64_t memory_bytes, int64_t file_bytes)
    : memory_left_(memory_bytes > 0 ? static_cast<uint64_t>(memory_bytes)
                                    : std::numeric_limits<uint64_t>::max()),
      file_bytes_(static_cast<uint64_t>(file_bytes)) {}

DriverGate::~DriverGate() {
  CloseOnce(&ends_[0]);
  CloseOnce(&ends_[1]);
  CloseOnce(&listener_);
}

absl::Status DriverGate::Open() {
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_) == 0) return absl::OkStatus();
  return Unavailable("sandbox.gate.refused", strerror(errno));
}

absl::Status DriverGate::Install() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return Unavailable("sandbox.filter.privileges", "no_new_privs is refused");
  }
  SeccompFilter filter(SCMP_ACT_ALLOW);
  AskAtGate(&filter);
  TW_ASSIGN(int listener, filter.LoadListener());
  const bool sent = Send(ends_[1], listener);
  CloseOnce(&listener);
  CloseOnce(&ends_[0]);
  CloseOnce(&ends_[1]);
  return sent ? absl::OkStatus() : Unavailable("sandbox.gate.refused", "the worker has ended");
}

void DriverGate::ForgetChildsEnd() { CloseOnce(&ends_[1]); }

void DriverGate::Serve() {
  if (listener_ < 0) {
    listener_ = Receive(ends_[0]);
    CloseOnce(&ends_[0]);  // the listener, or a child that died before it sent one
    return;
  }
  seccomp_notif call{};
  if (ioctl(listener_, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) {
    if (errno != EINTR && errno != ENOENT) CloseOnce(&listener_);
    return;
  }
  seccomp_notif_resp answer{};
  answer.id = call.id;
  answer.error = -Decide(call.data);
  // Safe here: what was decided on came in registers, which the caller cannot change any more.
  if (answer.error == 0) answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  ioctl(listener_, SECCOMP_IOCTL_NOTIF_SEND, &answer);  // fails if the caller is dead: fine
}

int DriverGate::Decide(const seccomp_data& call) {
  constexpr int kLength = 1;  // of mmap's arguments
  // After loading a file in memory stays empty (outside_seal.h).
  if (call.nr == SCMP_SYS(memfd_create)) return shut_ || Take(file_bytes_) ? 0 : ENOMEM;
  if (call.nr == SCMP_SYS(mmap)) return Take(call.args[kLength]) ? 0 : ENOMEM;
  if (!shut_) return 0;
  violated_ = true;
  return EPERM;
}

bool DriverGate::Take(uint64_t bytes) {
  if (bytes > memory_left_) return false;
  memory_left_ -= bytes;
  return true;
}

}  // namespace tilewright::device_agent
