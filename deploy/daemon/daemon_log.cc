#include "deploy/daemon/daemon_log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "deploy/support/clock.h"
#include "deploy/support/printable.h"
#include "deploy/support/strings.h"

namespace tilewright::daemon {
namespace {

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "error";
}

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::string Timestamp(int64_t wall_micros) {
  const std::time_t seconds = static_cast<std::time_t>(wall_micros / 1'000'000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  char fraction[16];
  std::snprintf(fraction, sizeof(fraction), ".%06dZ", static_cast<int>(wall_micros % 1'000'000));
  return std::string(text, length) + fraction;
}

// spdlog keeps loggers by name; ours carries the service's name and nothing else.
std::shared_ptr<spdlog::logger> Logger() {
  auto logger = spdlog::get("tilewright");
  if (logger != nullptr) return logger;
  try {
    logger = spdlog::stderr_logger_mt("tilewright");
    logger->set_pattern("%v");
    return logger;
  } catch (const spdlog::spdlog_ex&) {
    return spdlog::get("tilewright");  // another thread was first
  }
}

std::string& ServiceName() {
  static std::string* const name = new std::string();
  return *name;
}

}  // namespace

absl::StatusOr<LogLevel> ParseLogLevel(std::string_view text) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (text == LevelName(level)) return level;
  }
  return support::InvalidArgument(
      "daemon.log_level.invalid",
      "expected debug, info, warning or error, found " + support::Quote(text));
}

void InitLog(std::string_view service, LogLevel level) {
  ServiceName() = std::string(service);
  const auto logger = Logger();
  logger->set_level(SpdlogLevel(level));
  logger->flush_on(spdlog::level::debug);
}

void SetLogLevel(LogLevel level) { Logger()->set_level(SpdlogLevel(level)); }

std::string LogLevelText(LogLevel level) { return LevelName(level); }

std::string FormatLogLine(std::string_view service, LogLevel level, std::string_view event,
                          std::initializer_list<LogField> fields, int64_t wall_micros) {
  nlohmann::ordered_json line;
  line["ts"] = Timestamp(wall_micros);
  line["level"] = LevelName(level);
  line["service"] = std::string(service);
  line["event"] = std::string(event);
  for (const LogField& field : fields) {
    std::visit([&](const auto& value) { line[field.key] = value; }, field.value);
  }
  // Error texts may hold bytes of any kind: those that are not UTF-8 are replaced.
  // Names of others are in it, and people read it on terminals.
  return support::Printable(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  const auto logger = Logger();
  if (logger == nullptr || !logger->should_log(SpdlogLevel(level))) return;
  support::SystemClock clock;
  logger->log(SpdlogLevel(level), "{}",
              FormatLogLine(ServiceName(), level, event, fields, clock.WallMicros()));
}

}  // namespace tilewright::daemon
