// Runs the operator's reset command when the tracker orders it: one thread, one command at a time,
// killed at its time limit. ResetHook decides what may run; this class stores its history in the
// state folder and runs the processes. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/mutex.h"
#include "deploy/support/status.h"
#include "device_agent/reset_hook.h"

namespace tilewright::device_agent {

class ResetRunner {
 public:
  // Called for every change of a device's report, from any thread, without a lock of this class.
  using Sink = std::function<void(const std::string& device, const v1::ResetReport&)>;

  // Reads the histories and calls the sink for each immediately. The command gets the device's name
  // and the reason in the variables DEVICE and REASON. data_loss for a damaged history.
  static absl::StatusOr<std::unique_ptr<ResetRunner>> Create(
      const ResetOptions& options, const std::vector<std::string>& devices,
      const std::string& state_dir, support::Clock* clock, Sink sink);
  // Kills what runs.
  ~ResetRunner();

  // Accepts an order of the tracker, also a known one. Returns immediately.
  void Order(const v1::ResetOrder& order) TW_EXCLUDES(mutex_);

 private:
  ResetRunner(std::string state_dir, support::Clock* clock, Sink sink)
      : state_dir_(std::move(state_dir)), clock_(clock), sink_(std::move(sink)) {}
  std::string PathOf(const std::string& device) const;
  void Run();
  void RunOne(const v1::ResetOrder& order);
  // Ok when the command ended with status 0; `tail` is the end of what it printed.
  absl::Status Execute(const v1::ResetOrder& order, const ResetOptions& options, std::string* tail);

  const std::string state_dir_;
  support::Clock* const clock_;
  const Sink sink_;
  support::Mutex mutex_;
  support::CondVar changed_;
  std::map<std::string, ResetHook> hooks_ TW_GUARDED_BY(mutex_);  // by device
  std::deque<v1::ResetOrder> to_run_ TW_GUARDED_BY(mutex_);
  bool stopping_ TW_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tilewright::device_agent
