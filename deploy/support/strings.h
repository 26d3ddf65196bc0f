// Small text helpers with std types only, so that absl's own string_view stays out of interfaces.
// Pure functions; safe from any thread; no function depends on the locale.
#pragma once

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::support {

// The streamed concatenation of all arguments.
template <typename... Args>
std::string StrCat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return std::move(out).str();
}

// The elements of any range, streamed, with `separator` between them.
template <typename Range>
std::string Join(const Range& range, std::string_view separator) {
  std::ostringstream out;
  bool first = true;
  for (const auto& item : range) {
    if (!first) out << separator;
    first = false;
    out << item;
  }
  return std::move(out).str();
}

// The pieces between separators; empty pieces are kept, so n separators give n + 1 pieces.
std::vector<std::string> Split(std::string_view text, char separator);

// Without leading and trailing ASCII white space.
std::string_view Trim(std::string_view text);

std::string ToLower(std::string_view text);

// The whole text must be one decimal number in range, without white space; else nullopt.
std::optional<int64_t> ParseInt64(std::string_view text);
std::optional<uint64_t> ParseUint64(std::string_view text);
// Also accepts "inf" and "nan"; out of range gives nullopt.
std::optional<double> ParseDouble(std::string_view text);

// The shortest text that parses back to the same value ("0.1", "1e+300", "inf", "nan").
std::string FormatDouble(double value);

// Fixed notation with `digits` decimals.
std::string FormatFixed(double value, int digits);

// Lower-case hexadecimal, two digits per byte. Decode accepts both cases; nullopt on anything else.
std::string HexEncode(std::string_view bytes);
std::optional<std::string> HexDecode(std::string_view hex);

// 16 lower-case hexadecimal digits.
std::string Hex64(uint64_t value);

// `text` in double quotes with JSON escapes, safe to show in a one-line message; longer texts than
// `max_bytes` end in "...".
std::string Quote(std::string_view text, size_t max_bytes = 200);

}  // namespace tilewright::support
