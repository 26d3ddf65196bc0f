// The seams of a job: what its core (job_core.h) asks of the world, and what the world answers. A
// port's method returns at once; its answer is exactly one event, handed later to the core's owner.
// Ports have a real implementation each (search_process.h, build_farm.h, tracker_dispatcher.h) and
// fakes in the tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "deploy/support/status.h"
#include "tilewright/v1/builder.pb.h"
#include "tilewright/v1/dispatch.pb.h"
#include "tuner_server/log/log_types.h"

namespace tilewright::jobs {

// Answers SearchChild::Send. An error status: the child is dead (it crashed, hung or could not be
// started) and knows nothing any more; a refusal of a live child is a BuilderError in the reply.
struct SearchAnswered {
  absl::StatusOr<v1::BuilderReply> reply = absl::UnknownError("no reply");
};

// Answers BuildPool::Start.
struct BuildEnded {
  int64_t trial = 0;
  log::Outcome outcome = log::Outcome::kUnspecified;  // OK, BUILD_ERROR or BUILD_TIMEOUT
  bool crashed = false;  // BUILD_ERROR because the child died; another try may go well
  std::string error;     // for people
  v1::Built built;       // for OK
};

// Answers Dispatcher::Submit; outcomes are in the order of the items.
struct WorkSubmitted {
  std::vector<int64_t> trials;
  absl::StatusOr<v1::SubmitWorkResponse> response = absl::UnknownError("no response");
};

// Answers Dispatcher::Pull.
struct ResultsPulled {
  absl::StatusOr<v1::PullResultsResponse> response = absl::UnknownError("no response");
};

// Answers Dispatcher::Cancel.
struct WorkCancelled {
  absl::Status status;
};

// Answers Dispatcher::QueryLoad.
struct LoadKnown {
  absl::StatusOr<v1::PoolLoad> load = absl::UnknownError("no response");
};

// Somebody asked for the job's end; the log says so already.
struct CancelRequested {};

// Time passed.
struct Tick {};

using JobEvent = std::variant<SearchAnswered, BuildEnded, WorkSubmitted, ResultsPulled,
                              WorkCancelled, LoadKnown, CancelRequested, Tick>;
using JobEventSink = std::function<void(JobEvent)>;

// The job's search process.
class SearchChild {
 public:
  virtual ~SearchChild() = default;
  // Starts the child if none runs. One request at a time.
  virtual void Send(const v1::BuilderRequest& request, int64_t timeout_ms) = 0;
  // Kills the child, if one runs. REQUIRES: no request is out.
  virtual void Kill() = 0;
};

// Builds candidates; shared by all jobs.
class BuildPool {
 public:
  virtual ~BuildPool() = default;
  virtual void Start(int64_t trial, const v1::Build& request) = 0;
  // How many builds of one job make sense at a time.
  virtual int64_t slots() const = 0;
};

// A work item on its way to the tracker.
struct Submission {
  int64_t trial = 0;
  v1::WorkItem item;
};

// The tracker as seen by one job.
class Dispatcher {
 public:
  virtual ~Dispatcher() = default;
  // Uploads the artifacts that the tracker lacks, then submits. One call at a time.
  virtual void Submit(std::vector<Submission> items) = 0;
  // Long poll. One call at a time.
  virtual void Pull(const std::string& cursor) = 0;
  // No answer; a lost one only means that updates come again.
  virtual void Acknowledge(const std::string& cursor) = 0;
  virtual void Cancel() = 0;
  virtual void QueryLoad() = 0;
};

}  // namespace tilewright::jobs
