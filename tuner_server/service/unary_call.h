// Ends every unary handler: returns an answer or an error to gRPC. Stateless.
#pragma once

#include <grpcpp/grpcpp.h>

#include <utility>

#include "deploy/daemon/wire.h"
#include "deploy/support/status.h"

namespace tilewright::service {

template <typename Message>
grpc::Status Reply(absl::StatusOr<Message> result, Message* response) {
  if (!result.ok()) return daemon::ToGrpc(result.status());
  *response = *std::move(result);
  return grpc::Status::OK;
}

}  // namespace tilewright::service
