// Layers against the hand-tuned libraries, in one run: our kernel (the best of a short search in
// this process) and every peer take turns in blocks A B C … C B A, results are compared with each
// other and with double precision, and each row carries its physical limit. One JSON document on
// standard output, a line per layer on standard error.
//   layer_race [--threads N] [--search N] [--known best_known.json] [--block-s 0.5] [--blocks 4]
//              [--cpu CPU] [LAYER...]
// With --known, a layer that the table has a schedule of runs that one instead of a search's.
// One thread is timed by its own processor time, more by the clock on the wall. With --cpu the code
// of an older machine races on this one, libraries held to its vectors, too:
//   OPENBLAS_CORETYPE=Haswell layer_race --cpu haswell
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "deploy/module/dtype.h"
#include "deploy/peaks/fma_peak.h"
#include "deploy/peaks/read_bandwidth.h"
#include "deploy/runtime/compare.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "device_agent/sample_stats.h"
#include "tests/bench/layers.h"
#include "tests/bench/local_tuner.h"
#include "tests/bench/peers.h"

namespace tilewright::bench {
namespace {

// Two kernels of one layer, both in single precision; in bytes, where a scaled sum between two
// numbers may be rounded to either.
constexpr double kMaxPeerDistance = 1e-5, kMaxByteDistance = 1e-3;

// Products of bytes in one instruction, for each of floats.
constexpr double kByteSpeedup = 4;

struct Options {
  int threads = 1, search = 64, blocks = 4;
  double block_s = 0.5;
  std::string cpu;           // "": this machine's
  std::string known;         // a table of best-known schedules; "": none
  nlohmann::json schedules;  // what it says, by layer
  std::vector<std::string> names;
  std::vector<PeerLibrary> libraries;  // that race against ours
};

struct Runner {
  std::string name;
  bool direct = true;
  std::function<void()> run;
  std::vector<double> ns;  // of a call, per block
};

void TakeTurns(const Options& options, std::vector<Runner>* runners) {
  for (Runner& r : *runners) r.run();
  for (int turn = 0; turn < options.blocks; ++turn) {
    for (size_t i = 0; i < runners->size(); ++i) {
      Runner& r = (*runners)[turn % 2 == 0 ? i : runners->size() - 1 - i];
      const double start = NowNs(options.threads), end = start + options.block_s * 1e9;
      int64_t calls = 0;
      double now = start;
      // The clock is asked about every 50 us: a call of it costs as much as a small kernel.
      const double known = r.ns.empty() ? 50e3 : r.ns.back();
      const auto step = std::max<int64_t>(1, static_cast<int64_t>(50e3 / known));
      while (now < end) {
        for (int64_t c = 0; c < step; ++c) r.run();
        calls += step;
        now = NowNs(options.threads);
      }
      r.ns.push_back((now - start) / static_cast<double>(calls));
    }
  }
}

nlohmann::json Spread(const std::vector<double>& ns) {
  const auto [low, high] = std::minmax_element(ns.begin(), ns.end());
  return {{"us", device_agent::Median(ns) / 1e3}, {"low_us", *low / 1e3}, {"high_us", *high / 1e3}};
}

// Ratios peer / ours, block by block: above 1 we are faster.
nlohmann::json AgainstOurs(const Runner& peer, const Runner& ours) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.ns.size(); ++i) ratios.push_back(peer.ns[i] / ours.ns[i]);
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  nlohmann::json row = Spread(peer.ns);
  row.update({{"name", peer.name},
              {"direct", peer.direct},
              {"ratio", device_agent::Median(ratios)},
              {"ratio_low", *low},
              {"ratio_high", *high}});
  return row;
}

std::vector<float> Numbers(const runtime::TensorView& view) {
  const module::DType type = view.tensor->dtype;
  const auto count = static_cast<int64_t>(view.bytes) / module::DTypeBytes(type);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(runtime::ElementAsDouble(type, view.data, i)));
  }
  return values;
}

// The table's schedule of this very task, or what a search finds.
Found FindKernel(const std::string& name, const driver::Task& task, const target::Target& target,
                 const Options& options) {
  const auto row = options.schedules.find(name);
  if (row != options.schedules.end() && row->value("task", "") == task.hash) {
    Found found = Tune(task, target, {});
    found.best_steps = row->at("steps");
    return found;
  }
  return Tune(task, target, {.trials = options.search});
}

nlohmann::json Race(const Layer& layer, const target::Target& target, const Options& options,
                    double float_peak) {
  const double peak = float_peak * (layer.bytes_only ? kByteSpeedup : 1);
  const int64_t block = target.machine.vector_bytes / 4;
  const std::string text = GraphText(layer, block);
  const driver::Task task = driver::DescribeTask(Must(graph::ParseGraph(text), text));
  const Found found = FindKernel(layer.name, task, target, options);
  const Loaded ours = Must(Load(task, found.best_steps, target), layer.name);
  std::vector<std::vector<float>> inputs;
  for (size_t i = 0; i < ours.session->num_inputs(); ++i) {
    inputs.push_back(Numbers(ours.session->input(i)));
  }
  const Operands operands = PlainOperands(layer, block, inputs);
  const std::vector<float> result = PlainResult(layer, block, Numbers(ours.session->output(0)));

  const Peers peers = MakePeers(options.libraries, layer, operands, options.threads);
  std::vector<Runner> runners = {
      {"tilewright", true, [&] { TW_CHECK(ours.session->Run().ok()); }, {}}};
  for (const auto& peer : peers) {
    peer->Run();
    const double far = Distance(result, peer->Result());
    TW_CHECK(far < (layer.bytes_only ? kMaxByteDistance : kMaxPeerDistance))
        << layer.name << ": " << peer->name() << " is " << far << " away from us";
    runners.push_back({peer->name(), peer->direct(), [p = peer.get()] { p->Run(); }, {}});
  }
  TakeTurns(options, &runners);

  const double flops = layer.flops(), bytes = layer.bytes();
  const double gb_s = peaks::ReadBandwidth(static_cast<size_t>(bytes), options.threads);
  nlohmann::json row = Spread(runners[0].ns);
  row.update({{"layer", layer.name},
              {"threads", options.threads},
              {"task", task.name},
              {"gflop", flops / 1e9},
              {"mb", bytes / 1e6},
              {"limit_us", std::max(flops / peak, bytes / gb_s) / 1e3},
              {"bound", flops / peak > bytes / gb_s ? "operations" : "bytes"},
              {"share_of_peak", flops / device_agent::Median(runners[0].ns) / peak},
              {"default_us", found.default_ns / 1e3},
              {"trials", found.curve.size()},
              {"best_at_trial", found.trial},
              {"failed", found.failed},
              {"wrong", found.wrong},
              {"steps", found.best_steps},
              {"distance_from_f64", DistanceFromExact(layer, operands, result)},
              {"peers", nlohmann::json::array()}});
  for (size_t i = 1; i < runners.size(); ++i) {
    row["peers"].push_back(AgainstOurs(runners[i], runners[0]));
  }
  return row;
}

std::string Line(const nlohmann::json& row) {
  std::string line =
      support::StrCat(row["layer"].get<std::string>(), ": ", support::FormatFixed(row["us"], 1),
                      " us (limit ", support::FormatFixed(row["limit_us"], 1), ")");
  for (const nlohmann::json& peer : row["peers"]) {
    line += support::StrCat(", ", peer["name"].get<std::string>(), " ",
                            support::FormatFixed(peer["ratio"], 2), "x");
  }
  return line;
}

// What this machine would be with vectors of the target's width at most.
runtime::CpuInfo Narrowed(runtime::CpuInfo cpu, const target::Target& target) {
  if (target.machine.vector_bytes < 64) std::erase(cpu.features, "avx512f");
  return cpu;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Layers against hand-tuned libraries.");
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 64));
  app.add_option("--search", options.search, "candidates of ours")->check(CLI::NonNegativeNumber);
  app.add_option("--blocks", options.blocks, "turns of each")->check(CLI::PositiveNumber);
  app.add_option("--block-s", options.block_s, "seconds of a turn")->check(CLI::PositiveNumber);
  app.add_option("--known", options.known, "best_known.json: its schedules instead of a search")
      ->check(CLI::ExistingFile);
  app.add_option("--cpu", options.cpu, "LLVM's name of the CPU to compile for (default: this one)");
  app.add_option("layers", options.names,
                 "C1..C12, D1..D9, C2i8..D9i8, names of workloads.txt that begin with G, K or D; "
                 "default: all");
  CLI11_PARSE(app, argc, argv);
  if (!options.known.empty()) {
    options.schedules = nlohmann::json::parse(
        Must(support::ReadFile(options.known, 1 << 24), options.known))["workloads"];
  }

  target::Target target = NativeTarget(options.threads);
  if (!options.cpu.empty()) {
    target.cpu = options.cpu;
    target = Must(target::ParseTarget(target.ToString()), "--cpu");
  }
  const runtime::CpuInfo cpu = Narrowed(runtime::DetectCpu(), target);
  options.libraries = PeerLibraries(target);
  std::vector<std::string> libraries;
  for (const PeerLibrary& library : options.libraries) libraries.push_back(library.name);
  const double peak = peaks::MeasureFmaPeak(cpu, options.threads, 50);
  nlohmann::json document = {{"cpu", cpu.model_name},      {"target", target.ToString()},
                             {"threads", options.threads}, {"peak_gflop_s", peak},
                             {"libraries", libraries},     {"block_s", options.block_s},
                             {"blocks", options.blocks},   {"rows", nlohmann::json::array()}};
  std::vector<Layer> layers = Layers();
  if (!options.names.empty()) {
    layers.clear();
    for (const std::string& name : options.names) layers.push_back(Must(FindLayer(name), name));
  }
  for (const Layer& layer : layers) {
    document["rows"].push_back(Race(layer, target, options, peak));
    fprintf(stderr, "%s\n", Line(document["rows"].back()).c_str());
  }
  printf("%s\n", document.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::Main(argc, argv); }
