#include "deploy/module/launch_names.h"

#include <utility>

#include "deploy/support/strings.h"
#include "nlohmann/json.hpp"

namespace tilewright::module {
namespace {

using Json = nlohmann::json;

std::string Field(std::string name) {
  for (char& c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  // The writer of JSON knows what is UTF-8.
  const std::string valid = Json(name).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(valid).get<std::string>();
}

}  // namespace

std::string LaunchNamesKey(std::string_view function) {
  std::string key = "launch_names";
  if (function != "main") key += "." + std::string(function);
  return key;
}

std::string LaunchNamesText(const std::vector<LaunchNames>& launches) {
  std::string text;
  for (const LaunchNames& names : launches) {
    if (!text.empty()) text += '\n';
    text += Field(names.task) + '\t' + Field(names.launch);
    for (const std::string& node : names.nodes) text += '\t' + Field(node);
  }
  return text;
}

std::vector<LaunchNames> ParseLaunchNames(std::string_view text) {
  std::vector<LaunchNames> launches;
  if (text.empty()) return launches;
  for (const std::string& line : support::Split(text, '\n')) {
    std::vector<std::string> fields = support::Split(line, '\t');
    LaunchNames names;
    names.task = std::move(fields[0]);
    if (fields.size() > 1) names.launch = std::move(fields[1]);
    for (size_t i = 2; i < fields.size(); ++i) names.nodes.push_back(std::move(fields[i]));
    launches.push_back(std::move(names));
  }
  return launches;
}

}  // namespace tilewright::module
