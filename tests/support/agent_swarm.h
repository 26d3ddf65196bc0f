// Many agents in one process: each has its own session, connection and certificate, decides with
// the agent's own core (device_agent/agent_core.h) and speaks the real protocol in the order in
// which the agent does, but measures by waiting and remembers in memory. For load on a tracker.
// Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/mutex.h"
#include "tilewright/v1/agent.pb.h"

namespace tilewright::tests {

// Runs functions at their time, one after the other, on a thread of its own.
class Alarms {
 public:
  Alarms();
  ~Alarms();  // what is not due yet is forgotten
  void After(int64_t delay_ms, std::function<void()> run);

 private:
  void Run();

  support::SystemClock clock_;
  support::Mutex mutex_;
  support::CondVar changed_;
  std::multimap<int64_t, std::function<void()>> due_ TW_GUARDED_BY(mutex_);
  bool stop_ TW_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

struct SwarmOptions {
  std::string address;  // of the tracker
  int64_t measure_ms = 500;
  int64_t sync_hold_ms = 10'000;  // as tilewright-agent has it by default
  // Told of each work item when a grant with it is there: its name and attempt.
  std::function<void(const std::string&, int)> on_grant;
};

// What all agents together did.
struct SwarmCounts {
  int64_t sync_answers = 0;
  int64_t failed_calls = 0;
  int64_t measured = 0;
  int64_t acknowledged = 0;
};

class SwarmAgent;

class AgentSwarm {
 public:
  explicit AgentSwarm(SwarmOptions options);
  ~AgentSwarm();  // stops

  // Connects an agent with one device that reports so; credentials null = plain text.
  void Add(const std::string& name, const v1::DeviceReport& device,
           const std::shared_ptr<grpc::ChannelCredentials>& credentials);
  // Ends all calls and waits for them.
  void Stop();

  // How many agents' newest answer is of a tracker of this epoch, or a later one.
  int Synced(uint64_t epoch) const;
  // The highest epoch that any agent has seen.
  uint64_t Epoch() const;
  SwarmCounts counts() const;

 private:
  const SwarmOptions options_;
  std::vector<std::unique_ptr<SwarmAgent>> agents_;
  Alarms alarms_;  // goes before the agents that it calls
};

}  // namespace tilewright::tests
