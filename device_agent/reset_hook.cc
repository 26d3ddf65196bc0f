#include "device_agent/reset_hook.h"

#include <algorithm>
#include <utility>

#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

constexpr int64_t kDayUs = int64_t{86'400} * 1'000'000;
constexpr size_t kMaxHistory = 100;
constexpr size_t kMaxDetail = 1000;

}  // namespace

ResetHook::ResetHook(ResetOptions options, std::vector<ResetRun> history)
    : options_(std::move(options)), history_(std::move(history)) {
  if (history_.empty()) return;
  report_.set_request(history_.back().request);
  report_.set_state(v1::RESET_STATE_FAILED);
  report_.set_detail("the agent was restarted since; how it ended is not known");
}

void ResetHook::Refuse(const std::string& why) {
  report_.set_state(v1::RESET_STATE_REFUSED);
  report_.set_detail(why);
}

bool ResetHook::OnOrder(const v1::ResetOrder& order, int64_t now_us) {
  if (order.request().empty() || order.request() == report_.request()) return false;
  if (report_.state() == v1::RESET_STATE_RUNNING) return false;  // it will be sent again
  const bool known = std::any_of(history_.begin(), history_.end(), [&](const ResetRun& run) {
    return run.request == order.request();
  });
  if (known) return false;  // an answer that was overtaken
  report_.set_request(order.request());
  report_.clear_detail();
  if (!can_reset()) {
    Refuse("no reset command is configured");
    return false;
  }
  // A wall clock that was set back must neither block resets nor allow them without end: what lies
  // in the future counts as now.
  int today = 0;
  int64_t last_us = -kDayUs;
  for (ResetRun& run : history_) {
    run.begun_us = std::min(run.begun_us, now_us);
    last_us = std::max(last_us, run.begun_us);
    today += now_us - run.begun_us < kDayUs ? 1 : 0;
  }
  const int64_t wait_us = options_.min_interval_ms * 1000 - (now_us - last_us);
  if (!history_.empty() && wait_us > 0) {
    Refuse(support::StrCat("too soon after the last one: ", wait_us / 1'000'000, " s to wait"));
    return false;
  }
  if (today >= options_.max_per_day) {
    Refuse(support::StrCat("the limit of ", options_.max_per_day, " a day is reached"));
    return false;
  }
  history_.push_back({order.request(), now_us});
  if (history_.size() > kMaxHistory) history_.erase(history_.begin());
  report_.set_state(v1::RESET_STATE_RUNNING);
  return true;
}

void ResetHook::OnEnd(const absl::Status& failure, const std::string& output_tail) {
  report_.set_state(failure.ok() ? v1::RESET_STATE_DONE : v1::RESET_STATE_FAILED);
  std::string detail = failure.ok() ? "" : support::StatusText(failure);
  if (!output_tail.empty()) {
    if (!detail.empty()) detail += "; ";
    detail += "it printed " + support::Quote(output_tail, kMaxDetail);
  }
  report_.set_detail(detail);
}

std::string ResetHook::ToText(const std::vector<ResetRun>& history) {
  std::string text;
  for (const ResetRun& run : history) text += support::StrCat(run.begun_us, " ", run.request, "\n");
  return text;
}

absl::StatusOr<std::vector<ResetRun>> ResetHook::FromText(const std::string& text) {
  std::vector<ResetRun> history;
  for (const std::string& line : support::Split(text, '\n')) {
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    const auto begun = support::ParseInt64(std::string_view(line).substr(0, space));
    if (space == std::string::npos || !begun) {
      return support::DataLoss("agent.reset.history",
                               "expected TIME REQUEST, found " + support::Quote(line, 80));
    }
    history.push_back({line.substr(space + 1), *begun});
  }
  return history;
}

}  // namespace tilewright::device_agent
