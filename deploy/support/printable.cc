#include "deploy/support/printable.h"

#include <array>
#include <cstdint>

#include "deploy/support/strings.h"

namespace tilewright::support {
namespace {

constexpr char kEscapeDigits[] = "0123456789abcdef";

struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 0;  // 0: no UTF-8 begins here
};

// Refuses what has a shorter form, surrogates, and values beyond Unicode.
CodePoint Decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return {};
  uint32_t value = first & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3F);
  }
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kLeast[bytes] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return {};
  return {value, bytes};
}

struct Range {
  uint32_t first, last;
};
// All below U+10000: four digits name each.
constexpr Range kHidden[] = {
    {0x0000, 0x001F}, {0x007F, 0x009F},  // control characters
    {0x00AD, 0x00AD}, {0x061C, 0x061C},  // soft hyphen, mark of direction
    {0x200B, 0x200F}, {0x2028, 0x202E},  // no width, marks of direction, separators, overrides
    {0x2060, 0x206F}, {0xFEFF, 0xFEFF},  // joiners, isolates, byte-order mark
    {0xFFF9, 0xFFFB},                    // annotations
};

bool IsHidden(uint32_t value) {
  for (const Range& range : kHidden) {
    if (value >= range.first && value <= range.last) return true;
  }
  return false;
}

void AppendHex(uint32_t value, int digits, std::string* out) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    out->push_back(kEscapeDigits[value >> shift & 15]);
  }
}

}  // namespace

std::string Printable(std::string_view text, LineBreaks breaks) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = Decode(text);
    const bool kept = breaks == LineBreaks::kKeep && (text.front() == '\n' || text.front() == '\t');
    if (point.bytes == 0) {
      out += "\\x";
      AppendHex(static_cast<unsigned char>(text.front()), 2, &out);
    } else if (!kept && IsHidden(point.value)) {
      out += "\\u";
      AppendHex(point.value, 4, &out);
    } else {
      out.append(text.substr(0, point.bytes));
    }
    text.remove_prefix(point.bytes == 0 ? 1 : point.bytes);
  }
  return out;
}

absl::Status CheckPrintable(std::string_view text, std::string_view slug, std::string_view what) {
  const std::string shown = Printable(text);
  if (shown == text) return absl::OkStatus();
  constexpr size_t kMaxShown = 200;
  return InvalidArgument(slug, StrCat(what, ": expected text without control characters and marks ",
                                      "of direction, found \"", shown.substr(0, kMaxShown), "\""));
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const CodePoint point = Decode(text);
    if (point.bytes == 0) return false;
    text.remove_prefix(point.bytes);
  }
  return true;
}

}  // namespace tilewright::support
