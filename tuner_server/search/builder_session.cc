#include "tuner_server/search/builder_session.h"

#include <algorithm>
#include <utility>

#include "compiler/codegen/codegen.h"
#include "compiler/driver/compile.h"
#include "compiler/driver/specialise.h"
#include "compiler/graph/graph.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/ir/structural.h"
#include "compiler/onnx/custom_operators.h"
#include "compiler/onnx/onnx_import.h"
#include "compiler/onnx/onnx_model.h"
#include "compiler/schedule/step.h"
#include "compiler/targets/backend.h"
#include "cost_model/shipped_model.h"
#include "deploy/daemon/digest_message.h"
#include "deploy/support/build_id.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/parallel.h"
#include "deploy/support/shortage.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/cost_models.h"
#include "tuner_server/search/builder_error.h"
#include "tuner_server/search/builder_messages.h"
#include "tuner_server/search/pass_choice.h"
#include "tuner_server/search/transfer.h"

namespace tilewright::search {
namespace {

constexpr double kDefaultExploration = 0.1;
constexpr std::string_view kTrainedModel = "model";  // TrialRow.proposed_by
// Drafts of each task that the model looks at before anything is measured. The first batch of the
// task looks at these and more.
constexpr int kGainDrafts = 64;

std::unique_ptr<cost_model::CostModel> UntrainedModel(const std::string& kind, uint64_t seed,
                                                      cost_model::FeatureSet features) {
  return kind == log::kRandomModel ? cost_model::MakeRandomModel(seed, features)
                                   : cost_model::MakePriorModel(features);
}

}  // namespace

v1::BuilderReply BuilderSession::Handle(const v1::BuilderRequest& request) {
  v1::BuilderReply reply;
  const absl::Status status = Dispatch(request, &reply);
  if (!status.ok()) *reply.mutable_error() = ToBuilderError(status);
  reply.set_id(request.id());
  return reply;
}

absl::Status BuilderSession::Dispatch(const v1::BuilderRequest& request, v1::BuilderReply* reply) {
  switch (request.request_case()) {
    case v1::BuilderRequest::kOpenJob:
      return OpenJob(request.open_job(), reply->mutable_job_opened());
    case v1::BuilderRequest::kBuild:
      return Build(request.build(), reply->mutable_built());
    default:
      break;
  }
  if (!opened_) {
    return support::FailedPrecondition("builder.job.not_open", "expected OpenJob first");
  }
  switch (request.request_case()) {
    case v1::BuilderRequest::kMakeChecks:
      return MakeChecks(request.make_checks(), reply->mutable_checks_made());
    case v1::BuilderRequest::kTell:
      return Tell(request.tell(), reply->mutable_told());
    case v1::BuilderRequest::kTrainModel:
      return TrainModel(request.train_model(), reply->mutable_model_trained());
    case v1::BuilderRequest::kTakeModel:
      return TakeModel(reply->mutable_model_trained());
    case v1::BuilderRequest::kLoadModel:
      reply->mutable_model_loaded();
      return LoadModel(request.load_model());
    case v1::BuilderRequest::kAsk:
      return Ask(request.ask(), reply->mutable_asked());
    case v1::BuilderRequest::kPredictSchedules:
      return PredictSchedules(request.predict_schedules(), reply->mutable_schedules_predicted());
    case v1::BuilderRequest::kCompileModule:
      return CompileModule(request.compile_module(), reply->mutable_module_compiled());
    default:
      return support::InvalidArgument("builder.request.unknown",
                                      "a request this builder does not know");
  }
}

absl::Status BuilderSession::OpenJob(const v1::OpenJob& request, v1::JobOpened* reply) {
  if (opened_) return support::FailedPrecondition("builder.job.open", "a job is open already");
  if (!log::IsCostModel(request.cost_model())) {
    return support::InvalidArgument(
        "builder.cost_model",
        support::StrCat("expected one of ", support::Join(log::kCostModels, ", "), ", found ",
                        support::Quote(request.cost_model())));
  }
  TW_ASSIGN(parts_,
            ParseSearchParts({request.search_parts().begin(), request.search_parts().end()}));
  job_ = request;
  tasks_.clear();  // of a request that failed
  task_order_.clear();
  TW_ASSIGN(target_, target::ParseTarget(request.target()));
  TW_TRY(ImportModel(request, reply->mutable_model()));
  std::vector<const graph::Graph*> graphs = {&graph_};
  for (const graph::Graph& g : specialised_) graphs.push_back(&g);
  TW_ASSIGN(const driver::ModelTasks model, driver::ExtractModelTasks(graphs));
  const std::vector<bool> on_host = driver::TasksOnHost(graphs, model, target_);
  std::vector<std::optional<JobTask>> made(model.tasks.size());
  TW_TRY(support::ForEachInParallel(made.size(), [&] {
    return support::PieceOfWork([&](size_t t) -> absl::Status {
      const driver::Task& task = model.tasks[t];
      if (!task.library.empty() || on_host[t]) return absl::OkStatus();
      TW_ASSIGN(made[t], task.open_sizes ? MakeOpenTask(task) : MakeTask(task));
      if (!made[t]) return absl::OkStatus();
      for (const std::vector<int>& of_node : model.of_node) {
        made[t]->uses.push_back(std::ranges::count(of_node, static_cast<int>(t)));
      }
      return absl::OkStatus();
    });
  }));
  for (std::optional<JobTask>& task : made) {
    if (task) AddTask(*std::move(task), reply);
  }
  model_ = UntrainedModel(request.cost_model(), request.seed(), target_.machine.feature_set);
  if (request.cost_model() == log::kXgboostModel && parts_.shipped_model &&
      cost_model::KnowsShippedModel(target_.machine)) {
    TW_TRY(UseShippedModel(reply->mutable_shipped_model()));
  }
  reply->set_model_name(ResourceName(graph_.name));
  reply->set_toolchain(targets::BackendOf(target_).toolchain());
  reply->set_compiler_build(support::BuildId());
  opened_ = true;
  return absl::OkStatus();
}

// The fused graph of the model, and those at the sizes that the job names.
absl::Status BuilderSession::ImportModel(const v1::OpenJob& request, v1::Digest* digest) {
  graph::ImportOptions options;
  for (const auto& [name, shape] : request.input_shapes()) {
    options.shapes[name].assign(shape.dims().begin(), shape.dims().end());
  }
  std::map<std::string, module::SizeRange> open;
  for (const auto& [name, range] : request.open_sizes()) {
    open[name] = {range.min(), range.max()};
    options.open[name] = {range.min(), range.max()};
  }
  options.states.insert(request.states().begin(), request.states().end());
  options.known_states = request.known_states();
  options.loops = driver::RunsOnProcessor(target_);
  std::vector<driver::SizePoint> points;
  for (const v1::SizePoint& point : request.specialise()) {
    points.emplace_back(point.sizes().begin(), point.sizes().end());
  }
  TW_TRY(module::CheckSizePoints(open, points));
  graph::OnnxModel::OpenOptions open_options;
  open_options.external_data = request.external_data();
  for (const v1::OperatorFile& file : request.operators()) {
    open_options.operators.push_back({file.name(), file.text()});
  }
  TW_ASSIGN(const graph::OnnxModel onnx,
            graph::OnnxModel::Open(request.model_path(), open_options));
  model_digest_ = onnx.digest();
  *digest = daemon::MakeDigest(model_digest_, onnx.bytes());
  absl::StatusOr<graph::Graph> imported = graph::ImportOnnx(onnx, options);
  if (!imported.ok() && !options.loops) {
    // A device is quicker where trips are unrolled, with both ways of an If. Other loops run on the
    // processor next to it.
    options.loops = true;
    imported = graph::ImportOnnx(onnx, options);
  }
  TW_TRY(imported.status());
  graph::GraphPassContext context = driver::PassContext(target_);
  context.disabled.assign(request.disabled_passes().begin(), request.disabled_passes().end());
  context.enabled.insert(context.enabled.end(), request.enabled_passes().begin(),
                         request.enabled_passes().end());
  const auto passes = [&](graph::Graph graph) {
    return RunPassesThatPay(std::move(graph), target_, context);
  };
  TW_ASSIGN(graph_, passes(*std::move(imported)));
  TW_ASSIGN(specialised_, driver::SpecialiseModel(onnx, options, points, passes, &graph_));
  return absl::OkStatus();
}

SearchOptions BuilderSession::OptionsOf(const driver::Task& task) const {
  SearchOptions options;
  UseParts(parts_, &options);
  options.seed = job_.seed() ^ support::StableHash64(task.hash);
  options.exploration_share =
      job_.exploration_share() > 0 ? job_.exploration_share() : kDefaultExploration;
  return options;
}

absl::StatusOr<std::optional<BuilderSession::JobTask>> BuilderSession::MakeTask(
    const driver::Task& task) const {
  JobTask made{task};
  TW_ASSIGN(std::vector<schedule::Variant> variants, driver::TaskVariants(task.text));
  TW_ASSIGN(made.search, SearchTask::Create(variants, task.flops, target_, OptionsOf(task)));
  made.default_steps = made.search->default_steps();
  // What a matrix unit does not run is on the processor next to it: the device measures nothing.
  if (target_.machine.has_matrix() && made.default_steps.empty()) return std::nullopt;
  TW_ASSIGN(ir::Function scheduled, schedule::Replay(variants, made.default_steps));
  made.default_program_hash = ir::ProgramHash(scheduled);
  TW_ASSIGN(made.estimate_ns, made.search->EstimateNs(made.default_steps));
  return made;
}

void BuilderSession::AddTask(JobTask made, v1::JobOpened* reply) {
  const driver::Task& task = made.task;
  v1::BuilderTask* out = task.open_sizes ? reply->add_open_tasks() : reply->add_tasks();
  out->set_default_estimate_ns(made.estimate_ns);
  out->set_hash(task.hash);
  out->set_name(task.label);
  out->set_description(task.name);
  out->set_weight(task.weight);
  out->set_default_steps(made.default_steps);
  if (!task.open_sizes) {
    out->set_data_type(task.data_type);
    out->set_launch_names(module::LaunchNamesText(task.uses));
    out->set_flops(task.flops);
    out->set_canonical_text(task.text);
    out->set_default_program_hash(made.default_program_hash);
    task_order_.push_back(task.hash);
  }
  const std::string hash = task.hash;
  tasks_[hash] = std::move(made);
}

absl::Status BuilderSession::MakeChecks(const v1::MakeChecks& request, v1::ChecksMade* reply) {
  if (job_.state_dir().empty()) {
    return support::FailedPrecondition("builder.checks.no_folder",
                                       "OpenJob named no folder for expected outputs");
  }
  const std::vector<std::string> named(request.tasks().begin(), request.tasks().end());
  for (const std::string& hash : named.empty() ? task_order_ : named) {
    TW_ASSIGN(JobTask * task, FindTask(hash));
    v1::BuilderTask* out = reply->add_tasks();
    out->set_hash(hash);
    TW_TRY(CheckMeasurable(task->task));
    TW_TRY(DescribeCheck(task->task, out));
    if (job_.cost_model() == log::kRandomModel) continue;  // its scores say nothing
    TW_ASSIGN(const double gain,
              task->search->PredictGain(task->default_steps, kGainDrafts, model_.get()));
    out->set_predicted_gain(gain);
  }
  return absl::OkStatus();
}

absl::Status BuilderSession::DescribeCheck(const driver::Task& task, v1::BuilderTask* out) const {
  const uint64_t seed = support::StableHash64(task.hash);
  TW_ASSIGN(driver::TaskCheck check, driver::MakeTaskCheck(task, seed));
  TW_TRY(DescribeInputs(task, seed, out->mutable_inputs()));
  // Within the state directory, which may be a relative path here and for who reads it.
  const std::string name = support::StrCat("expected-", task.hash, ".bin");
  TW_TRY(support::WriteFileAtomic(support::PathJoin(job_.state_dir(), name), check.expected_bytes));
  out->set_expected_output_path(name);
  *out->mutable_expected_output() = daemon::MakeDigest(
      support::Sha256Hex(check.expected_bytes), static_cast<int64_t>(check.expected_bytes.size()));
  TW_ASSIGN(const graph::Graph body, driver::ParseTask(task.text));
  const double rounded = driver::RoundedProductError(body, target_.machine);
  out->mutable_tolerance()->set_abs(check.atol + rounded);
  out->mutable_tolerance()->set_rel(check.rtol + rounded);
  for (const auto& [name, factor] : driver::VariantTolerances(body)) {
    (*out->mutable_variant_tolerance())[name] = factor;
  }
  return absl::OkStatus();
}

absl::Status BuilderSession::UseShippedModel(v1::ShippedModel* reply) {
  TW_ASSIGN(model_, cost_model::ModelBeforeMeasurements(target_.machine));
  model_id_ = cost_model::ShippedModelId();
  base_ = std::string(cost_model::ShippedModel());
  reply->set_model_id(model_id_);
  reply->set_model(base_);
  reply->set_features_schema(cost_model::SchemaHash(target_.machine.feature_set));
  return absl::OkStatus();
}

absl::StatusOr<BuilderSession::JobTask*> BuilderSession::FindTask(const std::string& hash) {
  const auto it = tasks_.find(hash);
  if (it == tasks_.end()) {
    return support::NotFound("builder.task.not_found", "this job has no task " + hash);
  }
  return &it->second;
}

absl::Status BuilderSession::Tell(const v1::Tell& request, v1::Told* reply) {
  for (const v1::ToldRecord& record : request.records()) {
    TW_ASSIGN(JobTask * task, FindTask(record.task()));
    if (!record.pending() && !record.measurement_id().empty() &&
        !records_.emplace(record.measurement_id(), record).second) {
      continue;
    }
    int64_t registers = 0;
    for (const v1::KernelResources& kernel : record.resources().kernels())
      registers = std::max<int64_t>(registers, kernel.registers());
    task->search->Tell(
        {record.program_hash(), record.outcome(),
         record.outcome() == v1::OK ? record.median_ns() : 0, record.pending(), registers},
        record.steps(), record.point());
  }
  reply->set_known_records(static_cast<int32_t>(records_.size()));
  return Inherit(request);
}

// Decisions of relatives, for each task that some were told of. What cannot be carried over is left
// out: that is no fault of this job.
absl::Status BuilderSession::Inherit(const v1::Tell& request) {
  std::map<std::string, std::vector<Point>> inherited;  // by task
  for (int i = 0; i < request.relatives_size();) {
    const v1::RelativeProgram& first = request.relatives(i);
    std::vector<RelativeProgram> programs;
    for (; i < request.relatives_size(); ++i) {  // the relative's others come next to it
      const v1::RelativeProgram& one = request.relatives(i);
      if (one.task() != first.task() || one.canonical_text() != first.canonical_text()) break;
      programs.push_back({one.program_hash(), one.point()});
    }
    TW_ASSIGN(JobTask * task, FindTask(first.task()));
    const auto variants = driver::TaskVariants(first.canonical_text());
    if (!variants.ok()) continue;  // of a version that knew other operators
    TW_ASSIGN(const std::unique_ptr<Space> from, Space::Create(*variants, target_));
    std::vector<Point>& points = inherited[first.task()];
    for (Point& point : InheritedPoints(*from, programs, task->search->space())) {
      if (std::find(points.begin(), points.end(), point) != points.end()) continue;
      points.push_back(std::move(point));
    }
  }
  for (auto& [hash, points] : inherited) tasks_[hash].search->Inherit(std::move(points));
  return absl::OkStatus();
}

absl::Status BuilderSession::TrainModel(const v1::TrainModel& request, v1::ModelTrained* reply) {
  reply->set_features_schema(cost_model::SchemaHash(target_.machine.feature_set));
  if (job_.cost_model() != log::kXgboostModel) {
    reply->set_reason("cost model " + job_.cost_model() + " does not learn");
    return absl::OkStatus();
  }
  support::SystemClock clock;
  const int64_t start = clock.NowNs();
  cost_model::Dataset all;
  int group = 0;
  for (const std::string& hash : task_order_) {
    for (cost_model::DataRow& row : tasks_[hash].search->TrainingRows(group)) {
      all.rows.push_back(std::move(row));
    }
    ++group;
  }
  TW_ASSIGN(TrainingInput input,
            PrepareTraining(std::move(all), job_.seed(), base_, model_.get(), !model_id_.empty()));
  input.features = target_.machine.feature_set;
  if (request.background()) {
    reply->set_started(true);
    return training_.Start(std::move(input));
  }
  TW_ASSIGN(TrainedModel trained, TrainAndJudge(input));
  TW_TRY(Use(std::move(trained), reply));
  reply->set_seconds(static_cast<double>(clock.NowNs() - start) * 1e-9);
  return absl::OkStatus();
}

absl::Status BuilderSession::TakeModel(v1::ModelTrained* reply) {
  reply->set_features_schema(cost_model::SchemaHash(target_.machine.feature_set));
  TW_ASSIGN(TrainingThread::Result result, training_.Take());
  reply->set_seconds(result.seconds);
  return Use(std::move(result.trained), reply);
}

absl::Status BuilderSession::Use(TrainedModel trained, v1::ModelTrained* reply) {
  *reply->mutable_metrics() = trained.metrics;
  reply->set_trained(trained.model != nullptr);
  reply->set_reason(trained.reason);
  if (trained.model == nullptr) return absl::OkStatus();
  TW_ASSIGN(std::string bytes, trained.model->Save());
  const std::string digest = support::Sha256Hex(bytes);
  reply->set_model_id("m-" + digest.substr(0, 16));
  *reply->mutable_model_digest() = daemon::MakeDigest(digest, static_cast<int64_t>(bytes.size()));
  reply->set_model(std::move(bytes));
  reply->set_replaced(trained.replaces);
  if (!trained.replaces) return absl::OkStatus();
  model_ = std::move(trained.model);
  model_id_ = reply->model_id();
  return absl::OkStatus();
}

absl::Status BuilderSession::LoadModel(const v1::LoadModel& request) {
  if (job_.cost_model() != log::kXgboostModel) {
    return support::FailedPrecondition("builder.model.unused",
                                       "cost model " + job_.cost_model() + " loads nothing");
  }
  std::unique_ptr<cost_model::CostModel> model =
      cost_model::MakeXgbModel(job_.seed(), "", target_.machine.feature_set);
  TW_TRY(model->Load(request.model()));
  model_ = std::move(model);
  model_id_ = request.model_id();
  return absl::OkStatus();
}

absl::Status BuilderSession::Ask(const v1::Ask& request, v1::Asked* reply) {
  TW_ASSIGN(JobTask * task, FindTask(request.task()));
  if (request.count() < 1) {
    return support::InvalidArgument("builder.ask.count", "expected a count >= 1");
  }
  TW_ASSIGN(AskResult result, task->search->Ask(request.count(), request.batch_id(), model_.get()));
  const std::string_view chooser = job_.cost_model() == log::kRandomModel ? log::kRandomModel
                                   : model_id_.empty()                    ? log::kPriorModel
                                                                          : kTrainedModel;
  FillAsked(result, std::string(chooser), model_id_, reply);
  return absl::OkStatus();
}

absl::Status BuilderSession::CompileModule(const v1::CompileModule& request,
                                           v1::ModuleCompiled* reply) {
  support::SystemClock clock;
  const int64_t start = clock.NowNs();
  v1::CompileModule with_open = request;
  if (request.predict_open_tasks()) TW_TRY(PredictOpenTasks(&with_open));
  RequestSchedules schedules(with_open);
  driver::CompileOptions options;
  options.dump_dir = request.dump_dir();
  options.model_name = graph_.name;
  options.model_digest = model_digest_;
  options.job = request.job();
  options.specialised = specialised_;
  driver::CompileReport report;
  graph::Graph shown;
  if (request.show_values()) {
    shown = graph::ShowValues(graph_);
    reply->set_graph_text(graph::Print(shown));
  }
  const graph::Graph& compiled = request.show_values() ? shown : graph_;
  TW_ASSIGN(const module::ModuleParts module,
            driver::CompileParts(compiled, target_, &schedules, options, &report));
  TW_ASSIGN(const module::WrittenModule written,
            module::WriteModule(request.output_path(), module));
  reply->set_path(request.output_path());
  *reply->mutable_digest() =
      daemon::MakeDigest(written.sha256, static_cast<int64_t>(written.bytes));
  TW_TRY(DescribeModule(request.output_path(), target_, report, reply));
  for (const driver::CompileReport::Kernel& kernel : report.kernels) {
    if (kernel.stale) reply->add_stale(kernel.task_name + ": " + kernel.stale_reason);
  }
  reply->set_seconds(static_cast<double>(clock.NowNs() - start) * 1e-9);
  return absl::OkStatus();
}

absl::Status BuilderSession::Build(const v1::Build& request, v1::Built* reply) {
  const auto build = [&]() -> absl::Status {
    TW_ASSIGN(target::Target target, target::ParseTarget(request.target()));
    TW_ASSIGN(driver::BuiltCandidate built,
              driver::BuildCandidate(request.task_canonical_text(), request.steps(), target,
                                     nullptr, test_miscompile_));
    if (!request.expected_program_hash().empty() &&
        built.program_hash != request.expected_program_hash()) {
      return support::FailedPrecondition(
          "builder.build.stale", support::StrCat("the steps replay to program ", built.program_hash,
                                                 ", expected ", request.expected_program_hash()));
    }
    // What spills is not worth a device's time, unless all others are compared with it.
    const absl::Status fits = codegen::CheckSpills(built.resources);
    if (!fits.ok()) {
      TW_ASSIGN(const std::string usual,
                driver::DefaultSteps(request.task_canonical_text(), target));
      if (request.steps() != usual) return fits;
    }
    const auto size = static_cast<int64_t>(built.module_bytes.size());
    *reply->mutable_artifact() = daemon::MakeDigest(support::Sha256Hex(built.module_bytes), size);
    if (size <= request.inline_limit()) {
      reply->set_module(std::move(built.module_bytes));
    } else {
      TW_TRY(support::WriteFileAtomic(request.output_path(), built.module_bytes));
      reply->set_artifact_path(request.output_path());
    }
    FillResources(built.resources, reply->mutable_resources());
    reply->set_program_hash(built.program_hash);
    reply->set_lower_seconds(built.seconds_lower);
    reply->set_codegen_seconds(built.seconds_codegen);
    reply->set_link_seconds(built.seconds_link);
    return absl::OkStatus();
  };
  const absl::Status status = build();
  // A full disk is no fault of the candidate.
  if (support::ShortageOf(status) != support::Shortage::kNone) return status;
  reply->set_outcome(status.ok() ? v1::OK : v1::BUILD_ERROR);
  if (!status.ok()) reply->set_error(support::StatusText(status));
  return absl::OkStatus();
}

}  // namespace tilewright::search
