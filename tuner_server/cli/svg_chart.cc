#include "tuner_server/cli/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "deploy/support/strings.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

constexpr double kWidth = 720, kHeight = 300;
constexpr double kLeft = 70, kRight = 16, kTop = 14, kBottom = 44;
constexpr int kTicks = 5;
constexpr double kLetter = 6.5;  // width of one, about
constexpr std::array<std::string_view, 6> kColours = {"#1f6feb", "#d1242f", "#1a7f37",
                                                      "#9a6700", "#8250df", "#57606a"};

std::string Number(double value, int digits = 1) { return support::FormatFixed(value, digits); }

// "12", "0.05", "1000", "1.5e+06": as short as a tick needs.
std::string TickText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", value);
  return text;
}

// One axis: data to pixels.
class Axis {
 public:
  Axis(bool log, double from, double to) : log_(log), from_(from), to_(to) {}

  void Add(double value) {
    if (!std::isfinite(value) || (log_ && value <= 0)) return;
    low_ = any_ ? std::min(low_, value) : value;
    high_ = any_ ? std::max(high_, value) : value;
    any_ = true;
  }
  void IncludeZero() {
    if (any_ && !log_) low_ = std::min(low_, 0.0);
  }
  // Room around the data, and never an empty range.
  void Settle() {
    if (log_) {
      low_ = std::pow(10, std::floor(std::log10(low_)));
      high_ = std::pow(10, std::ceil(std::log10(high_)));
      if (low_ >= high_) high_ = low_ * 10;
      return;
    }
    if (low_ == high_) high_ = low_ + (low_ == 0 ? 1 : std::abs(low_));
    high_ += (high_ - low_) * 0.03;
  }
  bool any() const { return any_; }
  bool Has(double value) const { return std::isfinite(value) && (!log_ || value > 0); }
  double Pixel(double value) const {
    const double share =
        log_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
    return from_ + share * (to_ - from_);
  }
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    if (log_) {
      for (double at = low_; at <= high_ * 1.001; at *= 10) ticks.push_back(at);
      return ticks;
    }
    const double raw = (high_ - low_) / kTicks;
    const double unit = std::pow(10, std::floor(std::log10(raw)));
    const double step = unit * (raw / unit > 5 ? 10 : raw / unit > 2 ? 5 : raw / unit > 1 ? 2 : 1);
    for (double at = std::ceil(low_ / step) * step; at <= high_; at += step) ticks.push_back(at);
    return ticks;
  }

 private:
  bool log_;
  double from_, to_;
  bool any_ = false;
  double low_ = 0, high_ = 0;
};

std::string Line(double x1, double y1, double x2, double y2, std::string_view style) {
  return StrCat("<line x1=\"", Number(x1), "\" y1=\"", Number(y1), "\" x2=\"", Number(x2),
                "\" y2=\"", Number(y2), "\" class=\"", style, "\"/>");
}

std::string Text(double x, double y, std::string_view anchor, std::string_view text) {
  return StrCat("<text x=\"", Number(x), "\" y=\"", Number(y), "\" text-anchor=\"", anchor, "\">",
                EscapeHtml(text), "</text>");
}

std::string Frame(const Chart& chart, const Axis& x, const Axis& y) {
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  std::string svg;
  for (const double tick : y.Ticks()) {
    svg += Line(kLeft, y.Pixel(tick), right, y.Pixel(tick), "grid");
    svg += Text(kLeft - 6, y.Pixel(tick) + 4, "end", TickText(tick));
  }
  for (const double tick : x.Ticks()) {
    svg += Line(x.Pixel(tick), bottom, x.Pixel(tick), bottom + 4, "axis");
    svg += Text(x.Pixel(tick), bottom + 17, "middle", TickText(tick));
  }
  svg += Line(kLeft, bottom, right, bottom, "axis") + Line(kLeft, kTop, kLeft, bottom, "axis");
  svg += Text((kLeft + right) / 2, kHeight - 8, "middle", chart.x_label);
  svg += StrCat("<text transform=\"translate(14 ", Number((kTop + bottom) / 2),
                ") rotate(-90)\" text-anchor=\"middle\">", EscapeHtml(chart.y_label), "</text>");
  return svg;
}

std::string SeriesSvg(const ChartSeries& series, const Axis& x, const Axis& y,
                      std::string_view colour) {
  std::string path, dots;
  double last_y = 0;
  for (const ChartPoint& point : series.points) {
    if (!x.Has(point.x) || !y.Has(point.y)) continue;
    const double px = x.Pixel(point.x), py = y.Pixel(point.y);
    if (path.empty()) {
      path = StrCat("M", Number(px), " ", Number(py));
    } else {
      if (series.steps) path += StrCat("L", Number(px), " ", Number(last_y));
      path += StrCat("L", Number(px), " ", Number(py));
    }
    last_y = py;
    if (!point.label.empty()) dots += Text(px, py - 8, "middle", point.label);
    if (series.line && point.title.empty()) continue;
    dots += StrCat("<circle cx=\"", Number(px), "\" cy=\"", Number(py), "\" r=\"",
                   series.line ? "2.5" : "4", "\" fill=\"", colour, "\"><title>",
                   EscapeHtml(point.title), "</title></circle>");
  }
  if (!series.line || path.empty()) return dots;
  return StrCat("<path d=\"", path, "\" fill=\"none\" stroke=\"", colour,
                "\" stroke-width=\"1.8\"/>", dots);
}

std::string_view ColourOf(size_t series) { return kColours[series % kColours.size()]; }

// What is inside of the picture; empty if there is nothing to draw.
std::string Drawn(const Chart& chart) {
  Axis x(chart.log_x, kLeft, kWidth - kRight), y(chart.log_y, kHeight - kBottom, kTop);
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      if (!x.Has(point.x) || !y.Has(point.y)) continue;
      x.Add(point.x);
      y.Add(point.y);
    }
  }
  if (!x.any()) return "";
  if (chart.from_zero) y.IncludeZero();
  x.Settle();
  y.Settle();
  std::string svg = Frame(chart, x, y);
  for (size_t i = 0; i < chart.series.size(); ++i)
    svg += SeriesSvg(chart.series[i], x, y, ColourOf(i));
  return svg;
}

std::string ViewBox() {
  return StrCat("viewBox=\"0 0 ", Number(kWidth, 0), " ", Number(kHeight, 0), "\"");
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else if (c < 0x20 && c != '\n' && c != '\t') {
      out += '?';
    } else if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      // A whole character or nothing of it.
      const size_t length = c >= 0xF0 && c < 0xF5 ? 4 : c >= 0xE0 ? 3 : 2;
      bool whole = c >= 0xC2 && c < 0xF5 && i + length <= text.size();
      for (size_t k = 1; whole && k < length; ++k) {
        whole = (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
      }
      if (!whole) {
        out += '?';
        continue;
      }
      out += text.substr(i, length);
      i += length - 1;
    }
  }
  return out;
}

std::string ChartSvg(const Chart& chart) {
  const std::string drawn = Drawn(chart);
  if (drawn.empty()) return "<p class=\"none\">nothing to draw yet</p>";
  const std::string svg = StrCat("<svg ", ViewBox(), " role=\"img\">", drawn, "</svg>");
  std::string legend;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    if (chart.series[i].name.empty()) continue;
    legend += StrCat("<span class=\"key\"><i style=\"background:", ColourOf(i), "\"></i>",
                     EscapeHtml(chart.series[i].name), "</span> ");
  }
  return legend.empty() ? svg
                        : StrCat("<figure>", svg, "<figcaption>", legend, "</figcaption></figure>");
}

std::string ChartFile(const Chart& chart) {
  std::string svg = StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" ", ViewBox(),
                           "><style>text{font:12px system-ui,sans-serif}.grid{stroke:#e6eaef}"
                           ".axis{stroke:#818b98}</style><rect width=\"100%\" height=\"100%\" "
                           "fill=\"#fff\"/>",
                           Drawn(chart));
  double left = kLeft;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const std::string& name = chart.series[i].name;
    if (name.empty()) continue;
    svg += StrCat("<circle cx=\"", Number(left + 8), "\" cy=\"", Number(kHeight - 12),
                  "\" r=\"4\" fill=\"", ColourOf(i), "\"/>",
                  Text(left + 16, kHeight - 8, "start", name));
    left += 40 + kLetter * static_cast<double>(name.size());
  }
  return svg + "</svg>\n";
}

std::string ChartFile(const std::vector<Chart>& charts) {
  if (charts.size() == 1) return ChartFile(charts[0]);
  const std::string width = Number(kWidth, 0), height = Number(kHeight, 0);
  std::string svg = StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ",
                           Number(kHeight * static_cast<double>(charts.size()), 0), "\">");
  constexpr std::string_view kTag = "<svg ";
  for (size_t i = 0; i < charts.size(); ++i) {
    std::string one = ChartFile(charts[i]);
    one.pop_back();  // the end of the line
    svg += StrCat(kTag, "y=\"", Number(kHeight * static_cast<double>(i), 0), "\" width=\"", width,
                  "\" height=\"", height, "\" ", one.substr(kTag.size()));
  }
  return svg + "</svg>\n";
}

std::string BarsSvg(const std::vector<Bar>& bars) {
  double most = 0;
  for (const Bar& bar : bars) {
    if (std::isfinite(bar.value)) most = std::max(most, bar.value);
  }
  if (most <= 0) return "<p class=\"none\">nothing to draw yet</p>";
  constexpr double kRow = 22, kLabel = 190, kRoom = kWidth - kLabel - 170;
  std::string svg =
      StrCat("<svg viewBox=\"0 0 ", Number(kWidth, 0), " ",
             Number(kRow * static_cast<double>(bars.size()) + 4, 0), "\" role=\"img\">");
  double top = 2;
  for (const Bar& bar : bars) {
    const double width = std::isfinite(bar.value) ? std::max(bar.value, 0.0) / most * kRoom : 0;
    svg += Text(kLabel - 8, top + 15, "end", bar.label);
    svg +=
        StrCat("<rect x=\"", Number(kLabel), "\" y=\"", Number(top + 3), "\" width=\"",
               Number(width), "\" height=\"", Number(kRow - 6), "\" fill=\"", kColours[0], "\"/>");
    svg += Text(kLabel + width + 6, top + 15, "start", bar.text);
    top += kRow;
  }
  return svg + "</svg>";
}

}  // namespace tilewright::cli
