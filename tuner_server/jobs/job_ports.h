// The ports of a job: what its core (job_core.h) asks for, and the events that answer. A port's
// method returns immediately. Its answer is exactly one event, which goes to the core's owner
// later. Each port has a real implementation (search_process.h, build_farm.h, tracker_dispatcher.h)
// and a fake in the tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "deploy/support/shortage.h"
#include "deploy/support/status.h"
#include "tilewright/v1/builder.pb.h"
#include "tilewright/v1/dispatch.pb.h"
#include "tuner_server/log/log_types.h"

namespace tilewright::jobs {

// Answers SearchChild::Send. An error status means that the child is dead: it crashed, hung or
// could not be started. If a live child refuses, the reply holds a BuilderError. Both name what the
// machine is short of, if that is why: the same request may succeed later.
struct SearchAnswered {
  absl::StatusOr<v1::BuilderReply> reply = absl::UnknownError("no reply");
};

// Answers BuildPool::Start.
struct BuildEnded {
  int64_t trial = 0;
  log::Outcome outcome = log::Outcome::kUnspecified;  // OK, BUILD_ERROR or BUILD_TIMEOUT
  bool crashed = false;  // BUILD_ERROR because the child died; another try may succeed
  // Not kNone: no fault of the candidate; another try will succeed when this is over.
  support::Shortage shortage = support::Shortage::kNone;
  std::string error;  // for people
  v1::Built built;    // for OK
};

// Answers Dispatcher::Submit. The outcomes are in the order of the items.
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

// A client asked for the job's end. The log has the new state already.
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
  // Returns how many builds of one job make sense at the same time.
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
  // A long poll. One call at a time.
  virtual void Pull(const std::string& cursor) = 0;
  // Has no answer. If it is lost, the updates come again.
  virtual void Acknowledge(const std::string& cursor) = 0;
  virtual void Cancel() = 0;
  virtual void QueryLoad() = 0;
};

}  // namespace tilewright::jobs
