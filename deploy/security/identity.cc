#include "deploy/security/identity.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <vector>

#include "deploy/security/certificate.h"
#include "deploy/security/revocation.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::security {
namespace {

using support::PathJoin;

absl::StatusOr<std::string> ReadPart(const std::string& folder, const char* name) {
  const std::string path = PathJoin(folder, name);
  auto text = support::ReadFile(path, kMaxPemBytes);
  if (text.ok() || text.status().code() != absl::StatusCode::kNotFound) return text;
  return support::NotFound("identity.file.missing",
                           "expected ca.pem, cert.pem and key.pem in the identity, found no " +
                               path + "; 'tilewright certs issue' makes them");
}

absl::Status WriteParts(const std::string& folder, const IdentityFiles& files) {
  TW_TRY(support::WriteFileAtomic(PathJoin(folder, kAuthorityFile), files.authorities, 0644));
  if (!files.key.empty()) {
    TW_TRY(support::WriteFileAtomic(PathJoin(folder, kKeyFile), files.key, 0600));
  }
  if (!files.revocations.empty()) {
    TW_TRY(support::WriteFileAtomic(PathJoin(folder, kRevocationFile), files.revocations, 0644));
  }
  return support::WriteFileAtomic(PathJoin(folder, kCertificateFile), files.certificate, 0644);
}

// Copies what is in the folder besides the files that are written anew, with its permissions.
absl::Status CopyOthers(const std::string& from, const std::string& to, bool with_key) {
  std::set<std::string> parts = {kAuthorityFile, kCertificateFile};
  if (!with_key) parts.insert(kKeyFile);
  TW_ASSIGN(const std::vector<std::string> names, support::ListDir(from));
  for (const std::string& name : names) {
    const std::string path = PathJoin(from, name);
    struct stat info{};
    if (parts.count(name) != 0) continue;
    if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      return support::FailedPrecondition("identity.folder.other",
                                         "expected plain files in " + from + ", found " + name);
    }
    TW_ASSIGN(const std::string text, support::ReadFile(path, kMaxPemBytes));
    TW_TRY(support::WriteFileAtomic(PathJoin(to, name), text, info.st_mode & 07777));
  }
  return absl::OkStatus();
}

// Mode and owner of the folder `from`; the owner also for the files: root may renew the identity of
// a daemon that runs as somebody else.
absl::Status TakeOwner(const std::string& from, const std::string& to) {
  struct stat info{};
  bool done = stat(from.c_str(), &info) == 0 && chmod(to.c_str(), info.st_mode & 07777) == 0 &&
              chown(to.c_str(), info.st_uid, info.st_gid) == 0;
  TW_ASSIGN(const std::vector<std::string> names, support::ListDir(to));
  for (const std::string& name : names) {
    done = done && chown(PathJoin(to, name).c_str(), info.st_uid, info.st_gid) == 0;
  }
  return done ? absl::OkStatus() : support::ErrnoError(errno, "identity.replace.failed", to);
}

}  // namespace

absl::Status CheckPrivateFile(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) {
    return support::ErrnoError(errno, "identity.file.missing", path);
  }
  if ((info.st_mode & 077) == 0) return absl::OkStatus();
  return support::FailedPrecondition(
      "identity.key.permissions",
      "expected a file that only its owner can read, found " + path + "; chmod 600 it");
}

absl::Status MakePrivateFolder(const std::string& path) {
  if (support::IsDirectory(path)) return absl::OkStatus();
  const std::string parent = support::DirName(path);
  if (parent != path && !support::IsDirectory(parent)) TW_TRY(MakePrivateFolder(parent));
  if (mkdir(path.c_str(), 0700) == 0) return absl::OkStatus();
  return support::ErrnoError(errno, "file.mkdir.failed", path);
}

absl::StatusOr<IdentityFiles> LoadIdentity(const std::string& folder, int64_t now_s) {
  IdentityFiles files;
  TW_ASSIGN(files.authorities, ReadPart(folder, kAuthorityFile));
  TW_ASSIGN(files.certificate, ReadPart(folder, kCertificateFile));
  TW_ASSIGN(files.key, ReadPart(folder, kKeyFile));
  TW_TRY(CheckPrivateFile(PathJoin(folder, kKeyFile)));
  const absl::Status checked =
      CheckCertificate(files.certificate, files.key, files.authorities, now_s);
  if (!checked.ok()) return support::WithContext(checked, folder);
  return files;
}

absl::StatusOr<std::optional<Peer>> ReadPeer(const std::string& folder) {
  TW_ASSIGN(const std::string pem, ReadPart(folder, kCertificateFile));
  TW_ASSIGN(const std::vector<CertificateInfo> infos, ReadCertificates(pem, folder));
  const auto peer = PeerOf(infos.front().uris);
  return peer.ok() ? std::optional<Peer>(*peer) : std::nullopt;
}

absl::StatusOr<std::string> ReadToken(const std::string& folder) {
  const std::string path = PathJoin(folder, kTokenFile);
  if (!support::FileExists(path)) return std::string();
  TW_TRY(CheckPrivateFile(path));
  TW_ASSIGN(const std::string text, support::ReadFile(path, 4096));
  return std::string(support::Trim(text));
}

absl::Status ReplaceIdentity(const std::string& folder, const IdentityFiles& files) {
  std::string path = folder;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (!support::IsDirectory(path)) {
    TW_TRY(MakePrivateFolder(path));
    return WriteParts(path, files);
  }
  // Beside it, then exchanged: two names cannot change at once, but a folder can.
  const std::string fresh = path + ".new";
  TW_TRY(support::RemoveTree(fresh));
  TW_TRY(MakePrivateFolder(fresh));
  absl::Status status = CopyOthers(path, fresh, files.key.empty());
  if (status.ok()) status = WriteParts(fresh, files);
  if (status.ok()) status = TakeOwner(path, fresh);
  if (status.ok() &&
      renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) != 0) {
    status = support::ErrnoError(errno, "identity.replace.failed", path);
  }
  const absl::Status removed = support::RemoveTree(fresh);
  return status.ok() ? removed : status;
}

}  // namespace tilewright::security
