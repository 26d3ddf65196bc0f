#include "device_agent/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <system_error>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;
using support::Unavailable;

constexpr int kNamespaces = CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC;
// Where the root of the jail is built: only the warden sees it there, and only for that long.
constexpr char kBuildingSite[] = "/tmp";
constexpr char kRootOptions[] = "size=1m,mode=755";
constexpr size_t kMaxAnswer = 4096;
constexpr char kReady = '+';
constexpr char kUnbuilt = '-';

absl::Status Refused(const std::string& what) {
  return Unavailable("sandbox.namespace.refused", StrCat(what, ": ", strerror(errno)));
}

absl::Status WriteText(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  const bool good =
      fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const absl::Status status = good ? absl::OkStatus() : Refused(path);
  if (fd >= 0) close(fd);
  return status;
}

// Root needs no user namespace, and drops to another user; without root it comes first.
absl::Status EnterNamespaces(bool* own_users) {
  *own_users = false;
  if (geteuid() == 0 && unshare(kNamespaces) == 0) return absl::OkStatus();
  if (unshare(CLONE_NEWUSER | kNamespaces) != 0) return Refused("unshare");
  *own_users = true;
  return absl::OkStatus();
}

// The one user and group of a new user namespace: those that this process had.
absl::Status MapIds(uid_t user, gid_t group) {
  TW_TRY(WriteText("/proc/self/setgroups", "deny"));
  TW_TRY(WriteText("/proc/self/uid_map", StrCat(user, " ", user, " 1")));
  return WriteText("/proc/self/gid_map", StrCat(group, " ", group, " 1"));
}

// --- in the warden
// ----------------------------------------------------------------------------------

// From here on no mount of the building site's may reach the rest of the machine.
absl::Status OwnMounts() {
  if (unshare(CLONE_NEWNS) != 0) return Refused("unshare mounts");
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return Refused("private /");
  return absl::OkStatus();
}

// A copy of what is mounted at `path`, attached nowhere yet.
absl::StatusOr<int> CopyOf(const std::string& path, bool writable) {
  const int fd =
      open_tree(AT_FDCWD, path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
  if (fd < 0) return Refused("copy the mount " + path);
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  if (!writable &&
      mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof(attributes)) != 0) {
    close(fd);
    return Refused("read-only " + path);
  }
  return fd;
}

// What the jail shows at `path`.
struct Part {
  std::string path;
  std::string link;  // of a symbolic link: where it leads; then there is no mount
  bool folder = false;
  int mount_fd = -1;
};

// Copies a file or folder for the same place in the jail. A link (/lib) stays one, next to what it
// leads to. Adds nothing for what does not exist or lies in a folder that is shown.
absl::Status Collect(const FileRule& rule, std::vector<Part>* parts) {
  struct stat found{};
  if (lstat(rule.path.c_str(), &found) != 0) return absl::OkStatus();
  for (const Part& part : *parts) {
    if (rule.path == part.path || rule.path.starts_with(part.path + "/")) return absl::OkStatus();
  }
  Part part{rule.path, "", S_ISDIR(found.st_mode), -1};
  if (S_ISLNK(found.st_mode)) {
    std::error_code error;
    part.link = std::filesystem::read_symlink(rule.path, error).string();
    const std::string real = std::filesystem::canonical(rule.path, error).string();
    if (error) return absl::OkStatus();  // it leads nowhere
    parts->push_back(part);
    return Collect({real, rule.access}, parts);
  }
  const bool writable = rule.access == FileAccess::kScratch || rule.access == FileAccess::kDevice;
  TW_ASSIGN(part.mount_fd, CopyOf(rule.path, writable));
  parts->push_back(part);
  return absl::OkStatus();
}

absl::Status Attach(const std::string& root, const Part& part) {
  const std::string target = root + part.path;
  TW_TRY(support::MakeDirs(support::DirName(target)));
  if (!part.link.empty()) {
    return symlink(part.link.c_str(), target.c_str()) == 0 ? absl::OkStatus() : Refused(target);
  }
  if (part.folder) {
    TW_TRY(support::MakeDirs(target));
  } else {
    const int fd = open(target.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) return Refused(target);
    close(fd);
  }
  const int moved =
      move_mount(part.mount_fd, "", AT_FDCWD, target.c_str(), MOVE_MOUNT_F_EMPTY_PATH);
  close(part.mount_fd);
  return moved == 0 ? absl::OkStatus() : Refused("show " + part.path);
}

// One with the jail's own processes. A machine that hides parts of /proc (a container) refuses a
// new one. Then `old`, a copy of the machine's: Landlock guards the processes in it.
absl::Status AttachProc(const std::string& root, Part old) {
  const std::string target = root + "/proc";
  TW_TRY(support::MakeDirs(target));
  if (mount("proc", target.c_str(), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) {
    return Attach(root, old);
  }
  close(old.mount_fd);
  return absl::OkStatus();
}

// The rest of the machine's files is out of reach afterwards. A process whose root was changed
// (chroot) cannot move it; then another such change must do: nobody inside may leave it.
absl::Status TakeRoot(const std::string& root) {
  if (chdir(root.c_str()) != 0) return Refused(root);
  if (syscall(SYS_pivot_root, ".", ".") == 0) {
    if (umount2(".", MNT_DETACH) != 0) return Refused("unmount the old root");
  } else if (chroot(".") != 0) {
    return Refused("pivot_root");
  }
  return chdir("/") == 0 ? absl::OkStatus() : Refused("/");
}

absl::Status BuildRoot(const std::vector<FileRule>& files) {
  TW_TRY(OwnMounts());
  // All before the building site covers what lies below it.
  Part proc{"/proc", "", true, -1};
  TW_ASSIGN(proc.mount_fd, CopyOf(proc.path, false));
  std::vector<Part> parts;
  TW_TRY(Collect({"/dev/null", FileAccess::kDevice}, &parts));
  for (const FileRule& rule : files) {
    if (!(rule.path + "/").starts_with(proc.path + "/")) TW_TRY(Collect(rule, &parts));
  }
  if (mount("tmpfs", kBuildingSite, "tmpfs", MS_NOSUID | MS_NODEV, kRootOptions) != 0) {
    return Refused("tmpfs");
  }
  for (const Part& part : parts) TW_TRY(Attach(kBuildingSite, part));
  TW_TRY(AttachProc(kBuildingSite, proc));
  // Nothing may be added, by root neither.
  if (mount(nullptr, kBuildingSite, nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0) {
    return Refused("read-only root");
  }
  return TakeRoot(kBuildingSite);
}

bool Say(int fd, char what) { return write(fd, &what, 1) == 1; }

// Answers each byte when everybody else in the namespace is gone. Ends with the worker.
[[noreturn]] void ServeAsWarden(int fd) {
  char asked = 0;
  while (read(fd, &asked, 1) == 1) {
    kill(-1, SIGKILL);  // all but this process
    while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
    }
    if (!Say(fd, kReady)) break;
  }
  _exit(0);
}

[[noreturn]] void WardenMain(const std::vector<FileRule>& files, int fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "tilewright-jail");
  umask(022);  // a daemon's own hides the jail's folders from the user of its candidates
  signal(SIGCHLD, SIG_IGN);  // whose parents ended are reaped by the kernel
  // The worker's streams are not its own: a bridge waits until the last holder closes them.
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  dup2(own, 0);
  syscall(SYS_close_range, 1U, UINT_MAX, 0U);
  const absl::Status built = BuildRoot(files);
  const std::string text =
      built.ok() ? std::string(1, kReady) : kUnbuilt + support::StatusText(built);
  if (write(0, text.data(), text.size()) < 0) _exit(1);
  char opened = 0;
  if (read(0, &opened, 1) != 1) _exit(1);
  prctl(PR_SET_DUMPABLE, 0);
  if (!Say(0, kReady)) _exit(1);
  ServeAsWarden(0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Jail>> Jail::Create(const std::vector<FileRule>& files) {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  std::unique_ptr<Jail> jail(new Jail());
  TW_TRY(EnterNamespaces(&jail->own_users_));
  // From here there must be a warden: without a first process there can be no second one.
  if (jail->own_users_) jail->files_ = MapIds(user, group);
  TW_TRY(jail->StartWarden(files));
  return jail;
}

absl::Status Jail::StartWarden(const std::vector<FileRule>& files) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return Refused("socketpair");
  warden_fd_ = ends[0];
  warden_ = fork();
  if (warden_ == 0) WardenMain(files, ends[1]);
  close(ends[1]);
  if (warden_ < 0) return Refused("fork");
  char text[kMaxAnswer];
  const ssize_t got = read(warden_fd_, text, sizeof(text));
  if (got < 1) return Unavailable("sandbox.namespace.refused", "the first process died");
  const absl::Status built = text[0] == kReady
                                 ? OpenFiles()
                                 : Unavailable("sandbox.namespace.refused",
                                               std::string(text + 1, static_cast<size_t>(got - 1)));
  if (files_.ok()) files_ = built;
  if (!Say(warden_fd_, kReady) || read(warden_fd_, text, 1) != 1) return Refused("the warden");
  return absl::OkStatus();
}

absl::Status Jail::OpenFiles() {
  const std::string path = StrCat("/proc/", warden_);
  mounts_fd_ = open((path + "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC);
  root_fd_ = open((path + "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  return mounts_fd_ >= 0 && root_fd_ >= 0 ? absl::OkStatus() : Refused(path);
}

Jail::~Jail() {
  for (const int fd : {warden_fd_, mounts_fd_, root_fd_}) {
    if (fd >= 0) close(fd);
  }
  if (warden_ <= 0) return;
  kill(warden_, SIGKILL);
  while (waitpid(warden_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::Status Jail::Enter() const {
  if (!files_.ok()) return absl::OkStatus();
  if (setns(mounts_fd_, CLONE_NEWNS) == 0 && fchdir(root_fd_) == 0 && chroot(".") == 0) {
    return absl::OkStatus();
  }
  return Unavailable("sandbox.namespace.enter", strerror(errno));
}

void Jail::EndAll() const {
  char answer = 0;
  if (Say(warden_fd_, kReady)) (void)!read(warden_fd_, &answer, 1);
}

}  // namespace tilewright::device_agent
