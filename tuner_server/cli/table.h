// Tables people can read, and the same rows as JSON for scripts. Columns are as wide as their
// content; numbers are right-aligned. Values only; not thread-safe.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/measure_units.h"
#include "deploy/support/status.h"

namespace tilewright::cli {

enum class OutputFormat { kTable, kJson };

class Table {
 public:
  struct Column {
    std::string title;
    bool right = false;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // REQUIRES: one cell per column. A cell is one line: line breaks in it are escaped, too.
  void AddRow(std::vector<std::string> cells);
  size_t rows() const { return rows_.size(); }
  // Header line, rule, rows; two spaces between columns, no trailing blanks.
  std::string Render() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "1.24 ms", "85.3 µs", "412 ns", "2.1 s"; "-" for values that are not positive.
std::string TimeText(double ns);
// A measured value in its unit (deploy/support/measure_units.h): a time as TimeText has it, or
// "1.66 Mcycles". A unit that this version does not know counts as nanoseconds.
std::string ValueText(double value, const support::MeasureUnit& unit);
std::string ValueText(double value, std::string_view unit);
// The unit of that number, as messages carry it (ValueKind).
const support::MeasureUnit& UnitOf(int value_kind);
// "12.3 k", "4.5 M"
std::string CountText(double value);
std::string BytesText(double bytes);
// "12.3%" of a share of 0.123.
std::string PercentText(double share);
// "1.87x"; "-" when either is not positive.
std::string RatioText(double baseline, double value);

// Prints text to standard output, with a newline at its end. StdoutStatus returns a later error.
// Names in it may be anybody's: what a terminal would obey is printed as \uXXXX
// (deploy/support/printable.h), in JSON with the same meaning.
void PrintOut(std::string_view text);
// The same without a newline.
void PrintRaw(std::string_view text);
// The same on standard error, for notes while a command works.
void PrintErr(std::string_view text);
// Data for another program, as it is.
void PrintBytes(std::string_view bytes);
// Returns ok if all output was written, else resource_exhausted and others (cli.stdout.failed). If
// the reader has closed the pipe (EPIPE): cancelled (cli.stdout.closed), which is not shown as an
// error.
absl::Status StdoutStatus();
void PrintJson(const nlohmann::json& value);

}  // namespace tilewright::cli
