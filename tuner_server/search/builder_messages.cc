#include "tuner_server/search/builder_messages.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "deploy/daemon/digest_message.h"
#include "deploy/module/memory_need.h"
#include "deploy/module/module_file.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/cost_models.h"
#include "tuner_server/search/builder_client.h"

namespace tilewright::search {
namespace {

nlohmann::json TensorJson(const module::Manifest& manifest, int64_t id) {
  const module::Tensor& tensor = manifest.tensors[static_cast<size_t>(id)];
  return {{"name", tensor.name},
          {"dtype", std::string(module::DTypeName(tensor.dtype))},
          {"shape", module::ShapeText(tensor.shape)}};
}

nlohmann::json FunctionsJson(const module::Manifest& manifest) {
  nlohmann::json rows = nlohmann::json::array();
  for (const module::Function& function : manifest.functions) {
    rows.push_back({{"name", function.name},
                    {"at", nlohmann::json(function.at)},
                    {"launches", function.launches.size()}});
  }
  return rows;
}

nlohmann::json RamJson(const module::MemoryNeed& need) {
  return {{"total", need.total()},
          {"weights", need.weights},
          {"arena", need.arena},
          {"workspace", need.workspace},
          {"inputs_outputs", need.ends},
          {"state", need.state},
          {"code", need.code}};
}

// The reference computes 0.3 to 1 G operations a second on one core; a request may take 15 minutes.
constexpr double kMaxReferenceFlops = 200e9;

}  // namespace

std::string ResourceName(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const unsigned char u = static_cast<unsigned char>(c);
    if (std::isalnum(u) != 0) {
      name += static_cast<char>(std::tolower(u));
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() && (name.back() == '-')) name.pop_back();
  if (name.empty() || std::isalpha(static_cast<unsigned char>(name[0])) == 0) name = "model" + name;
  return name.substr(0, 60);
}

absl::Status CheckMeasurable(const driver::Task& task) {
  const auto refuse = [&](std::string_view found) {
    return support::InvalidArgument(
        "builder.checks.too_large",
        support::StrCat("task ", task.label.empty() ? task.name : task.label, " (", task.name,
                        "): ", found));
  };
  if (task.flops > kMaxReferenceFlops) {
    return refuse(
        support::StrCat("expected at most ", std::llround(kMaxReferenceFlops * 1e-9),
                        " G operations, so that expected outputs are computed in minutes; found ",
                        std::llround(task.flops * 1e-9), " G"));
  }
  TW_ASSIGN(const graph::Graph body, driver::ParseTask(task.text));
  uint64_t bytes = 0;
  for (const graph::ValueId output : body.outputs) {
    bytes += static_cast<uint64_t>(body.values[output].type.bytes());
  }
  if (bytes > kMaxExpectedBytes) {
    return refuse(support::StrCat("expected outputs of at most ", kMaxExpectedBytes,
                                  " bytes to compare, found ", bytes));
  }
  return absl::OkStatus();
}

absl::Status DescribeInputs(const driver::Task& task, uint64_t seed, v1::InputSpec* spec) {
  TW_ASSIGN(graph::Graph graph, driver::ParseTask(task.text));
  TW_ASSIGN(std::vector<driver::TaskInput> inputs, driver::TaskInputs(graph, seed));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const driver::TaskInput& input = inputs[i];
    v1::TensorSpec* tensor = spec->add_tensors();
    tensor->set_name(support::StrCat("in", i));
    tensor->set_dtype(ir::TypeName(input.type.dtype));
    for (const int64_t dim : input.type.sizes()) tensor->add_shape(dim);
    tensor->set_seed(input.seed);
    v1::Distribution* law = tensor->mutable_distribution();
    switch (input.distribution.kind) {
      case module::Distribution::Kind::kUniform:
        law->mutable_uniform()->set_low(input.distribution.a);
        law->mutable_uniform()->set_high(input.distribution.b);
        break;
      case module::Distribution::Kind::kNormal:
        law->mutable_normal()->set_mean(input.distribution.a);
        law->mutable_normal()->set_standard_deviation(input.distribution.b);
        break;
      case module::Distribution::Kind::kIntRange:
        law->mutable_integers()->set_low(static_cast<int64_t>(input.distribution.a));
        law->mutable_integers()->set_high(static_cast<int64_t>(input.distribution.b));
        break;
    }
  }
  return absl::OkStatus();
}

void FillResources(const std::vector<codegen::KernelResources>& kernels,
                   v1::ResourceReport* report) {
  for (const codegen::KernelResources& kernel : kernels) {
    v1::KernelResources* out = report->add_kernels();
    out->set_name(kernel.name);
    out->set_registers(kernel.registers);
    out->set_spill_bytes(kernel.spill_bytes);
    out->set_stack_bytes(kernel.stack_bytes);
    out->set_shared_bytes(kernel.shared_bytes);
  }
}

void FillAsked(const AskResult& result, const std::string& chooser, const std::string& model_id,
               v1::Asked* reply) {
  std::set<std::string> picked;
  for (const Pick& pick : result.picks) {
    picked.insert(pick.candidate.program_hash);
    v1::Candidate* out = reply->add_picks();
    out->set_steps(pick.candidate.steps);
    out->set_program_hash(pick.candidate.program_hash);
    out->set_predicted(pick.predicted);
    out->set_rank(pick.rank);
    out->set_considered(result.considered);
    out->set_generated_by(std::string(OriginText(pick.candidate.origin)));
    out->set_proposed_by(pick.explored ? std::string(log::kRandomModel) : chooser);
    out->set_model_id(model_id);
    out->mutable_features()->Assign(pick.candidate.features.begin(), pick.candidate.features.end());
    out->set_features_hash(cost_model::FeaturesHash(pick.candidate.features));
    out->set_point(PointText(pick.candidate.point));
  }
  for (const Pick& draft : result.ranked) {
    v1::Draft* out = reply->add_drafts();
    out->set_program_hash(draft.candidate.program_hash);
    out->set_steps(draft.candidate.steps);
    out->set_predicted(draft.predicted);
    out->set_rank(draft.rank);
    out->set_picked(picked.count(draft.candidate.program_hash) > 0);
    out->mutable_features()->Assign(draft.candidate.features.begin(),
                                    draft.candidate.features.end());
    out->set_features_hash(cost_model::FeaturesHash(draft.candidate.features));
  }
  reply->set_search_seconds(result.times.search_seconds);
  reply->set_features_seconds(result.times.features_seconds);
  reply->set_model_seconds(result.model_seconds);
  reply->set_invalid(result.invalid);
  reply->set_exploration_share(result.exploration_share);
}

absl::Status DescribeModule(const std::string& path, const target::Target& target,
                            const driver::CompileReport& report, v1::ModuleCompiled* reply) {
  TW_ASSIGN(module::ModuleFile file, module::ModuleFile::Open(path, {.verify_constants = false}));
  const std::string_view manifest = file.manifest_json();
  *reply->mutable_manifest_digest() =
      daemon::MakeDigest(support::Sha256Hex(manifest), static_cast<int64_t>(manifest.size()));
  nlohmann::json kernels = nlohmann::json::array();
  for (const driver::CompileReport::Kernel& kernel : report.kernels) {
    kernels.push_back({{"task_hash", kernel.task_hash},
                       {"task_name", kernel.task_name},
                       {"task", kernel.task_label},
                       {"uses", kernel.uses},
                       {"tuned", kernel.tuned},
                       {"predicted", kernel.predicted},
                       {"on_host", kernel.on_host},
                       {"host_reason", kernel.host_reason},
                       {"open_sizes", kernel.open_sizes},
                       {"library", kernel.library},
                       {"stale", kernel.stale},
                       {"stale_reason", kernel.stale_reason},
                       {"steps", kernel.steps},
                       {"program_hash", kernel.program_hash},
                       {"measurement_id", kernel.measurement_id},
                       {"flops", kernel.flops},
                       {"bytes", kernel.bytes}});
  }
  nlohmann::json inputs = nlohmann::json::array(), outputs = nlohmann::json::array();
  const module::Manifest& m = file.manifest();
  const module::Function& main = *m.FindFunction("main");
  for (const int64_t id : main.inputs) inputs.push_back(TensorJson(m, id));
  for (const int64_t id : main.outputs) outputs.push_back(TensorJson(m, id));
  for (const module::SizeCheck& check : main.checks) outputs.push_back(TensorJson(m, check.tensor));
  const nlohmann::json summary = {{"target", target.ToString()},
                                  {"inputs", inputs},
                                  {"outputs", outputs},
                                  {"functions", FunctionsJson(m)},
                                  {"kernels", kernels},
                                  {"arena_bytes", report.arena_bytes},
                                  {"arena_bound_bytes", report.arena_bound_bytes},
                                  {"constant_bytes", report.constant_bytes},
                                  {"workspace_bytes", report.workspace_bytes},
                                  {"ram_bytes", RamJson(module::NeedOf(file.manifest()))},
                                  {"seconds",
                                   {{"graph", report.seconds_graph},
                                    {"lower", report.seconds_lower},
                                    {"codegen", report.seconds_codegen},
                                    {"link", report.seconds_link}}}};
  reply->set_manifest_summary_json(
      summary.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return absl::OkStatus();
}

driver::ScheduleProvider::Found RequestSchedules::Find(const std::string& task_hash,
                                                       const target::Target&) {
  Found found;
  const auto steps = request_.steps_by_task().find(task_hash);
  if (steps == request_.steps_by_task().end()) return found;
  found.steps = steps->second;
  const auto hash = request_.program_hash_by_task().find(task_hash);
  if (hash != request_.program_hash_by_task().end()) found.program_hash = hash->second;
  const auto record = request_.record_by_task().find(task_hash);
  if (record != request_.record_by_task().end()) found.measurement_id = record->second;
  const auto& predicted = request_.predicted_tasks();
  found.predicted = std::find(predicted.begin(), predicted.end(), task_hash) != predicted.end();
  return found;
}

}  // namespace tilewright::search
