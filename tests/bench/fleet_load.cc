// A tracker under the load of a large laboratory: mutual TLS, tokens, every commit durable, client
// and server on this machine. Prints one JSON object: how long all agents take to connect, the
// tracker's memory for each, dispatch latency under steady work (from the moment an item is due to
// the moment an agent has it in hand), how long all agents take to be back after a kill -9 under
// that work, and what became of every item.
//
//   fleet_load [AGENTS] [ITEMS_PER_S] [SECONDS] [MEASURE_MS] [STATE_DIR]
//   default    1000     500           30        500
//
// STATE_DIR is the tracker's, removed first; certificates are in the temporary folder.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/swarm_fleet.h"

namespace tilewright {
namespace {

constexpr int64_t kPatienceMs = 120'000;
constexpr int64_t kSettleMs = 2'000;

support::SystemClock g_clock;

double SecondsSince(int64_t start_ns) {
  return static_cast<double>(g_clock.NowNs() - start_ns) * 1e-9;
}

void Must(const absl::Status& status) { TW_CHECK(status.ok()) << status; }

nlohmann::json Latency(const std::vector<double>& ms) {
  return {{"count", ms.size()},
          {"p50_ms", tests::Quantile(ms, 0.5)},
          {"p90_ms", tests::Quantile(ms, 0.9)},
          {"p99_ms", tests::Quantile(ms, 0.99)},
          {"max_ms", tests::Quantile(ms, 1)}};
}

// Dispatch latency and the tracker's load while everything is well.
nlohmann::json Steady(tests::SwarmFleet* fleet, double seconds) {
  fleet->StartWork();
  support::SleepMs(kSettleMs);
  (void)fleet->work()->TakeDispatchMs();
  const double cpu_before = fleet->CpuSeconds();
  const int64_t begin_ns = g_clock.NowNs();
  const int64_t acknowledged = fleet->swarm()->counts().acknowledged;
  support::SleepMs(static_cast<int64_t>(seconds * 1000));
  const double took_s = SecondsSince(begin_ns);
  nlohmann::json found = Latency(fleet->work()->TakeDispatchMs());
  found["seconds"] = took_s;
  found["tracker_cores"] = (fleet->CpuSeconds() - cpu_before) / took_s;
  found["results_per_s"] =
      static_cast<double>(fleet->swarm()->counts().acknowledged - acknowledged) / took_s;
  return found;
}

nlohmann::json KillAndReturn(tests::SwarmFleet* fleet, int agents) {
  const uint64_t epoch = fleet->swarm()->Epoch();
  const int64_t killed_ns = g_clock.NowNs();
  Must(fleet->KillTracker());
  Must(fleet->RestartTracker());
  nlohmann::json found{{"listening_s", SecondsSince(killed_ns)}};
  for (const int percent : {10, 50, 90}) {
    while (fleet->swarm()->Synced(epoch + 1) * 100 < agents * percent &&
           SecondsSince(killed_ns) * 1000 < kPatienceMs) {
      support::SleepMs(5);
    }
    found[support::StrCat("agents_", percent, "_percent_s")] = SecondsSince(killed_ns);
  }
  Must(fleet->WaitUntilSynced(epoch, kPatienceMs));
  found["all_agents_s"] = SecondsSince(killed_ns);
  return found;
}

nlohmann::json Ended(tests::SwarmFleet* fleet) {
  const bool all = fleet->work()->Finish(kPatienceMs);
  const tests::WorkCounts work = fleet->work()->counts();
  const tests::SwarmCounts agents = fleet->swarm()->counts();
  return {{"all_ended", all},
          {"submitted", work.submitted},
          {"refused", work.refused},
          {"ended", work.ended},
          {"ended_not_done", work.ended_not_done},
          {"ended_twice", work.ended_twice},
          {"results_twice", work.results_twice},
          {"measured", agents.measured},
          {"acknowledged", agents.acknowledged},
          {"failed_calls", agents.failed_calls}};
}

int Main(int argc, char** argv) {
  tests::SwarmFleetOptions options;
  options.agents = argc > 1 ? std::atoi(argv[1]) : 1000;
  options.items_per_s = argc > 2 ? std::atof(argv[2]) : 500;
  const double seconds = argc > 3 ? std::atof(argv[3]) : 30;
  options.measure_ms = argc > 4 ? std::atoi(argv[4]) : 500;
  if (argc > 5) options.state_dir = argv[5];
  if (argc > 5) Must(support::RemoveTree(options.state_dir));
  TW_CHECK(options.agents > 0 && options.items_per_s > 0 && seconds > 0 && options.measure_ms > 0)
      << "usage: fleet_load [AGENTS] [ITEMS_PER_S] [SECONDS] [MEASURE_MS] [STATE_DIR]";
  auto created = tests::SwarmFleet::Create(options);
  Must(created.status());
  tests::SwarmFleet* fleet = created->get();
  nlohmann::json report{{"agents", options.agents},
                        {"items_per_s", options.items_per_s},
                        {"measure_ms", options.measure_ms}};
  const double empty_kb = fleet->RssKb();
  const int64_t begin_ns = g_clock.NowNs();
  Must(fleet->ConnectAgents(kPatienceMs));
  report["connect_s"] = SecondsSince(begin_ns);
  support::SleepMs(kSettleMs);
  report["kb_per_agent"] = (fleet->RssKb() - empty_kb) / options.agents;
  report["dispatch"] = Steady(fleet, seconds);
  report["kb_per_agent_under_load"] = (fleet->RssKb() - empty_kb) / options.agents;
  report["restart"] = KillAndReturn(fleet, options.agents);
  report["work"] = Ended(fleet);
  std::printf("%s\n", report.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) { return tilewright::Main(argc, argv); }
