#include "tests/differential/graph_runs.h"

#include <algorithm>
#include <cmath>

#include "deploy/module/module_file.h"
#include "deploy/module/module_writer.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {

using graph::Graph;
using op::RefTensor;
using support::StrCat;

namespace {

// Of the largest value: rounding to the element type once per operator, and constants that were
// folded; far below what a wrong element does.
constexpr double kTolerance = 2e-4;

}  // namespace

std::string FirstDifference(const std::vector<RefTensor>& expected,
                            const std::vector<RefTensor>& actual) {
  if (expected.size() != actual.size()) return "another number of outputs";
  for (size_t o = 0; o < expected.size(); ++o) {
    if (expected[o].type != actual[o].type) {
      return StrCat("output ", o, ": ", op::ToText(expected[o].type), " became ",
                    op::ToText(actual[o].type));
    }
    double largest = 1;
    for (double v : expected[o].values) {
      if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
    }
    for (size_t i = 0; i < expected[o].values.size(); ++i) {
      const double e = expected[o].values[i], a = actual[o].values[i];
      if (e == a || (std::isnan(e) && std::isnan(a))) continue;
      if (!(std::fabs(a - e) <= kTolerance * largest)) {
        return StrCat("output ", o, " element ", i, ": expected ", e, ", found ", a);
      }
    }
  }
  return "";
}

absl::StatusOr<std::unique_ptr<runtime::Session>> GuardedSession(const std::string& module,
                                                                 int threads) {
  auto loaded = runtime::LoadedModule::Load(*module::ModuleFile::FromBytes(module));
  if (!loaded.ok()) return loaded.status();
  return runtime::Session::Create(*loaded, {.num_threads = threads, .guard_pages = true});
}

std::optional<std::vector<RefTensor>> RunModule(const Graph& fused, const std::string& module,
                                                const std::vector<RefTensor>& inputs, int threads,
                                                std::string* error) {
  auto session = GuardedSession(module, threads);
  if (!session.ok()) return *error = support::StatusText(session.status()), std::nullopt;
  std::vector<op::TensorType> types;
  for (graph::ValueId id : fused.outputs) types.push_back(fused.values[id].type);
  return RunSession(session->get(), inputs, types, error);
}

std::optional<std::vector<RefTensor>> RunSession(runtime::Session* session,
                                                 const std::vector<RefTensor>& inputs,
                                                 const std::vector<op::TensorType>& types,
                                                 std::string* error) {
  const auto fail = [&](const absl::Status& status) {
    *error = support::StatusText(status);
    return std::nullopt;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string bytes = op::ToBytes(inputs[i]);
    absl::Status set = session->SetInputShape(i, inputs[i].type.sizes());
    if (set.ok()) set = session->SetInput(i, bytes.data(), bytes.size());
    if (!set.ok()) return fail(set);
  }
  if (const absl::Status bound = session->BindSizes(); !bound.ok()) return fail(bound);
  session->Poison(0xFF);
  for (const absl::Status& status : {session->Run(), session->CheckGuards()}) {
    if (!status.ok()) return fail(status);
  }
  std::vector<RefTensor> outputs;
  for (size_t o = 0; o < types.size(); ++o) {
    const runtime::TensorView view = session->output(o);
    auto output = op::FromBytes(types[o], {static_cast<const char*>(view.data), view.bytes});
    if (!output.ok()) return fail(output.status());
    outputs.push_back(*std::move(output));
  }
  return outputs;
}

namespace {

// The device's kernels have fixed sizes, and no state.
bool MayBeOnDevice(const module::Manifest& manifest, const module::Launch& launch) {
  const auto fixed = [&](int64_t id) {
    const module::Tensor& tensor = manifest.tensors[static_cast<size_t>(id)];
    return !module::IsOpen(tensor.shape) && tensor.kind != module::TensorKind::kState;
  };
  return !module::IsOpen(launch.sizes) && launch.workspace_bytes.constant() &&
         std::ranges::all_of(launch.args, fixed);
}

}  // namespace

std::string OnTwoSides(const std::string& module, support::Rng* rng, int64_t* on_device) {
  const auto file = module::ModuleFile::FromBytes(module);
  TW_CHECK(file.ok()) << support::StatusText(file.status());
  module::ModuleParts parts;
  parts.manifest = file->manifest();
  parts.constants = std::string(file->constants());
  const size_t objects = file->num_code();
  for (size_t i = 0; i < objects; ++i) parts.code.emplace_back(file->code(i));
  for (size_t i = 0; i < objects; ++i) {
    module::CodeObject object = parts.manifest.code[i];
    object.device = "cpu";
    parts.manifest.code.push_back(object);
    parts.code.push_back(parts.code[i]);
  }
  const double share = rng->UniformDouble();
  for (module::Function& function : parts.manifest.functions) {
    for (auto* launches : {&function.prepare, &function.launches}) {
      for (module::Launch& launch : *launches) {
        if (!MayBeOnDevice(parts.manifest, launch) || !rng->Bernoulli(share)) continue;
        launch.code += static_cast<int64_t>(objects);
        *on_device += 1;
      }
    }
  }
  const auto bytes = module::SerializeModule(parts);
  TW_CHECK(bytes.ok()) << support::StatusText(bytes.status());
  return *bytes;
}

}  // namespace tilewright::tests
