#include "tuner_server/service/module_service.h"

#include <algorithm>
#include <string>

#include "deploy/daemon/wire.h"
#include "deploy/support/strings.h"
#include "tuner_server/jobs/size_messages.h"
#include "tuner_server/log/target_text.h"
#include "tuner_server/service/job_messages.h"
#include "tuner_server/service/page_token.h"
#include "tuner_server/service/unary_call.h"

namespace tilewright::service {
namespace {

constexpr char kModuleMediaType[] = "application/vnd.tilewright.module";
constexpr size_t kSignatureBytes = 64;
constexpr size_t kKeyIdBytes = 8;
constexpr size_t kMaxReasonBytes = 200;

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
  version.set_state(row.pruned_us == 0 ? v1::ModuleVersion::PUBLISHED : v1::ModuleVersion::PRUNED);
  version.set_device_class(row.device_class);
  version.set_created_by(row.created_by);
  version.set_toolchain(row.toolchain);
  *version.mutable_create_time() = Timestamp(row.created_us);
  if (!row.job.empty()) version.set_source_job(JobName(row.job));
  version.set_etag(row.manifest_sha256);
  // Sizes that cannot be read are shown as unknown.
  const auto sizes = log::ParseSizesText(row.sizes);
  if (sizes.ok() && !sizes->empty()) jobs::PutSizes(*sizes, version.mutable_sizes());
  if (!row.model_sha256.empty()) {
    *version.mutable_model() = daemon::MakeDigest(row.model_sha256, row.model_size);
  }
  return version;
}

v1::ModuleSignature SignatureMessage(const log::ModuleSignatureRow& row) {
  v1::ModuleSignature signature;
  signature.set_key_id(row.key_id);
  signature.set_signature(support::HexDecode(row.signature).value_or(""));
  *signature.mutable_create_time() = Timestamp(row.created_us);
  signature.set_created_by(row.created_by);
  signature.set_format(static_cast<int32_t>(row.format));
  if (row.revoked_us != 0) *signature.mutable_revoke_time() = Timestamp(row.revoked_us);
  signature.set_revoked_by(row.revoked_by);
  signature.set_revoke_reason(row.revoke_reason);
  return signature;
}

v1::ReleaseKey KeyMessage(const log::ReleaseKeyRow& row) {
  v1::ReleaseKey key;
  key.set_key_id(row.key_id);
  key.set_public_key(support::HexDecode(row.public_key).value_or(""));
  key.set_display_name(row.name);
  *key.mutable_create_time() = Timestamp(row.added_us);
  key.set_created_by(row.added_by);
  if (row.revoked_us != 0) *key.mutable_revoke_time() = Timestamp(row.revoked_us);
  key.set_revoked_by(row.revoked_by);
  key.set_revoke_reason(row.revoke_reason);
  return key;
}

void AddOrigin(const log::RecordRow& record, v1::ModuleVersion* version) {
  v1::RecordOrigin* origin = version->add_records();
  origin->set_measurement_id(record.measurement_id);
  origin->set_task(record.task);
  origin->set_device(record.device);
  origin->set_device_fingerprint(record.device_fingerprint);
  origin->set_agent(record.agent);
  origin->set_toolchain(record.key.toolchain);
  origin->set_median_us(record.median / 1000);
  *origin->mutable_measure_time() = Timestamp(record.started_us);
}

v1::ResolveModuleResponse::Match MatchMessage(modules::Match match) {
  switch (match) {
    case modules::Match::kExact:
      return v1::ResolveModuleResponse::EXACT;
    case modules::Match::kCompatible:
      return v1::ResolveModuleResponse::COMPATIBLE;
    case modules::Match::kFallback:
      return v1::ResolveModuleResponse::FALLBACK;
  }
  return v1::ResolveModuleResponse::MATCH_UNSPECIFIED;
}

absl::StatusOr<std::string> CanonicalTarget(const std::string& text) {
  if (text.empty()) return text;
  TW_ASSIGN(const log::TargetText target, log::ParseTargetText(text));
  return target.ToString();
}

// `exact` and `number`, or the text by which older clients say either.
absl::Status ReadConstraint(const v1::ResolveModuleRequest& request,
                            modules::ResolveRequest* question) {
  const std::string& text = request.constraint();
  const int64_t number_in_text = support::ParseInt64(text).value_or(0);
  if (request.number() < 0 || (!text.empty() && text != "exact" && number_in_text <= 0)) {
    return support::InvalidArgument(
        "module.resolve.constraint",
        support::StrCat(
            "expected a version number of 1 or more, or \"exact\" as constraint, found ",
            request.number() < 0 ? support::StrCat(request.number()) : support::Quote(text)));
  }
  question->wish.exact = request.exact() || text == "exact";
  question->number = request.number() > 0 ? request.number() : number_in_text;
  return absl::OkStatus();
}

// What the request says about time: `max_latency_us` and `not_slower_than`.
absl::Status ReadLimits(const v1::ResolveModuleRequest& request, modules::ModuleStore* store,
                        modules::ResolveRequest* question) {
  if (!(request.max_latency_us() >= 0)) {
    return support::InvalidArgument("module.resolve.max_latency",
                                    "expected a time of 0 (any) or more");
  }
  question->max_latency_us = request.max_latency_us();
  if (request.not_slower_than().empty()) return absl::OkStatus();
  TW_ASSIGN(const log::ModuleVersionRow limit, store->Get(request.not_slower_than()));
  question->limit_module = limit.module;
  question->limit_number = limit.number;
  return absl::OkStatus();
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

grpc::Status ModuleServiceImpl::SetModuleAlias(grpc::ServerContext* context,
                                               const v1::SetModuleAliasRequest* request,
                                               v1::ModuleAlias* response) {
  return Reply(SetAlias(*request, Caller(*context)), response);
}

grpc::Status ModuleServiceImpl::AddModuleSignature(grpc::ServerContext* context,
                                                   const v1::AddModuleSignatureRequest* request,
                                                   v1::ModuleVersion* response) {
  return Reply(AddSignature(*request, Caller(*context)), response);
}

grpc::Status ModuleServiceImpl::RevokeModuleSignature(
    grpc::ServerContext* context, const v1::RevokeModuleSignatureRequest* request,
    v1::ModuleVersion* response) {
  return Reply(RevokeSignature(*request, Caller(*context)), response);
}

grpc::Status ModuleServiceImpl::AddReleaseKey(grpc::ServerContext* context,
                                              const v1::AddReleaseKeyRequest* request,
                                              v1::ReleaseKey* response) {
  return Reply(AddKey(*request, Caller(*context)), response);
}

grpc::Status ModuleServiceImpl::ListReleaseKeys(grpc::ServerContext*,
                                                const v1::ListReleaseKeysRequest*,
                                                v1::ListReleaseKeysResponse* response) {
  return Reply(ListKeys(), response);
}

grpc::Status ModuleServiceImpl::RevokeReleaseKey(grpc::ServerContext* context,
                                                 const v1::RevokeReleaseKeyRequest* request,
                                                 v1::ReleaseKey* response) {
  return Reply(RevokeKey(*request, Caller(*context)), response);
}

grpc::Status ModuleServiceImpl::ReleaseModule(grpc::ServerContext* context,
                                              const v1::ReleaseModuleRequest* request,
                                              v1::ModuleVersion* response) {
  return Reply(Release(request->name(), Caller(*context)), response);
}

grpc::Status ModuleServiceImpl::PruneModules(grpc::ServerContext*,
                                             const v1::PruneModulesRequest* request,
                                             v1::PruneModulesResponse* response) {
  return Reply(Prune(*request), response);
}

std::string ModuleServiceImpl::Caller(const grpc::ServerContext& context) const {
  return security_ != nullptr && security_->secure() ? security_->CallerText(context)
                                                     : context.peer();
}

absl::StatusOr<v1::ModuleVersion> ModuleServiceImpl::Message(const log::ModuleVersionRow& row) {
  v1::ModuleVersion version = VersionMessage(row);
  TW_ASSIGN(const std::vector<log::ModuleAliasRow> aliases,
            store_->log()->ListModuleAliases(row.module));
  for (const log::ModuleAliasRow& alias : aliases) {
    if (alias.number == row.number) version.add_aliases(alias.alias);
  }
  TW_ASSIGN(const modules::VersionSignatures signatures, releases_->List(row));
  for (const log::ModuleSignatureRow& one : signatures.valid) {
    *version.add_signatures() = SignatureMessage(one);
  }
  for (const log::ModuleSignatureRow& one : signatures.revoked) {
    *version.add_revoked_signatures() = SignatureMessage(one);
  }
  return version;
}

absl::StatusOr<v1::ModuleVersion> ModuleServiceImpl::Get(const std::string& name) {
  TW_ASSIGN(const log::ModuleVersionRow row, store_->Get(name));
  TW_ASSIGN(v1::ModuleVersion version, Message(row));
  TW_ASSIGN(const std::vector<log::RecordRow> origins, store_->Origins(row));
  for (const log::RecordRow& record : origins) AddOrigin(record, &version);
  return version;
}

absl::StatusOr<v1::ModuleAlias> ModuleServiceImpl::SetAlias(
    const v1::SetModuleAliasRequest& request, const std::string& caller) {
  log::ModuleAliasRow alias;
  TW_ASSIGN(alias.module, modules::ParseModuleParent(request.parent()));
  alias.alias = request.alias();
  alias.updated_us = clock_->WallMicros();
  alias.updated_by = caller;
  if (!request.version().empty()) {
    TW_ASSIGN(const log::ModuleVersionRow version, store_->Get(request.version()));
    if (version.module != alias.module) {
      return support::InvalidArgument(
          "module.alias.bad", support::StrCat("expected a version of ", request.parent(),
                                              ", found ", support::Quote(request.version())));
    }
    alias.number = version.number;
  }
  TW_TRY(store_->SetAlias(alias));
  v1::ModuleAlias response;
  response.set_parent(request.parent());
  response.set_alias(request.alias());
  response.set_version(request.version());
  *response.mutable_update_time() = Timestamp(alias.updated_us);
  response.set_updated_by(caller);
  return response;
}

absl::StatusOr<v1::ModuleVersion> ModuleServiceImpl::AddSignature(
    const v1::AddModuleSignatureRequest& request, const std::string& caller) {
  TW_ASSIGN(const log::ModuleVersionRow row, store_->Get(request.name()));
  const v1::ModuleSignature& given = request.signature();
  const auto id = support::HexDecode(given.key_id());
  const int format = given.format() == 0 ? security::kBytesFormat : given.format();
  const bool known = format == security::kBytesFormat || format == security::kReleaseFormat;
  if (given.signature().size() != kSignatureBytes || !id || id->size() != kKeyIdBytes || !known) {
    return support::InvalidArgument("module.signature.bad",
                                    "expected a key id of 16 hexadecimal digits, a signature of "
                                    "64 bytes and format 1 or 2");
  }
  TW_TRY(releases_->Add(row, {given.key_id(), given.signature(), format}, clock_->WallMicros(),
                        caller));
  return Message(row);
}

absl::StatusOr<v1::ModuleVersion> ModuleServiceImpl::RevokeSignature(
    const v1::RevokeModuleSignatureRequest& request, const std::string& caller) {
  TW_ASSIGN(const log::ModuleVersionRow row, store_->Get(request.name()));
  TW_ASSIGN(const log::Revocation revocation, ReadRevocation(request.reason(), caller));
  TW_TRY(releases_->Revoke(row, request.key_id(), revocation));
  return Message(row);
}

absl::StatusOr<v1::ReleaseKey> ModuleServiceImpl::AddKey(const v1::AddReleaseKeyRequest& request,
                                                         const std::string& caller) {
  TW_ASSIGN(const log::ReleaseKeyRow key,
            releases_->AddKey(request.public_key(), request.display_name(), clock_->WallMicros(),
                              caller));
  return KeyMessage(key);
}

absl::StatusOr<v1::ListReleaseKeysResponse> ModuleServiceImpl::ListKeys() {
  TW_ASSIGN(const std::vector<log::ReleaseKeyRow> keys, store_->log()->ListReleaseKeys());
  v1::ListReleaseKeysResponse response;
  for (const log::ReleaseKeyRow& key : keys) *response.add_keys() = KeyMessage(key);
  return response;
}

absl::StatusOr<v1::ReleaseKey> ModuleServiceImpl::RevokeKey(
    const v1::RevokeReleaseKeyRequest& request, const std::string& caller) {
  TW_ASSIGN(const log::Revocation revocation, ReadRevocation(request.reason(), caller));
  TW_ASSIGN(const log::ReleaseKeyRow key, releases_->RevokeKey(request.key_id(), revocation));
  return KeyMessage(key);
}

// The reason is shown on terminals of other people.
absl::StatusOr<log::Revocation> ModuleServiceImpl::ReadRevocation(const std::string& reason,
                                                                  const std::string& caller) {
  const bool printable =
      std::all_of(reason.begin(), reason.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (printable && !reason.empty() && reason.size() <= kMaxReasonBytes) {
    return log::Revocation{clock_->WallMicros(), caller, reason};
  }
  return support::InvalidArgument(
      "module.revoke.reason",
      support::StrCat("expected a reason of 1 to ", kMaxReasonBytes,
                      " printable ASCII characters, found ", support::Quote(reason, 100)));
}

absl::StatusOr<v1::ModuleVersion> ModuleServiceImpl::Release(const std::string& name,
                                                             const std::string& caller) {
  TW_ASSIGN(const log::ModuleVersionRow row, store_->Get(name));
  TW_TRY(releases_->Sign(row, clock_->WallMicros(), caller));
  return Message(row);
}

absl::StatusOr<v1::PruneModulesResponse> ModuleServiceImpl::Prune(
    const v1::PruneModulesRequest& request) {
  TW_ASSIGN(const std::string module, modules::ParseModuleParent(request.parent()));
  const modules::RetentionPolicy policy{request.keep_versions(), request.max_bytes()};
  if (policy.keep_versions < 0 || policy.max_bytes < 0 || !policy.limits()) {
    return support::InvalidArgument("module.prune.limits",
                                    "expected a number of versions or bytes to keep, found none");
  }
  TW_ASSIGN(const modules::PruneReport report,
            store_->Prune(module, policy, request.dry_run(), clock_->WallMicros()));
  v1::PruneModulesResponse response;
  for (const log::ModuleVersionRow& row : report.pruned)
    *response.add_pruned() = VersionMessage(row);
  response.set_freed_bytes(report.freed_bytes);
  response.set_kept_bytes(report.kept_bytes);
  response.set_within_limits(report.within_limits);
  return response;
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
  question.wish.preference = request.target().empty() && !request.preferred_target().empty();
  TW_ASSIGN(
      question.wish.target,
      CanonicalTarget(question.wish.preference ? request.preferred_target() : request.target()));
  if (request.has_sizes()) question.wish.sizes = jobs::SizesOf(request.sizes());
  question.alias = request.alias();
  question.device_class = request.device_class();
  if (!question.alias.empty() && question.module.empty()) {
    return support::InvalidArgument("module.resolve.alias",
                                    "expected a module with the alias, found none");
  }
  TW_TRY(ReadConstraint(request, &question));
  TW_TRY(ReadLimits(request, store_, &question));
  TW_ASSIGN(const modules::Choice resolved, store_->Resolve(question));
  v1::ResolveModuleResponse response;
  response.set_match(MatchMessage(resolved.match));
  response.set_explanation(resolved.explanation);
  TW_ASSIGN(*response.mutable_version(), Message(resolved.version));
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
    TW_ASSIGN(*response.add_versions(), Message(row));
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
