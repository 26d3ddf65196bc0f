#include "tuner_server/service/module_service.h"

#include <algorithm>
#include <string>

#include "deploy/daemon/wire.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/target_text.h"
#include "tuner_server/service/job_messages.h"
#include "tuner_server/service/page_token.h"
#include "tuner_server/service/unary_call.h"

namespace tilewright::service {
namespace {

constexpr char kModuleMediaType[] = "application/vnd.tilewright.module";

void AddAttribute(const std::string& key, const std::string& value, v1::ModuleVersion* version) {
  (*version->mutable_target())[key].set_s(value);
}

v1::ModuleVersion VersionMessage(const log::ModuleVersionRow& row) {
  v1::ModuleVersion version;
  version.set_name(log::ModuleVersionName(row.module, row.number));
  version.set_number(row.number);
  *version.mutable_manifest() = daemon::MakeDigest(row.manifest_sha256, row.manifest_size);
  v1::ModuleFile* file = version.add_files();
  file->set_path("model.tw");
  *file->mutable_digest() = daemon::MakeDigest(row.sha256, row.size);
  file->set_media_type(kModuleMediaType);
  AddAttribute("target", row.target, &version);
  const auto target = log::ParseTargetText(row.target);
  if (target.ok()) {
    AddAttribute("kind", target->kind, &version);
    for (const auto& [key, value] : target->settings) AddAttribute(key, value, &version);
  }
  v1::Performance* performance = version.mutable_performance();
  performance->set_median_us(row.median_us);
  performance->set_ci_rel(row.ci_rel);
  performance->set_speedup_vs_baseline(row.speedup);
  performance->set_devices(static_cast<int32_t>(row.devices));
  performance->set_device_fingerprint(row.device_fingerprint);
  version.set_state(v1::ModuleVersion::PUBLISHED);
  *version.mutable_create_time() = Timestamp(row.created_us);
  if (!row.job.empty()) version.set_source_job(JobName(row.job));
  version.set_etag(row.manifest_sha256);
  if (!row.model_sha256.empty()) {
    *version.mutable_model() = daemon::MakeDigest(row.model_sha256, row.model_size);
  }
  return version;
}

v1::ResolveModuleResponse::Match MatchMessage(modules::Match match) {
  switch (match) {
    case modules::Match::kExact:
      return v1::ResolveModuleResponse::EXACT;
    case modules::Match::kCompatible:
      return v1::ResolveModuleResponse::COMPATIBLE;
    case modules::Match::kNone:
      break;
  }
  return v1::ResolveModuleResponse::NONE;
}

}  // namespace

grpc::Status ModuleServiceImpl::ResolveModule(grpc::ServerContext*,
                                              const v1::ResolveModuleRequest* request,
                                              v1::ResolveModuleResponse* response) {
  return Reply(Resolve(*request), response);
}

grpc::Status ModuleServiceImpl::GetModuleVersion(grpc::ServerContext*,
                                                 const v1::GetModuleVersionRequest* request,
                                                 v1::ModuleVersion* response) {
  return Reply(Get(request->name()), response);
}

grpc::Status ModuleServiceImpl::ListModuleVersions(grpc::ServerContext*,
                                                   const v1::ListModuleVersionsRequest* request,
                                                   v1::ListModuleVersionsResponse* response) {
  return Reply(List(*request), response);
}

absl::StatusOr<v1::ModuleVersion> ModuleServiceImpl::Get(const std::string& name) {
  TW_ASSIGN(const log::ModuleVersionRow row, store_->Get(name));
  return VersionMessage(row);
}

absl::StatusOr<v1::ResolveModuleResponse> ModuleServiceImpl::Resolve(
    const v1::ResolveModuleRequest& request) {
  modules::ResolveRequest question;
  TW_ASSIGN(question.module, modules::ParseModuleParent(request.parent()));
  if (request.has_model()) {
    TW_ASSIGN(question.model_sha256, daemon::DigestToHex(request.model()));
  }
  if (!request.workload_hash().empty()) {
    question.task_hash = support::HexEncode(request.workload_hash());
  }
  if (question.module.empty() && question.model_sha256.empty() && question.task_hash.empty()) {
    return support::InvalidArgument("module.resolve.empty",
                                    "expected a module, a model or a workload, found none");
  }
  if (!request.target().empty()) {
    TW_ASSIGN(const log::TargetText target, log::ParseTargetText(request.target()));
    question.target = target.ToString();
  }
  const auto number = support::ParseInt64(request.constraint());
  if (number && *number > 0) {
    question.number = *number;
  } else if (request.constraint() == "exact") {
    question.exact = true;
  } else if (!request.constraint().empty()) {
    return support::InvalidArgument(
        "module.resolve.constraint",
        "expected exact or a version number, found " + support::Quote(request.constraint()));
  }
  TW_ASSIGN(const modules::Resolved resolved, store_->Resolve(question));
  v1::ResolveModuleResponse response;
  response.set_match(MatchMessage(resolved.match));
  response.set_explanation(resolved.explanation);
  if (resolved.match == modules::Match::kNone) return response;
  *response.mutable_version() = VersionMessage(resolved.version);
  if (!request.known_etag().empty() && request.known_etag() == response.version().etag()) {
    response.clear_version();
    response.set_match(v1::ResolveModuleResponse::NOT_MODIFIED);
  }
  return response;
}

absl::StatusOr<v1::ListModuleVersionsResponse> ModuleServiceImpl::List(
    const v1::ListModuleVersionsRequest& request) {
  log::ModuleQuery query;
  TW_ASSIGN(query.module, modules::ParseModuleParent(request.parent()));
  const std::string list = "modules of " + query.module;
  TW_ASSIGN(const PageRequest page, ReadPage(request.page(), list));
  query.before_position = page.position;
  query.limit = page.size;
  TW_ASSIGN(const log::ModulePage rows, store_->log()->ListModuleVersions(query));
  v1::ListModuleVersionsResponse response;
  for (const log::ModuleVersionRow& row : rows.versions) {
    *response.add_versions() = VersionMessage(row);
  }
  if (static_cast<int64_t>(rows.versions.size()) == page.size) {
    query.before_position = rows.last_position;
    query.limit = 1;
    TW_ASSIGN(const log::ModulePage more, store_->log()->ListModuleVersions(query));
    if (!more.versions.empty()) response.set_next_page_token(PageToken(list, rows.last_position));
  }
  return response;
}

}  // namespace tilewright::service
