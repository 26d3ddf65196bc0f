#include "tests/bench/local_tuner.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/onnx/onnx_import.h"
#include "compiler/targets/backend.h"
#include "cost_model/model.h"
#include "cost_model/shipped_model.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/device_loader.h"
#include "deploy/runtime/result_check.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tests/bench/layers.h"
#include "tuner_server/search/pass_choice.h"
#include "tuner_server/search/search_task.h"

namespace tilewright::bench {
namespace {

using support::StrCat;

constexpr int kBatch = 8;
constexpr size_t kFirstTraining = 16;  // records
// Of the result against the default schedule's; Winograd's is the largest.
constexpr double kMaxDistance = 1e-4;
constexpr double kSliceNs = 1e6, kBudgetNs = 30e6;
constexpr int kMaxSlices = 60;

// Builds, checks and times one candidate; what it took, or 0.
double Try(const driver::Task& task, const target::Target& target, const std::string& steps,
           const Loaded& first, Found* found, bool* wrong) {
  const absl::StatusOr<Loaded> loaded = Load(task, steps, target);
  *wrong = false;
  if (!loaded.ok()) {
    if (found->failed++ == 0) {
      printf("  %s\n  %s\n", steps.c_str(), support::StatusText(loaded.status()).c_str());
    }
    return 0;
  }
  if (!(ResultDistance(*loaded, first) <= kMaxDistance)) {  // NaN too
    if (found->wrong++ == 0) printf("  WRONG %s\n", steps.c_str());
    *wrong = true;
    return 0;
  }
  return TimeNs(*loaded, found->best_ns);
}

absl::StatusOr<std::unique_ptr<runtime::Session>> NewSession(
    const std::shared_ptr<const runtime::LoadedModule>& module, int threads) {
  runtime::SessionOptions options;
  options.num_threads = threads;
  options.function = module->manifest().functions[0].name;
  TW_ASSIGN(auto session, runtime::Session::Create(module, options));
  TW_TRY(runtime::FillInputs(module->manifest().measurement->inputs, session.get()));
  TW_TRY(session->Run());
  return session;
}

// On the first device of the target's kind.
absl::StatusOr<Loaded> LoadOnDevice(module::ModuleFile file, const target::Target& target) {
  TW_ASSIGN(std::string plugin, runtime::FindDevicePlugin(target.kind));
  Loaded loaded;
  TW_ASSIGN(loaded.device,
            device_agent::LoadOnDevice(std::move(file), "", {target.kind, std::move(plugin)}));
  device_agent::MeasuredSession* device = loaded.device.get();
  TW_TRY(runtime::FillInputs(device->manifest().measurement->inputs, device->tensors()));
  TW_TRY(device->Prepare());
  TW_TRY(device->Run());
  TW_TRY(device->Collect());
  return loaded;
}

// What training continues from: the shipped model, if it knows the target's features.
std::string BaseOf(const target::Target& target) {
  const bool knows = cost_model::KnowsShippedModel(target.machine);
  return knows ? std::string(cost_model::ShippedModel()) : "";
}

Loaded Start(const driver::Task& task, const target::Target& target, Found* found) {
  found->default_steps = found->best_steps =
      Must(driver::DefaultSteps(task.text, target), task.name);
  Loaded first = Must(Load(task, found->default_steps, target), task.name);
  found->default_ns = found->best_ns = TimeNs(first, 0);
  return first;
}

void Keep(double ns, const std::string& steps, int trial, Found* found) {
  found->curve.push_back(ns <= 0 ? found->best_ns : std::min(ns, found->best_ns));
  if (ns <= 0 || ns >= found->best_ns) return;
  found->best_ns = ns;
  found->best_steps = steps;
  found->trial = trial;
}

}  // namespace

target::Target NativeTarget(int threads) {
  const runtime::CpuInfo cpu = runtime::DetectCpu();
  const std::string name =
      target::BestMachineName(cpu.arch, cpu.vendor, cpu.family, cpu.model, cpu.features);
  const std::string text =
      Must(target::ExpandNative(StrCat("native,threads=", threads), cpu.arch, name, threads),
           "native target");
  return Must(target::ParseTarget(text), text);
}

std::vector<driver::Task> ModelTasks(const std::string& path, const target::Target& target,
                                     bool force_blocks) {
  graph::GraphPassContext context = driver::PassContext(target);
  if (force_blocks) context.enabled = {"block_layouts"};
  graph::Graph g =
      Must(graph::ImportOnnx(Must(support::ReadFile(path, uint64_t{2} << 30), path)), path);
  g = Must(search::RunPassesThatPay(std::move(g), target, context), path);
  return Must(driver::ExtractTasks(g), path);
}

absl::StatusOr<Loaded> Load(const driver::Task& task, const std::string& steps,
                            const target::Target& target) {
  TW_ASSIGN(driver::BuiltCandidate built,
            driver::BuildCandidate(task.text, steps, target, nullptr));
  TW_ASSIGN(module::ModuleFile file, module::ModuleFile::FromBytes(built.module_bytes));
  if (targets::BackendOf(target).on_device) return LoadOnDevice(std::move(file), target);
  Loaded loaded;
  TW_ASSIGN(loaded.module, runtime::LoadedModule::Load(std::move(file)));
  TW_ASSIGN(loaded.session, NewSession(loaded.module, target.threads));
  return loaded;
}

absl::StatusOr<Loaded> WithOtherBuffers(const Loaded& loaded) {
  Loaded other{loaded.module, nullptr, nullptr};
  TW_ASSIGN(other.session, NewSession(loaded.module, loaded.session->num_threads()));
  return other;
}

double ResultDistance(const Loaded& a, const Loaded& b) {
  const runtime::TensorView x = a.tensors().output(0), y = b.tensors().output(0);
  if (x.tensor->dtype != module::DType::kFloat32) return memcmp(x.data, y.data, x.bytes) != 0;
  const auto floats = [](const runtime::TensorView& view) {
    const auto* first = static_cast<const float*>(view.data);
    return std::vector<float>(first, first + view.bytes / sizeof(float));
  };
  return Distance(floats(x), floats(y));
}

double NowNs(int threads) {
  timespec t;
  clock_gettime(threads > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

// Of `calls` calls.
double SliceNs(const Loaded& loaded, int64_t calls) {
  if (loaded.device != nullptr) {
    return static_cast<double>(
        Must(loaded.device->Time(static_cast<int>(calls)), "a timed run on the device"));
  }
  loaded.session->EvictFar();
  const int threads = loaded.session->num_threads();
  const double start = NowNs(threads);
  for (int64_t i = 0; i < calls; ++i) TW_CHECK(loaded.session->Run().ok());
  return NowNs(threads) - start;
}

double TimeNs(const Loaded& loaded, double best_known) {
  double best = 1e300, spent = 0;
  for (int slice = 0; slice < kMaxSlices && spent < kBudgetNs; ++slice) {
    const bool one = best == 1e300 || (loaded.session != nullptr && loaded.session->has_cold());
    const int64_t calls = one ? 1 : std::max<int64_t>(1, static_cast<int64_t>(kSliceNs / best));
    const double ns = SliceNs(loaded, calls);
    spent += ns;
    best = std::min(best, ns / static_cast<double>(calls));
    if (best_known > 0 && slice >= 3 && best > 2 * best_known) break;
  }
  return best;
}

Found Tune(const driver::Task& task, const target::Target& target, const TuneOptions& options) {
  const int trials = options.trials;
  Found found;
  const Loaded first = Start(task, target, &found);
  if (trials <= 0) return found;
  const driver::BuiltCandidate built =
      Must(driver::BuildCandidate(task.text, found.default_steps, target, nullptr), task.name);
  const auto variants = Must(driver::TaskVariants(task.text), task.name);
  search::SearchOptions with;
  with.seed = options.seed;
  auto search = Must(search::SearchTask::Create(variants, task.flops, target, with), task.name);
  std::unique_ptr<cost_model::CostModel> model =
      options.random ? cost_model::MakeRandomModel(options.seed, target.machine.feature_set)
                     : Must(cost_model::ModelBeforeMeasurements(target.machine),
                            "the model before measurements");
  search->Tell({built.program_hash, v1::OK, found.default_ns, false}, found.default_steps);
  for (int done = 0, batch = 0; done < trials; ++batch) {
    search::AskResult asked = Must(
        search->Ask(std::min(kBatch, trials - done), StrCat("b", batch), model.get()), task.name);
    if (asked.picks.empty()) break;
    found.invalid += asked.invalid;
    for (const search::Pick& pick : asked.picks) {
      const search::Candidate& c = pick.candidate;
      bool wrong = false;
      const double ns = Try(task, target, c.steps, first, &found, &wrong);
      const v1::Outcome outcome = ns > 0 ? v1::OK : wrong ? v1::WRONG_RESULT : v1::BUILD_ERROR;
      search->Tell({c.program_hash, outcome, ns, false}, c.steps);
      Keep(ns, c.steps, ++done, &found);
    }
    if (options.random) continue;
    cost_model::Dataset data;
    data.rows = search->TrainingRows(0);
    if (data.rows.size() < kFirstTraining) continue;
    model = cost_model::MakeXgbModel(options.seed, BaseOf(target), target.machine.feature_set);
    TW_CHECK(model->Fit(data).ok());
  }
  return found;
}

Found TuneSketch(const driver::Task& task, const target::Target& target, const std::string& sketch,
                 int trials) {
  Found found;
  const Loaded first = Start(task, target, &found);
  const auto space = Must(
      space::Space::Create(Must(driver::TaskVariants(task.text), task.name), target), task.name);
  support::Rng rng(1);
  std::set<std::string> seen;
  for (int draws = 0; static_cast<int>(seen.size()) < trials && draws < 200 * trials; ++draws) {
    space::Point point;
    if (!space->Sample(&rng, &point)) break;
    if (space->sketches()[static_cast<size_t>(point.sketch)]->name() != sketch) continue;
    const absl::StatusOr<schedule::Schedule> made = space->Apply(point);
    if (!made.ok()) {
      if (found.invalid++ == 0) printf("  %s\n", support::StatusText(made.status()).c_str());
      continue;
    }
    const std::string steps = schedule::ToText(made->steps());
    if (!seen.insert(steps).second) continue;
    bool wrong = false;
    Keep(Try(task, target, steps, first, &found, &wrong), steps, static_cast<int>(seen.size()),
         &found);
  }
  return found;
}

}  // namespace tilewright::bench
