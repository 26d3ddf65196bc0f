#include "deploy/support/strings.h"

#include <array>
#include <charconv>
#include <cstdio>

namespace tilewright::support {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

template <typename T>
std::optional<T> ParseWhole(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

}  // namespace

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  size_t start = 0;
  for (size_t at = text.find(separator); at != std::string_view::npos;
       at = text.find(separator, start)) {
    pieces.emplace_back(text.substr(start, at - start));
    start = at + 1;
  }
  pieces.emplace_back(text.substr(start));
  return pieces;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

std::string ToLower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::optional<int64_t> ParseInt64(std::string_view text) { return ParseWhole<int64_t>(text); }
std::optional<uint64_t> ParseUint64(std::string_view text) { return ParseWhole<uint64_t>(text); }
std::optional<double> ParseDouble(std::string_view text) { return ParseWhole<double>(text); }

std::string FormatDouble(double value) {
  std::array<char, 64> buffer;
  auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return error == std::errc() ? std::string(buffer.data(), end) : std::string("nan");
}

std::string FormatFixed(double value, int digits) {
  std::array<char, 400> buffer;
  auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::fixed, digits);
  return error == std::errc() ? std::string(buffer.data(), end) : FormatDouble(value);
}

std::string HexEncode(std::string_view bytes) {
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (char c : bytes) {
    auto byte = static_cast<unsigned char>(c);
    hex.push_back(kHexDigits[byte >> 4]);
    hex.push_back(kHexDigits[byte & 15]);
  }
  return hex;
}

std::optional<std::string> HexDecode(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i < hex.size(); i += 2) {
    int high = HexValue(hex[i]);
    int low = HexValue(hex[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(high * 16 + low));
  }
  return bytes;
}

std::string Hex64(uint64_t value) {
  std::string hex(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) hex[i] = kHexDigits[value & 15];
  return hex;
}

std::string Quote(std::string_view text, size_t max_bytes) {
  std::string quoted = "\"";
  for (char c : text.substr(0, max_bytes)) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(c);
    } else if (c == '\n') {
      quoted.append("\\n");
    } else if (c == '\t') {
      quoted.append("\\t");
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted.append("\\u00");
      quoted.push_back(kHexDigits[byte >> 4]);
      quoted.push_back(kHexDigits[byte & 15]);
    } else {
      quoted.push_back(c);
    }
  }
  quoted.append(text.size() > max_bytes ? "...\"" : "\"");
  return quoted;
}

}  // namespace tilewright::support
