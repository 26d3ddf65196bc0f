// The reflection service of gRPC under its present name, grpc.reflection.v1: which services a
// server has, and their descriptors from the protobuf files that are linked into the program. The
// gRPC library serves the older name, v1alpha, with the same messages. Thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "grpc/reflection/v1/reflection.grpc.pb.h"

namespace tilewright::daemon {

class ReflectionService final : public grpc::reflection::v1::ServerReflection::Service {
 public:
  // `services`: full names, as list_services returns them.
  explicit ReflectionService(std::vector<std::string> services) : services_(std::move(services)) {}

  grpc::Status ServerReflectionInfo(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<grpc::reflection::v1::ServerReflectionResponse,
                               grpc::reflection::v1::ServerReflectionRequest>* stream) override;

 private:
  void Answer(const grpc::reflection::v1::ServerReflectionRequest& request,
              grpc::reflection::v1::ServerReflectionResponse* response) const;

  std::vector<std::string> services_;
};

}  // namespace tilewright::daemon
