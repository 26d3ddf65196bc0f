#include "deploy/security/certificate.h"

#include <arpa/inet.h>

#include <array>
#include <ctime>
#include <utility>

#include "deploy/security/openssl_types.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::security {
namespace {

constexpr std::string_view kUriPrefix = "spiffe://tilewright/";
constexpr size_t kMaxName = 64;

constexpr std::array<std::pair<CertificateKind, std::string_view>, 4> kKinds = {{
    {CertificateKind::kTracker, "tracker"},
    {CertificateKind::kTuner, "tuner"},
    {CertificateKind::kAgent, "agent"},
    {CertificateKind::kClient, "client"},
}};

std::string CommonName(const X509_NAME* name) {
  char text[256];
  const int length = X509_NAME_get_text_by_NID(name, NID_commonName, text, sizeof text);
  return length < 0 ? "" : std::string(text, static_cast<size_t>(length));
}

int64_t Seconds(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return 0;
  return static_cast<int64_t>(timegm(&parts));
}

std::string AddressText(const ASN1_OCTET_STRING* bytes) {
  const int family = bytes->length == 4 ? AF_INET : AF_INET6;
  char text[INET6_ADDRSTRLEN];
  if (bytes->length != 4 && bytes->length != 16) return "";
  return inet_ntop(family, bytes->data, text, sizeof text) == nullptr ? "" : text;
}

std::string Ia5Text(const ASN1_IA5STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

void ReadAlternativeNames(X509* certificate, CertificateInfo* info) {
  auto* names = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  if (names == nullptr) return;
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type == GEN_DNS) info->hosts.push_back(Ia5Text(name->d.dNSName));
    if (name->type == GEN_URI) info->uris.push_back(Ia5Text(name->d.uniformResourceIdentifier));
    if (name->type == GEN_IPADD) info->hosts.push_back(AddressText(name->d.iPAddress));
  }
  GENERAL_NAMES_free(names);
}

CertificateInfo InfoOf(X509* certificate) {
  CertificateInfo info;
  info.subject = CommonName(X509_get_subject_name(certificate));
  info.issuer = CommonName(X509_get_issuer_name(certificate));
  const ASN1_INTEGER* serial = X509_get0_serialNumber(certificate);
  info.serial = support::HexEncode(
      {reinterpret_cast<const char*>(serial->data), static_cast<size_t>(serial->length)});
  unsigned char* der = nullptr;
  const int der_size = i2d_X509(certificate, &der);
  if (der_size > 0) {
    info.sha256 =
        support::Sha256Hex({reinterpret_cast<const char*>(der), static_cast<size_t>(der_size)});
  }
  OPENSSL_free(der);
  ReadAlternativeNames(certificate, &info);
  info.not_before_s = Seconds(X509_get0_notBefore(certificate));
  info.not_after_s = Seconds(X509_get0_notAfter(certificate));
  info.authority = X509_check_ca(certificate) == 1;
  return info;
}

// Signature and constraints at a moment when the certificate was in date, so that a wrong
// authority and a date that has passed are told apart.
absl::Status CheckChain(X509* leaf, const std::vector<X509Ptr>& authorities) {
  StorePtr store(X509_STORE_new());
  StoreContextPtr context(X509_STORE_CTX_new());
  for (const X509Ptr& authority : authorities) X509_STORE_add_cert(store.get(), authority.get());
  X509_STORE_CTX_init(context.get(), store.get(), leaf, nullptr);
  X509_VERIFY_PARAM_set_flags(X509_STORE_CTX_get0_param(context.get()), X509_V_FLAG_NO_CHECK_TIME);
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  const std::string why = X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
  ERR_clear_error();
  return support::FailedPrecondition("identity.certificate.untrusted",
                                     "expected a certificate signed by ca.pem, found one of " +
                                         support::Quote(CommonName(X509_get_issuer_name(leaf))) +
                                         ": " + why);
}

}  // namespace

std::string KindText(CertificateKind kind) {
  for (const auto& [known, text] : kKinds) {
    if (known == kind) return std::string(text);
  }
  return "";
}

absl::StatusOr<CertificateKind> ParseKind(std::string_view text) {
  for (const auto& [kind, known] : kKinds) {
    if (known == text) return kind;
  }
  return support::InvalidArgument(
      "certs.kind.invalid",
      "expected tracker, tuner, agent or client, found " + support::Quote(text));
}

std::string PeerUri(const Peer& peer) {
  return support::StrCat(kUriPrefix, KindText(peer.kind), "/", peer.name);
}

absl::StatusOr<Peer> ParsePeerUri(std::string_view uri) {
  const absl::Status foreign = support::NotFound(
      "certs.uri.foreign", "expected spiffe://tilewright/KIND/NAME, found " + support::Quote(uri));
  if (!uri.starts_with(kUriPrefix)) return foreign;
  uri.remove_prefix(kUriPrefix.size());
  const size_t slash = uri.find('/');
  if (slash == std::string_view::npos) return foreign;
  const auto kind = ParseKind(uri.substr(0, slash));
  if (!kind.ok() || !CheckName(uri.substr(slash + 1)).ok()) return foreign;
  return Peer{*kind, std::string(uri.substr(slash + 1))};
}

absl::StatusOr<Peer> PeerOf(const std::vector<std::string>& uris) {
  if (uris.size() == 1) return ParsePeerUri(uris.front());
  return support::NotFound(
      uris.empty() ? "certs.uri.none" : "certs.uri.several",
      support::StrCat("expected exactly one URI, spiffe://tilewright/KIND/NAME, found ",
                      uris.size()));
}

absl::Status CheckName(std::string_view name) {
  const bool good = !name.empty() && name.size() <= kMaxName &&
                    name.find_first_not_of(
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789-_.") == std::string_view::npos &&
                    name != "." && name != "..";
  if (good) return absl::OkStatus();
  return support::InvalidArgument(
      "certs.name.invalid",
      "expected at most 64 letters, digits, '-', '_' and '.', found " + support::Quote(name));
}

absl::StatusOr<std::vector<X509Ptr>> ParseCertificates(std::string_view pem,
                                                       std::string_view what) {
  const BioPtr bio = BioOf(pem);
  std::vector<X509Ptr> certificates;
  while (true) {
    X509Ptr certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (certificate == nullptr) break;
    certificates.push_back(std::move(certificate));
  }
  const bool end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  const std::string why = OpensslError();
  if (end && !certificates.empty()) return certificates;
  return support::InvalidArgument(
      "certs.file.invalid",
      support::StrCat("expected PEM certificates in ", what, ", found something else: ", why));
}

absl::StatusOr<KeyPtr> ParseKey(std::string_view pem, std::string_view what) {
  const BioPtr bio = BioOf(pem);
  // The callback answers for a pass phrase: none, instead of asking on the terminal.
  const auto no_phrase = [](char*, int, int, void*) { return -1; };
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_phrase, nullptr));
  if (key != nullptr) return key;
  return support::InvalidArgument(
      "certs.file.invalid", support::StrCat("expected a PEM private key without pass phrase in ",
                                            what, ", found something else: ", OpensslError()));
}

absl::StatusOr<std::vector<CertificateInfo>> ReadCertificates(std::string_view pem,
                                                              std::string_view what) {
  TW_ASSIGN(const std::vector<X509Ptr> certificates, ParseCertificates(pem, what));
  std::vector<CertificateInfo> infos;
  for (const X509Ptr& certificate : certificates) infos.push_back(InfoOf(certificate.get()));
  return infos;
}

std::string TimeText(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

absl::Status CheckCertificate(std::string_view certificate_pem, std::string_view key_pem,
                              std::string_view authorities_pem, int64_t now_s) {
  TW_ASSIGN(const std::vector<X509Ptr> leaf, ParseCertificates(certificate_pem, "cert.pem"));
  TW_ASSIGN(const KeyPtr key, ParseKey(key_pem, "key.pem"));
  TW_ASSIGN(const std::vector<X509Ptr> authorities, ParseCertificates(authorities_pem, "ca.pem"));
  if (X509_check_private_key(leaf.front().get(), key.get()) != 1) {
    return support::FailedPrecondition(
        "identity.key.mismatch",
        "expected the private key of cert.pem in key.pem, found another: " + OpensslError());
  }
  TW_TRY(CheckChain(leaf.front().get(), authorities));
  const CertificateInfo info = InfoOf(leaf.front().get());
  if (now_s > info.not_after_s) {
    return support::FailedPrecondition(
        "identity.certificate.expired",
        support::StrCat("expected a certificate in date, found one of ", info.subject,
                        " that ended ", TimeText(info.not_after_s),
                        " UTC; 'tilewright certs renew' makes a new one"));
  }
  if (now_s < info.not_before_s) {
    return support::FailedPrecondition(
        "identity.certificate.early",
        support::StrCat("expected a certificate in date, found one that begins ",
                        TimeText(info.not_before_s), " UTC; is this machine's clock right?"));
  }
  return absl::OkStatus();
}

}  // namespace tilewright::security
