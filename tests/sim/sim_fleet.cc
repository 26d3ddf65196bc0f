#include "tests/sim/sim_fleet.h"

#include <algorithm>
#include <utility>

#include "deploy/support/strings.h"

namespace tilewright::sim {

using support::StrCat;

namespace {

constexpr int64_t kMinuteUs = int64_t{60} * 1'000'000;

support::TempDir FastFolder() {
  auto dir = support::TempDir::Create("sim", support::IsDirectory("/dev/shm") ? "/dev/shm" : "");
  TW_CHECK(dir.ok()) << dir.status();
  return *std::move(dir);
}

}  // namespace

void FleetCounts::Add(const FleetCounts& other) {
  events += other.events;
  simulated_s += other.simulated_s;
  results += other.results;
  kills += other.kills;
  pauses += other.pauses;
  cuts += other.cuts;
  clock_jumps += other.clock_jumps;
  disks_full += other.disks_full;
  databases_lost += other.databases_lost;
  power_cuts += other.power_cuts;
  broken += other.broken;
  canaries_passed += other.canaries_passed;
  canaries_failed += other.canaries_failed;
  spared += other.spared;
  slowest_end_s = std::max(slowest_end_s, other.slowest_end_s);
}

std::string FleetCounts::Text() const {
  return StrCat("events=", events, " simulated_s=", simulated_s, " results=", results,
                " kills=", kills, " pauses=", pauses, " cuts=", cuts, " clock_jumps=", clock_jumps,
                " disks_full=", disks_full, " databases_lost=", databases_lost,
                " power_cuts=", power_cuts, " broken=", broken,
                " canaries_passed=", canaries_passed, " canaries_failed=", canaries_failed,
                " spared=", spared, " slowest_end_s=", slowest_end_s);
}

SimFleet::SimFleet(uint64_t seed, const FleetOptions& options)
    : options_(options), world_(seed), truth_(&world_), net_(&world_), dir_(FastFolder()) {
  support::Rng& rng = world_.rng();
  tracker_ = std::make_unique<SimTracker>(&world_, dir_.File("tracker"));
  tuner_ = std::make_unique<SimTuner>(&world_, &net_, tracker_.get(), dir_.File("tuner"));
  // One user with little, so that quotas bite: the others have work to do meanwhile.
  TW_CHECK(
      tracker::AddUserPolicy("user0:weight=2,devices=2,items=6", &tracker_->options.share).ok());
  const int agents = 1 + static_cast<int>(rng.Uniform(4));
  for (int i = 0; i < agents; ++i) {
    const int devices = 1 + static_cast<int>(rng.Uniform(3));
    agents_.push_back(
        std::make_unique<SimAgent>(&world_, &net_, tracker_.get(), &truth_, i, devices));
  }
  const int jobs = 1 + static_cast<int>(rng.Uniform(3));
  for (int i = 0; i < jobs; ++i) {
    const int64_t trials = 10 + static_cast<int64_t>(rng.Uniform(60));
    // The jobs of every other world share what they measure.
    tuner_->CreateJob(trials, static_cast<int>(rng.Uniform(6)), seed % 2 == 0);
  }
  if (options_.faults && rng.Bernoulli(options_.database_loss)) {
    lose_database_at_ns_ = world_.Between(10 * kSecond, options_.chaos_ns);
  }
}

SimFleet::~SimFleet() = default;

// The worst moment: the agent dies before it hears of its grant and stays away until the lease has
// ended and the tracker was started anew.
void SimFleet::BreakAtGrant(const std::string& device) {
  if (!chaos_ || !world_.Happens(0.01)) return;
  for (auto& agent : agents_) {
    const auto& own = agent->devices();
    if (std::find(own.begin(), own.end(), device) == own.end()) continue;
    world_.AfterAlways(0, [this, agent = agent.get()] {
      if (!chaos_ || !world_.up(agent->node())) return;
      ++counts_.kills;
      agent->Crash(false);
      Restart(agent, world_.Between(35 * kSecond, 45 * kSecond));
    });
    world_.AfterAlways(world_.Between(31 * kSecond, 34 * kSecond), [this] { KillTracker(); });
  }
}

std::string SimFleet::Run() {
  support::Rng& rng = world_.rng();
  if (options_.faults) {
    net_.faults.lose = 0.02 * rng.UniformDouble();
    net_.faults.twice = 0.03 * rng.UniformDouble();
    net_.faults.slow = 0.1 * rng.UniformDouble();
    tuner_->faults = {0.02, 0.03, 0.03};
    for (auto& agent : agents_) {
      agent->faults = {0.01, 0.01, 0.03, 0.05, 0.02};
      agent->corrupt = 0.05;
      agent->slow_host = rng.Bernoulli(0.2);
    }
  }
  tracker_->Start();
  tuner_->Start();
  for (auto& agent : agents_) agent->Start();
  if (options_.faults) {
    tracker_->oracle().set_on_lease([this](const std::string& device) { BreakAtGrant(device); });
    PlanChaos();
    RunUntil(options_.chaos_ns, false);
    Heal();
  }
  const int64_t repaired_ns = world_.now_ns();
  std::map<std::string, int64_t> measured_ns;
  for (const auto& agent : agents_) measured_ns.merge(std::map(agent->measured_ns));
  RunUntil(repaired_ns + options_.give_up_ns, true);
  const int64_t waited_ns = world_.now_ns() - repaired_ns - BusiestNs(&measured_ns);
  counts_.slowest_end_s = waited_ns / kSecond;
  if (world_.failure().empty()) CheckEnd();
  if (world_.failure().empty() && waited_ns > options_.heal_ns) {
    world_.Fail(StrCat("the last job ended ", waited_ns / kSecond,
                       " s after the repair, beside the time that its device measured"));
  }
  counts_.events = world_.events();
  counts_.simulated_s = world_.now_ns() / kSecond;
  counts_.results = truth_.results();
  if (tracker_->pool() != nullptr) {
    const tracker::PoolStats stats = tracker_->pool()->stats(tracker_->now());
    counts_.canaries_passed = stats.canaries_passed;
    counts_.canaries_failed = stats.canaries_failed;
  }
  return world_.failure();
}

void SimFleet::RunUntil(int64_t end_ns, bool stop_when_ended) {
  int64_t look_ns = 0;
  while (world_.failure().empty() && world_.now_ns() < end_ns && world_.Step()) {
    if (!stop_when_ended || world_.now_ns() < look_ns) continue;
    look_ns = world_.now_ns() + kSecond;
    // What a drained agent still has to tell is seen when its supervisor has started it again.
    const bool all_up = std::all_of(agents_.begin(), agents_.end(),
                                    [this](const auto& agent) { return world_.up(agent->node()); });
    if (all_up && tuner_->AllEnded()) return;
  }
}

void SimFleet::PlanChaos() {
  world_.AfterAlways(world_.Between(200 * kMs, 5 * kSecond), [this] {
    if (!chaos_) return;
    Break();
    PlanChaos();
  });
}

void SimFleet::Break() {
  if (lose_database_at_ns_ >= 0 && world_.now_ns() >= lose_database_at_ns_) {
    lose_database_at_ns_ = -1;
    if (world_.up(tracker_->node())) tracker_->Crash();
    tracker_->LoseDatabase();
    ++counts_.databases_lost;
    world_.AfterAlways(world_.Between(kSecond, 10 * kSecond), [this] {
      if (!world_.up(tracker_->node())) tracker_->Start();
    });
    return;
  }
  switch (world_.rng().Uniform(10)) {
    case 0:
    case 1:
      BreakTracker();
      break;
    case 2:
      if (world_.up(tuner_->node())) {
        tuner_->Crash();
        ++counts_.kills;
        world_.AfterAlways(world_.Between(100 * kMs, 10 * kSecond), [this] {
          if (!world_.up(tuner_->node())) tuner_->Start();
        });
      }
      break;
    case 3:
    case 4:
    case 5:
      BreakAgent(agents_[world_.rng().Uniform(agents_.size())].get());
      break;
    case 6:
    case 7:
      BreakNetwork();
      break;
    case 8:
      BreakAdmin();
      break;
    default: {
      const int node = AnyNode();
      if (world_.rng().Bernoulli(0.5)) {
        ++counts_.pauses;
        world_.Tell(world_.name(node) + " is paused");
        world_.Pause(node, world_.Between(kSecond, 60 * kSecond));
      } else {
        ++counts_.clock_jumps;
        world_.Tell(world_.name(node) + ": the wall clock jumps");
        world_.JumpWall(node, world_.Between(-60 * kMinuteUs, 60 * kMinuteUs));
      }
    }
  }
}

int SimFleet::AnyNode() {
  const size_t pick = world_.rng().Uniform(agents_.size() + 2);
  if (pick == 0) return tracker_->node();
  if (pick == 1) return tuner_->node();
  return agents_[pick - 2]->node();
}

void SimFleet::Restart(SimAgent* agent, int64_t after_ns) {
  world_.AfterAlways(after_ns, [this, agent] {
    if (!world_.up(agent->node())) agent->Start();
  });
}

void SimFleet::BreakAgent(SimAgent* agent) {
  support::Rng& rng = world_.rng();
  switch (rng.Uniform(9)) {
    case 0:
      agent->Drain();
      return;
    case 3: {
      const int device = static_cast<int>(rng.Uniform(4));
      agent->BreakDevice(device, true);
      ++counts_.broken;
      world_.AfterAlways(world_.Between(5 * kSecond, 120 * kSecond),
                         [agent, device] { agent->BreakDevice(device, false); });
      return;
    }
    case 1: {
      agent->Vanish(static_cast<int>(rng.Uniform(4)), rng.Bernoulli(0.5));
      return;
    }
    case 2: {
      ++counts_.disks_full;
      world_.Tell(agent->name() + ": the disk is full");
      agent->spool_file().full = true;
      world_.AfterAlways(world_.Between(kSecond, 20 * kSecond),
                         [agent] { agent->spool_file().full = false; });
      return;
    }
    default:
      break;
  }
  if (!world_.up(agent->node())) return;
  const bool power = rng.Bernoulli(0.35);
  (power ? counts_.power_cuts : counts_.kills) += 1;
  agent->Crash(power);
  Restart(agent, world_.Between(50 * kMs, 90 * kSecond));
}

void SimFleet::BreakTracker() {
  support::Rng& rng = world_.rng();
  switch (rng.Uniform(5)) {
    case 0:
      ++counts_.disks_full;
      world_.Tell("the tracker's disk is full");
      tracker_->disk_full = true;
      world_.AfterAlways(world_.Between(kSecond, 20 * kSecond),
                         [this] { tracker_->disk_full = false; });
      return;
    case 1:
      tracker_->LoseArtifacts(0.1);
      return;
    default:
      break;
  }
  if (!world_.up(tracker_->node())) return;
  tracker_->draining = rng.Bernoulli(0.3);
  if (tracker_->draining) {
    world_.AfterAlways(kSecond, [this] { KillTracker(); });
  } else {
    KillTracker();
  }
}

void SimFleet::KillTracker() {
  if (!chaos_ || !world_.up(tracker_->node())) return;
  ++counts_.kills;
  tracker_->Crash();
  world_.AfterAlways(world_.Between(100 * kMs, 15 * kSecond), [this] {
    if (!world_.up(tracker_->node())) tracker_->Start();
  });
}

void SimFleet::BreakNetwork() {
  ++counts_.cuts;
  support::Rng& rng = world_.rng();
  const bool agent_link = rng.Bernoulli(0.75);
  const int other = agent_link ? agents_[rng.Uniform(agents_.size())]->node() : tuner_->node();
  const int tracker = tracker_->node();
  const int way = static_cast<int>(rng.Uniform(3));  // there, back, both
  world_.Tell(StrCat("cut between tracker and ", world_.name(other), ", way ", way));
  if (way != 1) net_.Cut(other, tracker);
  if (way != 0) net_.Cut(tracker, other);
  world_.AfterAlways(world_.Between(kSecond / 2, 90 * kSecond), [this, other, tracker] {
    net_.Join(other, tracker);
    net_.Join(tracker, other);
  });
}

void SimFleet::BreakAdmin() {
  support::Rng& rng = world_.rng();
  if (rng.Bernoulli(0.1)) {
    tuner_->CancelJob(rng.Uniform(tuner_->jobs()));
    return;
  }
  const auto& agent = agents_[rng.Uniform(agents_.size())];
  const std::string device = agent->devices()[rng.Uniform(agent->devices().size())];
  if (!world_.up(tracker_->node())) return;
  tracker::LoopCall call;
  if (rng.Bernoulli(0.3)) {
    v1::CreateHoldRequest request;
    request.mutable_hold()->set_device(device);
    request.mutable_hold()->set_holder("somebody");
    request.mutable_ttl()->set_seconds(1 + static_cast<int64_t>(rng.Uniform(60)));
    call.apply = [request](tracker::DevicePool& pool, tracker::Now now) {
      return pool.CreateHold(request, now).status();
    };
  } else {
    v1::SetDeviceAdminStateRequest request;
    request.set_name(device);
    request.set_admin_state(rng.Bernoulli(0.5) ? v1::ADMIN_STATE_DRAINING
                                               : v1::ADMIN_STATE_ENABLED);
    request.set_kill_running(rng.Bernoulli(0.5));
    call.apply = [request](tracker::DevicePool& pool, tracker::Now now) {
      return pool.SetAdminState(request, now).status();
    };
  }
  call.finish = [](const absl::Status&) {};
  tracker_->Post(std::move(call));
}

// Everything is repaired; what was broken stays as it was left.
void SimFleet::Heal() {
  chaos_ = false;
  world_.Tell("everything is repaired");
  net_.faults = {};
  net_.JoinAll();
  tracker_->disk_full = false;
  tuner_->faults = {};
  if (!world_.up(tracker_->node())) tracker_->Start();
  tracker_->draining = false;
  if (!world_.up(tuner_->node())) tuner_->Start();
  for (auto& agent : agents_) {
    agent->faults = {};
    agent->corrupt = 0;
    agent->spool_file().full = false;
    if (!world_.up(agent->node())) agent->Start();
    for (size_t i = 0; i < agent->devices().size(); ++i) {
      agent->Vanish(static_cast<int>(i), false);
      agent->BreakDevice(static_cast<int>(i), false);
    }
  }
  tracker::LoopCall enable;
  enable.apply = [this](tracker::DevicePool& pool, tracker::Now now) {
    for (auto& agent : agents_) {
      for (const std::string& device : agent->devices()) {
        v1::SetDeviceAdminStateRequest request;
        request.set_name(device);
        request.set_admin_state(v1::ADMIN_STATE_ENABLED);
        (void)pool.SetAdminState(request, now);  // one it never saw is enabled
      }
    }
    return absl::OkStatus();
  };
  enable.finish = [](const absl::Status&) {};
  tracker_->Post(std::move(enable));
}

// Since `before`.
int64_t SimFleet::BusiestNs(std::map<std::string, int64_t>* before) const {
  int64_t busiest_ns = 0;
  for (const auto& agent : agents_) {
    for (const auto& [device, measured_ns] : agent->measured_ns) {
      busiest_ns = std::max(busiest_ns, measured_ns - (*before)[device]);
    }
  }
  return busiest_ns;
}

void SimFleet::CheckEnd() {
  if (!tuner_->AllEnded()) {
    std::string text = "a job has not ended:\n" + tuner_->JobText();
    for (const v1::Device& device :
         tracker_->pool()->ListDevices("", "", SIZE_MAX, tracker_->now())) {
      text += StrCat(
          device.name(), " ", v1::Health_Name(device.health()), " ",
          v1::Activity_Name(device.activity()), " ", v1::AdminState_Name(device.admin_state()), " ",
          v1::Reachability_Name(device.reachability()), " ", device.current_lease(), "\n");
    }
    for (const auto& agent : agents_) text += agent->Text();
    const tracker::PoolStats stats = tracker_->pool()->stats(tracker_->now());
    world_.Fail(StrCat(text, "queued ", stats.queued, " leases ", stats.leases));
    return;
  }
  tuner_->Check(truth_);
  counts_.spared = tuner_->Spared();
  std::set<std::string> lost = truth_.Unanswered();
  for (const auto& agent : agents_) agent->RemoveUnacked(&lost);
  if (!lost.empty()) world_.Fail("a measurement never reached the tracker: " + *lost.begin());
}

}  // namespace tilewright::sim
