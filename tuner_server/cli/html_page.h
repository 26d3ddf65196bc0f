// A page of HTML without other files: its frame, its sections and its tables. Texts may be
// anybody's: they are escaped. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tilewright::cli {

// The whole page. `body` is HTML.
std::string HtmlPage(std::string_view title, std::string_view body);
// A heading of this level, then `body`, which is HTML.
std::string HtmlSection(int level, std::string_view title, std::string_view body);
// Right-aligned columns have titles that begin with '>'. A table without rows says so.
std::string HtmlTable(const std::vector<std::string>& titles,
                      const std::vector<std::vector<std::string>>& rows);

}  // namespace tilewright::cli
