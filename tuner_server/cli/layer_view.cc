#include "tuner_server/cli/layer_view.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "deploy/support/strings.h"
#include "tuner_server/cli/html_page.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {
namespace {

using support::FormatFixed;
using support::StrCat;

constexpr size_t kBars = 20;

// For each launch the first one that it shares nodes with, over any number of others.
std::vector<size_t> FirstRelated(std::span<const LaunchProfile> launches) {
  std::vector<size_t> first(launches.size());
  std::iota(first.begin(), first.end(), size_t{0});
  const auto root = [&](size_t launch) {
    while (first[launch] != launch) launch = first[launch];
    return launch;
  };
  std::map<std::string, size_t> of_node;
  for (size_t k = 0; k < launches.size(); ++k) {
    for (const std::string& node : launches[k].nodes) {
      const size_t other = root(of_node.try_emplace(node, k).first->second), own = root(k);
      first[std::max(other, own)] = std::min(other, own);
    }
  }
  for (size_t k = 0; k < first.size(); ++k) first[k] = root(k);
  return first;
}

void AddNew(const std::vector<std::string>& from, std::vector<std::string>* to) {
  for (const std::string& name : from) {
    if (std::find(to->begin(), to->end(), name) == to->end()) to->push_back(name);
  }
}

std::string NamesText(const std::vector<std::string>& names) {
  return names.empty() ? "-" : support::Join(names, ", ");
}

std::string LongestSvg(std::span<const Layer> layers) {
  std::vector<const Layer*> longest;
  for (const Layer& layer : layers) longest.push_back(&layer);
  std::stable_sort(longest.begin(), longest.end(),
                   [](const Layer* a, const Layer* b) { return a->ns > b->ns; });
  longest.resize(std::min(longest.size(), kBars));
  std::vector<Bar> bars;
  for (const Layer* layer : longest) {
    const std::string& name = layer->nodes.empty() ? layer->kernels.front() : layer->nodes.front();
    bars.push_back({name, StrCat(TimeText(layer->ns), ", ", PercentText(layer->share)), layer->ns});
  }
  return BarsSvg(bars);
}

std::string RooflineSvg(std::span<const Layer> layers, const peaks::Roofline& roofline) {
  ChartSeries points{"layer", {}, false};
  double low = 0, high = 0;
  for (const Layer& layer : layers) {
    if (layer.operations <= 0 || layer.bytes <= 0 || layer.ns <= 0) continue;
    const double intensity = layer.operations / layer.bytes, rate = layer.operations / layer.ns;
    low = low == 0 ? intensity : std::min(low, intensity);
    high = std::max(high, intensity);
    points.points.push_back({intensity, rate,
                             StrCat(NamesText(layer.nodes), ": ", TimeText(layer.ns), ", ",
                                    FormatFixed(rate, 1), " GFLOP/s")});
  }
  std::sort(points.points.begin(), points.points.end(),
            [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  Chart chart{"operations per byte", "GFLOP/s", true, true, false, {points}};
  const double peak = roofline.PeakOf(module::DType::kFloat32);
  const peaks::Roofline::Bandwidth& nearest = roofline.reads().front();
  const peaks::Roofline::Bandwidth& farthest = roofline.reads().back();
  for (const peaks::Roofline::Bandwidth& read : {nearest, farthest}) {
    chart.series.push_back(Roof(StrCat("float32, ", BytesText(static_cast<double>(read.bytes))),
                                peak, read.gb_s, low, high));
  }
  return ChartSvg(chart);
}

}  // namespace

std::vector<Layer> LayersOf(std::span<const LaunchProfile> launches) {
  const std::vector<size_t> first = FirstRelated(launches);
  std::map<size_t, size_t> place;  // in `layers`, by the first launch
  std::vector<Layer> layers;
  std::vector<double> least, longest;
  double total = 0;
  for (size_t k = 0; k < launches.size(); ++k) {
    const LaunchProfile& launch = launches[k];
    const auto [at, is_new] = place.try_emplace(first[k], layers.size());
    if (is_new) {
      layers.emplace_back();
      least.push_back(0);
      longest.push_back(-1);
    }
    Layer& layer = layers[at->second];
    AddNew(launch.nodes, &layer.nodes);
    layer.kernels.push_back(launch.name);
    layer.ns += launch.median_ns;
    layer.operations += launch.gflop_s * launch.median_ns;
    layer.bytes += launch.gb_s * launch.median_ns;
    least[at->second] += launch.of_limit * launch.median_ns;
    if (launch.median_ns > longest[at->second]) layer.bound = launch.bound;
    longest[at->second] = std::max(longest[at->second], launch.median_ns);
    total += launch.median_ns;
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].share = total > 0 ? layers[i].ns / total : 0;
    layers[i].of_limit = layers[i].ns > 0 ? least[i] / layers[i].ns : 0;
  }
  return layers;
}

std::string LayersHtml(std::span<const Layer> layers) {
  std::vector<std::vector<std::string>> rows;
  for (const Layer& layer : layers) {
    const bool timed = layer.ns > 0;
    rows.push_back(
        {NamesText(layer.nodes), NamesText(layer.kernels), TimeText(layer.ns),
         PercentText(layer.share),
         timed && layer.operations > 0 ? FormatFixed(layer.operations / layer.ns, 1) : "-",
         timed && layer.bytes > 0 ? FormatFixed(layer.bytes / layer.ns, 1) : "-",
         layer.of_limit > 0 ? PercentText(layer.of_limit) : "-",
         std::string(BoundName(layer.bound))});
  }
  return LongestSvg(layers) + HtmlTable({"ONNX nodes", "kernels", ">time", ">share", ">GFLOP/s",
                                         ">GB/s", ">of limit", "bound"},
                                        rows);
}

ChartSeries Roof(const std::string& data_type, double peak, double gb_s, double low, double high) {
  ChartSeries roof{"roof of " + data_type, {}};
  const double ridge = gb_s > 0 ? peak / gb_s : 0;
  if (ridge > low) roof.points.push_back({low, low * gb_s, ""});
  roof.points.push_back({std::max(low, ridge), peak, ""});
  roof.points.push_back({std::max(high, ridge) * 2, peak, ""});
  return roof;
}

std::string LayerPage(const std::string& title, std::span<const LaunchProfile> launches,
                      const std::optional<peaks::Roofline>& roofline) {
  const std::vector<Layer> layers = LayersOf(launches);
  std::string body = HtmlSection(2, "Layers", LayersHtml(layers));
  if (roofline) body += HtmlSection(2, "Roofline", RooflineSvg(layers, *roofline));
  return HtmlPage(title, body);
}

}  // namespace tilewright::cli
