// Decides when the operator's command that power-cycles or resets a device may run: once per order,
// with a least interval and a limit per day. A state machine without clock, threads or files: the
// agent runs the command and keeps the history. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tilewright/v1/agent.pb.h"

namespace tilewright::device_agent {

struct ResetOptions {
  std::string command;  // for /bin/sh -c; empty = this device cannot be reset
  int64_t timeout_ms = 60'000;
  int64_t min_interval_ms = 600'000;
  int max_per_day = 12;
};

// Runs that were begun, oldest first; what must survive a restart of the agent.
struct ResetRun {
  std::string request;
  int64_t begun_us = 0;  // wall clock
  bool operator==(const ResetRun&) const = default;
};

class ResetHook {
 public:
  // A run in the history without an end was cut off with the agent: it counts as failed.
  ResetHook(ResetOptions options, std::vector<ResetRun> history);

  bool can_reset() const { return !options_.command.empty(); }
  const ResetOptions& options() const { return options_; }

  // Applies an order of the tracker. If it returns true: store history(), run the command, call
  // OnEnd. An order that is known has no effect; one that may not run is refused in report().
  bool OnOrder(const v1::ResetOrder& order, int64_t now_us);

  // The command has ended: `failure` is ok for status 0.
  void OnEnd(const absl::Status& failure, const std::string& output_tail);

  // The newest order; empty request before the first one.
  const v1::ResetReport& report() const { return report_; }
  const std::vector<ResetRun>& history() const { return history_; }

  // The history as lines of text, and back. data_loss (agent.reset.history) for anything else.
  static std::string ToText(const std::vector<ResetRun>& history);
  static absl::StatusOr<std::vector<ResetRun>> FromText(const std::string& text);

 private:
  void Refuse(const std::string& why);

  const ResetOptions options_;
  std::vector<ResetRun> history_;
  v1::ResetReport report_;
};

}  // namespace tilewright::device_agent
