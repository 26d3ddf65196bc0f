#include "deploy/daemon/server_security.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpc/grpc_security_constants.h>

#include <utility>

#include "deploy/daemon/credentials.h"
#include "deploy/daemon/daemon_log.h"
#include "deploy/daemon/peer_certificate.h"
#include "deploy/daemon/wire.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::daemon {
namespace {

using security::CallFacts;

constexpr int kMaxFieldDepth = 2;

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

std::string_view Find(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
                      const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string_view() : View(found->second);
}

// The URIs of the certificate that the handshake has verified.
std::vector<std::string> PeerUrisOf(const grpc::AuthContext* context) {
  std::vector<std::string> uris;
  if (context == nullptr) return uris;
  for (const grpc::string_ref& uri : context->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    uris.emplace_back(uri.data(), uri.size());
  }
  return uris;
}

// For the audit log.
std::string UrisText(const std::vector<std::string>& uris) { return support::Join(uris, " "); }

std::string CredentialText(const grpc::AuthContext* context) {
  const std::string_view pem = PeerCertificate(context);
  return pem.empty() ? "" : support::Hex64(support::StableHash64(pem));
}

// What a request is about: the first of these fields that says something, also of the message in it
// ("hold.device").
std::string SubjectOf(const google::protobuf::Message& message, int depth = 0) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Descriptor* type = message.GetDescriptor();
  const google::protobuf::Reflection* reflection = message.GetReflection();
  for (const char* name : {"name", "job_id", "device", "job", "parent", "target"}) {
    const FieldDescriptor* field = type->FindFieldByName(name);
    if (field == nullptr || field->is_repeated() || field->type() != FieldDescriptor::TYPE_STRING) {
      continue;
    }
    const std::string text = reflection->GetString(message, field);
    if (!text.empty()) return text;
  }
  for (int i = 0; i < type->field_count() && depth < kMaxFieldDepth; ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->is_repeated() || field->type() != FieldDescriptor::TYPE_MESSAGE ||
        !reflection->HasField(message, field)) {
      continue;
    }
    const std::string text = SubjectOf(reflection->GetMessage(message, field), depth + 1);
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace

std::string PeerHost(const std::string& peer) {
  const size_t scheme = peer.find(':');
  const size_t port = peer.rfind(':');
  if (scheme == std::string::npos || port <= scheme) return peer;
  std::string host = peer.substr(scheme + 1, port - scheme - 1);
  // gRPC writes an IPv6 host percent-encoded and in brackets.
  if (host.rfind("%5B", 0) == 0 && host.size() > 6) return host.substr(3, host.size() - 6);
  if (!host.empty() && host.front() == '[' && host.back() == ']') {
    return host.substr(1, host.size() - 2);
  }
  return host;
}

// Runs before any handler, for every call of a secure listener, also for methods that do not exist.
class ServerSecurity::TokenProcessor final : public grpc::AuthMetadataProcessor {
 public:
  explicit TokenProcessor(ServerSecurity* security) : security_(security) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const CallFacts facts{Find(metadata, ":path"), Find(metadata, "authorization"),
                          PeerUrisOf(context)};
    const absl::Status revoked = security_->revocations_->Check(PeerCertificate(context));
    const absl::StatusOr<security::Caller> caller =
        revoked.ok() ? security_->guard_->Admit(facts) : absl::StatusOr<security::Caller>(revoked);
    security_->TellOfTokenFile();
    security_->TellOfRevocations();
    if (caller.ok()) return grpc::Status::OK;
    security_->Refused(facts, caller.status());
    security_->TellRevoked(UrisText(facts.peer_uris), CredentialText(context), caller.status());
    return ToGrpc(caller.status());
  }

 private:
  ServerSecurity* const security_;
};

// One per audited call.
class ServerSecurity::Auditor final : public grpc::experimental::Interceptor {
 public:
  Auditor(ServerSecurity* security, grpc::experimental::ServerRpcInfo* info)
      : security_(security), info_(info), method_(info->method()) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    using Hook = grpc::experimental::InterceptionHookPoints;
    if (batch->QueryInterceptionHookPoint(Hook::POST_RECV_MESSAGE)) {
      // All our services are generated from protos: a received message is one of protobuf's.
      const auto* message = static_cast<const google::protobuf::Message*>(batch->GetRecvMessage());
      if (message != nullptr) what_ = SubjectOf(*message);
    }
    if (batch->QueryInterceptionHookPoint(Hook::PRE_SEND_STATUS)) {
      security_->Audited(*info_->server_context(), method_, what_, batch->GetSendStatus());
    }
    batch->Proceed();
  }

 private:
  ServerSecurity* const security_;
  grpc::experimental::ServerRpcInfo* const info_;
  const std::string method_;
  std::string what_;
};

class ServerSecurity::AuditorFactory final
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit AuditorFactory(ServerSecurity* security) : security_(security) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    const security::MethodRule* rule = security::FindRule(info->method());
    if (rule == nullptr || !rule->audited) return nullptr;
    return new Auditor(security_, info);
  }

 private:
  ServerSecurity* const security_;
};

absl::StatusOr<std::unique_ptr<ServerSecurity>> ServerSecurity::Open(const SecurityOptions& options,
                                                                     support::Clock* clock) {
  if (options.identity.empty() != options.tokens.empty()) {
    return support::FailedPrecondition(
        "daemon.security.incomplete",
        support::StrCat("expected --identity and --tokens together, found only --",
                        options.identity.empty() ? "tokens" : "identity"));
  }
  std::unique_ptr<ServerSecurity> made(new ServerSecurity(options, clock));
  if (!options.audit_path.empty()) {
    TW_ASSIGN(made->audit_, security::AuditLog::Open(options.audit_path, clock));
    if (!made->audit_->damaged().empty()) {
      LogError("audit.damaged", {{"moved_to", made->audit_->damaged()}});
    }
  }
  if (options.identity.empty()) return made;
  TW_ASSIGN(made->guard_, security::CallGuard::Open(options.tokens, options.listener, clock));
  TW_ASSIGN(made->revocations_, security::RevocationList::Open(options.identity, clock));
  return made;
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerSecurity::Credentials() {
  if (!secure()) return grpc::InsecureServerCredentials();
  return TlsServerCredentials(options_.identity, std::make_shared<TokenProcessor>(this), clock_);
}

absl::StatusOr<security::Caller> ServerSecurity::Identify(
    const grpc::ServerContextBase& context) const {
  return guard_->Identify({"", Find(context.client_metadata(), "authorization"),
                           PeerUrisOf(context.auth_context().get())});
}

std::string ServerSecurity::CallerText(const grpc::ServerContextBase& context) const {
  if (!secure()) return PeerHost(context.peer());
  const auto caller = Identify(context);
  return caller.ok() ? caller->Text() : "unknown";
}

std::string ServerSecurity::CredentialOf(const grpc::ServerContextBase& context) const {
  return CredentialText(context.auth_context().get());
}

bool ServerSecurity::IsRevoked(const grpc::ServerContextBase& context) const {
  return secure() && !revocations_->Check(PeerCertificate(context.auth_context().get())).ok();
}

void ServerSecurity::TellRevoked(std::string_view uri, const std::string& credential,
                                 const absl::Status& why) {
  const std::string slug = support::Slug(why);
  const bool revoked = slug == "auth.certificate.revoked" || slug == "auth.token.revoked";
  if (on_revoked_ && revoked) on_revoked_(uri, credential, why);
}

absl::Status ServerSecurity::CheckAgent(const grpc::ServerContextBase& context,
                                        const std::string& agent) const {
  if (!secure()) return absl::OkStatus();
  TW_ASSIGN(const security::Caller caller, Identify(context));
  if (agent == "agents/" + caller.name) return absl::OkStatus();
  return support::PermissionDenied(
      "auth.agent.mismatch",
      support::StrCat("the token of ", caller.Text(), " may not speak for ",
                      support::Quote(agent, 80), "; start the agent with --name ", caller.name));
}

absl::Status ServerSecurity::CheckAdmin(const grpc::ServerContextBase& context,
                                        std::string_view what) const {
  if (!secure()) return absl::OkStatus();
  TW_ASSIGN(const security::Caller caller, Identify(context));
  if (caller.role == security::Role::kAdmin) return absl::OkStatus();
  return support::PermissionDenied(
      "auth.admin.required",
      support::StrCat(what, " is for administrators, not for ", caller.Text()));
}

void ServerSecurity::TellOfTokenFile() {
  const absl::Status status = guard_->FileStatus();
  if (token_file_bad_.exchange(!status.ok()) == !status.ok()) return;
  if (status.ok()) {
    LogInfo("tokens.file.readable", {{"file", options_.tokens}});
  } else {
    LogError("tokens.file.unreadable", {{"error", support::StatusText(status)},
                                        {"message", "the tokens that were read last stay valid"}});
  }
}

void ServerSecurity::TellOfRevocations() {
  const absl::Status status = revocations_->FileStatus();
  if (revocations_bad_.exchange(!status.ok()) == !status.ok()) return;
  if (status.ok()) {
    LogInfo("revocations.file.readable", {{"identity", options_.identity}});
  } else {
    LogError("revocations.file.unreadable",
             {{"error", support::StatusText(status)},
              {"message", "the list that was read last stays valid"}});
  }
}

void ServerSecurity::Refused(const CallFacts& facts, const absl::Status& status) {
  const std::string slug = support::Slug(status);
  if (options_.metrics != nullptr) {
    options_.metrics
        ->Counter("tilewright_auth_refused_total", "calls refused before their handler",
                  {{"reason", slug}})
        .Increment();
  }
  if (audit_ == nullptr) return;
  security::AuditEntry entry;
  // One who showed a known token, but wanted too much, or too late.
  if (const auto caller = guard_->Identify(facts); caller.ok()) {
    entry.who = caller->Text();
    entry.token = caller->token_id;
  }
  entry.certificate = UrisText(facts.peer_uris);
  entry.method = std::string(facts.method);
  entry.outcome = absl::StatusCodeToString(status.code());
  entry.detail = support::StatusText(status);
  const absl::Status written = audit_->AppendRefusal(entry);
  if (!written.ok()) LogError("audit.failed", {{"error", support::StatusText(written)}});
}

void ServerSecurity::Record(const security::AuditEntry& entry, const absl::Status& status) {
  if (audit_ == nullptr) return;
  const absl::Status written = status.ok() ? audit_->Append(entry) : audit_->AppendRefusal(entry);
  if (!written.ok()) LogError("audit.failed", {{"error", support::StatusText(written)}});
}

void ServerSecurity::Audited(const grpc::ServerContextBase& context, const std::string& method,
                             const std::string& what, const grpc::Status& status) {
  security::AuditEntry entry;
  bool forwarder = !secure();  // in plain text everybody is believed
  if (secure()) {
    if (const auto caller = Identify(context); caller.ok()) {
      entry.who = caller->Text();
      entry.token = caller->token_id;
      forwarder = caller->role == security::Role::kTuner;
    }
    entry.certificate = UrisText(PeerUrisOf(context.auth_context().get()));
  }
  entry.from = PeerHost(context.peer());
  if (forwarder) entry.on_behalf = std::string(Find(context.client_metadata(), kOnBehalfKey));
  entry.method = method;
  entry.what = what;
  const absl::Status outcome = FromGrpc(status);
  entry.outcome = absl::StatusCodeToString(outcome.code());
  entry.detail = support::Slug(outcome);
  const absl::Status written = audit_->Append(entry);
  if (!written.ok()) LogError("audit.failed", {{"error", support::StatusText(written)}});
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
ServerSecurity::AuditInterceptor() {
  if (audit_ == nullptr) return nullptr;
  return std::make_unique<AuditorFactory>(this);
}

}  // namespace tilewright::daemon
