#include "tuner_server/cli/launch_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "deploy/support/strings.h"

namespace tilewright::cli {
namespace {

constexpr size_t kMaxNodes = 4;
constexpr size_t kMaxLaunches = 4;

// The first `limit` of them, and how many more there are.
std::string Shortened(const std::vector<std::string>& items, size_t limit, const char* separator) {
  if (items.empty()) return "-";
  const size_t shown = std::min(limit, items.size());
  const std::vector<std::string> first(items.begin(), items.begin() + static_cast<long>(shown));
  const std::string text = support::Join(first, separator);
  if (shown == items.size()) return text;
  return support::StrCat(text, " and ", items.size() - shown, " more");
}

}  // namespace

std::string NodesText(const std::vector<std::string>& nodes) {
  return Shortened(nodes, kMaxNodes, ", ");
}

std::string LaunchesText(const std::vector<module::LaunchNames>& launches) {
  std::vector<std::string> items;
  for (const module::LaunchNames& names : launches) {
    items.push_back(names.nodes.empty() ? names.launch
                                        : names.launch + " (" + NodesText(names.nodes) + ")");
  }
  return Shortened(items, kMaxLaunches, "; ");
}

nlohmann::json LaunchesJson(const std::vector<module::LaunchNames>& launches) {
  nlohmann::json rows = nlohmann::json::array();
  for (const module::LaunchNames& names : launches) {
    rows.push_back({{"launch", names.launch}, {"onnx_nodes", names.nodes}});
  }
  return rows;
}

std::vector<module::LaunchNames> NamesOf(const module::Manifest& manifest) {
  const module::Function* main = manifest.FindFunction("main");
  return main == nullptr ? std::vector<module::LaunchNames>() : NamesOf(manifest, *main);
}

std::vector<module::LaunchNames> NamesOf(const module::Manifest& manifest,
                                         const module::Function& function) {
  const auto kept = manifest.provenance.find(module::LaunchNamesKey(function.name));
  std::vector<module::LaunchNames> names;
  if (kept != manifest.provenance.end()) names = module::ParseLaunchNames(kept->second);
  names.resize(function.launches.size());
  for (size_t i = 0; i < names.size(); ++i) names[i].launch = function.launches[i].name;
  return names;
}

bool Names(const module::LaunchNames& launch, const std::string& word) {
  return launch.launch == word ||
         std::find(launch.nodes.begin(), launch.nodes.end(), word) != launch.nodes.end();
}

}  // namespace tilewright::cli
