#include "vta/sim/timeline.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "deploy/support/strings.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

// What an instruction is in a picture. Instructions that only move tokens are as short as their
// gaps and have no bar.
struct SpanKind {
  std::string_view text, colour;
};
constexpr SpanKind kSpanKinds[] = {
    {"load inp", "#1f6feb"},  {"load wgt", "#54aeff"}, {"load uop", "#8250df"},
    {"load acc", "#c297ff"},  {"gemm", "#1a7f37"},     {"alu", "#9a6700"},
    {"store out", "#d1242f"},
};

std::string SpanText(const Instruction& i) {
  std::string text(OpcodeText(i.op));
  if (FormatOf(i.op) == Format::Memory)
    text += StrCat(" ", MemoryText(static_cast<Memory>(i.memory)));
  return text;
}

// An index of kSpanKinds.
std::optional<size_t> SpanKindOf(const Instruction& i) {
  if (FormatOf(i.op) == Format::Memory && i.x_size == 0) return std::nullopt;
  const std::string text = SpanText(i);
  for (size_t kind = 0; kind < std::size(kSpanKinds); ++kind) {
    if (kSpanKinds[kind].text == text) return kind;
  }
  return std::nullopt;
}

// Pixels.
constexpr double kLeft = 110, kChartWidth = 860, kRight = 20;
constexpr double kTop = 30, kRowHeight = 36, kBarHeight = 24;
constexpr size_t kColumns = 1720;  // of a row; two a pixel
constexpr double kColumnWidth = kChartWidth / kColumns;
constexpr int kTicks = 8;

std::string Pixels(double value) { return support::FormatFixed(value, 1); }

// How much of one column of a row instructions of each kind take.
using Column = std::array<double, std::size(kSpanKinds)>;

// The kind that has most of a column; none if it is idle for more than half of it.
std::optional<size_t> ColourOf(const Column& column) {
  if (std::accumulate(column.begin(), column.end(), 0.0) < 0.5) return std::nullopt;
  return static_cast<size_t>(std::max_element(column.begin(), column.end()) - column.begin());
}

class Picture {
 public:
  Picture(std::span<const Instruction> stream, const CycleReport& report)
      : report_(report), cycles_(static_cast<double>(std::max<int64_t>(1, report.cycles))) {
    for (std::vector<Column>& row : rows_) row.resize(kColumns);
    for (const StageSpan& span : report.trace) Add(stream[span.instruction], span);
  }

  std::string Svg() const {
    const double width = kLeft + kChartWidth + kRight;
    const double height = kTop + kModules * kRowHeight + 50;
    std::string svg =
        StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", Pixels(width), "\" height=\"",
               Pixels(height), "\" font-family=\"sans-serif\" font-size=\"12\">\n");
    svg += Legend();
    for (size_t m = 0; m < kModules; ++m) svg += Row(m);
    return svg + Axis() + "</svg>\n";
  }

 private:
  void Add(const Instruction& i, const StageSpan& span) {
    const std::optional<size_t> kind = SpanKindOf(i);
    if (!kind.has_value()) return;
    const double begin = static_cast<double>(span.start) / cycles_ * kColumns;
    const double end = static_cast<double>(span.end) / cycles_ * kColumns;
    std::vector<Column>& row = rows_[static_cast<size_t>(span.module)];
    for (auto c = static_cast<size_t>(begin); c < kColumns && static_cast<double>(c) < end; ++c) {
      const auto left = static_cast<double>(c);
      row[c][*kind] += std::min(end, left + 1) - std::max(begin, left);
    }
  }

  // Neighbours of one colour are one bar.
  std::string Bars(const std::vector<Column>& row, double y) const {
    std::string svg;
    for (size_t begin = 0, end = 0; begin < kColumns; begin = end) {
      const std::optional<size_t> kind = ColourOf(row[begin]);
      for (end = begin + 1; end < kColumns && ColourOf(row[end]) == kind;) ++end;
      if (!kind.has_value()) continue;
      svg += Box(kLeft + static_cast<double>(begin) * kColumnWidth, y,
                 static_cast<double>(end - begin) * kColumnWidth, kBarHeight, *kind);
    }
    return svg;
  }

  std::string Text(double x, double y, std::string_view anchor, std::string_view text) const {
    return StrCat("<text x=\"", Pixels(x), "\" y=\"", Pixels(y), "\" text-anchor=\"", anchor, "\">",
                  text, "</text>\n");
  }

  std::string Box(double x, double y, double width, double height, size_t kind) const {
    return StrCat("<rect x=\"", Pixels(x), "\" y=\"", Pixels(y), "\" width=\"", Pixels(width),
                  "\" height=\"", Pixels(height), "\" fill=\"", kSpanKinds[kind].colour, "\"/>\n");
  }

  std::string Legend() const {
    std::string svg;
    for (size_t kind = 0; kind < std::size(kSpanKinds); ++kind) {
      const double x = kLeft + static_cast<double>(kind) * 100;
      svg += Box(x, 8, 10, 10, kind) + Text(x + 14, 17, "start", kSpanKinds[kind].text);
    }
    return svg;
  }

  std::string Row(size_t module) const {
    const double y = kTop + static_cast<double>(module) * kRowHeight;
    const double share = 100 * static_cast<double>(report_.busy[module]) / cycles_;
    return Text(kLeft - 8, y + kBarHeight - 7, "end",
                StrCat(ModuleText(static_cast<Module>(module)), " ", support::FormatFixed(share, 1),
                       " %")) +
           Bars(rows_[module], y);
  }

  std::string Axis() const {
    const double y = kTop + kModules * kRowHeight;
    std::string svg;
    for (int tick = 0; tick <= kTicks; ++tick) {
      const int64_t cycle = report_.cycles * tick / kTicks;
      const double x = kLeft + static_cast<double>(cycle) / cycles_ * kChartWidth;
      svg += StrCat("<line x1=\"", Pixels(x), "\" x2=\"", Pixels(x), "\" y1=\"", Pixels(y),
                    "\" y2=\"", Pixels(y + 6), "\" stroke=\"#57606a\"/>\n");
      svg += Text(x, y + 20, "middle", std::to_string(cycle));
    }
    return svg + Text(kLeft + kChartWidth / 2, y + 40, "middle", "cycles");
  }

  const CycleReport& report_;
  const double cycles_;
  std::array<std::vector<Column>, kModules> rows_;
};

}  // namespace

std::string TimelineSvg(std::span<const Instruction> stream, const CycleReport& report) {
  return Picture(stream, report).Svg();
}

std::string ChromeTrace(std::span<const Instruction> stream, const CycleReport& report) {
  std::string json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (int m = 0; m < kModules; ++m) {
    json +=
        StrCat("{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":", m,
               ",\"args\":{\"name\":", support::Quote(ModuleText(static_cast<Module>(m))), "}},\n");
  }
  for (const StageSpan& span : report.trace) {
    const Instruction& i = stream[span.instruction];
    json += StrCat("{\"name\":", support::Quote(SpanText(i)),
                   ",\"ph\":\"X\",\"pid\":0,\"tid\":", static_cast<int>(span.module),
                   ",\"ts\":", span.start, ",\"dur\":", span.end - span.start,
                   ",\"args\":{\"index\":", span.instruction,
                   ",\"text\":", support::Quote(Disassemble(i), /*max_bytes=*/1000), "}},\n");
  }
  if (json.ends_with(",\n")) json.resize(json.size() - 2);
  return json + "\n]}\n";
}

}  // namespace tilewright::vta
