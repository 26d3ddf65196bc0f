#include "deploy/security/audit_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "deploy/security/certificate.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/printable.h"
#include "deploy/support/strings.h"

namespace tilewright::security {
namespace {

using support::MutexLock;

constexpr RateLimit kRefusals = {5, 50};
constexpr size_t kMaxText = 500;
constexpr uint64_t kTailBytes = 64 << 10;

struct ChainLine {
  int64_t seq = 0;
  std::string previous;
};

std::optional<ChainLine> ParseLine(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("seq") || !json["seq"].is_number_integer() ||
      !json.contains("prev") || !json["prev"].is_string()) {
    return std::nullopt;
  }
  return ChainLine{json["seq"].get<int64_t>(), json["prev"].get<std::string>()};
}

absl::Status Invalid(const std::string& path, int64_t number) {
  return support::DataLoss(
      "audit.file.invalid",
      support::StrCat("expected a line of an audit log, found something else in ", path, ":",
                      number));
}

// The last line of the file, empty when there is none; `torn` bytes follow it without an end.
absl::StatusOr<std::string> LastLine(const std::string& path, uint64_t* torn) {
  *torn = 0;
  if (!support::FileExists(path)) return std::string();
  TW_ASSIGN(const uint64_t size, support::FileSize(path));
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(size > kTailBytes ? size - kTailBytes : 0));
  const std::string tail((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t end = tail.rfind('\n');
  *torn = end == std::string::npos ? tail.size() : tail.size() - end - 1;
  if (end == std::string::npos) return std::string();
  const size_t before = end == 0 ? std::string::npos : tail.rfind('\n', end - 1);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return tail.substr(begin, end - begin);
}

std::string TimestampOf(int64_t wall_micros) {
  std::string text = TimeText(wall_micros / 1'000'000);
  text[10] = 'T';
  return text + "Z";
}

absl::Status AppendLine(const std::string& path, const std::string& line) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return support::ErrnoError(errno, "audit.write.failed", path);
  const off_t before = lseek(fd, 0, SEEK_END);
  const ssize_t written = write(fd, line.data(), line.size());  // one line, one write
  const int error = errno;
  // A part of a line would spoil the next one.
  const bool torn = written >= 0 && written < static_cast<ssize_t>(line.size());
  const bool mended = !torn || ftruncate(fd, before) == 0;
  close(fd);
  if (written >= 0 && !torn) return absl::OkStatus();
  return support::ErrnoError(torn ? ENOSPC : error, "audit.write.failed",
                             mended ? path : path + " (its last line is torn)");
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(std::string path, support::Clock* clock) {
  std::unique_ptr<AuditLog> log(new AuditLog(std::move(path), clock));
  uint64_t torn = 0;
  TW_ASSIGN(const std::string last, LastLine(log->path_, &torn));
  const auto line = ParseLine(last);
  const bool ours = line.has_value() || (last.empty() && torn < kTailBytes);
  if (!ours) {
    log->damaged_ = support::StrCat(log->path_, ".damaged-", clock->WallMicros());
    if (rename(log->path_.c_str(), log->damaged_.c_str()) != 0) {
      return support::ErrnoError(errno, "audit.file.invalid", log->path_);
    }
    return log;
  }
  if (torn > 0) {
    TW_ASSIGN(const uint64_t size, support::FileSize(log->path_));
    if (truncate(log->path_.c_str(), static_cast<off_t>(size - torn)) != 0) {
      return support::ErrnoError(errno, "audit.write.failed", log->path_);
    }
  }
  if (!line.has_value()) return log;
  MutexLock lock(log->mutex_);
  log->seq_ = line->seq;
  log->previous_ = support::Sha256Hex(last);
  return log;
}

absl::Status AuditLog::Append(const AuditEntry& entry) {
  nlohmann::ordered_json json;
  json["ts"] = TimestampOf(clock_->WallMicros());
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) json[key] = value.size() > kMaxText ? value.substr(0, kMaxText) : value;
  };
  json["who"] = entry.who.empty() ? "unknown" : entry.who;
  add("token", entry.token);
  add("certificate", entry.certificate);
  add("from", entry.from);
  add("on_behalf_of", entry.on_behalf);
  add("method", entry.method);
  add("what", entry.what);
  json["outcome"] = entry.outcome;
  add("detail", entry.detail);
  MutexLock lock(mutex_);
  if (suppressed_ > 0) json["suppressed"] = suppressed_;
  json["seq"] = seq_ + 1;
  json["prev"] = previous_;
  const std::string line = support::Printable(
      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  TW_TRY(AppendLine(path_, line + "\n"));
  ++seq_;
  suppressed_ = 0;
  previous_ = support::Sha256Hex(line);
  return absl::OkStatus();
}

absl::Status AuditLog::AppendRefusal(const AuditEntry& entry) {
  if (refusals_.Take(entry.certificate, kRefusals)) return Append(entry);
  MutexLock lock(mutex_);
  ++suppressed_;
  return absl::OkStatus();
}

absl::StatusOr<AuditSummary> VerifyAuditFile(const std::string& path) {
  if (!support::FileExists(path)) return support::NotFound("audit.file.missing", path);
  std::ifstream file(path);
  AuditSummary summary;
  std::string text, previous;
  for (int64_t number = 1; std::getline(file, text); ++number) {
    const auto line = ParseLine(text);
    if (!line.has_value()) return Invalid(path, number);
    // The first line goes on from a file that was moved away.
    const bool first = summary.lines == 0;
    if (!first && (line->previous != previous || line->seq != summary.last_seq + 1)) {
      return support::DataLoss(
          "audit.chain.broken",
          support::StrCat("expected the line after number ", summary.last_seq,
                          " of the log, found another in ", path, ":", number));
    }
    if (first) summary.first_seq = line->seq;
    summary.last_seq = line->seq;
    ++summary.lines;
    previous = support::Sha256Hex(text);
  }
  return summary;
}

absl::StatusOr<std::map<std::string, std::string>> LastTokenUses(const std::string& path) {
  if (!support::FileExists(path)) return support::NotFound("audit.file.missing", path);
  std::ifstream in(path);
  std::map<std::string, std::string> uses;
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("token") || !json.contains("ts")) continue;
    if (!json["token"].is_string() || !json["ts"].is_string()) continue;
    uses[json["token"].get<std::string>()] = json["ts"].get<std::string>();
  }
  return uses;
}

}  // namespace tilewright::security
