#include "device_agent/process_gate.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "device_agent/driver_profile.h"

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

ProcessGate::~ProcessGate() {
  CloseOnce(&ends_[0]);
  CloseOnce(&ends_[1]);
  CloseOnce(&listener_);
}

absl::Status ProcessGate::Open() {
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_) == 0) return absl::OkStatus();
  return Unavailable("sandbox.gate.refused", strerror(errno));
}

absl::Status ProcessGate::Install() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return Unavailable("sandbox.filter.privileges", "no_new_privs is refused");
  }
  SeccompFilter filter(SCMP_ACT_ALLOW);
  AskForProcesses(&filter);
  TW_ASSIGN(int listener, filter.LoadListener());
  const bool sent = Send(ends_[1], listener);
  CloseOnce(&listener);
  CloseOnce(&ends_[0]);
  CloseOnce(&ends_[1]);
  return sent ? absl::OkStatus() : Unavailable("sandbox.gate.refused", "the worker has ended");
}

void ProcessGate::ForgetChildsEnd() { CloseOnce(&ends_[1]); }

void ProcessGate::Serve() {
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
  if (shut_) {
    violated_ = true;
    answer.error = -EPERM;
  } else {
    answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  }
  ioctl(listener_, SECCOMP_IOCTL_NOTIF_SEND, &answer);  // fails if the caller is dead: fine
}

}  // namespace tilewright::device_agent
