#include "tuner_server/cli/table.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "deploy/support/printable.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::cli {
namespace {

int g_stdout_errno = 0;  // of the first write that failed

// Columns of a terminal that the UTF-8 text takes (no wide characters are used here).
size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string Pad(std::string_view text, size_t width, bool right) {
  const size_t have = DisplayWidth(text);
  const std::string blanks(width > have ? width - have : 0, ' ');
  return right ? blanks + std::string(text) : std::string(text) + blanks;
}

std::string TrimRight(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

struct Unit {
  double scale;
  const char* name;
};

std::string Scaled(double value, std::initializer_list<Unit> units) {
  Unit best = *units.begin();
  for (const Unit& unit : units) {
    if (value >= unit.scale) best = unit;
  }
  const double scaled = value / best.scale;
  const int digits = scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2;
  return support::StrCat(support::FormatFixed(scaled, digits), " ", best.name);
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  TW_CHECK(cells.size() == columns_.size()) << "table row with " << cells.size() << " cells";
  for (std::string& cell : cells) cell = support::Printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::Render() const {
  std::vector<size_t> width;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t w = DisplayWidth(columns_[c].title);
    for (const auto& row : rows_) w = std::max(w, DisplayWidth(row[c]));
    width.push_back(w);
  }
  std::string header, rule;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const char* gap = c == 0 ? "" : "  ";
    header += gap + Pad(columns_[c].title, width[c], columns_[c].right);
    rule += gap + std::string(width[c], '-');
  }
  std::string out = TrimRight(header) + "\n" + rule + "\n";
  for (const auto& row : rows_) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      line += (c == 0 ? "" : "  ") + Pad(row[c], width[c], columns_[c].right);
    }
    out += TrimRight(line) + "\n";
  }
  return out;
}

std::string TimeText(double ns) {
  if (!(ns > 0)) return "-";
  return Scaled(ns, {{1, "ns"}, {1e3, "µs"}, {1e6, "ms"}, {1e9, "s"}});
}

std::string ValueText(double value, const support::MeasureUnit& unit) {
  if (unit.time || !(value > 0)) return TimeText(value);
  return Scaled(value, {{1, "cycles"}, {1e3, "kcycles"}, {1e6, "Mcycles"}, {1e9, "Gcycles"}});
}

const support::MeasureUnit& UnitOf(int value_kind) {
  const support::MeasureUnit* known = support::FindMeasureUnit(value_kind);
  return known == nullptr ? support::MeasureUnits().front() : *known;
}

std::string ValueText(double value, std::string_view unit) {
  const support::MeasureUnit* known = support::FindMeasureUnit(unit);
  return ValueText(value, known == nullptr ? support::MeasureUnits().front() : *known);
}

std::string CountText(double value) {
  return Scaled(value, {{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}});
}

std::string BytesText(double bytes) {
  return Scaled(bytes, {{1, "B"}, {1024, "KiB"}, {1048576, "MiB"}, {1073741824, "GiB"}});
}

std::string PercentText(double share) { return support::FormatFixed(100 * share, 1) + "%"; }

std::string RatioText(double baseline, double value) {
  if (!(baseline > 0) || !(value > 0)) return "-";
  return support::FormatFixed(baseline / value, 2) + "x";
}

void PrintBytes(std::string_view text) {
  const size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if ((written != text.size() || std::fflush(stdout) != 0) && g_stdout_errno == 0) {
    g_stdout_errno = errno;
  }
}

void PrintRaw(std::string_view text) {
  PrintBytes(support::Printable(text, support::LineBreaks::kKeep));
}

void PrintErr(std::string_view text) {
  const std::string shown = support::Printable(text, support::LineBreaks::kKeep);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

void PrintOut(std::string_view text) {
  PrintRaw(text);
  if (text.empty() || text.back() != '\n') PrintRaw("\n");
}

absl::Status StdoutStatus() {
  if (g_stdout_errno == 0) return absl::OkStatus();
  if (g_stdout_errno == EPIPE)
    return support::Cancelled("cli.stdout.closed", "the reader has gone");
  return support::ErrnoError(g_stdout_errno, "cli.stdout.failed", "cannot write standard output");
}

void PrintJson(const nlohmann::json& value) {
  PrintOut(value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace tilewright::cli
