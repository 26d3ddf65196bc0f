#include "tuner_server/search/training_thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "deploy/support/clock.h"
#include "deploy/support/status.h"

namespace tilewright::search {
namespace {

constexpr int kLowestPriority = 19;

absl::StatusOr<TrainingThread::Result> Train(const TrainingInput& input) {
  support::SystemClock clock;
  const int64_t start = clock.NowNs();
  TrainingThread::Result result;
  TW_ASSIGN(result.trained, TrainAndJudge(input));
  result.seconds = static_cast<double>(clock.NowNs() - start) * 1e-9;
  return result;
}

}  // namespace

TrainingThread::~TrainingThread() {
  if (thread_.joinable()) thread_.join();
}

absl::Status TrainingThread::Start(TrainingInput input) {
  if (thread_.joinable()) {
    return support::FailedPrecondition("builder.train.running",
                                       "expected TakeModel first: a training runs already");
  }
  thread_ = std::thread([this, input = std::move(input)] {
    // Of this thread alone, on Linux. Refused: the training is in the way, not wrong.
    (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowestPriority);
    result_ = Train(input);
  });
  return absl::OkStatus();
}

absl::StatusOr<TrainingThread::Result> TrainingThread::Take() {
  if (!thread_.joinable()) {
    return support::FailedPrecondition("builder.train.none", "no training was started");
  }
  thread_.join();
  absl::StatusOr<Result> result = *std::move(result_);
  result_.reset();
  return result;
}

}  // namespace tilewright::search
