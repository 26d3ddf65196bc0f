// What the compiler makes of single tasks: their default schedules, and the best of a short search
// in the same process, as shares of this machine's FMA peak. One thread, thread CPU time, so that
// neighbours on a shared machine matter little. A trend to watch, not a gate.
//   task_peak [--search N] [--block] [--steps] [--peers] [--only WORD] LAYER... | MODEL.onnx
// LAYER: C1..C12 and D1..D9 of ResNet-18 and MobileNet, G<m>x<n>x<k>; default: all of them.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/graph/graph_passes.h"
#include "cost_model/model.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/result_check.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "device_agent/fma_peak.h"
#include "tests/bench/peer_onednn.h"
#include "tests/support/run_compiled.h"
#include "tuner_server/search/search_task.h"

namespace tilewright {
namespace {

using support::StrCat;

struct Options {
  int search = 0;
  bool block = false, steps = false, peers = false;
  std::string sketch;  // --sketch NAME: random points of this sketch instead of a search
  std::string only;
  std::vector<std::string> names;
};

double ThreadNs() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

// ---- layers -----------------------------------------------------------------------------------

using Conv = bench::PeerConv;

const std::map<std::string, Conv>& Convs() {
  static const std::map<std::string, Conv> kConvs = {
      {"C1", {224, 3, 64, 7, 2}},          {"C2", {56, 64, 64, 3, 1}},
      {"C3", {56, 64, 64, 1, 1}},          {"C4", {56, 64, 128, 3, 2}},
      {"C5", {56, 64, 128, 1, 2}},         {"C6", {28, 128, 128, 3, 1}},
      {"C7", {28, 128, 256, 3, 2}},        {"C8", {28, 128, 256, 1, 2}},
      {"C9", {14, 256, 256, 3, 1}},        {"C10", {14, 256, 512, 3, 2}},
      {"C11", {14, 256, 512, 1, 2}},       {"C12", {7, 512, 512, 3, 1}},
      {"D1", {112, 32, 32, 3, 1, true}},   {"D2", {112, 64, 64, 3, 2, true}},
      {"D3", {56, 128, 128, 3, 1, true}},  {"D4", {56, 128, 128, 3, 2, true}},
      {"D5", {28, 256, 256, 3, 1, true}},  {"D6", {28, 256, 256, 3, 2, true}},
      {"D7", {14, 512, 512, 3, 1, true}},  {"D8", {14, 512, 512, 3, 2, true}},
      {"D9", {7, 1024, 1024, 3, 1, true}},
  };
  return kConvs;
}

// Convolution, bias, relu as the graph passes leave them.
std::string ConvText(const Conv& c, bool block) {
  const int64_t pad = c.kernel / 2, out = (c.size + 2 * pad - c.kernel) / c.stride + 1, b = 16;
  const int64_t groups = c.depthwise ? c.in : 1, in = c.in / groups;
  std::string x = StrCat("f32[1,", c.in, ",", c.size, ",", c.size, "]"), w, bias, y;
  std::string attrs = StrCat("pads=[", pad, ",", pad, ",", pad, ",", pad, "], strides=[", c.stride,
                             ",", c.stride, "]");
  std::string op = "conv2d";
  const bool blocked = block && c.in % b == 0;
  if (blocked) {
    op = "conv2d_blocked";
    x = StrCat("f32[1,", c.in / b, ",", c.size, ",", c.size, ",", b, "]");
    w = c.depthwise ? StrCat("f32[", c.out / b, ",", c.kernel, ",", c.kernel, ",", b, "]")
                    : StrCat("f32[", c.out / b, ",", c.in / b, ",", c.kernel, ",", c.kernel, ",", b,
                             ",", b, "]");
    bias = StrCat("f32[", c.out / b, ",1,1,", b, "]");
    y = StrCat("f32[1,", c.out / b, ",", out, ",", out, ",", b, "]");
  } else {
    w = c.depthwise ? StrCat("f32[", in, ",", c.kernel, ",", c.kernel, ",", c.out, "]")
                    : StrCat("f32[", c.out / b, ",", in, ",", c.kernel, ",", c.kernel, ",", b, "]");
    attrs +=
        StrCat(", groups=", groups, ", weight_layout=\"", c.depthwise ? "IHWO" : "OIHW16o", "\"");
    bias = StrCat("f32[", c.out, ",1,1]");
    y = StrCat("f32[1,", c.out, ",", out, ",", out, "]");
  }
  return StrCat("graph {\n  input %0: ", x, "\n  weight %1: ", w, "\n  weight %2: ", bias,
                "\n  %3: ", y, " = ", op, "(%0, %1) {", attrs, "}\n  %4: ", y,
                " = add(%3, %2)\n  %5: ", y, " = relu(%4)\n  output %5\n}\n");
}

std::string GemmText(int64_t m, int64_t n, int64_t k) {
  const bool blocked = n % 16 == 0;
  return StrCat("graph {\n  input %0: f32[", m, ",", k, "]\n  weight %1: f32[",
                blocked ? StrCat(n / 16, ",", k, ",16") : StrCat(k, ",", n), "]\n  weight %2: f32[",
                n, "]\n  %3: f32[", m, ",", n, "] = dense(%0, %1) {weight_layout=\"",
                blocked ? "NK16n" : "KN", "\"}\n  %4: f32[", m, ",", n,
                "] = add(%3, %2)\n  output %4\n}\n");
}

template <typename T>
T Must(absl::StatusOr<T> value, const std::string& what) {
  TW_CHECK(value.ok()) << what << ": " << support::StatusText(value.status());
  return *std::move(value);
}

driver::Task LayerTask(const std::string& name, bool block) {
  std::string text;
  int64_t m = 0, n = 0, k = 0;
  if (sscanf(name.c_str(), "G%ldx%ldx%ld", &m, &n, &k) == 3) {
    text = GemmText(m, n, k);
  } else {
    TW_CHECK(Convs().count(name) > 0) << "no layer " << name;
    text = ConvText(Convs().at(name), block);
  }
  return driver::DescribeTask(Must(graph::ParseGraph(text), text));
}

std::vector<driver::Task> ModelTasks(const std::string& path, bool block,
                                     const ir::Target& target) {
  graph::Graph g =
      Must(graph::ImportOnnx(Must(support::ReadFile(path, uint64_t{2} << 30), path)), path);
  graph::GraphPassContext context;
  if (block) context.enabled = {"block_layouts"};
  context.channel_block = target.vector_bytes / 4;
  g = Must(graph::RunGraphPasses(std::move(g), context), path);
  return Must(driver::ExtractTasks(g), path);
}

// ---- measurement ------------------------------------------------------------------------------

struct Loaded {
  std::shared_ptr<const runtime::LoadedModule> module;
  std::unique_ptr<runtime::Session> session;
};

absl::StatusOr<Loaded> Load(const driver::Task& task, const std::string& steps,
                            const ir::Target& target) {
  TW_ASSIGN(driver::BuiltCandidate built,
            driver::BuildCandidate(task.text, steps, target, nullptr));
  TW_ASSIGN(module::ModuleFile file, module::ModuleFile::FromBytes(built.module_bytes));
  Loaded loaded;
  TW_ASSIGN(loaded.module, runtime::LoadedModule::Load(std::move(file)));
  runtime::SessionOptions options;
  options.function = loaded.module->manifest().functions[0].name;
  TW_ASSIGN(loaded.session, runtime::Session::Create(loaded.module, options));
  TW_TRY(runtime::FillInputs(loaded.module->manifest().measurement->inputs, loaded.session.get()));
  TW_TRY(loaded.session->Run());
  return loaded;
}

// The quickest of some slices of calls; stops early when far behind.
double TimeNs(const Loaded& loaded, double best_known) {
  double best = 1e300, spent = 0;
  for (int slice = 0; slice < 60 && spent < 30e6; ++slice) {
    const int64_t calls = best < 1e300 ? std::max<int64_t>(1, static_cast<int64_t>(1e6 / best)) : 1;
    const double start = ThreadNs();
    for (int64_t i = 0; i < calls; ++i) TW_CHECK(loaded.session->Run().ok());
    const double ns = ThreadNs() - start;
    spent += ns;
    best = std::min(best, ns / static_cast<double>(calls));
    if (best_known > 0 && slice >= 3 && best > 2 * best_known) break;
  }
  return best;
}

double Distance(const Loaded& a, const Loaded& b) {
  const runtime::TensorView x = a.session->output(0), y = b.session->output(0);
  double difference = 0, norm = 0;
  if (x.tensor->dtype != module::DType::kFloat32) return memcmp(x.data, y.data, x.bytes) != 0;
  const auto* p = static_cast<const float*>(x.data);
  const auto* q = static_cast<const float*>(y.data);
  for (size_t i = 0; i < x.bytes / sizeof(float); ++i) {
    difference += (p[i] - q[i]) * static_cast<double>(p[i] - q[i]);
    norm += static_cast<double>(q[i]) * q[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}

struct Found {
  double default_ns = 0, best_ns = 0;
  std::string default_steps, best_steps;
  int failed = 0, wrong = 0, invalid = 0, trial = 0;
  std::string peers;  // what a race against others gave
  bool sampled = false;
  double distance = 0;
};

// The tuner's own search, measured here.
void Search(const driver::Task& task, const ir::Target& target, int trials, const Loaded& first,
            const std::string& hash, Found* found) {
  const auto variants = Must(driver::TaskVariants(task.text), task.name);
  auto search = Must(search::SearchTask::Create(variants, task.flops, target, {}), task.name);
  std::unique_ptr<cost_model::CostModel> model = cost_model::MakePriorModel();
  search->Tell({hash, v1::OK, found->default_ns, false}, found->default_steps);
  for (int done = 0, batch = 0; done < trials; ++batch) {
    search::AskResult asked =
        Must(search->Ask(std::min(8, trials - done), StrCat("b", batch), model.get()), task.name);
    if (asked.picks.empty()) break;
    found->invalid += asked.invalid;
    for (const search::Pick& pick : asked.picks) {
      ++done;
      const search::Candidate& c = pick.candidate;
      absl::StatusOr<Loaded> loaded = Load(task, c.steps, target);
      if (!loaded.ok()) {
        if (found->failed++ == 0) {
          printf("  %s\n  %s\n", c.steps.c_str(),
                 support::StatusText(loaded.status()).substr(0, 600).c_str());
        }
        search->Tell({c.program_hash, v1::BUILD_ERROR, 0, false}, c.steps);
        continue;
      }
      if (Distance(*loaded, first) > 1e-4) {
        if (found->wrong++ == 0) printf("  WRONG %s\n", c.steps.c_str());
        search->Tell({c.program_hash, v1::WRONG_RESULT, 0, false}, c.steps);
        continue;
      }
      const double ns = TimeNs(*loaded, found->best_ns);
      search->Tell({c.program_hash, v1::OK, ns, false}, c.steps);
      if (ns >= found->best_ns) continue;
      found->best_ns = ns;
      found->best_steps = c.steps;
      found->trial = done;
    }
    cost_model::Dataset data;
    data.rows = search->TrainingRows(0);
    if (data.rows.size() < 16) continue;
    model = cost_model::MakeXgbModel(1);
    TW_CHECK(model->Fit(data).ok());
  }
}

// The best of all (at most `trials`) points of one sketch, drawn at random.
void Sample(const driver::Task& task, const ir::Target& target, const std::string& sketch,
            int trials, const Loaded& first, Found* found) {
  const auto space = Must(
      search::Space::Create(Must(driver::TaskVariants(task.text), task.name), target), task.name);
  support::Rng rng(1);
  std::set<std::string> seen;
  for (int draws = 0; static_cast<int>(seen.size()) < trials && draws < 200 * trials; ++draws) {
    search::Point point;
    if (!space->Sample(&rng, &point)) break;
    const std::string name = space->sketches()[static_cast<size_t>(point.sketch)]->name();
    if (name != sketch) continue;
    const absl::StatusOr<schedule::Schedule> made = space->Apply(point);
    if (!made.ok()) {
      if (found->invalid++ == 0) printf("  %s\n", support::StatusText(made.status()).c_str());
      continue;
    }
    const std::string steps = schedule::ToText(made->steps());
    if (!seen.insert(steps).second) continue;
    const absl::StatusOr<Loaded> loaded = Load(task, steps, target);
    if (!loaded.ok()) {
      if (found->failed++ == 0) printf("  %s\n", support::StatusText(loaded.status()).c_str());
      continue;
    }
    const double far = Distance(*loaded, first);
    if (far > 1e-5) {
      if (found->wrong++ == 0) printf("  WRONG %g %s\n", far, steps.c_str());
      continue;
    }
    const double ns = TimeNs(*loaded, 0);
    if (!found->sampled || ns < found->best_ns) {
      found->best_ns = ns;
      found->best_steps = steps;
      found->distance = far;
      found->trial = static_cast<int>(seen.size());
    }
    found->sampled = true;
  }
}

#ifdef TILEWRIGHT_BENCH_ONEDNN
constexpr double kRaceSliceNs = 0.25e9;
constexpr double kMaxPeerDistance = 5e-6;

// Ours and oneDNN's algorithms in turns A B C … C B A, medians of the slices' means; results are
// compared first.
std::string Race(const Conv& conv, bool blocked, const Loaded* ours) {
  const std::pair<bench::PeerAlgorithm, const char*> kAlgorithms[] = {
      {bench::PeerAlgorithm::kDirect, "direct"}, {bench::PeerAlgorithm::kWinograd, "winograd"}};
  struct Runner {
    std::string name;
    std::function<void()> run;
    std::vector<double> ns;
  };
  std::vector<Runner> runners = {{"ours", [&] { TW_CHECK(ours->session->Run().ok()); }, {}}};
  std::vector<std::unique_ptr<bench::OneDnnConv>> peers;
  auto floats = [](const runtime::TensorView& view) { return static_cast<float*>(view.data); };
  const runtime::TensorView y = ours->session->output(0);
  TW_CHECK(ours->session->Run().ok());
  const std::vector<float> result(floats(y), floats(y) + y.bytes / sizeof(float));
  for (const auto& [algorithm, name] : kAlgorithms) {
    auto peer = bench::OneDnnConv::Create(conv, algorithm, blocked);
    if (peer == nullptr) continue;
    peer->Load(floats(ours->session->input(0)), floats(ours->session->input(1)),
               floats(ours->session->input(2)));
    peer->Run();
    const std::vector<float> other = peer->Output();
    double difference = 0, norm = 0;
    for (size_t i = 0; i < result.size(); ++i) {
      difference += std::pow(result[i] - other[i], 2.0);
      norm += std::pow(other[i], 2.0);
    }
    TW_CHECK(std::sqrt(difference / norm) < kMaxPeerDistance)
        << "results differ by " << std::sqrt(difference / norm);
    runners.push_back({StrCat("oneDNN ", name), [p = peer.get()] { p->Run(); }, {}});
    peers.push_back(std::move(peer));
  }
  for (int turn = 0; turn < 4; ++turn) {
    for (size_t i = 0; i < runners.size(); ++i) {
      Runner& r = runners[turn % 2 == 0 ? i : runners.size() - 1 - i];
      const double start = ThreadNs();
      int calls = 0;
      while (ThreadNs() - start < kRaceSliceNs) r.run(), ++calls;
      r.ns.push_back((ThreadNs() - start) / calls);
    }
  }
  std::string text;
  double mine = 0, best = 1e300;
  for (Runner& r : runners) {
    std::sort(r.ns.begin(), r.ns.end());
    const double median = (r.ns[1] + r.ns[2]) / 2;
    (&r == &runners[0] ? mine : best) = &r == &runners[0] ? median : std::min(best, median);
    text +=
        StrCat(text.empty() ? "" : ", ", r.name, " ", support::FormatFixed(median / 1e3, 1), " us");
  }
  if (runners.size() == 1) return text;
  return StrCat(support::FormatFixed(best / mine, 2), "x the best peer (", text, ")");
}
#endif

Found Judge([[maybe_unused]] const std::string& name, const driver::Task& task,
            const ir::Target& target, const Options& options) {
  Found found;
  found.default_steps = Must(driver::DefaultSteps(task.text, target), task.name);
  const driver::BuiltCandidate built =
      Must(driver::BuildCandidate(task.text, found.default_steps, target, nullptr), task.name);
  const Loaded first = Must(Load(task, found.default_steps, target), task.name);
  found.default_ns = found.best_ns = TimeNs(first, 0);
  found.best_steps = found.default_steps;
  if (!options.sketch.empty()) {
    Sample(task, target, options.sketch, options.search, first, &found);
  } else if (options.search > 0) {
    Search(task, target, options.search, first, built.program_hash, &found);
  }
#ifdef TILEWRIGHT_BENCH_ONEDNN
  if (options.peers && Convs().count(name) > 0) {
    const Loaded best = Must(Load(task, found.best_steps, target), task.name);
    found.peers = Race(Convs().at(name), options.block && Convs().at(name).in % 16 == 0, &best);
  }
#endif
  return found;
}

void Print(const std::string& name, const driver::Task& task, const Found& f, double peak,
           const Options& options) {
  const auto share = [&](double ns) { return 100 * task.flops / ns / peak; };
  printf("%-6s %-62s x%-2d default %9.1f us %5.1f %%", name.c_str(),
         task.name.substr(0, 62).c_str(), task.weight, f.default_ns / 1e3, share(f.default_ns));
  if (options.search > 0) {
    printf(" | best %9.1f us %5.1f %% (%.2fx at %d; failed %d wrong %d invalid %d)",
           f.best_ns / 1e3, share(f.best_ns), f.default_ns / f.best_ns, f.trial, f.failed, f.wrong,
           f.invalid);
  }
  printf("\n");
  if (!f.peers.empty()) printf("       %s\n", f.peers.c_str());
  if (options.steps) printf("    %s\n    %s\n", f.default_steps.c_str(), f.best_steps.c_str());
  fflush(stdout);
}

Options ParseFlags(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--search" && i + 1 < argc) {
      options.search = atoi(argv[++i]);
    } else if (flag == "--only" && i + 1 < argc) {
      options.only = argv[++i];
    } else if (flag == "--sketch" && i + 1 < argc) {
      options.sketch = argv[++i];
    } else if (flag == "--peers") {
      options.peers = true;
    } else if (flag == "--block") {
      options.block = true;
    } else if (flag == "--steps") {
      options.steps = true;
    } else {
      options.names.push_back(flag);
    }
  }
  if (options.names.empty()) {
    for (const auto& [name, conv] : Convs()) options.names.push_back(name);
  }
  return options;
}

int Main(int argc, char** argv) {
  const Options options = ParseFlags(argc, argv);
  const runtime::CpuInfo cpu = runtime::DetectCpu();
  const ir::Target target = Must(ir::ParseTarget("cpu,arch=x86_64,cpu=znver4"), "target");
  if (!runtime::MissingFeatures(cpu, target.required_features).empty()) {
    printf("[SKIP] task_peak: needs AVX-512\n");
    return 0;
  }
  const double peak = device_agent::MeasureFmaPeak(cpu, 1, 50);
  printf("%s, FMA peak %.1f GFLOP/s\n", target.ToString().c_str(), peak);
  for (const std::string& name : options.names) {
    if (name.size() < 5 || name.substr(name.size() - 5) != ".onnx") {
      const driver::Task task = LayerTask(name, options.block);
      Print(name, task, Judge(name, task, target, options), peak, options);
      continue;
    }
    double before = 0, after = 0, flops = 0;
    for (const driver::Task& task : ModelTasks(name, options.block, target)) {
      if (task.name.find(options.only) == std::string::npos) continue;
      const Found f = Judge("", task, target, options);
      Print("", task, f, peak, options);
      before += f.default_ns * task.weight;
      after += f.best_ns * task.weight;
      flops += task.flops * task.weight;
    }
    printf("total default %.1f us (%.1f %%), best %.1f us (%.1f %%)\n", before / 1e3,
           100 * flops / before / peak, after / 1e3, 100 * flops / after / peak);
  }
  return 0;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) { return tilewright::Main(argc, argv); }
