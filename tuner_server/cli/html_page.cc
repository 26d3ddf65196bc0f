#include "tuner_server/cli/html_page.h"

#include "deploy/support/strings.h"
#include "tuner_server/cli/svg_chart.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

constexpr char kStyle[] =
    "body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:62rem;padding:0 1rem;"
    "color:#1f2328;background:#fff}h2{border-bottom:1px solid #d1d9e0;padding-bottom:.2rem}"
    "table{border-collapse:collapse;width:100%;margin:.6rem 0}th,td{padding:.25rem .6rem;"
    "text-align:left;border-bottom:1px solid #d1d9e0;font-variant-numeric:tabular-nums;"
    "overflow-wrap:anywhere}th{white-space:nowrap}td{min-width:5.5em}td.n,th.n{text-align:right;"
    "white-space:nowrap;min-width:0}figure{margin:0}"
    "svg{width:100%;height:auto;font:12px system-ui,sans-serif}.grid{stroke:#e6eaef}"
    ".axis{stroke:#818b98}.key{margin-right:1rem}.key "
    "i{display:inline-block;width:.8em;height:.8em;"
    "margin-right:.3em}.none{color:#59636e}";

}  // namespace

std::string HtmlPage(std::string_view title, std::string_view body) {
  const std::string name = EscapeHtml(title);
  return StrCat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">",
                "<meta name=\"viewport\" content=\"width=device-width\"><title>", name,
                "</title><style>", kStyle, "</style></head><body>\n<h1>", name, "</h1>\n", body,
                "</body></html>\n");
}

std::string HtmlSection(int level, std::string_view title, std::string_view body) {
  return StrCat("<h", level, ">", EscapeHtml(title), "</h", level, ">\n", body, "\n");
}

std::string HtmlTable(const std::vector<std::string>& titles,
                      const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return "<p class=\"none\">none</p>\n";
  std::string html = "<table><thead><tr>";
  for (const std::string& title : titles) {
    const bool number = title.starts_with('>');
    html += StrCat(number ? "<th class=\"n\">" : "<th>", EscapeHtml(title.substr(number ? 1 : 0)),
                   "</th>");
  }
  html += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    html += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      html += StrCat(titles[i].starts_with('>') ? "<td class=\"n\">" : "<td>", EscapeHtml(row[i]),
                     "</td>");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

}  // namespace tilewright::cli
