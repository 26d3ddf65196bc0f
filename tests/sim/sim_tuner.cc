#include "tests/sim/sim_tuner.h"

#include <algorithm>
#include <utility>

#include "deploy/daemon/wire.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/jobs/job_recall.h"
#include "tuner_server/jobs/row_enums.h"
#include "tuner_server/jobs/work_items.h"
#include "tuner_server/log/memory_log.h"

namespace tilewright::sim {

using support::StatusText;
using support::StrCat;

namespace {

constexpr int64_t kPullTimeoutNs = 30 * kSecond;
constexpr int64_t kCallTimeoutNs = 15 * kSecond;
constexpr int kPullWaitSeconds = 10;

}  // namespace

class SimTuner::Dispatcher final : public jobs::Dispatcher {
 public:
  Dispatcher(SimTuner* tuner, std::string consumer, std::string job_uid, jobs::JobEventSink sink)
      : tuner_(tuner),
        consumer_(std::move(consumer)),
        job_uid_(std::move(job_uid)),
        sink_(std::move(sink)) {}

  void Submit(std::vector<jobs::Submission> items) override {
    auto request = std::make_shared<v1::SubmitWorkRequest>();
    request->set_consumer(consumer_);
    jobs::WorkSubmitted answer;
    for (const jobs::Submission& one : items) {
      *request->add_work_items() = one.item;
      answer.trials.push_back(one.trial);
    }
    Call<v1::SubmitWorkResponse>(
        kCallTimeoutNs,
        // Runs at the tracker, perhaps when this dispatcher is gone.
        [tuner = tuner_, request](v1::SubmitWorkResponse* response) {
          // The upload that comes first, folded into the same message; a part may get lost.
          for (const v1::WorkItem& item : request->work_items()) {
            Upload(tuner, item.work().artifact());
            if (item.work().has_expected_output()) Upload(tuner, item.work().expected_output());
          }
          return tracker::SubmitCall(request.get(), response, tuner->tracker_->blobs());
        },
        [this, request, answer](const absl::Status& status,
                                const v1::SubmitWorkResponse& response) mutable {
          if (status.ok()) {
            answer.response = response;
          } else {
            answer.response = status;
          }
          sink_(std::move(answer));
        });
  }

  void Pull(const std::string& cursor) override {
    auto request = std::make_shared<v1::PullResultsRequest>();
    request->set_consumer(consumer_);
    request->set_cursor(cursor);
    request->set_max_updates(static_cast<int>(1 + tuner_->world_->rng().Uniform(20)));
    request->mutable_max_wait()->set_seconds(kPullWaitSeconds);
    Call<v1::PullResultsResponse>(
        kPullTimeoutNs,
        [request](v1::PullResultsResponse* response) {
          return tracker::PullCall(request.get(), response);
        },
        [this, request](const absl::Status& status, const v1::PullResultsResponse& response) {
          jobs::ResultsPulled pulled;
          if (status.ok()) {
            pulled.response = response;
          } else {
            pulled.response = status;
          }
          if (status.ok() && tuner_->bugs.acks_before_store && response.updates_size() > 0) {
            Acknowledge(response.cursor());
            // ... and a moment later it would be stored.
            tuner_->world_->After(tuner_->node_, kSecond / 5, [this, pulled] { sink_(pulled); });
            return;
          }
          sink_(std::move(pulled));
        });
  }

  void Acknowledge(const std::string& cursor) override {
    auto request = std::make_shared<v1::AckResultsRequest>();
    request->set_consumer(consumer_);
    request->set_cursor(cursor);
    Simple([request](tracker::DevicePool& pool) { return pool.Acknowledge(*request); },
           [](const absl::Status&) {});
  }

  void Cancel() override {
    auto request = std::make_shared<v1::CancelWorkRequest>();
    request->set_consumer(consumer_);
    request->set_job(job_uid_);
    request->set_kill_running(true);
    SimTracker* tracker = tuner_->tracker_;
    Simple(
        [request, tracker](tracker::DevicePool& pool) {
          pool.Cancel(*request, tracker->now());
          return absl::OkStatus();
        },
        [this](const absl::Status& status) { sink_(jobs::WorkCancelled{status}); });
  }

  void QueryLoad() override {
    auto load = std::make_shared<v1::PoolLoad>();
    SimTracker* tracker = tuner_->tracker_;
    Simple(
        [load, tracker](tracker::DevicePool& pool) {
          *load = pool.Load({}, tracker->now());
          return absl::OkStatus();
        },
        [this, load](const absl::Status& status) {
          jobs::LoadKnown known;
          if (status.ok()) {
            known.load = *load;
          } else {
            known.load = status;
          }
          sink_(std::move(known));
        });
  }

 private:
  // One RPC; `make` says what the tracker does with it and may be called again (a doubled request).
  template <typename Response>
  void Call(int64_t timeout_ns, std::function<tracker::LoopCall(Response*)> make,
            SimNet::Done<Response> done) {
    SimTracker* tracker = tuner_->tracker_;
    tuner_->net_->Call<Response>(
        tuner_->node_, tracker->node(), timeout_ns,
        [tracker, make](const std::shared_ptr<Response>& response, std::function<bool()> gone,
                        SimNet::Finish finish) {
          tracker::LoopCall call = make(response.get());
          call.cancelled = std::move(gone);
          call.finish = [make, response, finish](const absl::Status& status) { finish(status); };
          tracker->Post(std::move(call));
        },
        std::move(done));
  }

  void Simple(std::function<absl::Status(tracker::DevicePool&)> apply,
              std::function<void(const absl::Status&)> done) {
    Call<v1::Ack>(
        kCallTimeoutNs,
        [apply](v1::Ack*) {
          tracker::LoopCall call;
          call.apply = [apply](tracker::DevicePool& pool, tracker::Now) { return apply(pool); };
          return call;
        },
        [done](const absl::Status& status, const v1::Ack&) { done(status); });
  }

  static void Upload(SimTuner* tuner, const v1::Digest& digest) {
    const std::string hex = support::HexEncode(digest.hash());
    if (tuner->tracker_->blobs()->Contains(hex) || tuner->world_->Happens(0.02)) return;
    const auto bytes = tuner->blobs_->Get(hex);
    if (bytes.ok()) (void)tuner->tracker_->blobs()->PutVerified(hex, *bytes);
  }

  SimTuner* tuner_;
  std::string consumer_;
  std::string job_uid_;
  jobs::JobEventSink sink_;
};

// One job's core with its ports.
struct SimTuner::Running {
  uint64_t life = 0;
  std::unique_ptr<SimSearch> search;
  std::unique_ptr<SimBuilds> builds;
  std::unique_ptr<Dispatcher> dispatcher;
  jobs::TaskClaims own_claims;  // instead of everybody's, by mistake
  std::unique_ptr<jobs::JobCore> core;
};

SimTuner::SimTuner(SimWorld* world, SimNet* net, SimTracker* tracker, std::string dir)
    : world_(world),
      net_(net),
      tracker_(tracker),
      node_(world->AddNode("tuner")),
      dir_(std::move(dir)),
      log_(log::MakeMemoryLog()),
      blobs_(Value(daemon::BlobStore::Open(support::PathJoin(dir_, "blobs")))),
      modules_(std::make_unique<modules::ModuleStore>(log_.get(), blobs_.get())),
      claims_(std::make_unique<jobs::TaskClaims>()) {}

SimTuner::~SimTuner() = default;

void SimTuner::CreateJob(int64_t max_trials, int priority, bool recall) {
  v1::Job spec;
  spec.mutable_budget()->set_max_trials(static_cast<int32_t>(max_trials));
  spec.set_priority(priority);
  spec.set_recall(recall);
  log::JobRow row;
  row.id = StrCat("job", jobs_.size() + 1);
  row.uid = row.id + ".0a1b";
  row.spec_json = jobs::SpecToJson(spec).value();
  row.target = "cpu,arch=x86_64,cpu=x86-64,threads=1";
  row.cost_model = "prior";
  row.created_by = StrCat("user", jobs_.size());
  row.seed = 7;
  Value(log_->CreateJob(row));
  TW_CHECK(support::MakeDirs(support::PathJoin(dir_, row.id + "/builds")).ok());
  jobs_.push_back(row.id);
  if (world_->up(node_)) Run(row.id);
}

void SimTuner::Start() {
  world_->Boot(node_);
  world_->Tell("tuner starts");
  claims_ = std::make_unique<jobs::TaskClaims>();
  TW_CHECK(jobs::RestoreClaims(log_.get(), claims_.get(), world_->clock(node_)->NowNs()).ok());
  for (const std::string& id : jobs_) Run(id);
}

void SimTuner::Crash() {
  world_->Tell("tuner dies");
  world_->Kill(node_);
  running_.clear();
}

void SimTuner::Run(const std::string& id) {
  const log::JobRow job = Value(log_->GetJob(id));
  if (log::IsFinal(job.state)) return;
  const uint64_t life = next_life_++;
  const std::string dir = support::PathJoin(dir_, id);
  const jobs::JobEventSink sink = [this, id, life](jobs::JobEvent event) {
    auto shared = std::make_shared<jobs::JobEvent>(std::move(event));
    world_->After(node_, 0, [this, id, life, shared] { Handle(id, life, std::move(*shared)); });
  };
  auto running = std::make_unique<Running>();
  running->life = life;
  running->search = std::make_unique<SimSearch>(world_, node_, dir, &faults, sink);
  running->builds = std::make_unique<SimBuilds>(world_, node_, &faults, sink);
  running->dispatcher =
      std::make_unique<Dispatcher>(this, jobs::ConsumerName(job.uid), job.uid, sink);
  jobs::JobEnvironment environment;
  environment.log = log_.get();
  environment.modules = modules_.get();
  environment.blobs = blobs_.get();
  environment.clock = world_->clock(node_);
  environment.search = running->search.get();
  environment.builds = running->builds.get();
  environment.dispatcher = running->dispatcher.get();
  environment.claims = bugs.claims_forgotten ? &running->own_claims : claims_.get();
  jobs::JobCoreOptions options;
  options.state_dir = dir;
  running->core = Value(jobs::JobCore::Resume(environment, options, id));
  const absl::Status started = running->core->Start();
  if (!started.ok()) world_->Fail(id + ": " + StatusText(started));
  running_[id] = std::move(running);
  Tick(id, life);
}

void SimTuner::Tick(const std::string& id, uint64_t life) {
  world_->After(node_, kTickNs, [this, id, life] {
    const auto it = running_.find(id);
    if (it == running_.end() || it->second->life != life || it->second->core->done()) return;
    Handle(id, life, jobs::Tick{});
    Tick(id, life);
  });
}

void SimTuner::Handle(const std::string& id, uint64_t life, jobs::JobEvent event) {
  const auto it = running_.find(id);
  if (it == running_.end() || it->second->life != life) return;
  jobs::JobCore& core = *it->second->core;
  if (core.done()) return;
  const absl::Status status = core.Handle(std::move(event));
  if (!status.ok()) world_->Fail(id + ": " + StatusText(status));
  if (core.done())
    world_->Tell(id + " has ended: " + std::string(log::JobStateName(core.job().state)));
}

void SimTuner::CancelJob(size_t index) {
  const std::string id = jobs_[index % jobs_.size()];
  const log::JobRow job = Value(log_->GetJob(id));
  if (job.state != log::JobState::kRunning && job.state != log::JobState::kFinishing) return;
  world_->Tell(id + " is cancelled");
  Value(log_->MoveJob(
      {.id = id, .from = job.state, .to = log::JobState::kCancelling, .reason = "by request"}));
  const auto it = running_.find(id);
  if (it == running_.end() || !world_->up(node_)) return;
  world_->After(node_, 0,
                [this, id, life = it->second->life] { Handle(id, life, jobs::CancelRequested{}); });
}

bool SimTuner::AllEnded() {
  for (const std::string& id : jobs_) {
    if (!log::IsFinal(Value(log_->GetJob(id)).state)) return false;
  }
  return true;
}

std::string SimTuner::JobText() {
  std::string text;
  for (const std::string& id : jobs_) {
    const log::JobRow job = Value(log_->GetJob(id));
    const log::TrialCounts counts = Value(log_->CountTrials(id));
    text += StrCat(id, " ", log::JobStateName(job.state), " ", counts.proposed, " proposed ",
                   counts.ended, " ended ", job.state_reason);
    const auto running = running_.find(id);
    if (running != running_.end()) {
      for (const v1::Condition& c : running->second->core->conditions()) {
        text += StrCat(" [", c.type(), " ", c.reason(), ": ", c.message(), "]");
      }
    }
    text += "\n";
  }
  return text;
}

void SimTuner::Check(const SimTruth& truth) {
  for (const std::string& id : jobs_) CheckJob(id, truth);
  CheckShared();
}

// Jobs that share a task measure no program of it twice.
void SimTuner::CheckShared() {
  std::map<std::string, std::string> measured_by;
  for (const std::string& id : jobs_) {
    if (!Value(jobs::SpecFromJson(Value(log_->GetJob(id)).spec_json)).recall()) continue;
    for (const log::RecordRow& record : Value(log_->ListRecords({.job = id, .limit = 100000}))) {
      if (!record.accepted || !record.usable()) continue;
      const log::TrialRow trial = Value(log_->GetTrial(id, record.trial));
      if (trial.generated_by == log::kFinal) continue;  // a winner, again
      const std::string program = trial.task + " " + trial.steps;
      const auto [other, first] = measured_by.emplace(program, record.measurement_id);
      if (first) continue;
      const log::RecordRow before = Value(log_->GetRecord(other->second));
      world_->Fail(StrCat(program, " was measured twice: ", other->second, " of ", before.stored_us,
                          " us and ", record.measurement_id, ", proposed at ", trial.created_us,
                          " us"));
    }
  }
}

int64_t SimTuner::Spared() {
  int64_t spared = 0;
  for (const std::string& id : jobs_) {
    const log::JobRow job = Value(log_->GetJob(id));
    const v1::Job spec = Value(jobs::SpecFromJson(job.spec_json));
    if (!spec.recall() || job.state != log::JobState::kSucceeded) continue;
    const int64_t proposed = Value(log_->CountTrials(id)).proposed;
    spared += std::max<int64_t>(0, spec.budget().max_trials() - proposed);
  }
  return spared;
}

void SimTuner::CheckJob(const std::string& id, const SimTruth& truth) {
  const log::JobRow job = Value(log_->GetJob(id));
  std::map<std::string, log::RecordRow> records;
  std::map<int64_t, int> accepted;
  for (const log::RecordRow& record : Value(log_->ListRecords({.job = id, .limit = 100000}))) {
    records[record.measurement_id] = record;
    if (record.accepted && ++accepted[record.trial] > 1) {
      world_->Fail(StrCat(id, " trial ", record.trial, " has two accepted records"));
    }
    if (record.attempt == 0) continue;  // a failed build
    v1::MeasurementResult result;
    result.set_measurement_id(record.measurement_id);
    result.set_device(record.device);
    result.set_fencing_token(record.fencing_token);
    result.set_outcome(jobs::ToProto(record.outcome));
    result.set_median(record.median);
    if (!truth.WasMade(result)) {
      world_->Fail("a record that nobody measured: " + record.measurement_id);
    }
  }
  for (const log::TrialRow& trial : Value(log_->ListTrials({.job = id, .limit = 100000}))) {
    const std::string name = StrCat(id, " trial ", trial.number);
    if (!log::IsFinal(trial.state)) world_->Fail(name + " has not ended");
    // What vanished is asked for again.
    if (trial.state == log::TrialState::kFailed &&
        trial.reason.find("artifact") != std::string::npos) {
      world_->Fail(name + " was given up for an artifact: " + trial.reason);
    }
    if (trial.outcome == log::Outcome::kUnspecified) world_->Fail(name + " ended without outcome");
    if (trial.measurement_id.empty()) {
      if (trial.outcome == log::Outcome::kOk) world_->Fail(name + " is OK without a record");
      continue;
    }
    const auto record = records.find(trial.measurement_id);
    if (record == records.end()) {
      world_->Fail(StrCat(name, " names a record that is not there: ", trial.measurement_id));
    } else if (trial.outcome == log::Outcome::kOk && record->second.outcome != log::Outcome::kOk) {
      world_->Fail(StrCat(name, " is OK, its record is not: ", trial.measurement_id));
    }
  }
  // What the tracker said it has stored must be in the log, where this job was measured to its end.
  if (job.state != log::JobState::kSucceeded) return;
  for (const auto& [measurement_id, database] : truth.stored()) {
    if (database != tracker_->database()) continue;
    const std::string work_item = measurement_id.substr(0, measurement_id.rfind('/'));
    if (!jobs::ParseWorkItemName(job.uid, work_item) || records.count(measurement_id) != 0) {
      continue;
    }
    const auto item = jobs::ParseWorkItemName(job.uid, work_item);
    const log::TrialRow trial = Value(log_->GetTrial(id, item->trial));
    world_->Fail(StrCat("an acknowledged measurement is lost: ", measurement_id, "; its trial is ",
                        log::TrialStateName(trial.state), " with ", trial.measurement_id, " of ",
                        trial.work_item, " ", trial.reason));
  }
}

}  // namespace tilewright::sim
