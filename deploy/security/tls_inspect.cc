#include "deploy/security/tls_inspect.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "deploy/security/certificate.h"
#include "deploy/support/strings.h"

namespace tilewright::security {
namespace {

// One per session, with it: gRPC reads and writes on different threads.
struct InspectedSession {
  TlsInspector inspector;  // of sessions that are accepted, once they read
  std::atomic<bool> answered{false};
};

// What InspectAcceptedTls was given. Never freed: libraries read until the process ends.
struct Inspection {
  std::function<TlsInspector()> make;
  int index = -1;  // of a session's InspectedSession
};
std::atomic<const Inspection*> g_inspection{nullptr};

std::string PeerName(SSL* session) {
  X509* certificate = SSL_get0_peer_certificate(session);
  if (certificate == nullptr) return "without certificate";
  const std::unique_ptr<BIO, decltype(&BIO_free)> text(BIO_new(BIO_s_mem()), &BIO_free);
  char* pem = nullptr;
  if (text == nullptr || PEM_write_bio_X509(text.get(), certificate) != 1) return "unknown";
  const auto size = static_cast<size_t>(BIO_get_mem_data(text.get(), &pem));
  const auto read = ReadCertificates({pem, size}, "peer");
  if (!read.ok() || read->empty()) return "unknown";
  const CertificateInfo& info = read->front();
  return support::StrCat(info.uris.empty() ? info.subject : info.uris.front(), ", certificate ",
                         info.serial);
}

// Both of OpenSSL's types.
void NewSession(void*, void*, CRYPTO_EX_DATA* data, int index, long, void*) {
  auto made = std::make_unique<InspectedSession>();
  if (CRYPTO_set_ex_data(data, index, made.get()) == 1) static_cast<void>(made.release());
}
void FreeSession(void*, void* session, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<InspectedSession*>(session);
}

// Null of sessions that are older than the inspection, or not accepted but dialled.
InspectedSession* Inspected(const Inspection* inspection, SSL* session) {
  if (inspection == nullptr || SSL_is_server(session) == 0) return nullptr;
  return static_cast<InspectedSession*>(SSL_get_ex_data(session, inspection->index));
}

// Whether the session may continue after these bytes.
bool Inspect(SSL* session, std::string_view plain) {
  const Inspection* inspection = g_inspection.load();
  InspectedSession* inspected = Inspected(inspection, session);
  if (inspected == nullptr) return true;
  if (!inspected->inspector) inspected->inspector = inspection->make();
  return inspected->inspector(
      {plain, inspected->answered.load(), [session] { return PeerName(session); }});
}

void NoteAnswer(SSL* session) {
  InspectedSession* inspected = Inspected(g_inspection.load(), session);
  if (inspected != nullptr) inspected->answered.store(true);
}

}  // namespace

void InspectAcceptedTls(std::function<TlsInspector()> make) {
  if (g_inspection.load() != nullptr) return;
  auto made = std::make_unique<Inspection>();
  made->make = std::move(make);
  made->index = SSL_get_ex_new_index(0, nullptr, NewSession, nullptr, FreeSession);
  const Inspection* none = nullptr;
  if (made->index >= 0 && g_inspection.compare_exchange_strong(none, made.get())) {
    static_cast<void>(made.release());
  }
}

}  // namespace tilewright::security

// In place of OpenSSL's.
extern "C" {

__attribute__((visibility("default"))) int SSL_read(SSL* session, void* buffer, int size) {
  size_t got = 0;
  if (SSL_read_ex(session, buffer, static_cast<size_t>(std::max(size, 0)), &got) != 1) return -1;
  if (tilewright::security::Inspect(session, {static_cast<const char*>(buffer), got})) {
    return static_cast<int>(got);
  }
  ERR_raise(ERR_LIB_USER, ERR_R_DISABLED);  // SSL_get_error wants a reason
  return -1;
}

__attribute__((visibility("default"))) int SSL_write(SSL* session, const void* buffer, int size) {
  tilewright::security::NoteAnswer(session);
  size_t written = 0;
  if (SSL_write_ex(session, buffer, static_cast<size_t>(std::max(size, 0)), &written) != 1) {
    return -1;
  }
  return static_cast<int>(written);
}

}  // extern "C"
