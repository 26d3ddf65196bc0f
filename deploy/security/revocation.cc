#include "deploy/security/revocation.h"

#include <utility>
#include <vector>

#include "deploy/security/certificate.h"
#include "deploy/security/identity.h"
#include "deploy/security/openssl_types.h"
#include "deploy/security/secret_rows.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::security {
namespace {

using support::MutexLock;
using support::PathJoin;

constexpr size_t kMaxSeen = 10'000;

bool SignedByOneOf(X509_CRL* list, const std::vector<X509Ptr>& authorities) {
  for (const X509Ptr& authority : authorities) {
    if (X509_CRL_verify(list, X509_get0_pubkey(authority.get())) == 1) return true;
  }
  ERR_clear_error();
  return false;
}

}  // namespace

absl::StatusOr<std::set<std::string>> ReadRevocations(std::string_view pem,
                                                      std::string_view authorities_pem) {
  const BioPtr bio = BioOf(pem);
  const CrlPtr list(PEM_read_bio_X509_CRL(bio.get(), nullptr, nullptr, nullptr));
  if (list == nullptr) {
    return support::InvalidArgument("certs.revocations.invalid",
                                    "expected an X.509 revocation list: " + OpensslError());
  }
  TW_ASSIGN(const auto authorities, ParseCertificates(authorities_pem, kAuthorityFile));
  if (!SignedByOneOf(list.get(), authorities)) {
    return support::FailedPrecondition("certs.revocations.untrusted",
                                       "none of the authorities in ca.pem has signed the list");
  }
  std::set<std::string> serials;
  STACK_OF(X509_REVOKED)* rows = X509_CRL_get_REVOKED(list.get());
  for (int i = 0; i < sk_X509_REVOKED_num(rows); ++i) {
    const ASN1_INTEGER* serial = X509_REVOKED_get0_serialNumber(sk_X509_REVOKED_value(rows, i));
    serials.insert(support::HexEncode(
        {reinterpret_cast<const char*>(serial->data), static_cast<size_t>(serial->length)}));
  }
  return serials;
}

absl::StatusOr<std::unique_ptr<RevocationList>> RevocationList::Open(const std::string& identity,
                                                                     support::Clock* clock) {
  std::unique_ptr<RevocationList> list(new RevocationList(identity, clock));
  MutexLock lock(list->mutex_);
  TW_TRY(list->Reload());
  return list;
}

absl::Status RevocationList::Reload() {
  const std::string path = PathJoin(identity_, kRevocationFile);
  if (!support::FileExists(path)) {
    if (read_.empty()) return absl::OkStatus();
    return support::NotFound("certs.revocations.missing", path + " was there, and is gone");
  }
  TW_ASSIGN(std::string text, support::ReadFile(path, kMaxPemBytes));
  if (text == read_) return absl::OkStatus();
  TW_ASSIGN(const std::string authorities,
            support::ReadFile(PathJoin(identity_, kAuthorityFile), kMaxPemBytes));
  TW_ASSIGN(serials_, ReadRevocations(text, authorities));
  read_ = std::move(text);
  return absl::OkStatus();
}

absl::Status RevocationList::Check(std::string_view certificate_pem) {
  MutexLock lock(mutex_);
  const int64_t now_ns = clock_->NowNs();
  if (now_ns >= next_look_ns_) {
    next_look_ns_ = now_ns + kLookEveryNs;
    file_status_ = Reload();
  }
  if (serials_.empty()) return absl::OkStatus();
  auto found = seen_.find(certificate_pem);
  if (found == seen_.end()) {
    TW_ASSIGN(const auto infos, ReadCertificates(certificate_pem, "the peer's certificate"));
    if (seen_.size() >= kMaxSeen) seen_.clear();
    found = seen_.emplace(std::string(certificate_pem), infos.front().serial).first;
  }
  if (serials_.count(found->second) == 0) return absl::OkStatus();
  return support::MakeError(absl::StatusCode::kUnauthenticated, "auth.certificate.revoked",
                            "certificate " + found->second + " was revoked");
}

absl::Status RevocationList::FileStatus() {
  MutexLock lock(mutex_);
  return file_status_;
}

}  // namespace tilewright::security
