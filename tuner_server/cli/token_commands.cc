#include "tuner_server/cli/token_commands.h"

#include <nlohmann/json.hpp>

#include "deploy/security/audit_log.h"
#include "deploy/security/identity.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

int64_t UnixSeconds() {
  support::SystemClock clock;
  return clock.WallMicros() / 1'000'000;
}

std::string WhenText(int64_t seconds) { return seconds == 0 ? "-" : security::TimeText(seconds); }

std::string StateText(const security::TokenRow& row, int64_t now_s) {
  if (row.revoked_s != 0) return "revoked";
  return row.expires_s != 0 && row.expires_s <= now_s ? "expired" : "valid";
}

nlohmann::json TokenJson(const security::TokenRow& row, int64_t now_s) {
  return {{"id", row.id},
          {"role", security::RoleText(row.role)},
          {"name", row.name},
          {"state", StateText(row, now_s)},
          {"created", WhenText(row.created_s)},
          {"expires", WhenText(row.expires_s)},
          {"revoked", WhenText(row.revoked_s)}};
}

// The one moment in which the token itself is seen.
absl::Status HandOver(const security::NewToken& made, const TokensOptions& options) {
  nlohmann::json json = TokenJson(made.row, made.row.created_s);
  std::string text = made.token;
  if (!options.identity.empty()) {
    const std::string path = support::PathJoin(options.identity, security::kTokenFile);
    TW_TRY(security::MakePrivateFolder(options.identity));
    TW_TRY(support::WriteFileAtomic(path, made.token + "\n", 0600));
    json["file"] = path;
    text = StrCat("token ", made.row.id, " of ", security::RoleText(made.row.role), " ",
                  made.row.name, " is in ", path);
  } else {
    json["token"] = made.token;
  }
  if (options.format == OutputFormat::kJson) {
    PrintJson(json);
  } else {
    PrintOut(text);
  }
  return absl::OkStatus();
}

}  // namespace

int TokensCreate(const TokensOptions& options) {
  const auto create = [&]() -> absl::Status {
    TW_ASSIGN(const security::Role role, security::ParseRole(options.role));
    TW_ASSIGN(const security::NewToken made,
              security::CreateToken(options.file, role, options.name, options.days, UnixSeconds()));
    return HandOver(made, options);
  };
  return Finish("tokens create", "cannot make a token for " + options.name, create());
}

int TokensList(const TokensOptions& options) {
  const auto list = [&]() -> absl::Status {
    TW_ASSIGN(const std::vector<security::TokenRow> rows, security::LoadTokens(options.file));
    const int64_t now_s = UnixSeconds();
    std::map<std::string, std::string> uses;
    if (!options.audit.empty()) {
      TW_ASSIGN(uses, security::LastTokenUses(options.audit));
    }
    Table table({{"id"},
                 {"role"},
                 {"name"},
                 {"state"},
                 {"created (UTC)"},
                 {"expires"},
                 {"revoked"},
                 {"last audited use"}});
    nlohmann::json json = nlohmann::json::array();
    for (const security::TokenRow& row : rows) {
      const auto use = uses.find(row.id);
      const std::string last = use == uses.end() ? "-" : use->second;
      json.push_back(TokenJson(row, now_s));
      json.back()["last_audited_use"] = last;
      table.AddRow({row.id, security::RoleText(row.role), row.name, StateText(row, now_s),
                    WhenText(row.created_s), WhenText(row.expires_s), WhenText(row.revoked_s),
                    last});
    }
    if (options.format == OutputFormat::kJson) {
      PrintJson(json);
    } else {
      PrintOut(table.rows() == 0 ? "no tokens" : table.Render());
    }
    return absl::OkStatus();
  };
  return Finish("tokens list", "cannot list the tokens of " + options.file, list());
}

int TokensRoles(OutputFormat format) {
  using security::Listener;
  using security::Role;
  const auto roles = [](const security::MethodRule& rule, Listener listener) {
    std::vector<std::string> names;
    for (const Role role : {Role::kAgent, Role::kTuner, Role::kCi, Role::kEngineer, Role::kAdmin}) {
      if (security::Allows(rule, listener, role)) names.push_back(security::RoleText(role));
    }
    return names;
  };
  Table table({{"call"}, {"on the tracker"}, {"on the tuner"}, {"audited"}});
  nlohmann::json rows = nlohmann::json::array();
  for (const security::MethodRule& rule : security::MethodRules()) {
    const std::vector<std::string> tracker = roles(rule, Listener::kTracker);
    const std::vector<std::string> tuner = roles(rule, Listener::kTuner);
    rows.push_back({{"method", rule.method},
                    {"tracker", tracker},
                    {"tuner", tuner},
                    {"audited", rule.audited}});
    const auto text = [](const std::vector<std::string>& names) {
      return names.empty() ? "-" : support::Join(names, " ");
    };
    table.AddRow({std::string(rule.method.substr(rule.method.rfind('.') + 1)), text(tracker),
                  text(tuner), rule.audited ? "yes" : "-"});
  }
  if (format == OutputFormat::kJson) {
    PrintJson(rows);
  } else {
    PrintOut(table.Render());
  }
  return Finish("tokens roles", "", absl::OkStatus());
}

int TokensRevoke(const TokensOptions& options) {
  const absl::Status revoked = security::RevokeToken(options.file, options.id, UnixSeconds());
  if (revoked.ok()) PrintOut(options.id + " is revoked");
  return Finish("tokens revoke", "cannot revoke " + options.id, revoked);
}

int TokensRotate(const TokensOptions& options) {
  const auto rotate = [&]() -> absl::Status {
    TW_ASSIGN(
        const security::NewToken made,
        security::RotateToken(options.file, options.id, options.days,
                              static_cast<int64_t>(options.grace_hours * 3600), UnixSeconds()));
    return HandOver(made, options);
  };
  return Finish("tokens rotate", "cannot rotate " + options.id, rotate());
}

int AuditVerify(const std::string& path) {
  const auto summary = security::VerifyAuditFile(path);
  if (summary.ok()) {
    PrintOut(StrCat(path, ": ", summary->lines, " lines, numbers ", summary->first_seq, " to ",
                    summary->last_seq, ", none changed or missing"));
  }
  return Finish("audit verify", "not whole: " + path, summary.status());
}

}  // namespace tilewright::cli
