#include "tuner_server/cli/module_keys.h"

#include <nlohmann/json.hpp>

#include "deploy/security/module_signature.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/module_commands.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

nlohmann::json KeyJson(const v1::ReleaseKey& key) {
  nlohmann::json out = {{"key_id", key.key_id()},
                        {"name", key.display_name()},
                        {"created_by", key.created_by()},
                        {"create_time", TimestampText(key.create_time())},
                        {"revoked", key.has_revoke_time()}};
  if (key.has_revoke_time()) {
    out["revoke_time"] = TimestampText(key.revoke_time());
    out["revoked_by"] = key.revoked_by();
    out["revoke_reason"] = key.revoke_reason();
  }
  return out;
}

void Print(const v1::ReleaseKey& key, const std::string& done, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    PrintJson(KeyJson(key));
  } else {
    PrintOut(StrCat(done, " key ", key.key_id(), "  ", key.display_name()));
  }
}

absl::StatusOr<v1::ReleaseKey> AddKey(const ReleaseKeyAdding& adding) {
  TW_ASSIGN(const auto key, security::ModuleVerifier::Load(adding.path));
  v1::AddReleaseKeyRequest request;
  TW_ASSIGN(*request.mutable_public_key(), key->public_key());
  request.set_display_name(adding.name.empty() ? support::BaseName(adding.path) : adding.name);
  TW_ASSIGN(ServerClient client, ServerClient::Connect(adding.server));
  return client.Call(client.modules(), &v1::ModuleService::Stub::AddReleaseKey, request);
}

absl::Status ListKeys(const ServerPlace& server, OutputFormat format) {
  TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
  TW_ASSIGN(const v1::ListReleaseKeysResponse answer,
            client.Call(client.modules(), &v1::ModuleService::Stub::ListReleaseKeys,
                        v1::ListReleaseKeysRequest()));
  Table table({{"key"}, {"name"}, {"added by"}, {"added (UTC)"}, {"revoked"}});
  nlohmann::json rows = nlohmann::json::array();
  for (const v1::ReleaseKey& key : answer.keys()) {
    rows.push_back(KeyJson(key));
    table.AddRow({key.key_id(), key.display_name(), key.created_by(),
                  TimestampText(key.create_time()),
                  key.has_revoke_time() ? StrCat(TimestampText(key.revoke_time()), " by ",
                                                 key.revoked_by(), ": ", key.revoke_reason())
                                        : "-"});
  }
  if (format == OutputFormat::kJson) {
    PrintJson(rows);
  } else {
    PrintOut(table.Render());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> KeyIdOf(const std::string& key) {
  if (!support::FileExists(key)) return key;
  TW_ASSIGN(const auto loaded, security::ModuleVerifier::Load(key));
  return loaded->key_id();
}

absl::StatusOr<v1::ReleaseKey> RevokeKey(const ReleaseRevoking& revoking) {
  v1::RevokeReleaseKeyRequest request;
  TW_ASSIGN(*request.mutable_key_id(), KeyIdOf(revoking.key_id));
  request.set_reason(revoking.reason);
  TW_ASSIGN(ServerClient client, ServerClient::Connect(revoking.server));
  return client.Call(client.modules(), &v1::ModuleService::Stub::RevokeReleaseKey, request);
}

absl::StatusOr<v1::ModuleVersion> RevokeRelease(const ReleaseRevoking& revoking) {
  TW_ASSIGN(const ModuleRef ref, ParseModule(revoking.name));
  if (ref.number == 0 && ref.alias.empty()) {
    return support::InvalidArgument(
        "cli.usage.module",
        "expected one version, NAME/NUMBER or NAME@ALIAS, found " + support::Quote(revoking.name));
  }
  v1::RevokeModuleSignatureRequest request;
  TW_ASSIGN(*request.mutable_key_id(), KeyIdOf(revoking.key_id));
  TW_ASSIGN(ServerClient client, ServerClient::Connect(revoking.server));
  TW_ASSIGN(const v1::ModuleVersion version, FindModule(client, revoking.name));
  request.set_name(version.name());
  request.set_reason(revoking.reason);
  return client.Call(client.modules(), &v1::ModuleService::Stub::RevokeModuleSignature, request);
}

}  // namespace

int ModulesKeysAdd(const ReleaseKeyAdding& adding) {
  const auto key = AddKey(adding);
  if (key.ok()) Print(*key, "registered", adding.format);
  return Finish("modules keys add", "cannot register " + adding.path, key.status());
}

int ModulesKeysList(const ServerPlace& server, OutputFormat format) {
  return Finish("modules keys list", "cannot list keys", ListKeys(server, format));
}

int ModulesKeysRevoke(const ReleaseRevoking& revoking) {
  const auto key = RevokeKey(revoking);
  if (key.ok()) Print(*key, "revoked", revoking.format);
  return Finish("modules keys revoke", "cannot revoke key " + revoking.key_id, key.status());
}

int ModulesRevoke(const ReleaseRevoking& revoking) {
  const auto version = RevokeRelease(revoking);
  if (version.ok() && revoking.format == OutputFormat::kJson) {
    PrintJson(VersionJson(*version));
  } else if (version.ok()) {
    PrintOut(StrCat("revoked the release of ", version->name(), " by ", revoking.key_id));
  }
  return Finish("modules revoke", "cannot revoke " + revoking.name, version.status());
}

}  // namespace tilewright::cli
