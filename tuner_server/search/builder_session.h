// Answers the BuilderRequests of a tilewright-builder child. Search mode holds one job: its tasks,
// their searches and the cost model. Build mode builds candidates. One owner; not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/driver/tasks.h"
#include "compiler/graph/graph.h"
#include "cost_model/model.h"
#include "tilewright/v1/builder.pb.h"
#include "tuner_server/search/search_task.h"
#include "tuner_server/search/training_thread.h"

namespace tilewright::search {

// Every reply has the id of its request. An error becomes a BuilderError.
class BuilderSession {
 public:
  // `test_miscompile` plants a fault in every candidate built (tests only): "tail" or "init".
  explicit BuilderSession(std::string test_miscompile = "")
      : test_miscompile_(std::move(test_miscompile)) {}

  v1::BuilderReply Handle(const v1::BuilderRequest& request);

 private:
  struct JobTask {
    driver::Task task;
    std::vector<int> uses = {};  // by the model of all sizes, and by each specialisation
    std::string default_steps = "";
    std::string default_program_hash = "";
    double estimate_ns = 0;  // of the default, one use
    std::unique_ptr<SearchTask> search = nullptr;
  };

  absl::Status Dispatch(const v1::BuilderRequest& request, v1::BuilderReply* reply);
  absl::Status OpenJob(const v1::OpenJob& request, v1::JobOpened* reply);
  absl::Status ImportModel(const v1::OpenJob& request, v1::Digest* digest);
  absl::Status DescribeCheck(const driver::Task& task, v1::BuilderTask* out) const;
  // Loads the model that ranks until the first training. Training continues from it.
  absl::Status UseShippedModel(v1::ShippedModel* reply);
  SearchOptions OptionsOf(const driver::Task& task) const;
  // Nothing where the job has no use for the task.
  absl::StatusOr<std::optional<JobTask>> MakeTask(const driver::Task& task) const;
  // A task of open sizes: its schedule can be predicted, not measured.
  absl::StatusOr<std::optional<JobTask>> MakeOpenTask(const driver::Task& task) const;
  void AddTask(JobTask made, v1::JobOpened* reply);
  // Adds schedules of open tasks that the request has none for.
  absl::Status PredictOpenTasks(v1::CompileModule* request) const;
  absl::StatusOr<std::vector<const JobTask*>> TasksToPredict(const std::set<std::string>& known,
                                                             bool learned, bool only_open) const;
  // Without `time_ns` as long as it takes.
  absl::Status Predict(const std::set<std::string>& known, bool only_open,
                       std::optional<int64_t> time_ns, v1::SchedulesPredicted* reply) const;
  // Whether the shipped model was trained on programs like that of the task: on none of bytes, nor
  // with tensor intrinsics. Of those it would choose ones at half the speed of the default one.
  static absl::StatusOr<bool> KnowsProgramsLike(const JobTask& task);
  absl::Status MakeChecks(const v1::MakeChecks& request, v1::ChecksMade* reply);
  absl::Status Tell(const v1::Tell& request, v1::Told* reply);
  absl::Status Inherit(const v1::Tell& request);
  absl::Status TrainModel(const v1::TrainModel& request, v1::ModelTrained* reply);
  absl::Status TakeModel(v1::ModelTrained* reply);
  absl::Status Use(TrainedModel trained, v1::ModelTrained* reply);
  absl::Status LoadModel(const v1::LoadModel& request);
  absl::Status Ask(const v1::Ask& request, v1::Asked* reply);
  absl::Status PredictSchedules(const v1::PredictSchedules& request,
                                v1::SchedulesPredicted* reply) const;
  absl::Status CompileModule(const v1::CompileModule& request, v1::ModuleCompiled* reply);
  absl::Status Build(const v1::Build& request, v1::Built* reply);
  absl::StatusOr<JobTask*> FindTask(const std::string& hash);

  std::string test_miscompile_;
  // Search mode.
  bool opened_ = false;
  v1::OpenJob job_;
  SearchParts parts_;
  target::Target target_;
  graph::Graph graph_;
  std::vector<graph::Graph> specialised_;  // the same model at some sizes
  std::string model_digest_;
  std::vector<std::string> task_order_;
  std::map<std::string, JobTask> tasks_;
  std::map<std::string, v1::ToldRecord> records_;  // by measurement id: each counts once
  std::unique_ptr<cost_model::CostModel> model_;   // ranks now
  std::string model_id_;                           // empty: neither a shipped nor a trained one
  TrainingThread training_;
  std::string base_;  // the shipped model that training continues from; empty: none fits
};

}  // namespace tilewright::search
