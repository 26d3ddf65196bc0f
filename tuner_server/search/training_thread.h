// A training beside the search, on a thread of its own at the lowest priority: the processors
// belong to the candidates that are built and measured. One owner; not thread-safe.
#pragma once

#include <optional>
#include <thread>

#include "absl/status/statusor.h"
#include "tuner_server/search/trainer.h"

namespace tilewright::search {

class TrainingThread {
 public:
  TrainingThread() = default;
  TrainingThread(const TrainingThread&) = delete;
  TrainingThread& operator=(const TrainingThread&) = delete;
  ~TrainingThread();  // waits for the training that runs

  // failed_precondition builder.train.running while one was not taken.
  absl::Status Start(TrainingInput input);
  struct Result {
    TrainedModel trained;
    double seconds = 0;  // wall clock of the training itself
  };
  // Waits. failed_precondition builder.train.none without Start before; else the training's error.
  absl::StatusOr<Result> Take();

 private:
  std::thread thread_;
  std::optional<absl::StatusOr<Result>> result_;
};

}  // namespace tilewright::search
