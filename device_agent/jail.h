// Namespaces that a worker's measuring processes live in: a file system with the listed files and
// nothing else, process ids of their own (they cannot name a process outside), no network, no
// System V objects of others. A worker that is not root adds a user namespace, which makes the
// others possible and counts processes apart from those of the same user. Made once per worker, so
// that a measurement pays for no more than entering it. A small process, the warden, holds the
// namespaces, is the first process in them and ends descendants that left their group.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "device_agent/landlock.h"

namespace tilewright::device_agent {

class Jail {
 public:
  // Shows `files` (those that exist), /proc and /dev/null. From then on every child of this process
  // is in the process namespace, and this process can start no thread any more. It keeps its own
  // view of the file system. unavailable (sandbox.namespace.refused) if the kernel refuses all;
  // then nothing has changed. REQUIRES: a process without other threads; called once.
  static absl::StatusOr<std::unique_ptr<Jail>> Create(const std::vector<FileRule>& files);
  // Ends every process inside.
  ~Jail();
  Jail(const Jail&) = delete;
  Jail& operator=(const Jail&) = delete;

  // In a child of the creating process: takes the jail's file system. unavailable
  // (sandbox.namespace.enter).
  absl::Status Enter() const;

  // Ends all processes inside but the warden and the caller's own children, and returns when they
  // are gone. REQUIRES: the caller's own children have ended.
  void EndAll() const;

  // unavailable (sandbox.namespace.refused) if the file system could not be made: then processes
  // inside see that of the machine.
  const absl::Status& files() const { return files_; }

  // Whether processes inside are counted apart from others of their user (RLIMIT_NPROC).
  bool own_users() const { return own_users_; }

 private:
  Jail() = default;
  absl::Status StartWarden(const std::vector<FileRule>& files);
  absl::Status OpenFiles();

  absl::Status files_;
  bool own_users_ = false;
  pid_t warden_ = -1;
  int warden_fd_ = -1;  // a socket: a byte asks, a byte answers
  int mounts_fd_ = -1;  // the mount namespace
  int root_fd_ = -1;    // its root folder
};

}  // namespace tilewright::device_agent
