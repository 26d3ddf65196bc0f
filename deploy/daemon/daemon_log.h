// Structured log of the daemons: one JSON object per line on standard error, with at least ts
// (UTC), level, service and event; ids (job, work_item, measurement_id, lease, device, agent) are
// fields of their own. Secrets are never fields. Thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "deploy/support/status.h"

namespace tilewright::daemon {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogField {
  LogField(std::string_view k, std::string_view v) : key(k), value(std::string(v)) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(std::string(v)) {}
  LogField(std::string_view k, int64_t v) : key(k), value(v) {}
  LogField(std::string_view k, uint64_t v) : key(k), value(static_cast<int64_t>(v)) {}
  LogField(std::string_view k, int v) : key(k), value(static_cast<int64_t>(v)) {}
  LogField(std::string_view k, double v) : key(k), value(v) {}
  LogField(std::string_view k, bool v) : key(k), value(v) {}

  std::string key;
  std::variant<std::string, int64_t, double, bool> value;
};

// debug, info, warning or error; invalid_argument (daemon.log_level.invalid) otherwise.
absl::StatusOr<LogLevel> ParseLogLevel(std::string_view text);

// Sets the process's log; call once, before threads start. Before that, lines go out with an empty
// service.
void InitLog(std::string_view service, LogLevel level);

// From now on; thread-safe. The names are those of ParseLogLevel.
void SetLogLevel(LogLevel level);
std::string LogLevelText(LogLevel level);

// `event` is a stable lower-case slug, e.g. "lease.expired".
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

inline void LogDebug(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kDebug, event, fields);
}
inline void LogInfo(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, event, fields);
}
inline void LogWarning(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarning, event, fields);
}
inline void LogError(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, event, fields);
}

// Exposed for tests: the line Log would write, without the newline.
std::string FormatLogLine(std::string_view service, LogLevel level, std::string_view event,
                          std::initializer_list<LogField> fields, int64_t wall_micros);

}  // namespace tilewright::daemon
