#include "tuner_server/cli/model_compiler.h"

#include <google/protobuf/util/time_util.h>

#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/operator_files.h"
#include "tuner_server/jobs/size_messages.h"
#include "tuner_server/log/cost_models.h"

namespace tilewright::cli {
namespace {

constexpr int64_t kOpenTimeoutMs = 600'000;
constexpr int64_t kPredictTimeoutMs = 600'000;  // beyond the time that was asked for
constexpr int64_t kCompileTimeoutMs = 3'600'000;
constexpr int64_t kPassesTimeoutMs = 30'000;

}  // namespace

absl::StatusOr<ModelCompiler> ModelCompiler::Open(const ModelSource& source) {
  TW_TRY(support::FileSize(source.model_path).status());
  TW_ASSIGN(support::ScratchFolder scratch, support::ScratchFolder::Create("tilewright-compile"));
  search::BuilderOptions options;
  options.mode = "search";
  options.background = false;
  TW_ASSIGN(auto client, search::BuilderClient::Start(options));
  ModelCompiler opened(std::move(client), std::move(scratch));
  v1::BuilderRequest request;
  v1::OpenJob* open = request.mutable_open_job();
  open->set_model_path(source.model_path);
  open->set_external_data(true);
  open->set_target(source.target);
  // No state_dir: nothing is measured.
  open->set_cost_model(std::string(source.predict ? log::kXgboostModel : log::kPriorModel));
  jobs::PutSizes(source.sizes, open);
  TW_ASSIGN(const std::vector<graph::OperatorFile> operators, ReadOperatorFiles(source.operators));
  for (const graph::OperatorFile& file : operators) {
    v1::OperatorFile* sent = open->add_operators();
    sent->set_name(file.name);
    sent->set_text(file.text);
  }
  open->mutable_enabled_passes()->Assign(source.enabled.begin(), source.enabled.end());
  open->mutable_disabled_passes()->Assign(source.disabled.begin(), source.disabled.end());
  TW_ASSIGN(v1::BuilderReply reply, opened.client_->Ask(std::move(request), kOpenTimeoutMs));
  if (!reply.has_job_opened()) {
    return support::Internal("builder.reply.unexpected", "expected job_opened");
  }
  opened.opened_ = std::move(*reply.mutable_job_opened());
  return opened;
}

absl::StatusOr<v1::SchedulesPredicted> ModelCompiler::Predict(const v1::CompileModule& known,
                                                              double seconds) {
  v1::BuilderRequest ask;
  v1::PredictSchedules* predict = ask.mutable_predict_schedules();
  for (const auto& [hash, steps] : known.steps_by_task()) predict->add_known_tasks(hash);
  const auto time_ms = static_cast<int64_t>(seconds * 1000);
  *predict->mutable_time() = google::protobuf::util::TimeUtil::MillisecondsToDuration(time_ms);
  TW_ASSIGN(v1::BuilderReply reply, client_->Ask(std::move(ask), time_ms + kPredictTimeoutMs));
  if (!reply.has_schedules_predicted()) {
    return support::Internal("builder.reply.unexpected", "expected schedules_predicted");
  }
  return std::move(*reply.mutable_schedules_predicted());
}

absl::StatusOr<v1::ModuleCompiled> ModelCompiler::CompileFile(v1::CompileModule request) {
  v1::BuilderRequest ask;
  *ask.mutable_compile_module() = std::move(request);
  ask.mutable_compile_module()->set_output_path(scratch_.File("module.tw"));
  TW_ASSIGN(v1::BuilderReply reply, client_->Ask(std::move(ask), kCompileTimeoutMs));
  if (!reply.has_module_compiled()) {
    return support::Internal("builder.reply.unexpected", "expected module_compiled");
  }
  return std::move(*reply.mutable_module_compiled());
}

absl::StatusOr<v1::ModuleCompiled> ModelCompiler::Compile(v1::CompileModule request,
                                                          std::string* module_bytes) {
  TW_ASSIGN(v1::ModuleCompiled compiled, CompileFile(std::move(request)));
  TW_ASSIGN(*module_bytes, support::ReadFile(compiled.path(), kMaxModuleBytes));
  TW_TRY(support::RemoveFile(compiled.path()));
  return compiled;
}

absl::StatusOr<std::string> PassTables() {
  support::ChildOptions options;
  TW_ASSIGN(options.program, support::FindSibling("tilewright-builder"));
  options.args = {"--mode=passes"};
  TW_ASSIGN(support::CommandResult result, support::RunCommand(options, "", kPassesTimeoutMs));
  if (!result.status.ok()) {
    return support::Internal("builder.passes.failed",
                             support::StrCat(result.status.ToString(), ": ", result.stderr_text));
  }
  return result.stdout_text;
}

}  // namespace tilewright::cli
