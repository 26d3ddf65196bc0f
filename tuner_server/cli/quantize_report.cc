#include "tuner_server/cli/quantize_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "deploy/support/strings.h"

namespace tilewright::cli {
namespace {

using nlohmann::json;
using support::StrCat;

// A layer is worth a suggestion if its noise is a hundredth of its signal or more, and so many
// decibels more than that of the layer in the middle.
constexpr double kNoisyDb = 20, kOutlierDb = 10;
constexpr size_t kMaxSuggestions = 3;

std::string DecibelText(double db) {
  return db >= quantize::kExactDb ? "exact" : support::FormatFixed(db, 1);
}

std::string OutputText(const OutputReport& output) {
  std::string text = StrCat("output ", output.name, ": ", DecibelText(output.noise.decibels()),
                            " dB  max|a-e|=", output.noise.max_abs_diff(),
                            "  |a-e|/|e|=", output.noise.relative_norm());
  if (output.rows > 0) {
    text += StrCat("  top-1 the same in ", output.same_largest, " of ", output.rows);
  }
  return text;
}

json OutputRows(const std::vector<OutputReport>& outputs) {
  json rows = json::array();
  for (const OutputReport& output : outputs) {
    json row = {{"output", output.name},
                {"db", output.noise.decibels()},
                {"max_abs_diff", output.noise.max_abs_diff()},
                {"relative_norm", output.noise.relative_norm()}};
    if (output.rows > 0) {
      row["rows"] = output.rows;
      row["same_top1"] = output.same_largest;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

void OutputReport::Add(std::span<const float> exact, std::span<const float> rounded) {
  noise.Add(exact, rounded);
  if (row == 0) return;
  rows += static_cast<int64_t>(exact.size()) / row;
  same_largest += quantize::SameLargest(exact, rounded, row);
}

void QuantizeReport::AddOutput(const std::string& name, const std::vector<int64_t>& shape) {
  // Scores: one row for each sample. Images and sequences of vectors have no largest number.
  const bool is_scores = !shape.empty() && shape.size() <= 2 && shape.back() > 1;
  outputs.push_back({name, is_scores ? shape.back() : 0, {}});
}

// What counts for the order and the suggestions: the layer's own loss.
double QuantizeReport::Decibels(const LayerReport& layer) const {
  return compared ? layer.alone.decibels() : layer.layer.weights_db;
}

std::vector<const LayerReport*> QuantizeReport::WorstFirst() const {
  std::vector<const LayerReport*> sorted;
  for (const LayerReport& layer : layers) sorted.push_back(&layer);
  std::ranges::stable_sort(sorted, {}, [&](const LayerReport* l) { return Decibels(*l); });
  return sorted;
}

std::vector<std::string> QuantizeReport::Suggestions() const {
  const std::vector<const LayerReport*> sorted = WorstFirst();
  const double middle = Decibels(*sorted[sorted.size() / 2]);
  std::vector<std::string> names;
  for (const LayerReport* layer : sorted) {
    const double db = Decibels(*layer);
    if (names.size() == kMaxSuggestions || db > kNoisyDb || db > middle - kOutlierDb) break;
    names.push_back(layer->layer.node);
  }
  return names;
}

void QuantizeReport::Show(OutputFormat format) const {
  if (format == OutputFormat::kJson) return PrintJson(Document());
  std::vector<Table::Column> columns = {{"layer"}, {"operator"}};
  if (compared) columns.insert(columns.end(), {{"alone dB", true}, {"in network dB", true}});
  columns.push_back({"weights dB", true});
  Table table(columns);
  for (const LayerReport* layer : WorstFirst()) {
    std::vector<std::string> cells = {layer->layer.node, layer->layer.op};
    if (compared) {
      cells.push_back(DecibelText(layer->alone.decibels()));
      cells.push_back(DecibelText(layer->network.decibels()));
    }
    cells.push_back(DecibelText(layer->layer.weights_db));
    table.AddRow(std::move(cells));
  }
  PrintOut(table.Render());
  for (const quantize::FloatLayer& layer : float_layers) {
    PrintOut(StrCat("in float: ", layer.node, " (", layer.op, "): ", layer.reason));
  }
  for (const OutputReport& output : outputs) {
    if (compared) PrintOut(OutputText(output));
  }
  const std::vector<std::string> noisy = Suggestions();
  if (!noisy.empty()) {
    PrintOut("these layers lose most; in float they cost time and gain accuracy: --keep " +
             support::Join(noisy, " --keep "));
    for (const OutputReport& output : outputs_if_kept) {
      PrintOut("  with them in float: " + OutputText(output));
    }
  }
  PrintOut(StrCat("wrote ", output, "  ", layers.size(), " layers in int8",
                  folded_norms > 0 ? StrCat(", ", folded_norms, " normalisations folded") : "",
                  "  ", BytesText(static_cast<double>(bytes_before)), " -> ",
                  BytesText(static_cast<double>(bytes_after))));
}

json QuantizeReport::Document() const {
  json rows = json::array(), floats = json::array();
  for (const LayerReport* layer : WorstFirst()) {
    json row = {{"node", layer->layer.node},
                {"operator", layer->layer.op},
                {"weights", layer->layer.num_weights},
                {"weights_db", layer->layer.weights_db}};
    if (compared) {
      row["alone_db"] = layer->alone.decibels();
      row["network_db"] = layer->network.decibels();
    }
    rows.push_back(std::move(row));
  }
  for (const quantize::FloatLayer& layer : float_layers) {
    floats.push_back({{"node", layer.node}, {"operator", layer.op}, {"reason", layer.reason}});
  }
  return {{"model", model},
          {"output", output},
          {"ranges", ranges},
          {"samples", samples},
          {"folded_norms", folded_norms},
          {"bytes_before", bytes_before},
          {"bytes_after", bytes_after},
          {"layers", rows},
          {"float_layers", floats},
          {"outputs", compared ? OutputRows(outputs) : json::array()},
          {"suggested_keep", Suggestions()},
          {"outputs_with_suggested_keep", OutputRows(outputs_if_kept)}};
}

}  // namespace tilewright::cli
