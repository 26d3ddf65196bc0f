// Runs a training on a thread of its own while the search continues. The thread has the lowest
// priority, because builds and measurements need the processors. One owner; not thread-safe.
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

  // Starts a training. failed_precondition builder.train.running: the last one was not taken yet.
  absl::Status Start(TrainingInput input);
  struct Result {
    TrainedModel trained;
    double seconds = 0;  // wall clock of the training itself
  };
  // Waits for the training. failed_precondition builder.train.none: there is none. Else its error.
  absl::StatusOr<Result> Take();

 private:
  std::thread thread_;
  std::optional<absl::StatusOr<Result>> result_;
};

}  // namespace tilewright::search
