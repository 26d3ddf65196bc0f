// The part of DevicePool that deals in what consumers pull and acknowledge, and in forgetting what
// has ended.
#include <google/protobuf/util/time_util.h>

#include <algorithm>

#include "deploy/support/strings.h"
#include "tracker/device_pool.h"

namespace tilewright::tracker {
namespace {

constexpr int kDefaultPull = 256;
constexpr int kMaxPull = 1000;
// Of a round: what happens with each is some work for the database.
constexpr int kForgetAtOnce = 100;
// A message must fit into gRPC's limit together with its neighbours.
constexpr size_t kMaxPullBytes = 8 << 20;
constexpr char kDeliveredAgain[] = "work.delivered.again";

}  // namespace

std::string DevicePool::CursorText(int64_t seq) const {
  return support::StrCat(store_id_, "-", seq);
}

// 0 for an empty cursor and for one of another database; -1 for a text that is no cursor.
int64_t DevicePool::CursorSeq(const std::string& cursor) const {
  if (cursor.empty()) return 0;
  const size_t dash = cursor.rfind('-');
  if (dash == std::string::npos) return -1;
  const auto seq = support::ParseInt64(std::string_view(cursor).substr(dash + 1));
  if (!seq.has_value() || *seq < 0) return -1;
  return cursor.substr(0, dash) == store_id_ ? *seq : 0;
}

bool DevicePool::Pull(const v1::PullResultsRequest& request,
                      v1::PullResultsResponse* response) const {
  response->Clear();
  response->set_tracker_epoch(epoch_);
  const int64_t after = std::max<int64_t>(0, CursorSeq(request.cursor()));
  response->set_cursor(CursorText(after));
  const auto box = outbox_.find(request.consumer());
  if (box == outbox_.end()) return false;
  const int limit =
      request.max_updates() <= 0 ? kDefaultPull : std::min<int>(request.max_updates(), kMaxPull);
  size_t bytes = 0;
  for (auto it = box->second.upper_bound(after);
       it != box->second.end() && response->updates_size() < limit && bytes < kMaxPullBytes; ++it) {
    const OutboxRow& row = it->second;
    v1::WorkUpdate* update = response->add_updates();
    update->set_cursor(CursorText(row.seq));
    const auto item = items_.find(row.work_item);
    if (item != items_.end()) update->set_spec_hash(item->second.spec_hash);
    update->set_work_item(row.work_item);
    update->set_state(row.state);
    update->set_reason(row.reason);
    if (!row.measurement_id.empty()) *update->mutable_result() = row.result;
    *update->mutable_at() = google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(row.at_us);
    response->set_cursor(update->cursor());
    bytes += update->ByteSizeLong();
  }
  return response->updates_size() > 0;
}

absl::Status DevicePool::Acknowledge(const v1::AckResultsRequest& request) {
  const int64_t seq = CursorSeq(request.cursor());
  if (seq < 0) {
    return support::InvalidArgument("cursor.parse.invalid", support::Quote(request.cursor(), 80));
  }
  const auto box = outbox_.find(request.consumer());
  if (seq == 0 || box == outbox_.end()) return absl::OkStatus();
  const auto end = box->second.upper_bound(seq);
  outbox_size_ -= std::distance(box->second.begin(), end);
  for (auto it = box->second.begin(); it != end; ++it) {
    // The last update of an item that has ended.
    if (it->second.state != v1::WORK_STATE_QUEUED) MayForget(it->second.work_item);
  }
  box->second.erase(box->second.begin(), end);
  int64_t& acked = changes_.acked[request.consumer()];
  acked = std::max(acked, seq);
  return absl::OkStatus();
}

void DevicePool::DeliverAgain(const std::string& work_item, std::vector<ResultRow> results,
                              Now now) {
  const auto it = items_.find(work_item);
  if (it == items_.end() || forgettable_.erase({it->second.closed_ns, work_item}) == 0) return;
  const WorkRow& row = it->second;
  std::sort(results.begin(), results.end(), [](const ResultRow& a, const ResultRow& b) {
    return a.result.attempt() < b.result.attempt();
  });
  // The result that came with the end: the accepted one, or the crash that proved it poison.
  const v1::MeasurementResult* last = nullptr;
  for (const ResultRow& one : results) {
    if (one.disposition != v1::DISPOSITION_STORED) continue;
    const auto index = static_cast<size_t>(one.result.attempt() - row.item.attempts_before()) - 1;
    const bool accepted = index < row.attempts.size() && row.attempts[index].accepted;
    if (accepted || row.state == v1::WORK_STATE_QUARANTINED) last = &one.result;
  }
  for (const ResultRow& one : results) {
    if (one.disposition != v1::DISPOSITION_STORED || &one.result == last) continue;
    AppendUpdate(row, v1::WORK_STATE_QUEUED, kDeliveredAgain, &one.result, now);
  }
  const bool done = row.state == v1::WORK_STATE_DONE;
  AppendUpdate(row, row.state, done ? "" : kDeliveredAgain, last, now);
}

void DevicePool::FailOverdueWork(Now now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now.mono_ns) {
    const std::string name = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    const auto it = items_.find(name);
    if (it == items_.end() || !it->second.open()) continue;
    if (it->second.state == v1::WORK_STATE_LEASED) {
      deadlines_.emplace(now.mono_ns + kSecondNs, name);  // let it finish; look again
      continue;
    }
    Close(&it->second, v1::WORK_STATE_FAILED, "work.queue.timeout", "", now);
  }
}

void DevicePool::MayForget(const std::string& work_item) {
  const auto it = items_.find(work_item);
  if (it == items_.end() || it->second.open()) return;
  forgettable_.emplace(it->second.closed_ns, work_item);
}

void DevicePool::ForgetClosedWork(Now now) {
  for (int i = 0; i < kForgetAtOnce && !forgettable_.empty(); ++i) {
    const auto oldest = forgettable_.begin();
    const bool old = oldest->first + options_.keep_closed_ns <= now.mono_ns;
    if (!old && forgettable_.size() <= options_.max_closed) return;
    dirty_items_.erase(oldest->second);
    items_.erase(oldest->second);
    changes_.forgotten.push_back(oldest->second);
    forgettable_.erase(oldest);
  }
}

}  // namespace tilewright::tracker
