// A tuner that submits work items at a steady rate, whether or not the tracker keeps up (so a slow
// tracker cannot slow down the load that shows it), pulls and acknowledges their results, and times
// each from the moment it was due. Survives restarts of the tracker: what was not accepted is
// submitted again. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/mutex.h"
#include "tilewright/v1/dispatch.grpc.pb.h"

namespace tilewright::tests {

struct SteadyWorkOptions {
  std::string address;  // of the tracker
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  double items_per_s = 100;
  int items_per_call = 5;
  v1::WorkItem model;  // all but the name; its artifacts are there
};

struct WorkCounts {
  int64_t submitted = 0;       // items that were due
  int64_t refused = 0;         // outcomes other than accepted or known
  int64_t ended = 0;           // items with a final update
  int64_t ended_not_done = 0;  // of those: not DONE
  int64_t ended_twice = 0;
  int64_t results_twice = 0;  // measurement ids that came more than once
};

class SteadyWork {
 public:
  explicit SteadyWork(SteadyWorkOptions options);
  ~SteadyWork();  // stops at once

  void Start();
  // Submits nothing new; false when not every item has ended within the time.
  bool Finish(int64_t patience_ms);

  // An agent has the item in hand.
  void Granted(const std::string& work_item, int attempt);
  // Milliseconds from due to granted, of first attempts since the last call.
  std::vector<double> TakeDispatchMs();

  WorkCounts counts() const;

 private:
  struct Submit;
  void SubmitLoop();
  void PullLoop();
  void Send(std::vector<std::string> names);
  void Pull(std::string* cursor);

  const SteadyWorkOptions options_;
  const std::unique_ptr<v1::DispatchService::Stub> stub_;
  support::SystemClock clock_;
  std::atomic<bool> finishing_{false};
  std::atomic<bool> stop_{false};

  mutable support::Mutex mutex_;
  support::CondVar changed_;
  std::map<std::string, int64_t> due_ns_ TW_GUARDED_BY(mutex_);  // of items nobody has yet
  std::vector<std::string> again_ TW_GUARDED_BY(mutex_);         // not known to be accepted
  std::set<std::string> ended_ TW_GUARDED_BY(mutex_);
  std::set<std::string> cursors_ TW_GUARDED_BY(mutex_);  // an update may come again
  std::set<std::string> results_ TW_GUARDED_BY(mutex_);
  std::vector<double> dispatch_ms_ TW_GUARDED_BY(mutex_);
  WorkCounts counts_ TW_GUARDED_BY(mutex_);
  int submits_out_ TW_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_;
};

// The smallest value that `share` of all (0..1) are not above; 0 of none.
double Quantile(std::vector<double> values, double share);

}  // namespace tilewright::tests
