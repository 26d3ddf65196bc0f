#include "tests/unit/job_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "deploy/daemon/wire.h"
#include "deploy/daemon/work_spec.h"
#include "deploy/support/hash.h"
#include "deploy/support/measure_units.h"
#include "deploy/support/shortage.h"
#include "deploy/support/strings.h"
#include "tests/support/tiny_module.h"
#include "tuner_server/jobs/work_items.h"
#include "tuner_server/log/memory_log.h"
#include "tuner_server/log/sqlite_log.h"
#include "tuner_server/search/builder_error.h"

namespace tilewright::tests {

using support::StatusText;
using support::StrCat;

namespace {

constexpr int64_t kMs = 1'000'000;
constexpr char kExpected[] = "expected outputs";
constexpr int kTasks = 3;
constexpr uint64_t kMaxLog = uint64_t{1} << 30;

std::string FastFolder() { return support::IsDirectory("/dev/shm") ? "/dev/shm" : ""; }

std::string TaskHash(int index, int64_t extent) {
  return extent == 0 ? StrCat("h", index) : StrCat("h", index, "-", extent);
}

absl::Status DiskIsFull() { return support::ErrnoError(ENOSPC, "file.write.failed", "/x"); }

std::string ProgramHash(const std::string& task, const std::string& steps) {
  return support::Hex64(support::StableHash64(task + "|" + steps));
}

}  // namespace

class FakeSearch final : public jobs::SearchChild {
 public:
  explicit FakeSearch(JobWorld* world) : world_(world) {}
  void Send(const v1::BuilderRequest& request, int64_t timeout_ms) override {
    EXPECT_FALSE(busy_) << "two requests to the search child at a time";
    EXPECT_GT(timeout_ms, 0);
    busy_ = true;
    world_->bag_.push_back([this, request]() -> jobs::JobEvent {
      busy_ = false;
      return world_->Search(request);
    });
  }
  void Kill() override { world_->search_state_ = {}; }

 private:
  JobWorld* world_;
  bool busy_ = false;
};

class FakeBuilds final : public jobs::BuildPool {
 public:
  explicit FakeBuilds(JobWorld* world) : world_(world) {}
  void Start(int64_t trial, const v1::Build& request) override {
    world_->bag_.push_back(
        [this, trial, request]() -> jobs::JobEvent { return world_->Build(trial, request); });
  }
  int64_t slots() const override { return 2; }

 private:
  JobWorld* world_;
};

class FakeDispatcher final : public jobs::Dispatcher {
 public:
  explicit FakeDispatcher(JobWorld* world) : world_(world) {}
  void Submit(std::vector<jobs::Submission> items) override {
    world_->submit_sizes_.push_back(static_cast<int>(items.size()));
    world_->bag_.push_back([this, items]() -> jobs::JobEvent { return world_->Submit(items); });
  }
  void Pull(const std::string& cursor) override {
    EXPECT_FALSE(pulling_) << "two pulls at a time";
    pulling_ = true;
    world_->bag_.push_back([this, cursor]() -> jobs::JobEvent {
      pulling_ = false;
      return world_->Pull(cursor);
    });
  }
  void Acknowledge(const std::string& cursor) override {
    if (world_->tracker_away || world_->Happens(world_->faults_.ack_is_lost)) return;
    auto& outbox = world_->tracker_.outbox;
    const int64_t upto = *support::ParseInt64(cursor);
    for (const v1::WorkUpdate& update : outbox) {
      if (*support::ParseInt64(update.cursor()) > upto) continue;
      world_->tracker_.acknowledged[update.work_item()].push_back(update);
    }
    outbox.erase(std::remove_if(outbox.begin(), outbox.end(),
                                [upto](const v1::WorkUpdate& update) {
                                  return *support::ParseInt64(update.cursor()) <= upto;
                                }),
                 outbox.end());
  }
  void Cancel() override {
    world_->bag_.push_back([this]() -> jobs::JobEvent {
      if (world_->tracker_away) return jobs::WorkCancelled{absl::UnavailableError("away")};
      for (auto& [name, item] : world_->tracker_.items) {
        if (item.state != v1::WORK_STATE_QUEUED) continue;
        item.state = v1::WORK_STATE_CANCELLED;
        world_->AddUpdate(item, item.state, nullptr);
      }
      return jobs::WorkCancelled{absl::OkStatus()};
    });
  }
  void QueryLoad() override {
    world_->bag_.push_back([this]() -> jobs::JobEvent {
      v1::PoolLoad load;
      load.set_online(static_cast<int32_t>(world_->devices));
      load.set_dispatchable(static_cast<int32_t>(world_->devices));
      if (world_->devices > 0) load.add_device_classes(world_->device_class);
      for (const auto& [compiler, count] : world_->driver_compilers) {
        (*load.mutable_driver_compilers())[compiler] = count;
      }
      return jobs::LoadKnown{load};
    });
  }

 private:
  JobWorld* world_;
  bool pulling_ = false;
};

JobWorld::JobWorld(uint64_t seed, const Faults& faults)
    : rng_(seed),
      faults_(faults),
      clock_(1),
      dir_(Value(support::TempDir::Create("job-world", FastFolder()))),
      log_(log::MakeMemoryLog()),
      blobs_(Value(daemon::BlobStore::Open(dir_.File("blobs")))),
      modules_(std::make_unique<modules::ModuleStore>(log_.get(), blobs_.get())) {
  TW_CHECK(support::MakeDirs(dir_.File("job/builds")).ok());
  TW_CHECK(support::WriteFileAtomic(dir_.File("job/expected"), kExpected).ok());
}

void JobWorld::CreateJob(int64_t max_trials, const std::function<void(v1::Job*)>& edit,
                         const std::string& cost_model) {
  v1::Job spec;
  spec.mutable_budget()->set_max_trials(static_cast<int32_t>(max_trials));
  if (edit) edit(&spec);
  log::JobRow row;
  row.id = job_id_;
  row.uid = job_id_ + ".0a1b";
  row.spec_json = jobs::SpecToJson(spec).value();
  row.target = target;
  row.cost_model = cost_model;
  row.seed = 7;
  row.created_us = clock_.WallMicros();
  Value(log_->CreateJob(row));
}

void JobWorld::NextJob(const std::string& id) {
  KillCore();
  job_id_ = id;
  accepted_.clear();  // CheckEnded is about one job
  clock_.AdvanceNs(1'000'000'000);
}

log::JobRow JobWorld::job() { return Value(log_->GetJob(job_id_)); }

void JobWorld::StartCore() {
  search_ = std::make_unique<FakeSearch>(this);
  builds_ = std::make_unique<FakeBuilds>(this);
  dispatcher_ = std::make_unique<FakeDispatcher>(this);
  jobs::JobEnvironment environment;
  environment.log = log_.get();
  environment.modules = modules_.get();
  environment.blobs = blobs_.get();
  environment.clock = &clock_;
  environment.search = search_.get();
  environment.builds = builds_.get();
  environment.dispatcher = dispatcher_.get();
  environment.claims = &claims_;
  environment.on_reconciled = [this](const jobs::Reconciled& one) {
    const auto add = [](std::vector<std::string>* all, const std::vector<std::string>& more) {
      all->insert(all->end(), more.begin(), more.end());
    };
    add(&reconciled_.ended, one.ended);
    add(&reconciled_.unknown, one.unknown);
    add(&reconciled_.foreign, one.foreign);
  };
  jobs::JobCoreOptions options;
  options.state_dir = dir_.File("job");
  options.min_open = 8;
  core_ = Value(jobs::JobCore::Resume(environment, options, job_id_));
  const absl::Status started = core_->Start();
  ASSERT_TRUE(started.ok()) << StatusText(started);
}

void JobWorld::KillCore() {
  core_.reset();
  bag_.clear();
  search_state_ = {};
}

void JobWorld::OpenLogFile() {
  log_ = Value(log::OpenSqliteLog(dir_.File("tuner.db")));
  modules_ = std::make_unique<modules::ModuleStore>(log_.get(), blobs_.get());
}

void JobWorld::KeepLogInFile() {
  modules_.reset();
  OpenLogFile();
}

void JobWorld::BackUpTuner() {
  const bool running = core_ != nullptr;
  KillCore();
  modules_.reset();
  log_.reset();  // one file, without a write-ahead log beside it
  TW_CHECK(support::WriteFileAtomic(dir_.File("backup.db"),
                                    Value(support::ReadFile(dir_.File("tuner.db"), kMaxLog)))
               .ok());
  OpenLogFile();
  if (running) StartCore();
}

void JobWorld::RestoreTuner() {
  KillCore();
  modules_.reset();
  log_.reset();
  TW_CHECK(support::WriteFileAtomic(dir_.File("tuner.db"),
                                    Value(support::ReadFile(dir_.File("backup.db"), kMaxLog)))
               .ok());
  OpenLogFile();
  lost_everything_ = true;  // the log need not have all that the tracker accepted
  StartCore();
}

void JobWorld::RestoreTracker(bool same_epoch) {
  const uint64_t epoch = tracker_.epoch + (same_epoch ? 0 : 1);
  tracker_ = tracker_backup_;
  tracker_.epoch = epoch;
  lost_everything_ = true;
}

void JobWorld::Step() {
  clock_.AdvanceNs(static_cast<int64_t>(rng_.Uniform(20)) * kMs);
  if (Happens(faults_.tracker_restarts)) ++tracker_.epoch;
  if (Happens(faults_.tracker_loses_all)) {
    const uint64_t epoch = tracker_.epoch + 1;
    tracker_ = {};
    tracker_.epoch = epoch;
    lost_everything_ = true;
  }
  if (tracker_measures && rng_.Bernoulli(0.5)) MeasureOne();
  jobs::JobEvent event = jobs::Tick{};
  if (!bag_.empty() && rng_.Bernoulli(0.9)) {
    const size_t index = rng_.Uniform(bag_.size());
    auto answer = std::move(bag_[index]);
    bag_.erase(bag_.begin() + static_cast<int64_t>(index));
    event = answer();
  }
  const absl::Status handled = core_->Handle(std::move(event));
  ASSERT_TRUE(handled.ok()) << StatusText(handled);
  ++events_;
  if (!core_->done() && Happens(faults_.core_restarts)) {
    KillCore();
    StartCore();
  }
}

void JobWorld::RunToEnd(int64_t max_steps, int64_t restart_at) {
  for (int64_t step = 0; step < max_steps; ++step) {
    if (core_->done()) return;
    Step();
    if (testing::Test::HasFatalFailure()) return;
    if (events_ == restart_at && !core_->done()) {
      KillCore();
      StartCore();
    }
  }
  FAIL() << "the job has not ended: state " << log::JobStateName(job().state) << ", "
         << core_->progress().ShortDebugString();
}

void JobWorld::OccupyName(const std::string& work_item) {
  Item item;
  item.item.set_name(work_item);
  item.item.set_user("somebody else");
  item.state = v1::WORK_STATE_CANCELLED;
  tracker_.items[work_item] = item;
}

void JobWorld::Cancel() {
  const log::JobRow row = job();
  Value(log_->MoveJob(
      {.id = row.id, .from = row.state, .to = log::JobState::kCancelling, .reason = "by request"}));
  bag_.push_back([] { return jobs::CancelRequested{}; });
}

// --- search ---

jobs::SearchAnswered JobWorld::Search(const v1::BuilderRequest& request) {
  if (!search_state_.alive) {
    search_state_ = {};
    search_state_.alive = true;
    ++searches_started_;
  }
  if (Happens(faults_.search_dies) || (search_poison && search_poison(request))) {
    search_state_ = {};
    return {absl::UnavailableError("builder.died: signal 9")};
  }
  if (Happens(faults_.search_is_killed) || (search_killer && search_killer(request))) {
    search_state_ = {};
    return {support::MarkShortage(absl::UnavailableError("builder.died: signal 9"),
                                  support::Shortage::kKilled)};
  }
  if (search_refusal) {
    const std::string refusal = search_refusal(request);
    if (!refusal.empty()) {
      v1::BuilderReply reply;
      reply.mutable_error()->set_code(3);
      reply.mutable_error()->set_message(refusal);
      return {reply};
    }
  }
  if (Happens(faults_.search_is_short) || (search_short && search_short(request))) {
    v1::BuilderReply reply;
    *reply.mutable_error() = search::ToBuilderError(DiskIsFull());
    return {reply};
  }
  return {AnswerSearch(request)};
}

v1::BuilderReply JobWorld::AnswerSearch(const v1::BuilderRequest& request) {
  SearchState& state = search_state_;
  v1::BuilderReply reply;
  EXPECT_EQ(state.opened, !request.has_open_job()) << "OpenJob comes first, once";
  if (request.has_open_job()) {
    state.opened = true;
    v1::JobOpened* opened = reply.mutable_job_opened();
    opened->set_model_name("Net");
    opened->set_toolchain("tc");
    opened->set_compiler_build(compiler_build);
    // As the real one: what is pre-trained ranks at once where models learn.
    if (request.open_job().cost_model() == "xgboost") {
      state.model = "shipped-1";
      opened->mutable_shipped_model()->set_model_id(state.model);
      opened->mutable_shipped_model()->set_model("bytes of " + state.model);
    }
    for (int i = 0; i < (has_tasks ? kTasks : 0); ++i) {
      v1::BuilderTask* task = opened->add_tasks();
      task->set_name(StrCat("task", i));
      task->set_hash(TaskHash(i, extent));
      task->set_weight(i + 1);
      task->set_flops(1000);
      task->set_canonical_text(StrCat("text of ", i, " f32[", extent + 64, "]"));
      task->set_default_steps("default");
      task->set_default_program_hash(ProgramHash(task->hash(), "default"));
    }
  } else if (request.has_make_checks()) {
    for (const std::string& hash : request.make_checks().tasks()) {
      v1::BuilderTask* task = reply.mutable_checks_made()->add_tasks();
      task->set_hash(hash);
      task->set_expected_output_path("expected");
      *task->mutable_expected_output() =
          daemon::MakeDigest(support::Sha256Hex(kExpected), sizeof(kExpected) - 1);
    }
  } else if (request.has_tell()) {
    if (!state.told) told.clear();
    for (const v1::ToldRecord& record : request.tell().records()) {
      if (!record.pending()) told.push_back(record.measurement_id());
      EXPECT_TRUE(state.measurements.insert(record.measurement_id()).second || record.pending())
          << record.measurement_id() << " was told twice to one child";
      state.programs[record.task()].insert(record.program_hash());
      if (record.median_ns() > 0) {
        EXPECT_EQ(record.outcome(), v1::OK);
        ++state.ok_rows;
      }
    }
    if (!state.told)
      relatives_told.emplace_back(request.tell().relatives().begin(),
                                  request.tell().relatives().end());
    state.told = true;
    reply.mutable_told()->set_known_records(static_cast<int32_t>(state.measurements.size()));
  } else if (request.has_load_model()) {
    EXPECT_EQ(request.load_model().model(), "bytes of " + request.load_model().model_id());
    state.model = request.load_model().model_id();
    reply.mutable_model_loaded();
  } else if (request.has_train_model()) {
    EXPECT_TRUE(state.training.empty()) << "two trainings at once";
    state.training = StrCat("m", ++models_);
    state.asks_in_training = 0;
    if (request.train_model().background()) {
      reply.mutable_model_trained()->set_started(true);
    } else {
      TakeModel(reply.mutable_model_trained());
    }
  } else if (request.has_take_model()) {
    EXPECT_FALSE(state.training.empty()) << "nothing to take";
    ++models_taken[state.asks_in_training];
    TakeModel(reply.mutable_model_trained());
  } else if (request.has_ask()) {
    AnswerAsk(request.ask(), reply.mutable_asked());
  } else if (request.has_compile_module()) {
    const v1::CompileModule& compile = request.compile_module();
    steps_of_module.clear();
    const std::map<std::string, std::string> steps(compile.steps_by_task().begin(),
                                                   compile.steps_by_task().end());
    for (const auto& [task, text] : steps) {
      steps_of_module += task + ":" + text + ";";
      // Without it the compiler takes the steps for stale and falls back to the default.
      const auto hash = compile.program_hash_by_task().find(task);
      const bool named = hash != compile.program_hash_by_task().end();
      EXPECT_TRUE(named && hash->second == ProgramHash(task, text)) << task << ": " << text;
    }
    const std::string bytes = TinyModule(steps_of_module);
    TW_CHECK(support::WriteFileAtomic(compile.output_path(), bytes).ok());
    v1::ModuleCompiled* compiled = reply.mutable_module_compiled();
    compiled->set_path(compile.output_path());
    *compiled->mutable_digest() =
        daemon::MakeDigest(support::Sha256Hex(bytes), static_cast<int64_t>(bytes.size()));
  }
  return reply;
}

void JobWorld::TakeModel(v1::ModelTrained* trained) {
  search_state_.model = std::exchange(search_state_.training, "");
  trained->set_trained(true);
  trained->set_replaced(true);
  trained->set_model_id(search_state_.model);
  trained->set_model("bytes of " + search_state_.model);
  trained->mutable_metrics()->set_train_rows(static_cast<int32_t>(search_state_.ok_rows));
}

void JobWorld::AnswerAsk(const v1::Ask& ask, v1::Asked* asked) {
  ++search_state_.asks_in_training;
  std::set<std::string>& known = search_state_.programs[ask.task()];
  for (int64_t i = first_candidate; i < space && asked->picks_size() < ask.count(); ++i) {
    const std::string steps = StrCat("split ", i);
    const std::string hash = ProgramHash(ask.task(), steps);
    if (!known.insert(hash).second) continue;
    v1::Candidate* pick = asked->add_picks();
    pick->set_steps(steps);
    pick->set_program_hash(hash);
    pick->set_rank(asked->picks_size());
    pick->set_considered(ask.count());
    pick->set_point(StrCat("0:", i));
    pick->set_generated_by("draft");
    pick->set_proposed_by(search_state_.model.empty() ? "prior" : "model");
    pick->set_model_id(search_state_.model);
    pick->add_features(1.5F);
    v1::Draft* draft = asked->add_drafts();
    draft->set_steps(steps);
    draft->set_program_hash(hash);
    draft->set_rank(pick->rank());
    draft->set_picked(true);
  }
}

// --- builds ---

jobs::BuildEnded JobWorld::Build(int64_t trial, const v1::Build& request) {
  jobs::BuildEnded ended;
  ended.trial = trial;
  ended.outcome = log::Outcome::kBuildError;
  if (build_short) ended.shortage = build_short(trial);
  if (Happens(faults_.build_is_short)) ended.shortage = support::Shortage::kDiskFull;
  if (Happens(faults_.build_is_killed)) ended.shortage = support::Shortage::kKilled;
  if (ended.shortage != support::Shortage::kNone) {
    ended.crashed = ended.shortage == support::Shortage::kKilled;
    ended.error = support::StatusText(DiskIsFull());
    return ended;
  }
  if (Happens(faults_.build_crashes)) {
    ended.crashed = true;
    ended.error = "builder.died: signal 11";
    return ended;
  }
  if (Happens(faults_.build_fails)) {
    ended.error = "codegen.something.bad: expected x, found y";
    return ended;
  }
  if (Happens(faults_.build_times_out)) {
    ended.outcome = log::Outcome::kBuildTimeout;
    ended.error = "builder.timeout: no answer in time";
    return ended;
  }
  const std::string bytes = request.task_canonical_text() + "|" + request.steps();
  ended.outcome = log::Outcome::kOk;
  ended.built.set_outcome(v1::OK);
  // Small modules come in the reply, large ones as a file; here some of each.
  EXPECT_GT(request.inline_limit(), static_cast<int64_t>(bytes.size()));
  if (rng_.Bernoulli(0.5)) {
    ended.built.set_module(bytes);
  } else {
    TW_CHECK(support::WriteFileAtomic(request.output_path(), bytes).ok());
    ended.built.set_artifact_path(request.output_path());
  }
  ended.built.set_codegen_seconds(0.01);
  return ended;
}

// --- tracker ---

jobs::WorkSubmitted JobWorld::Submit(const std::vector<jobs::Submission>& items) {
  jobs::WorkSubmitted answer;
  for (const jobs::Submission& one : items) answer.trials.push_back(one.trial);
  const bool fails = tracker_away || Happens(faults_.submit_fails);
  if (fails && (tracker_away || rng_.Bernoulli(0.5))) {
    answer.response = absl::UnavailableError("rpc.unavailable: away");
    return answer;
  }
  v1::SubmitWorkResponse response;
  for (const jobs::Submission& one : items) {
    v1::SubmitOutcome* outcome = response.add_outcomes();
    outcome->set_work_item(one.item.name());
    const std::string refusal = tracker_refusal ? tracker_refusal(one.item) : "";
    if (!refusal.empty()) {
      outcome->set_kind(v1::SubmitOutcome::KIND_INVALID);
      outcome->set_detail(refusal);
      continue;
    }
    const std::string hex = Value(daemon::DigestToHex(one.item.work().artifact()));
    if (tracker_.blobs.count(hex) == 0) {
      // As the real dispatcher does: what is missing is sent. Sometimes it gets lost on the way.
      if (!blobs_->Contains(hex) || rng_.Bernoulli(0.1)) {
        outcome->set_kind(v1::SubmitOutcome::KIND_MISSING_ARTIFACT);
        continue;
      }
      tracker_.blobs.insert(hex);
    }
    const auto it = tracker_.items.find(one.item.name());
    if (it != tracker_.items.end()) {
      v1::WorkItem before = it->second.item;
      before.set_attempts_before(one.item.attempts_before());
      const bool same = before.SerializeAsString() == one.item.SerializeAsString();
      outcome->set_kind(same ? v1::SubmitOutcome::KIND_EXISTS : v1::SubmitOutcome::KIND_CONFLICT);
      if (!same) outcome->set_detail("in the words of some other version");
      if (same) outcome->set_delivered_again(DeliverAgain(it->second));
      continue;
    }
    Item item;
    item.item = one.item;
    tracker_.items[one.item.name()] = item;
    outcome->set_kind(v1::SubmitOutcome::KIND_ACCEPTED);
  }
  if (fails) {
    answer.response = absl::DeadlineExceededError("rpc.deadline_exceeded: the answer got lost");
  } else {
    answer.response = response;
  }
  return answer;
}

bool JobWorld::DeliverAgain(const Item& item) {
  const auto it = tracker_.acknowledged.find(item.item.name());
  if (item.state == v1::WORK_STATE_QUEUED || it == tracker_.acknowledged.end()) return false;
  for (v1::WorkUpdate update : std::exchange(it->second, {})) {
    update.set_cursor(StrCat(tracker_.next_cursor++));
    tracker_.outbox.push_back(update);
  }
  tracker_.acknowledged.erase(it);
  return true;
}

jobs::ResultsPulled JobWorld::Pull(const std::string& cursor) {
  if (tracker_away || Happens(faults_.pull_fails)) {
    return {absl::UnavailableError("rpc.unavailable: away")};
  }
  v1::PullResultsResponse response;
  response.set_tracker_epoch(tracker_.epoch);
  response.set_cursor(cursor);
  const int64_t after = cursor.empty() ? 0 : *support::ParseInt64(cursor);
  for (const v1::WorkUpdate& update : tracker_.outbox) {
    if (*support::ParseInt64(update.cursor()) <= after || response.updates_size() == 3) continue;
    *response.add_updates() = update;
    response.set_cursor(update.cursor());
  }
  return {response};
}

void JobWorld::AddUpdate(const Item& item, v1::WorkState state,
                         const v1::MeasurementResult* result) {
  v1::WorkUpdate update;
  update.set_cursor(StrCat(tracker_.next_cursor++));
  update.set_work_item(item.item.name());
  update.set_state(state);
  update.set_spec_hash(daemon::WorkSpecHash(item.item));
  if (result != nullptr) *update.mutable_result() = *result;
  tracker_.outbox.push_back(update);
}

// Smaller is better; the default is slow.
double JobWorld::TimeOf(const std::string& steps) const {
  if (time_of) return time_of(steps);
  if (steps == "default") return 5000;
  return 1000 + static_cast<double>(support::StableHash64(steps) % 3000);
}

v1::MeasurementResult JobWorld::Measure(Item* item) {
  v1::MeasurementResult result;
  result.set_work_item(item->item.name());
  result.set_attempt(++item->attempts);
  result.set_measurement_id(StrCat(item->item.name(), "/", item->attempts));
  result.set_device("devices/d1");
  result.set_device_class(device_class);
  result.set_driver_compiler(measured_with);
  result.set_device_fingerprint("fp");
  result.set_agent_address("ipv4:127.0.0.1:9");
  result.set_value_kind(v1::ValueKind(support::UnitOfClass(device_class).kind));
  const std::string hex = Value(daemon::DigestToHex(item->item.work().artifact()));
  const std::string module = Value(blobs_->Get(hex));
  const std::string steps = module.substr(module.find('|') + 1);
  const double time = TimeOf(steps);
  result.set_outcome(wrong_when && wrong_when(steps) ? v1::WRONG_RESULT : v1::OK);
  if (crash_when && crash_when(steps)) result.set_outcome(v1::RUN_CRASH);
  result.set_valid(!invalid_when || !invalid_when(module));
  if (!result.valid()) result.add_invalid_reasons("measure.baseline.drift");
  result.set_median(time);
  result.add_samples(time);
  return result;
}

void JobWorld::MeasureOne() {
  std::vector<Item*> queued;
  for (auto& [name, item] : tracker_.items) {
    if (item.state == v1::WORK_STATE_QUEUED) queued.push_back(&item);
  }
  if (queued.empty()) return;
  Item* item = rng_.Choice(queued);
  v1::MeasurementResult result = Measure(item);
  if (Happens(faults_.attempt_is_lost)) {
    result.set_outcome(v1::DEVICE_LOST);
    result.set_valid(false);
    result.set_median(0);
    const bool gone = rng_.Bernoulli(0.2);  // it took two devices down
    if (gone) item->state = v1::WORK_STATE_QUARANTINED;
    AddUpdate(*item, item->state, &result);
    return;
  }
  if (item->invalid < 2 && Happens(faults_.invalid)) {
    ++item->invalid;
    result.set_valid(false);
    AddUpdate(*item, v1::WORK_STATE_QUEUED, &result);
    return;
  }
  if (Happens(faults_.wrong_result)) {
    result.set_outcome(v1::WRONG_RESULT);
    result.set_median(1);  // very fast, and wrong
  }
  item->state = v1::WORK_STATE_DONE;
  accepted_.insert(result.measurement_id());
  AddUpdate(*item, item->state, &result);
}

// --- checks ---

void JobWorld::CheckEnded() {
  const log::JobRow row = job();
  ASSERT_TRUE(log::IsFinal(row.state));
  const log::TrialCounts counts = Value(log_->CountTrials(job_id_));
  EXPECT_EQ(counts.ended, counts.proposed) << "open trials of an ended job";
  std::set<std::string> programs;
  std::set<std::string> measurements;
  for (const log::TrialRow& trial : Value(log_->ListTrials({.job = job_id_, .limit = 100000}))) {
    if (trial.generated_by == log::kFinal) continue;  // again, on purpose
    EXPECT_TRUE(programs.insert(trial.task + trial.program_hash).second)
        << "trial " << trial.number << " was chosen twice";
    EXPECT_EQ(trial.outcome == log::Outcome::kOk && trial.measurement_id.empty(), false);
  }
  std::map<int64_t, std::string> steps_of;
  for (const log::TrialRow& trial : Value(log_->ListTrials({.job = job_id_, .limit = 100000}))) {
    steps_of[trial.number] = trial.steps;
  }
  std::set<int64_t> accepted_trials;
  for (const log::RecordRow& record : Value(log_->ListRecords({.job = job_id_, .limit = 100000}))) {
    EXPECT_TRUE(measurements.insert(record.measurement_id).second);
    EXPECT_TRUE(!record.accepted || accepted_trials.insert(record.trial).second);
    if (record.outcome == log::Outcome::kOk && !time_of) {
      EXPECT_EQ(record.median, TimeOf(steps_of[record.trial])) << "of another program";
    }
  }
  // What the tracker closed an item with is in the log, unless the tracker forgot it before.
  if (row.state == log::JobState::kSucceeded && !lost_everything_) {
    for (const std::string& id : accepted_) {
      EXPECT_EQ(measurements.count(id), 1U) << id << " is lost";
    }
  }
}

}  // namespace tilewright::tests
