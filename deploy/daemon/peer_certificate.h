// The certificate that the other end of a connection has shown.
#pragma once

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include <string_view>

namespace tilewright::daemon {

// PEM; empty without TLS. It lives as long as the context.
inline std::string_view PeerCertificate(const grpc::AuthContext* context) {
  if (context == nullptr) return "";
  const auto pems = context->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return pems.empty() ? std::string_view()
                      : std::string_view(pems.front().data(), pems.front().size());
}

}  // namespace tilewright::daemon
