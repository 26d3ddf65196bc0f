#include "tuner_server/cli/launch_pairs.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tuner_server/cli/launch_text.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {
namespace {

// The nodes in any order; of a launch without nodes, its name.
std::vector<std::string> KeyOf(const module::LaunchNames& names, const std::string& name) {
  std::vector<std::string> key = names.nodes;
  std::sort(key.begin(), key.end());
  return key.empty() ? std::vector<std::string>{"", name} : key;
}

}  // namespace

std::vector<LaunchPair> PairLaunches(const LaunchTimes& a, const LaunchTimes& b) {
  std::vector<LaunchPair> pairs;
  std::map<std::vector<std::string>, size_t> found;
  const auto add = [&](const LaunchTimes& times, double LaunchPair::* side) {
    const std::vector<module::Launch>& launches = times.function.launches;
    const std::vector<module::LaunchNames> names = NamesOf(times.manifest, times.function);
    for (size_t k = 0; k < std::min(launches.size(), times.ns.size()); ++k) {
      const std::string& name = launches[k].name.empty() ? launches[k].symbol : launches[k].name;
      const auto [it, fresh] = found.try_emplace(KeyOf(names[k], name), pairs.size());
      if (fresh) pairs.push_back({names[k].nodes, name});
      pairs[it->second].*side += times.ns[k];
    }
  };
  add(a, &LaunchPair::a_ns);
  add(b, &LaunchPair::b_ns);
  return pairs;
}

std::string LaunchPairsTable(const std::vector<LaunchPair>& pairs) {
  Table table({{"launch"}, {"A", true}, {"B", true}, {"B against A", true}, {"ONNX nodes"}});
  for (const LaunchPair& pair : pairs) {
    table.AddRow({pair.name, TimeText(pair.a_ns), TimeText(pair.b_ns),
                  RatioText(pair.a_ns, pair.b_ns), NodesText(pair.nodes)});
  }
  return table.Render();
}

nlohmann::json LaunchPairsJson(const std::vector<LaunchPair>& pairs) {
  nlohmann::json rows = nlohmann::json::array();
  for (const LaunchPair& pair : pairs) {
    nlohmann::json& row = rows.emplace_back();
    row = {{"name", pair.name}, {"onnx_nodes", pair.nodes}};
    if (pair.a_ns > 0) row["a_us"] = pair.a_ns / 1e3;
    if (pair.b_ns > 0) row["b_us"] = pair.b_ns / 1e3;
  }
  return rows;
}

}  // namespace tilewright::cli
