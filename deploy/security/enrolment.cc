#include "deploy/security/enrolment.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "deploy/security/authority.h"
#include "deploy/security/certificate_request.h"
#include "deploy/security/secret_rows.h"
#include "deploy/security/token_file.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::security {
namespace {

using support::StrCat;

constexpr std::string_view kTicketPrefix = "twe";
constexpr size_t kHashDigits = 64;
constexpr size_t kTicketFields = 7;
constexpr uint64_t kMaxTicketFileBytes = 16 << 20;
constexpr int64_t kMaxSeconds = int64_t{30} * 86'400;
constexpr char kUnspent[] = "-";
constexpr char kTicketHeader[] =
    "# tilewright enrolment 1: id name sha256 created expires key bound\n";

absl::Status Refused(absl::StatusCode code, std::string_view slug, const std::string& detail) {
  return support::MakeError(code, slug, detail);
}

std::string CheckOf(const TicketText& ticket) {
  return support::Sha256Hex(
             StrCat("tilewright ticket ", ticket.id, " ", ticket.secret, " ", ticket.authority))
      .substr(0, kCheckDigits);
}

std::string FormatRow(const TicketRow& row) {
  return StrCat(row.id, " ", row.name, " ", row.sha256, " ", row.created_s, " ", row.expires_s, " ",
                row.key.empty() ? kUnspent : row.key, " ", row.bound_s, "\n");
}

std::optional<TicketRow> ParseTicketRow(std::string_view line) {
  const std::vector<std::string> fields = support::Split(line, ' ');
  if (fields.size() != kTicketFields) return std::nullopt;
  TicketRow row;
  row.id = fields[0];
  row.name = fields[1];
  row.sha256 = fields[2];
  const auto created = support::ParseInt64(fields[3]);
  const auto expires = support::ParseInt64(fields[4]);
  const auto bound = support::ParseInt64(fields[6]);
  const bool spent = fields[5] != kUnspent;
  if (spent) row.key = fields[5];
  if (!IsHex(row.id, 2 * kIdBytes) || !CheckName(row.name).ok() ||
      !IsHex(row.sha256, kHashDigits) || (spent && !IsHex(row.key, kHashDigits)) ||
      created.value_or(-1) < 0 || expires.value_or(-1) < 0 || bound.value_or(-1) < 0) {
    return std::nullopt;
  }
  row.created_s = *created;
  row.expires_s = *expires;
  row.bound_s = *bound;
  return row;
}

absl::Status WriteRows(const std::string& path, const std::vector<TicketRow>& rows) {
  std::string text = kTicketHeader;
  for (const TicketRow& row : rows) text += FormatRow(row);
  return WriteSecretRows(path, text);
}

// Its row where the ticket counts now, whatever it was spent for.
absl::StatusOr<TicketRow*> FindRow(std::vector<TicketRow>* rows, const TicketText& ticket,
                                   int64_t now_s) {
  const std::string sha256 = support::Sha256Hex(ticket.secret);
  for (TicketRow& row : *rows) {
    if (row.id != ticket.id || row.sha256 != sha256) continue;
    if (now_s < row.expires_s) return &row;
    return Refused(absl::StatusCode::kUnauthenticated, "enrol.ticket.expired",
                   "the ticket has ended; ask for another");
  }
  return Refused(absl::StatusCode::kUnauthenticated, "enrol.ticket.unknown",
                 "no such ticket was made here");
}

absl::Status Bind(TicketRow* row, const std::string& key, int64_t now_s) {
  if (row->key.empty()) {
    row->key = key;
    row->bound_s = now_s;
    return absl::OkStatus();
  }
  if (row->key == key) return absl::OkStatus();
  return Refused(absl::StatusCode::kPermissionDenied, "enrol.ticket.spent",
                 "the ticket was used for another key; if that was not you, revoke " + row->name);
}

// What earlier answers to the same ticket gave: nobody may have got them.
absl::Status EndEarlierTokens(const std::string& tokens, const TicketRow& ticket, int64_t now_s) {
  if (!support::FileExists(tokens)) return absl::OkStatus();
  TW_ASSIGN(const std::vector<TokenRow> rows, LoadTokens(tokens));
  for (const TokenRow& row : rows) {
    const bool ours = row.role == Role::kAgent && row.name == ticket.name &&
                      row.created_s >= ticket.bound_s && row.revoked_s == 0;
    if (ours) TW_TRY(RevokeToken(tokens, row.id, now_s));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TicketText> ParseTicket(std::string_view text) {
  const std::vector<std::string> parts = support::Split(text, '_');
  if (parts.size() == 5 && parts[0] == kTicketPrefix && IsHex(parts[1], 2 * kIdBytes) &&
      IsHex(parts[2], 2 * kSecretBytes) && IsHex(parts[3], kHashDigits)) {
    TicketText ticket{parts[1], parts[2], parts[3]};
    if (parts[4] == CheckOf(ticket)) return ticket;
  }
  return Refused(absl::StatusCode::kUnauthenticated, "enrol.ticket.malformed",
                 "expected twe_..., found something else, or a typing mistake in it");
}

absl::StatusOr<std::vector<TicketRow>> ParseTicketRows(std::string_view text) {
  std::vector<TicketRow> rows;
  int number = 0;
  for (const std::string& line : support::Split(text, '\n')) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const std::optional<TicketRow> row = ParseTicketRow(line);
    if (!row.has_value()) {
      return support::DataLoss(
          "enrol.file.invalid",
          StrCat("expected seven fields of a ticket, found something else in line ", number));
    }
    rows.push_back(*row);
  }
  return rows;
}

absl::StatusOr<std::vector<TicketRow>> LoadTickets(const std::string& path) {
  if (!support::FileExists(path)) return std::vector<TicketRow>();
  TW_ASSIGN(const std::string text, support::ReadFile(path, kMaxTicketFileBytes));
  auto rows = ParseTicketRows(text);
  if (!rows.ok()) return support::WithContext(rows.status(), path);
  return rows;
}

absl::StatusOr<NewTicket> CreateTicket(const std::string& path, const std::string& authority,
                                       const std::string& name, int64_t valid_s, int64_t now_s) {
  TW_TRY(CheckName(name));
  if (valid_s < 1 || valid_s > kMaxSeconds) {
    return support::InvalidArgument("enrol.hours.invalid", "expected a ticket for up to 30 days");
  }
  const std::string certificate = support::PathJoin(authority, kAuthorityFile);
  TW_ASSIGN(const std::string pem, support::ReadFile(certificate, kMaxPemBytes));
  TW_ASSIGN(const auto infos, ReadCertificates(pem, certificate));
  TicketText text;
  TW_ASSIGN(text.id, RandomHex(kIdBytes));
  TW_ASSIGN(text.secret, RandomHex(kSecretBytes));
  text.authority = infos.front().sha256;
  NewTicket made;
  made.row = {text.id, name, support::Sha256Hex(text.secret), now_s, now_s + valid_s, "", 0};
  made.ticket = StrCat(kTicketPrefix, "_", text.id, "_", text.secret, "_", text.authority, "_",
                       CheckOf(text));
  TW_ASSIGN(const support::FileLock lock, LockSecretRows(path));
  TW_ASSIGN(std::vector<TicketRow> rows, LoadTickets(path));
  rows.push_back(made.row);
  TW_TRY(WriteRows(path, rows));
  return made;
}

absl::StatusOr<Enrolled> Enrol(const EnrolmentFiles& files, const EnrolmentRequest& request,
                               int64_t now_s) {
  TW_ASSIGN(const TicketText ticket, ParseTicket(request.ticket));
  TW_ASSIGN(const support::FileLock lock, LockSecretRows(files.tickets));
  TW_ASSIGN(std::vector<TicketRow> rows, LoadTickets(files.tickets));
  TW_ASSIGN(TicketRow * row, FindRow(&rows, ticket, now_s));
  // Only now: strangers do not get their requests parsed.
  TW_ASSIGN(const std::string key, RequestFingerprint(request.request));
  if (!request.name.empty() && request.name != row->name) {
    return Refused(absl::StatusCode::kPermissionDenied, "enrol.name.mismatch",
                   "the ticket is for an agent of another name");
  }
  TW_TRY(Bind(row, key, now_s));
  TW_TRY(WriteRows(files.tickets, rows));
  Enrolled enrolled;
  enrolled.name = row->name;
  LeafRequest leaf;
  leaf.peer = {CertificateKind::kAgent, row->name};
  TW_ASSIGN(enrolled.identity, SignRequest(files.authority, request.request, leaf, now_s));
  TW_TRY(EndEarlierTokens(files.tokens, *row, now_s));
  TW_ASSIGN(NewToken token, CreateToken(files.tokens, Role::kAgent, row->name, kTokenDays, now_s));
  enrolled.token = std::move(token.token);
  return enrolled;
}

absl::StatusOr<std::string> PinnedAuthority(std::string_view pem, const std::string& sha256) {
  constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----";
  size_t at = pem.find(kBegin);
  while (at != std::string_view::npos) {
    const size_t next = pem.find(kBegin, at + kBegin.size());
    const std::string_view block = pem.substr(at, next == pem.npos ? pem.npos : next - at);
    const auto infos = ReadCertificates(block, "the answer");
    if (infos.ok() && infos->front().sha256 == sha256) return std::string(block);
    at = next;
  }
  return Refused(
      absl::StatusCode::kPermissionDenied, "enrol.authority.mismatch",
      "the server that answers does not have the authority of the ticket: another fleet, or "
      "an attacker in between");
}

}  // namespace tilewright::security
