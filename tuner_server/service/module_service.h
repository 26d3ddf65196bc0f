// ModuleService over gRPC: thin handlers around the module store. Thread-safe.
#pragma once

#include "tilewright/v1/module.grpc.pb.h"
#include "tuner_server/modules/module_store.h"

namespace tilewright::service {

inline constexpr char kModuleServiceName[] = "tilewright.v1.ModuleService";

class ModuleServiceImpl final : public v1::ModuleService::Service {
 public:
  explicit ModuleServiceImpl(modules::ModuleStore* store) : store_(store) {}

  grpc::Status ResolveModule(grpc::ServerContext* context, const v1::ResolveModuleRequest* request,
                             v1::ResolveModuleResponse* response) override;
  grpc::Status GetModuleVersion(grpc::ServerContext* context,
                                const v1::GetModuleVersionRequest* request,
                                v1::ModuleVersion* response) override;
  grpc::Status ListModuleVersions(grpc::ServerContext* context,
                                  const v1::ListModuleVersionsRequest* request,
                                  v1::ListModuleVersionsResponse* response) override;

 private:
  absl::StatusOr<v1::ResolveModuleResponse> Resolve(const v1::ResolveModuleRequest& request);
  absl::StatusOr<v1::ModuleVersion> Get(const std::string& name);
  absl::StatusOr<v1::ListModuleVersionsResponse> List(const v1::ListModuleVersionsRequest& request);

  modules::ModuleStore* store_;
};

}  // namespace tilewright::service
