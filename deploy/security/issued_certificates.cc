#include "deploy/security/issued_certificates.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <tuple>

#include "deploy/security/identity.h"
#include "deploy/security/revocation.h"
#include "deploy/support/file.h"

namespace tilewright::security {
namespace {

using support::PathJoin;

constexpr uint64_t kMaxIssuedBytes = 256 << 20;
constexpr char kIssuedFolder[] = "issued";  // where `certs issue` puts identities

// By serial number.
using Issued = std::map<std::string, CertificateInfo>;

absl::Status AddFile(const std::string& path, Issued* issued) {
  if (!support::FileExists(path)) return absl::OkStatus();
  TW_ASSIGN(const std::string pem, support::ReadFile(path, kMaxIssuedBytes));
  TW_ASSIGN(const std::vector<CertificateInfo> infos, ReadCertificates(pem, path));
  for (const CertificateInfo& info : infos) issued->emplace(info.serial, info);
  return absl::OkStatus();
}

absl::StatusOr<std::set<std::string>> RevokedSerials(const std::string& authority,
                                                     std::string_view authorities_pem) {
  const std::string path = PathJoin(authority, kRevocationFile);
  if (!support::FileExists(path)) return std::set<std::string>();
  TW_ASSIGN(const std::string pem, support::ReadFile(path, kMaxIssuedBytes));
  return ReadRevocations(pem, authorities_pem);
}

}  // namespace

std::string StateText(CertificateState state) {
  switch (state) {
    case CertificateState::kValid:
      return "valid";
    case CertificateState::kEnded:
      return "ended";
    case CertificateState::kRevoked:
      return "revoked";
  }
  return "";
}

absl::Status RecordIssued(const std::string& authority, std::string_view certificate_pem) {
  const std::string path = PathJoin(authority, kIssuedFile);
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return support::ErrnoError(errno, "certs.issued.failed", path);
  // One write: two that sign at the same time do not mix their lines.
  const ssize_t written = write(fd, certificate_pem.data(), certificate_pem.size());
  const int error = errno;
  close(fd);
  if (written == static_cast<ssize_t>(certificate_pem.size())) return absl::OkStatus();
  return support::ErrnoError(error, "certs.issued.failed", path);
}

absl::StatusOr<std::vector<IssuedCertificate>> ListIssued(const std::string& authority,
                                                          int64_t now_s) {
  const std::string bundle = PathJoin(authority, kAuthorityFile);
  if (!support::FileExists(bundle)) {
    return support::NotFound("certs.authority.missing",
                             "expected an authority, found no " + bundle);
  }
  TW_ASSIGN(const std::string authorities, support::ReadFile(bundle, kMaxPemBytes));
  Issued issued;
  TW_TRY(AddFile(PathJoin(authority, kIssuedFile), &issued));
  const std::string folder = PathJoin(authority, kIssuedFolder);
  if (support::IsDirectory(folder)) {
    TW_ASSIGN(const std::vector<std::string> names, support::ListDir(folder));
    for (const std::string& name : names) {
      TW_TRY(AddFile(PathJoin(PathJoin(folder, name), kCertificateFile), &issued));
    }
  }
  TW_ASSIGN(const std::set<std::string> revoked, RevokedSerials(authority, authorities));
  std::vector<IssuedCertificate> list;
  for (const auto& [serial, info] : issued) {
    const auto peer = PeerOf(info.uris);
    if (!peer.ok()) continue;
    IssuedCertificate& one = list.emplace_back(IssuedCertificate{info, *peer});
    if (info.not_after_s <= now_s) one.state = CertificateState::kEnded;
    if (revoked.count(serial) != 0) one.state = CertificateState::kRevoked;
  }
  std::sort(list.begin(), list.end(), [](const IssuedCertificate& a, const IssuedCertificate& b) {
    const auto key = [](const IssuedCertificate& one) {
      return std::make_tuple(one.peer.kind, one.peer.name, -one.info.not_after_s, one.info.serial);
    };
    return key(a) < key(b);
  });
  return list;
}

}  // namespace tilewright::security
