// ModuleService over gRPC: thin handlers around the module store and releases. Thread-safe.
#pragma once

#include "deploy/daemon/server_security.h"
#include "deploy/support/clock.h"
#include "tilewright/v1/module.grpc.pb.h"
#include "tuner_server/modules/module_releases.h"
#include "tuner_server/modules/module_store.h"

namespace tilewright::service {

inline constexpr char kModuleServiceName[] = "tilewright.v1.ModuleService";

class ModuleServiceImpl final : public v1::ModuleService::Service {
 public:
  // `security` (not owned) may be null: then callers are known by address only.
  ModuleServiceImpl(modules::ModuleStore* store, modules::ModuleReleases* releases,
                    support::Clock* clock, const daemon::ServerSecurity* security)
      : store_(store), releases_(releases), clock_(clock), security_(security) {}

  grpc::Status ResolveModule(grpc::ServerContext* context, const v1::ResolveModuleRequest* request,
                             v1::ResolveModuleResponse* response) override;
  grpc::Status GetModuleVersion(grpc::ServerContext* context,
                                const v1::GetModuleVersionRequest* request,
                                v1::ModuleVersion* response) override;
  grpc::Status ListModuleVersions(grpc::ServerContext* context,
                                  const v1::ListModuleVersionsRequest* request,
                                  v1::ListModuleVersionsResponse* response) override;
  grpc::Status SetModuleAlias(grpc::ServerContext* context,
                              const v1::SetModuleAliasRequest* request,
                              v1::ModuleAlias* response) override;
  grpc::Status AddModuleSignature(grpc::ServerContext* context,
                                  const v1::AddModuleSignatureRequest* request,
                                  v1::ModuleVersion* response) override;
  grpc::Status RevokeModuleSignature(grpc::ServerContext* context,
                                     const v1::RevokeModuleSignatureRequest* request,
                                     v1::ModuleVersion* response) override;
  grpc::Status AddReleaseKey(grpc::ServerContext* context, const v1::AddReleaseKeyRequest* request,
                             v1::ReleaseKey* response) override;
  grpc::Status ListReleaseKeys(grpc::ServerContext* context,
                               const v1::ListReleaseKeysRequest* request,
                               v1::ListReleaseKeysResponse* response) override;
  grpc::Status RevokeReleaseKey(grpc::ServerContext* context,
                                const v1::RevokeReleaseKeyRequest* request,
                                v1::ReleaseKey* response) override;
  grpc::Status ReleaseModule(grpc::ServerContext* context, const v1::ReleaseModuleRequest* request,
                             v1::ModuleVersion* response) override;
  grpc::Status PruneModules(grpc::ServerContext* context, const v1::PruneModulesRequest* request,
                            v1::PruneModulesResponse* response) override;

 private:
  absl::StatusOr<v1::ResolveModuleResponse> Resolve(const v1::ResolveModuleRequest& request);
  absl::StatusOr<v1::ModuleVersion> Get(const std::string& name);
  absl::StatusOr<v1::ListModuleVersionsResponse> List(const v1::ListModuleVersionsRequest& request);
  absl::StatusOr<v1::ModuleAlias> SetAlias(const v1::SetModuleAliasRequest& request,
                                           const std::string& caller);
  absl::StatusOr<v1::ModuleVersion> AddSignature(const v1::AddModuleSignatureRequest& request,
                                                 const std::string& caller);
  absl::StatusOr<v1::ModuleVersion> RevokeSignature(const v1::RevokeModuleSignatureRequest& request,
                                                    const std::string& caller);
  absl::StatusOr<v1::ReleaseKey> AddKey(const v1::AddReleaseKeyRequest& request,
                                        const std::string& caller);
  absl::StatusOr<v1::ListReleaseKeysResponse> ListKeys();
  absl::StatusOr<v1::ReleaseKey> RevokeKey(const v1::RevokeReleaseKeyRequest& request,
                                           const std::string& caller);
  absl::StatusOr<v1::ModuleVersion> Release(const std::string& name, const std::string& caller);
  absl::StatusOr<v1::PruneModulesResponse> Prune(const v1::PruneModulesRequest& request);
  // Returns the version with its aliases and signatures.
  absl::StatusOr<v1::ModuleVersion> Message(const log::ModuleVersionRow& row);
  absl::StatusOr<log::Revocation> ReadRevocation(const std::string& reason,
                                                 const std::string& caller);
  std::string Caller(const grpc::ServerContext& context) const;

  modules::ModuleStore* store_;
  modules::ModuleReleases* releases_;
  support::Clock* clock_;
  const daemon::ServerSecurity* security_;
};

}  // namespace tilewright::service
