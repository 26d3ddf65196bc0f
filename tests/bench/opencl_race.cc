// Kernels on the first OpenCL device, in one run: the best of a short search against the schedule
// that a task gets without one (the bound default), and against CLBlast where it is built in. All
// take turns in blocks A B C … C B A, timed by the device's own clock; results are compared with
// each other. Products have both operands row-major: nobody packs in advance. One JSON document on
// standard output, a line per layer on standard error.
//   opencl_race [--search N] [--blocks N] [--block-s S] [LAYER...]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "deploy/support/strings.h"
#include "device_agent/sample_stats.h"
#include "tests/bench/layers.h"
#include "tests/bench/local_tuner.h"
#include "tests/bench/peers.h"

namespace tilewright::bench {
namespace {

using support::StrCat;

// Two kernels of one layer, both in single precision.
constexpr double kMaxDistance = 1e-5;

struct Options {
  int search = 48, blocks = 6;
  double block_s = 0.3;
  std::vector<std::string> names = {"G512x512x512", "G768x768x768", "G1024x1024x1024",
                                    "C1",           "C2",           "C3",
                                    "C4",           "C5",           "C6",
                                    "C7",           "C8",           "C9",
                                    "C10",          "C11",          "C12"};
};

struct Runner {
  std::string name;
  std::function<double(int64_t)> time;  // of so many calls, in ns
  std::vector<double> ns;               // of a call, per block
};

void TakeTurns(const Options& options, std::vector<Runner>* runners) {
  for (int turn = 0; turn < options.blocks; ++turn) {
    for (size_t i = 0; i < runners->size(); ++i) {
      Runner& r = (*runners)[turn % 2 == 0 ? i : runners->size() - 1 - i];
      const double one = r.ns.empty() ? r.time(1) : r.ns.back();
      const auto calls =
          std::max<int64_t>(1, static_cast<int64_t>(options.block_s * 1e9 / std::max(one, 1e3)));
      r.ns.push_back(r.time(calls) / static_cast<double>(calls));
    }
  }
}

// A convolution with its epilogue in NCHW, or a product of row-major matrices alone.
std::string TextOf(const Layer& l) {
  if (l.kind == Layer::Kind::kConv) return GraphText(l, kNoBlocks);
  return StrCat("graph {\n  input %0: f32[", l.m, ",", l.k, "]\n  input %1: f32[", l.k, ",", l.n,
                "]\n  %2: f32[", l.m, ",", l.n, "] = matmul(%0, %1)\n  output %2\n}\n");
}

std::vector<float> Floats(const runtime::TensorView& view) {
  const auto* first = static_cast<const float*>(view.data);
  return {first, first + view.bytes / sizeof(float)};
}

Operands OperandsOf(const Layer& l, const Loaded& loaded) {
  std::vector<std::vector<float>> inputs;
  for (size_t i = 0; i < loaded.tensors().num_inputs(); ++i)
    inputs.push_back(Floats(loaded.tensors().input(i)));
  if (l.kind == Layer::Kind::kConv) return PlainOperands(l, kNoBlocks, inputs);
  Operands operands;
  operands.x = inputs[0];
  operands.weights = inputs[1];
  return operands;
}

// What the peers leave out.
void FinishPeerResult(const Layer& l, const Operands& operands, std::vector<float>* y) {
  if (l.kind != Layer::Kind::kConv) return;
  const auto pixels = static_cast<size_t>(l.out_size() * l.out_size());
  for (size_t i = 0; i < y->size(); ++i)
    (*y)[i] = std::max(0.0f, (*y)[i] + operands.bias[i / pixels]);
}

nlohmann::json Race(const Layer& layer, const target::Target& target, const Options& options) {
  const std::string text = TextOf(layer);
  const driver::Task task = driver::DescribeTask(Must(graph::ParseGraph(text), text));
  const Found found = Tune(task, target, {.trials = options.search});
  const Loaded best = Must(Load(task, found.best_steps, target), layer.name);
  const Loaded first = Must(Load(task, found.default_steps, target), layer.name);
  const Operands operands = OperandsOf(layer, best);
  const std::vector<float> result = Floats(best.tensors().output(0));

  std::vector<Runner> runners = {
      {"tuned", [&](int64_t calls) { return SliceNs(best, calls); }, {}},
      {"default", [&](int64_t calls) { return SliceNs(first, calls); }, {}}};
  const auto peers = MakeOpenClPeers(layer, operands);
  for (const auto& peer : peers) {
    peer->Time(1);
    std::vector<float> theirs = peer->Result();
    FinishPeerResult(layer, operands, &theirs);
    const double far = Distance(result, theirs);
    TW_CHECK(far < kMaxDistance) << layer.name << ": " << peer->name() << " is " << far
                                 << " away from us";
    runners.push_back(
        {peer->name(), [p = peer.get()](int64_t calls) { return p->Time(calls); }, {}});
  }
  TakeTurns(options, &runners);

  const double ours = device_agent::Median(runners[0].ns);
  nlohmann::json row = {{"layer", layer.name},
                        {"task", task.name},
                        {"gflop", layer.flops() / 1e9},
                        {"tuned_us", ours / 1e3},
                        {"gflop_s", layer.flops() / ours},
                        {"trials", found.curve.size()},
                        {"best_at_trial", found.trial},
                        {"failed", found.failed},
                        {"wrong", found.wrong},
                        {"invalid", found.invalid},
                        {"steps", found.best_steps}};
  double peer_ns = 0;
  for (size_t i = 1; i < runners.size(); ++i) {
    const double ns = device_agent::Median(runners[i].ns);
    row["us"][runners[i].name] = ns / 1e3;
    if (i > 1) peer_ns = peer_ns == 0 ? ns : std::min(peer_ns, ns);
  }
  row["over_default"] = device_agent::Median(runners[1].ns) / ours;
  if (peer_ns > 0) row["over_clblast"] = peer_ns / ours;
  return row;
}

// Over the rows that have the number.
double GeometricMean(const nlohmann::json& rows, const char* key, const char* prefix) {
  double sum = 0;
  int n = 0;
  for (const nlohmann::json& row : rows) {
    if (!row.contains(key) || !row["layer"].get<std::string>().starts_with(prefix)) continue;
    sum += std::log(row[key].get<double>());
    ++n;
  }
  return n == 0 ? 0 : std::exp(sum / n);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Kernels on an OpenCL device against the bound default and CLBlast.");
  app.add_option("--search", options.search, "candidates of ours")->check(CLI::PositiveNumber);
  app.add_option("--blocks", options.blocks, "turns of each")->check(CLI::PositiveNumber);
  app.add_option("--block-s", options.block_s, "seconds of a turn")->check(CLI::PositiveNumber);
  app.add_option("layers", options.names, "C1..C12, G<m>x<n>x<k>; default: the bars of issue 17");
  CLI11_PARSE(app, argc, argv);

  const target::Target target = Must(target::ParseTarget("opencl"), "target");
  nlohmann::json document = {
      {"search", options.search}, {"blocks", options.blocks}, {"rows", nlohmann::json::array()}};
  nlohmann::json& rows = document["rows"];
  for (const std::string& name : options.names) {
    rows.push_back(Race(Must(FindLayer(name), name), target, options));
    const nlohmann::json& row = rows.back();
    fprintf(stderr, "%s: %.1f us, %.1f GFLOP/s, %.2fx the default, %.2fx CLBlast\n", name.c_str(),
            row["tuned_us"].get<double>(), row["gflop_s"].get<double>(),
            row["over_default"].get<double>(), row.value("over_clblast", 0.0));
  }
  document["over_clblast"] = GeometricMean(rows, "over_clblast", "");
  document["convolutions_over_default"] = GeometricMean(rows, "over_default", "C");
  printf("%s\n", document.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::Main(argc, argv); }
