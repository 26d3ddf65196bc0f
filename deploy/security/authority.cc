#include "deploy/security/authority.h"

#include <arpa/inet.h>
#include <openssl/rand.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "deploy/security/certificate_request.h"
#include "deploy/security/identity.h"
#include "deploy/security/issued_certificates.h"
#include "deploy/security/openssl_types.h"
#include "deploy/security/revocation.h"
#include "deploy/security/secret_rows.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::security {
namespace {

using support::PathJoin;

constexpr char kAuthorityKey[] = "ca-key.pem";
constexpr int64_t kClockSkewSeconds = 300;  // certificates begin this long before they are issued
constexpr int kMaxDays = 36'500;
constexpr int kSerialBytes = 16;

struct Authority {
  std::vector<X509Ptr> certificates;  // the newest first
  KeyPtr key;
  std::string revocations;  // crl.pem; empty without one
};

absl::StatusOr<Authority> LoadAuthority(const std::string& folder) {
  const std::string path = PathJoin(folder, kAuthorityFile);
  if (!support::FileExists(path)) {
    return support::NotFound(
        "certs.authority.missing",
        "expected an authority in " + folder + ", found none; 'tilewright certs init' makes one");
  }
  Authority authority;
  TW_ASSIGN(const std::string pem, support::ReadFile(path, kMaxPemBytes));
  TW_ASSIGN(authority.certificates, ParseCertificates(pem, path));
  const std::string crl_path = PathJoin(folder, kRevocationFile);
  if (support::FileExists(crl_path)) {
    TW_ASSIGN(authority.revocations, support::ReadFile(crl_path, kMaxPemBytes));
  }
  const std::string key_path = PathJoin(folder, kAuthorityKey);
  TW_TRY(CheckPrivateFile(key_path));
  TW_ASSIGN(const std::string key, support::ReadFile(key_path, kMaxPemBytes));
  TW_ASSIGN(authority.key, ParseKey(key, key_path));
  if (X509_check_private_key(authority.certificates.front().get(), authority.key.get()) != 1) {
    ERR_clear_error();
    return support::FailedPrecondition("certs.authority.mismatch",
                                       key_path + " is not the key of the first one in " + path);
  }
  return authority;
}

absl::StatusOr<std::string> PemOf(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1) return CertsFailed("write certificate");
  char* data = nullptr;
  const auto size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<std::string> PemOf(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_secmem()));
  if (PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return CertsFailed("write key");
  }
  char* data = nullptr;
  const auto size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<std::string> BundleOf(const std::vector<X509Ptr>& certificates) {
  std::string bundle;
  for (const X509Ptr& certificate : certificates) {
    TW_ASSIGN(const std::string pem, PemOf(certificate.get()));
    bundle += pem;
  }
  return bundle;
}

absl::Status SetRandomSerial(X509* certificate) {
  unsigned char bytes[kSerialBytes];
  if (RAND_bytes(bytes, sizeof bytes) != 1) return CertsFailed("random serial");
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // positive, full length
  BIGNUM* number = BN_bin2bn(bytes, sizeof bytes, nullptr);
  const bool set = BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr;
  BN_free(number);
  return set ? absl::OkStatus() : CertsFailed("set serial");
}

absl::Status AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1) {
    return CertsFailed(support::StrCat("extension ", OBJ_nid2sn(nid)));
  }
  return absl::OkStatus();
}

// A certificate for `key` with a name and dates, without extensions or signature.
absl::StatusOr<X509Ptr> Blank(EVP_PKEY* key, const std::string& common_name, int64_t begin_s,
                              int64_t end_s) {
  X509Ptr certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  TW_TRY(SetRandomSerial(certificate.get()));
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), begin_s);
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), end_s);
  X509_NAME* name = X509_get_subject_name(certificate.get());
  const auto* text = reinterpret_cast<const unsigned char*>(common_name.data());
  if (X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8, text,
                                 static_cast<int>(common_name.size()), -1, 0) != 1 ||
      X509_set_pubkey(certificate.get(), key) != 1) {
    return CertsFailed("new certificate");
  }
  return certificate;
}

absl::Status CheckDays(int days) {
  if (days >= 1 && days <= kMaxDays) return absl::OkStatus();
  return support::InvalidArgument("certs.days.invalid",
                                  support::StrCat("expected 1..36500 days, found ", days));
}

absl::StatusOr<KeyPtr> NewKey() {
  KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return CertsFailed("new key");
  return key;
}

struct NewAuthority {
  X509Ptr certificate;
  std::string key_pem;
};

absl::StatusOr<NewAuthority> MakeAuthority(const std::string& name, int days, int64_t now_s) {
  TW_TRY(CheckDays(days));
  TW_ASSIGN(const KeyPtr key, NewKey());
  TW_ASSIGN(X509Ptr certificate,
            Blank(key.get(), name, now_s - kClockSkewSeconds, now_s + days * kDaySeconds));
  X509* raw = certificate.get();
  X509_set_issuer_name(raw, X509_get_subject_name(raw));
  TW_TRY(AddExtension(raw, raw, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  TW_TRY(AddExtension(raw, raw, NID_key_usage, "critical,keyCertSign,cRLSign"));
  TW_TRY(AddExtension(raw, raw, NID_subject_key_identifier, "hash"));
  if (X509_sign(raw, key.get(), EVP_sha256()) == 0) return CertsFailed("sign");
  TW_ASSIGN(std::string key_pem, PemOf(key.get()));
  return NewAuthority{std::move(certificate), std::move(key_pem)};
}

// The key goes first: a folder whose certificate is there has the key, too.
absl::Status WriteAuthority(const std::string& folder, const std::string& key_pem,
                            const std::string& bundle) {
  TW_TRY(support::WriteFileAtomic(PathJoin(folder, kAuthorityKey), key_pem, 0600));
  return support::WriteFileAtomic(PathJoin(folder, kAuthorityFile), bundle, 0644);
}

// All that the folder's list has, or nothing.
absl::StatusOr<std::set<std::string>> PresentRevocations(const Authority& authority) {
  if (authority.revocations.empty()) return std::set<std::string>();
  TW_ASSIGN(const std::string bundle, BundleOf(authority.certificates));
  return ReadRevocations(authority.revocations, bundle);
}

absl::Status AddRevoked(const std::string& serial_hex, const ASN1_TIME* when, X509_CRL* list) {
  BIGNUM* number = nullptr;
  const bool hex = !serial_hex.empty() &&
                   serial_hex.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos &&
                   BN_hex2bn(&number, serial_hex.c_str()) > 0;
  if (!hex) {
    return support::InvalidArgument(
        "certs.serial.invalid",
        "expected a serial number in hexadecimal, found " + support::Quote(serial_hex, 80));
  }
  ASN1_INTEGER* serial = BN_to_ASN1_INTEGER(number, nullptr);
  BN_free(number);
  X509_REVOKED* row = X509_REVOKED_new();
  const bool added = X509_REVOKED_set_serialNumber(row, serial) == 1 &&
                     X509_REVOKED_set_revocationDate(row, const_cast<ASN1_TIME*>(when)) == 1 &&
                     X509_CRL_add0_revoked(list, row) == 1;
  ASN1_INTEGER_free(serial);
  if (added) return absl::OkStatus();
  X509_REVOKED_free(row);
  return CertsFailed("revoke");
}

// Valid as long as its signer: daemons take the newest that they are given, however old it is.
absl::Status WriteRevocations(const std::string& folder, X509* signer, EVP_PKEY* key,
                              const std::set<std::string>& serials, int64_t now_s) {
  const CrlPtr list(X509_CRL_new());
  ASN1_TIME* now = ASN1_TIME_set(nullptr, now_s);
  X509_CRL_set_version(list.get(), 1);  // v2
  X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(signer));
  X509_CRL_set1_lastUpdate(list.get(), now);
  X509_CRL_set1_nextUpdate(list.get(), X509_get0_notAfter(signer));
  absl::Status status;
  for (const std::string& serial : serials) {
    if (status.ok()) status = AddRevoked(serial, now, list.get());
  }
  ASN1_TIME_free(now);
  TW_TRY(status);
  X509_CRL_sort(list.get());
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (X509_CRL_sign(list.get(), key, EVP_sha256()) == 0 ||
      PEM_write_bio_X509_CRL(bio.get(), list.get()) != 1) {
    return CertsFailed("sign revocations");
  }
  char* data = nullptr;
  const auto size = BIO_get_mem_data(bio.get(), &data);
  return support::WriteFileAtomic(PathJoin(folder, kRevocationFile),
                                  {data, static_cast<size_t>(size)}, 0644);
}

bool IsAddress(const std::string& host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

// The text goes into OpenSSL's own syntax for extensions, so nothing but host names passes.
absl::Status CheckHost(const std::string& host) {
  if (IsAddress(host)) return absl::OkStatus();
  const bool good = !host.empty() && host.size() <= 253 && host.front() != '.' &&
                    host.find_first_not_of(
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789-.*") == std::string::npos;
  if (good) return absl::OkStatus();
  return support::InvalidArgument(
      "certs.host.invalid",
      "expected a host name or an IP address (without port), found " + support::Quote(host));
}

bool Serves(CertificateKind kind) {
  return kind == CertificateKind::kTracker || kind == CertificateKind::kTuner;
}

bool Dials(CertificateKind kind) { return kind != CertificateKind::kTracker; }

absl::StatusOr<std::string> AlternativeNames(const LeafRequest& request) {
  std::vector<std::string> hosts = request.hosts;
  if (Serves(request.peer.kind)) {
    for (const char* local : {"localhost", "127.0.0.1", "::1"}) {
      if (std::find(hosts.begin(), hosts.end(), local) == hosts.end()) hosts.push_back(local);
    }
  }
  std::string names = "URI:" + PeerUri(request.peer);
  for (const std::string& host : hosts) {
    TW_TRY(CheckHost(host));
    names += (IsAddress(host) ? ",IP:" : ",DNS:") + host;
  }
  return names;
}

std::string Purposes(CertificateKind kind) {
  std::string purposes = Serves(kind) ? "serverAuth" : "";
  if (Dials(kind)) purposes += purposes.empty() ? "clientAuth" : ",clientAuth";
  return purposes;
}

// Of an identity whose key is elsewhere.
absl::StatusOr<IdentityFiles> SignKey(const Authority& authority, const LeafRequest& request,
                                      EVP_PKEY* key, int64_t now_s) {
  TW_TRY(CheckName(request.peer.name));
  TW_TRY(CheckDays(request.days));
  TW_ASSIGN(const std::string names, AlternativeNames(request));
  X509* issuer = authority.certificates.front().get();
  TW_ASSIGN(const std::string issuer_pem, PemOf(issuer));
  TW_ASSIGN(const std::vector<CertificateInfo> issuer_info,
            ReadCertificates(issuer_pem, kAuthorityFile));
  const int64_t end_s =
      std::min(now_s + request.days * kDaySeconds, issuer_info.front().not_after_s);
  if (end_s <= now_s) {
    return support::FailedPrecondition("certs.authority.expired",
                                       "expected an authority in date, found one that ended " +
                                           TimeText(end_s) + " UTC; 'tilewright certs rotate' it");
  }
  TW_ASSIGN(const X509Ptr leaf, Blank(key, request.peer.name, now_s - kClockSkewSeconds, end_s));
  X509_set_issuer_name(leaf.get(), X509_get_subject_name(issuer));
  TW_TRY(AddExtension(leaf.get(), issuer, NID_basic_constraints, "critical,CA:FALSE"));
  TW_TRY(AddExtension(leaf.get(), issuer, NID_key_usage, "critical,digitalSignature"));
  TW_TRY(AddExtension(leaf.get(), issuer, NID_ext_key_usage, Purposes(request.peer.kind)));
  TW_TRY(AddExtension(leaf.get(), issuer, NID_subject_alt_name, names));
  TW_TRY(AddExtension(leaf.get(), issuer, NID_subject_key_identifier, "hash"));
  TW_TRY(AddExtension(leaf.get(), issuer, NID_authority_key_identifier, "keyid:always"));
  if (X509_sign(leaf.get(), authority.key.get(), EVP_sha256()) == 0) return CertsFailed("sign");
  IdentityFiles files;
  TW_ASSIGN(files.certificate, PemOf(leaf.get()));
  TW_ASSIGN(files.authorities, BundleOf(authority.certificates));
  files.revocations = authority.revocations;
  return files;
}

absl::StatusOr<IdentityFiles> SignLeaf(const Authority& authority, const LeafRequest& request,
                                       int64_t now_s) {
  TW_ASSIGN(const KeyPtr key, NewKey());
  TW_ASSIGN(IdentityFiles files, SignKey(authority, request, key.get(), now_s));
  TW_ASSIGN(files.key, PemOf(key.get()));
  return files;
}

}  // namespace

absl::Status CreateAuthority(const std::string& folder, const std::string& name, int days,
                             int64_t now_s) {
  for (const char* file : {kAuthorityFile, kAuthorityKey}) {
    if (!support::FileExists(PathJoin(folder, file))) continue;
    return support::AlreadyExists(
        "certs.authority.exists",
        PathJoin(folder, file) + " exists; 'tilewright certs rotate' adds a new authority");
  }
  if (name.empty() || name.size() > 64) {
    return support::InvalidArgument("certs.name.invalid",
                                    "expected 1..64 bytes, found " + support::Quote(name));
  }
  TW_ASSIGN(const NewAuthority made, MakeAuthority(name, days, now_s));
  TW_ASSIGN(const std::string pem, PemOf(made.certificate.get()));
  TW_TRY(MakePrivateFolder(folder));
  return WriteAuthority(folder, made.key_pem, pem);
}

absl::Status RotateAuthority(const std::string& folder, int days, int64_t now_s) {
  TW_ASSIGN(Authority present, LoadAuthority(folder));
  TW_ASSIGN(const std::string pem, PemOf(present.certificates.front().get()));
  TW_ASSIGN(const std::vector<CertificateInfo> info, ReadCertificates(pem, kAuthorityFile));
  TW_ASSIGN(NewAuthority made, MakeAuthority(info.front().subject, days, now_s));
  TW_ASSIGN(const std::set<std::string> revoked, PresentRevocations(present));
  X509* newest = made.certificate.get();
  present.certificates.insert(present.certificates.begin(), std::move(made.certificate));
  TW_ASSIGN(const std::string bundle, BundleOf(present.certificates));
  TW_TRY(WriteAuthority(folder, made.key_pem, bundle));
  if (revoked.empty()) return absl::OkStatus();
  TW_ASSIGN(const KeyPtr key, ParseKey(made.key_pem, kAuthorityKey));
  return WriteRevocations(folder, newest, key.get(), revoked, now_s);
}

absl::StatusOr<std::set<std::string>> RevokeCertificates(const std::string& folder,
                                                         const std::vector<std::string>& serials,
                                                         int64_t now_s) {
  TW_ASSIGN(const Authority authority, LoadAuthority(folder));
  TW_ASSIGN(std::set<std::string> all, PresentRevocations(authority));
  for (const std::string& serial : serials) all.insert(support::ToLower(serial));
  TW_TRY(WriteRevocations(folder, authority.certificates.front().get(), authority.key.get(), all,
                          now_s));
  return all;
}

absl::Status RetireAuthorities(const std::string& folder) {
  TW_ASSIGN(const Authority present, LoadAuthority(folder));
  TW_ASSIGN(const std::string pem, PemOf(present.certificates.front().get()));
  return support::WriteFileAtomic(PathJoin(folder, kAuthorityFile), pem, 0644);
}

absl::Status IssueIdentity(const std::string& authority, const LeafRequest& request,
                           const std::string& folder, int64_t now_s) {
  TW_ASSIGN(const Authority signer, LoadAuthority(authority));
  if (support::FileExists(PathJoin(folder, kCertificateFile))) {
    return support::AlreadyExists("certs.identity.exists",
                                  folder + " has one; 'tilewright certs renew' makes it new");
  }
  TW_ASSIGN(const IdentityFiles files, SignLeaf(signer, request, now_s));
  RecordIssued(authority, files.certificate).IgnoreError();
  return ReplaceIdentity(folder, files);
}

absl::StatusOr<IdentityFiles> SignRequest(const std::string& authority,
                                          std::string_view request_pem, const LeafRequest& request,
                                          int64_t now_s) {
  TW_ASSIGN(const Authority signer, LoadAuthority(authority));
  TW_ASSIGN(const KeyPtr key, KeyOfRequest(request_pem));
  TW_ASSIGN(IdentityFiles files, SignKey(signer, request, key.get(), now_s));
  RecordIssued(authority, files.certificate).IgnoreError();
  return files;
}

absl::Status SignRequest(const std::string& authority, std::string_view request_pem,
                         const LeafRequest& request, const std::string& folder, int64_t now_s) {
  if (support::FileExists(PathJoin(folder, kKeyFile))) {
    return support::AlreadyExists("certs.identity.exists",
                                  folder + " has a key of its own; choose another folder");
  }
  TW_ASSIGN(const IdentityFiles files, SignRequest(authority, request_pem, request, now_s));
  return ReplaceIdentity(folder, files);
}

absl::Status RenewIdentity(const std::string& authority, const std::string& folder, int days,
                           int64_t now_s) {
  TW_ASSIGN(const Authority signer, LoadAuthority(authority));
  const std::string path = PathJoin(folder, kCertificateFile);
  if (support::FileExists(path) && !support::FileExists(PathJoin(folder, kKeyFile))) {
    return support::FailedPrecondition(
        "certs.identity.keyless",
        folder + " has no key: 'tilewright certs request' where the key is, then 'certs sign'");
  }
  TW_ASSIGN(const std::string pem, support::ReadFile(path, kMaxPemBytes));
  TW_ASSIGN(const std::vector<CertificateInfo> infos, ReadCertificates(pem, path));
  LeafRequest request;
  request.days = days;
  request.hosts = infos.front().hosts;
  TW_ASSIGN(request.peer, PeerOf(infos.front().uris));
  TW_ASSIGN(const IdentityFiles files, SignLeaf(signer, request, now_s));
  RecordIssued(authority, files.certificate).IgnoreError();
  return ReplaceIdentity(folder, files);
}

}  // namespace tilewright::security
