// libFuzzer entry for what strangers send or files may hold around TLS and tokens: the first byte
// chooses the parser, the rest is its text. Whatever is accepted must mean something.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "deploy/security/access.h"
#include "deploy/security/certificate.h"
#include "deploy/security/certificate_request.h"
#include "deploy/security/enrolment.h"
#include "deploy/security/module_signature.h"
#include "deploy/security/token_file.h"
#include "deploy/support/status.h"

namespace tilewright::security {
namespace {

void TokenFile(std::string_view text) {
  const auto rows = ParseTokenRows(text);
  if (!rows.ok()) return;
  for (const TokenRow& row : *rows) {
    TW_CHECK(CheckName(row.name).ok() && row.sha256.size() == 64 && row.id.size() == 12);
  }
}

void Token(std::string_view text) {
  const auto token = ParseToken(text);
  if (token.ok()) TW_CHECK(text.find(token->secret) != std::string_view::npos);
}

void TicketFile(std::string_view text) {
  const auto rows = ParseTicketRows(text);
  if (!rows.ok()) return;
  for (const TicketRow& row : *rows) {
    TW_CHECK(CheckName(row.name).ok() && row.sha256.size() == 64 && row.id.size() == 12);
    TW_CHECK(row.key.empty() || row.key.size() == 64);
  }
}

void Ticket(std::string_view text) {
  const auto ticket = ParseTicket(text);
  if (ticket.ok()) TW_CHECK(text.find(ticket->secret) != std::string_view::npos);
}

// What a stranger sends to be signed, and what a false tracker answers.
void Enrolling(std::string_view text) {
  const auto key = RequestFingerprint(text);
  if (key.ok()) TW_CHECK(key->size() == 64);
  (void)PinnedAuthority(text, std::string(64, '0'));
}

// A signature that comes with a downloaded module.
void Signature(std::string_view text) {
  const std::string about(64, 'a');
  const auto signature = ParseSignatureFile(text, about);
  if (!signature.ok()) return;
  TW_CHECK(signature->signature.size() == 64);
  TW_CHECK(ParseSignatureFile(SignatureFileText(about, *signature), about).ok());
}

void Uri(std::string_view text) {
  const auto peer = ParsePeerUri(text);
  if (peer.ok()) TW_CHECK(PeerUri(*peer) == text);
}

void Certificates(std::string_view text) {
  const auto infos = ReadCertificates(text, "fuzz");
  if (infos.ok()) TW_CHECK(!infos->empty());
  (void)CheckCertificate(text, text, text, 1'790'000'000);
}

}  // namespace
}  // namespace tilewright::security

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tilewright::security::Certificates;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0]) {
    case 't':
      tilewright::security::TokenFile(text);
      break;
    case 'b':
      tilewright::security::Token(text);
      break;
    case 'e':
      tilewright::security::TicketFile(text);
      break;
    case 'k':
      tilewright::security::Ticket(text);
      break;
    case 'r':
      tilewright::security::Enrolling(text);
      break;
    case 'g':
      tilewright::security::Signature(text);
      break;
    case 'u':
      tilewright::security::Uri(text);
      break;
    case 'c':
      Certificates(text);
      break;
    default:
      (void)tilewright::security::FindRule(text);
  }
  return 0;
}
