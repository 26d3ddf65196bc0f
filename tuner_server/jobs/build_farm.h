// The build children of a server: N threads, each with a tilewright-builder in build mode. A child
// is replaced when it dies, hangs or has built enough. Jobs take turns. Thread-safe; must outlive
// its pools.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "deploy/support/mutex.h"
#include "tuner_server/jobs/job_ports.h"
#include "tuner_server/search/builder_client.h"

namespace tilewright::jobs {

struct BuildFarmOptions {
  search::BuilderOptions builder;  // its mode is set here
  int64_t children = 1;
  int64_t timeout_ms = 60'000;  // of one build
};

class BuildFarm {
 public:
  explicit BuildFarm(BuildFarmOptions options);
  // Kills the children.
  ~BuildFarm();

  // Makes the pool of one job. The farm's threads call its sink until the pool is destroyed.
  std::unique_ptr<BuildPool> NewPool(JobEventSink sink);

 private:
  class Pool;
  struct Request {
    int64_t trial = 0;
    v1::Build build;
  };
  struct Owner {
    std::deque<Request> waiting;
    JobEventSink sink;
  };
  struct Worker {
    std::unique_ptr<search::BuilderClient> client;  // replaced under the mutex only
    int64_t builds = 0;
    std::thread thread;
  };

  void Loop(Worker* worker);
  // Waits for the next request of the job whose turn it is; false when the farm stops.
  bool Next(int64_t* owner, Request* request);
  BuildEnded Build(Worker* worker, const Request& request);
  void Remove(int64_t owner);

  const BuildFarmOptions options_;
  support::Mutex mutex_;
  support::CondVar wake_;
  bool stopping_ TW_GUARDED_BY(mutex_) = false;
  int64_t next_owner_ TW_GUARDED_BY(mutex_) = 1;
  int64_t last_turn_ TW_GUARDED_BY(mutex_) = 0;
  std::map<int64_t, Owner> owners_ TW_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace tilewright::jobs
