#include "tuner_server/cli/certs_commands.h"

#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "deploy/security/authority.h"
#include "deploy/security/certificate_request.h"
#include "deploy/security/enrolment.h"
#include "deploy/security/identity.h"
#include "deploy/security/issued_certificates.h"
#include "deploy/security/revocation.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"

namespace tilewright::cli {
namespace {

using support::PathJoin;
using support::StrCat;

constexpr int64_t kSecondsOfDay = 86'400;

int64_t NowSeconds() {
  support::SystemClock clock;
  return clock.WallMicros() / 1'000'000;
}

nlohmann::json CertificateJson(const security::CertificateInfo& info, int64_t now_s) {
  return {{"subject", info.subject},
          {"issuer", info.issuer},
          {"serial", info.serial},
          {"sha256", info.sha256},
          {"hosts", info.hosts},
          {"uris", info.uris},
          {"authority", info.authority},
          {"not_before", security::TimeText(info.not_before_s)},
          {"not_after", security::TimeText(info.not_after_s)},
          {"days_left", (info.not_after_s - now_s) / kSecondsOfDay}};
}

// The certificates of a PEM file as rows of both forms.
absl::Status AddCertificates(const std::string& path, int64_t now_s, Table* table,
                             nlohmann::json* rows) {
  TW_ASSIGN(const std::string pem, support::ReadFile(path, security::kMaxPemBytes));
  TW_ASSIGN(const auto infos, security::ReadCertificates(pem, path));
  for (const security::CertificateInfo& info : infos) {
    nlohmann::json row = CertificateJson(info, now_s);
    row["file"] = path;
    rows->push_back(row);
    const std::string what = info.authority ? "authority" : support::Join(info.uris, " ");
    table->AddRow({support::BaseName(path), info.subject, what, support::Join(info.hosts, " "),
                   security::TimeText(info.not_after_s),
                   StrCat((info.not_after_s - now_s) / kSecondsOfDay)});
  }
  return absl::OkStatus();
}

// Ok, or why the identity in that folder would be refused.
absl::Status ShowFolder(const std::string& folder, int64_t now_s, Table* table,
                        nlohmann::json* rows) {
  TW_TRY(AddCertificates(PathJoin(folder, security::kAuthorityFile), now_s, table, rows));
  const std::string leaf = PathJoin(folder, security::kCertificateFile);
  if (!support::FileExists(leaf)) return absl::OkStatus();
  TW_TRY(AddCertificates(leaf, now_s, table, rows));
  return security::LoadIdentity(folder, now_s).status();
}

absl::StatusOr<security::LeafRequest> LeafOf(const CertsOptions& options) {
  security::LeafRequest request;
  TW_ASSIGN(request.peer.kind, security::ParseKind(options.kind));
  request.peer.name = options.name;
  TW_TRY(security::CheckName(options.name));
  request.hosts = options.hosts;
  if (options.days > 0) request.days = options.days;
  return request;
}

std::string IdentityFolder(const CertsOptions& options) {
  if (!options.identity.empty()) return options.identity;
  return PathJoin(PathJoin(options.authority, "issued"), options.name);
}

// Of an identity folder, a certificate file, or itself.
absl::StatusOr<std::string> SerialOf(const std::string& what) {
  const bool folder = support::IsDirectory(what);
  if (!folder && !support::FileExists(what)) return what;
  const std::string path = folder ? PathJoin(what, security::kCertificateFile) : what;
  TW_ASSIGN(const std::string pem, support::ReadFile(path, security::kMaxPemBytes));
  TW_ASSIGN(const auto infos, security::ReadCertificates(pem, path));
  return infos.front().serial;
}

absl::Status PrintIdentity(const std::string& folder, OutputFormat format) {
  TW_ASSIGN(const std::string pem, support::ReadFile(PathJoin(folder, security::kCertificateFile),
                                                     security::kMaxPemBytes));
  TW_ASSIGN(const auto infos, security::ReadCertificates(pem, folder));
  if (format == OutputFormat::kJson) {
    nlohmann::json json = CertificateJson(infos.front(), NowSeconds());
    json["identity"] = folder;
    PrintJson(json);
    return absl::OkStatus();
  }
  PrintOut(StrCat(folder, ": ", support::Join(infos.front().uris, " "), ", valid until ",
                  security::TimeText(infos.front().not_after_s), " UTC"));
  return absl::OkStatus();
}

// `certs ticket ... > FILE`: agents refuse a ticket that others can read, and shells make files
// that they can.
void KeepStdoutPrivate() {
  struct stat info{};
  if (fstat(STDOUT_FILENO, &info) == 0 && S_ISREG(info.st_mode)) fchmod(STDOUT_FILENO, 0600);
}

}  // namespace

int CertsInit(const CertsOptions& options) {
  const int days = options.days > 0 ? options.days : security::kAuthorityDays;
  const absl::Status made =
      security::CreateAuthority(options.authority, options.name, days, NowSeconds());
  if (made.ok()) {
    PrintOut(StrCat(options.authority,
                    ": a new authority; keep ca-key.pem to yourself, "
                    "and a copy of the folder in a safe place"));
  }
  return Finish("certs init", "cannot make an authority in " + options.authority, made);
}

int CertsIssue(const CertsOptions& options) {
  const std::string folder = IdentityFolder(options);
  const auto issue = [&]() -> absl::Status {
    TW_ASSIGN(const security::LeafRequest request, LeafOf(options));
    TW_TRY(security::IssueIdentity(options.authority, request, folder, NowSeconds()));
    return PrintIdentity(folder, options.format);
  };
  return Finish("certs issue", "cannot issue a certificate for " + options.name, issue());
}

int CertsRequest(const CertsOptions& options) {
  const auto request = [&]() -> absl::Status {
    TW_ASSIGN(const std::string fingerprint, security::RequestIdentity(options.identity));
    const std::string path = PathJoin(options.identity, security::kRequestFile);
    if (options.format == OutputFormat::kJson) {
      PrintJson({{"identity", options.identity}, {"request", path}, {"key_sha256", fingerprint}});
      return absl::OkStatus();
    }
    PrintOut(StrCat(path, ": give it to the owner of the authority. Its key stays here and has\n",
                    "sha256 ", fingerprint));
    return absl::OkStatus();
  };
  return Finish("certs request", "cannot make a request in " + options.identity, request());
}

int CertsSign(const CertsOptions& options) {
  const std::string folder = IdentityFolder(options);
  const auto sign = [&]() -> absl::Status {
    TW_ASSIGN(const security::LeafRequest request, LeafOf(options));
    TW_ASSIGN(const std::string pem, support::ReadFile(options.request, security::kMaxPemBytes));
    TW_ASSIGN(const std::string fingerprint, security::RequestFingerprint(pem));
    TW_TRY(security::SignRequest(options.authority, pem, request, folder, NowSeconds()));
    if (options.format != OutputFormat::kJson)
      PrintOut("signed the key with sha256 " + fingerprint);
    return PrintIdentity(folder, options.format);
  };
  return Finish("certs sign", "cannot sign " + options.request, sign());
}

int CertsTicket(const CertsOptions& options) {
  const auto make = [&]() -> absl::Status {
    const auto valid_s = static_cast<int64_t>(options.hours * 3600);
    TW_ASSIGN(const security::NewTicket made,
              security::CreateTicket(options.tickets, options.authority, options.name, valid_s,
                                     NowSeconds()));
    const std::string until = security::TimeText(made.row.expires_s);
    KeepStdoutPrivate();
    if (options.format == OutputFormat::kJson) {
      PrintJson({{"id", made.row.id},
                 {"agent", made.row.name},
                 {"expires", until},
                 {"ticket", made.ticket}});
      return absl::OkStatus();
    }
    PrintOut(made.ticket);
    return absl::OkStatus();
  };
  return Finish("certs ticket", "cannot make a ticket for " + options.name, make());
}

int CertsRenew(const CertsOptions& options) {
  const auto renew = [&]() -> absl::Status {
    const int days = options.days > 0 ? options.days : security::kLeafDays;
    TW_TRY(security::RenewIdentity(options.authority, options.identity, days, NowSeconds()));
    return PrintIdentity(options.identity, options.format);
  };
  return Finish("certs renew", "cannot renew " + options.identity, renew());
}

int CertsRotate(const CertsOptions& options, bool retire) {
  const int days = options.days > 0 ? options.days : security::kAuthorityDays;
  const absl::Status status =
      retire ? security::RetireAuthorities(options.authority)
             : security::RotateAuthority(options.authority, days, NowSeconds());
  if (status.ok()) {
    PrintOut(retire ? options.authority +
                          ": only the newest authority is left; renew all "
                          "identities to forget the old ones"
                    : options.authority +
                          ": a new authority signs from now on; renew all "
                          "identities, then 'tilewright certs rotate --retire'");
  }
  return Finish("certs rotate", "cannot rotate " + options.authority, status);
}

int CertsRevoke(const CertsOptions& options) {
  const auto revoke = [&]() -> absl::Status {
    std::vector<std::string> serials;
    for (const std::string& what : options.revoked) {
      TW_ASSIGN(const std::string serial, SerialOf(what));
      serials.push_back(serial);
    }
    TW_ASSIGN(const auto all,
              security::RevokeCertificates(options.authority, serials, NowSeconds()));
    const std::string list = PathJoin(options.authority, security::kRevocationFile);
    if (options.format == OutputFormat::kJson) {
      PrintJson({{"revoked", serials}, {"list", list}, {"serials", all}});
      return absl::OkStatus();
    }
    PrintOut(
        StrCat(list, ": ", all.size(),
               " revoked; copy it into the identity folder of each tracker and tuner, where it "
               "counts within a second"));
    return absl::OkStatus();
  };
  return Finish("certs revoke", "cannot revoke", revoke());
}

int CertsList(const CertsOptions& options, bool all) {
  const auto list = [&]() -> absl::Status {
    const int64_t now_s = NowSeconds();
    TW_ASSIGN(const auto issued, security::ListIssued(options.authority, now_s));
    Table table({{"kind"},
                 {"name"},
                 {"state"},
                 {"hosts"},
                 {"valid until (UTC)"},
                 {"days", true},
                 {"serial"}});
    nlohmann::json rows = nlohmann::json::array();
    for (const security::IssuedCertificate& one : issued) {
      if (!all && one.state == security::CertificateState::kEnded) continue;
      const std::string kind = security::KindText(one.peer.kind);
      const std::string state = security::StateText(one.state);
      nlohmann::json row = CertificateJson(one.info, now_s);
      row["kind"] = kind;
      row["name"] = one.peer.name;
      row["state"] = state;
      rows.push_back(row);
      table.AddRow({kind, one.peer.name, state, support::Join(one.info.hosts, " "),
                    security::TimeText(one.info.not_after_s),
                    StrCat((one.info.not_after_s - now_s) / kSecondsOfDay), one.info.serial});
    }
    if (options.format == OutputFormat::kJson) {
      PrintJson(rows);
    } else {
      PrintOut(table.rows() == 0 ? "no certificates" : table.Render());
    }
    return absl::OkStatus();
  };
  return Finish("certs list", "cannot list what " + options.authority + " has signed", list());
}

int CertsShow(const std::string& path, OutputFormat format) {
  Table table({{"file"}, {"subject"}, {"what"}, {"hosts"}, {"valid until (UTC)"}, {"days", true}});
  nlohmann::json rows = nlohmann::json::array();
  const int64_t now_s = NowSeconds();
  const absl::Status status = support::IsDirectory(path)
                                  ? ShowFolder(path, now_s, &table, &rows)
                                  : AddCertificates(path, now_s, &table, &rows);
  if (format == OutputFormat::kJson) {
    PrintJson(
        {{"certificates", rows}, {"problem", status.ok() ? "" : support::StatusText(status)}});
  } else if (table.rows() > 0) {
    PrintOut(table.Render());
  }
  return Finish("certs show", "not usable: " + path, status);
}

}  // namespace tilewright::cli
