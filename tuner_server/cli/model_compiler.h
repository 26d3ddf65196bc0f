// A model opened in a tilewright-builder child: how the CLI compiles without linking LLVM. Owns the
// child and its scratch folder; one owner, one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "deploy/support/scratch_folder.h"
#include "deploy/support/status.h"
#include "tilewright/v1/builder.pb.h"
#include "tuner_server/log/model_sizes.h"
#include "tuner_server/search/builder_client.h"

namespace tilewright::cli {

// Larger module files are refused before they are read.
inline constexpr uint64_t kMaxModuleBytes = uint64_t{8} << 30;

// What to open, and how.
struct ModelSource {
  std::string model_path;
  std::string target;  // canonical
  log::ModelSizes sizes = {};
  std::vector<std::string> operators = {};  // files with definitions of custom operators
  std::vector<std::string> disabled = {};   // graph passes to leave out
  std::vector<std::string> enabled = {};    // optional graph passes to run
  bool predict = false;                     // schedules are predicted: loads the cost model
};

class ModelCompiler {
 public:
  // Starts the child and imports the model. not_found when there is no such file; what the importer
  // says about a bad model or an unknown pass.
  static absl::StatusOr<ModelCompiler> Open(const ModelSource& source);

  const v1::JobOpened& opened() const { return opened_; }
  // Schedules that were never measured, in so many seconds, of tasks that `known` has none for.
  // Wants `predict`.
  absl::StatusOr<v1::SchedulesPredicted> Predict(const v1::CompileModule& known, double seconds);
  // Sets output_path of the request. The module is a file of the scratch folder: path() of the
  // reply.
  absl::StatusOr<v1::ModuleCompiled> CompileFile(v1::CompileModule request);
  // Returns the module's bytes and leaves no file.
  absl::StatusOr<v1::ModuleCompiled> Compile(v1::CompileModule request, std::string* module_bytes);

 private:
  ModelCompiler(std::unique_ptr<search::BuilderClient> client, support::ScratchFolder scratch)
      : scratch_(std::move(scratch)), client_(std::move(client)) {}

  support::ScratchFolder scratch_;  // outlives the child that writes into it
  std::unique_ptr<search::BuilderClient> client_;
  v1::JobOpened opened_;
};

// What `tilewright-builder --mode=passes` prints: the pass tables.
absl::StatusOr<std::string> PassTables();

}  // namespace tilewright::cli
