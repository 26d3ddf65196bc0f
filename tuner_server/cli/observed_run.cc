#include "tuner_server/cli/observed_run.h"

#include <utility>

#include "deploy/module/module_file.h"
#include "deploy/support/file.h"
#include "deploy/support/scratch_folder.h"
#include "tuner_server/cli/model_compiler.h"
#include "tuner_server/cli/run_host.h"
#include "tuner_server/cli/tensor_files.h"

namespace tilewright::cli {

absl::StatusOr<ObservedRun> ObservedRun::Compile(
    const quantize::ObservedModel& model, const std::string& target,
    const std::map<std::string, std::vector<int64_t>>& shapes) {
  TW_ASSIGN(const support::ScratchFolder scratch,
            support::ScratchFolder::Create("tilewright-compile"));
  const std::string path = scratch.File("model.onnx");
  TW_TRY(support::WriteFileAtomic(path, model.onnx));
  TW_ASSIGN(
      ModelCompiler compiler,
      ModelCompiler::Open({.model_path = path, .target = target, .sizes = {.shapes = shapes}}));
  std::string bytes;
  TW_TRY(compiler.Compile({}, &bytes).status());
  TW_ASSIGN(module::ModuleFile file, module::ModuleFile::FromBytes(bytes));
  ObservedRun run;
  TW_ASSIGN(run.session_, LoadSession(std::move(file), module::TargetThreads(target)));
  std::vector<runtime::TensorView> all;
  for (size_t i = 0; i < run.session_->num_inputs(); ++i) all.push_back(run.session_->input(i));
  for (size_t i = 0; i < run.session_->num_outputs(); ++i) {
    run.outputs_.push_back(run.session_->output(i));
  }
  all.insert(all.end(), run.outputs_.begin(), run.outputs_.end());
  for (const std::string& name : model.names) {
    TW_ASSIGN(const size_t at, FindTensor(all, name, "input or output"));
    run.observed_.push_back(all[at]);
  }
  return run;
}

absl::Status ObservedRun::Run(CalibrationData* data, size_t sample) {
  TW_TRY(data->Fill(sample, session_.get()));
  return session_->Run();
}

absl::StatusOr<runtime::TensorView> ObservedRun::Output(const std::string& name) const {
  TW_ASSIGN(const size_t at, FindTensor(outputs_, name, "output"));
  return outputs_[at];
}

std::span<const float> FloatsOf(const runtime::TensorView& view) {
  return {static_cast<const float*>(view.data), view.bytes / sizeof(float)};
}

}  // namespace tilewright::cli
