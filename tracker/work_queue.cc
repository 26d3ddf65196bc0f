#include "tracker/work_queue.h"

#include <algorithm>
#include <set>

#include "deploy/support/status.h"

namespace tilewright::tracker {
namespace {

// The class that counts now.
int AgedClass(int priority, int64_t waited_ns, int64_t age_class_ns) {
  const int64_t risen = age_class_ns > 0 ? waited_ns / age_class_ns : 0;
  return static_cast<int>(std::max<int64_t>(kMostUrgent, priority - risen));
}

}  // namespace

void WorkQueue::Add(const std::string& name, int64_t seq, const QueueTerms& terms, int64_t now_ns) {
  Groups& groups = by_requirement_[terms.requirement];
  auto group = groups.find(GroupView(terms.priority, terms.flow));
  if (group == groups.end())
    group = groups.emplace(GroupKey(terms.priority, terms.flow), Group()).first;
  auto& items = group->second.items;
  if (items.empty()) group->second.since_ns = now_ns;
  const size_t before = items.size();
  // Mostly it is the newest of its job.
  items.emplace_hint(items.end(), seq, Waiting{name, terms.weight, terms.max_batch});
  TW_CHECK(items.size() == before + 1) << name << " is queued twice";
  ++size_;
}

bool WorkQueue::Contains(int64_t seq, const QueueTerms& terms) const {
  const auto groups = by_requirement_.find(terms.requirement);
  if (groups == by_requirement_.end()) return false;
  const auto group = groups->second.find(GroupView(terms.priority, terms.flow));
  return group != groups->second.end() && group->second.items.count(seq) != 0;
}

bool WorkQueue::Remove(int64_t seq, const QueueTerms& terms) {
  const auto groups = by_requirement_.find(terms.requirement);
  if (groups == by_requirement_.end()) return false;
  const auto group = groups->second.find(GroupView(terms.priority, terms.flow));
  if (group == groups->second.end() || group->second.items.erase(seq) == 0) return false;
  --size_;
  if (group->second.items.empty()) groups->second.erase(group);
  if (groups->second.empty()) by_requirement_.erase(groups);
  return true;
}

// All that the device could take in the most urgent class that has anything.
std::vector<WorkQueue::Candidate> WorkQueue::FirstClass(const TakeRequest& request) {
  std::vector<Candidate> first;
  std::map<std::string, bool> admitted;
  for (auto& [requirement, groups] : by_requirement_) {
    if (!request.matches(requirement)) continue;
    for (auto& [key, group] : groups) {
      const int age_class =
          AgedClass(key.first, request.now_ns - group.since_ns, request.age_class_ns);
      if (!first.empty() && age_class > first.front().age_class) continue;
      if (request.admits) {
        const auto [it, fresh] = admitted.try_emplace(key.second.user, false);
        if (fresh) it->second = request.admits(key.second.user);
        if (!it->second) continue;
      }
      if (!first.empty() && age_class < first.front().age_class) first.clear();
      first.push_back({{key.second, 1, key.first, 0, requirement}, &group, age_class});
    }
  }
  return first;
}

Batch WorkQueue::Take(const TakeRequest& request, FairShare* share) {
  Batch batch;
  const std::vector<Candidate> candidates = FirstClass(request);
  if (candidates.empty()) return batch;
  std::set<Flow> flows;
  for (const Candidate& one : candidates) flows.insert(one.terms.flow);
  share->Compete(request.device_class, flows);
  const auto rank = [&](const Candidate& one) {
    return std::tuple(share->RankOf(request.device_class, one.terms.flow), one.group->since_ns,
                      one.group->items.begin()->first);
  };
  const Candidate best =
      *std::min_element(candidates.begin(), candidates.end(),
                        [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  batch.flow = best.terms.flow;
  batch.weight = best.group->items.begin()->second.weight;
  batch.item_seconds = share->ItemSeconds(request.device_class, best.terms.flow);
  best.group->since_ns = request.now_ns;
  int limit = request.default_batch;
  std::vector<int64_t> taken;
  for (const auto& [seq, work] : best.group->items) {
    // The first item decides the size of the batch when it has a wish; later ones only shrink it.
    const int wish = std::min(work.max_batch, request.max_batch);
    if (batch.names.empty() && wish > 0) limit = wish;
    if (wish > 0) limit = std::min(limit, wish);
    const double taken_s = batch.item_seconds * static_cast<double>(batch.names.size() + 1);
    if (!batch.names.empty() && taken_s > request.quantum_s) break;
    if (static_cast<int>(batch.names.size()) >= limit) break;
    batch.names.push_back(work.name);
    taken.push_back(seq);
  }
  for (const int64_t seq : taken) Remove(seq, best.terms);
  return batch;
}

int64_t WorkQueue::Count(const std::function<bool(const std::string&)>& matches) const {
  int64_t count = 0;
  for (const auto& [requirement, groups] : by_requirement_) {
    if (!matches(requirement)) continue;
    for (const auto& [key, group] : groups) count += static_cast<int64_t>(group.items.size());
  }
  return count;
}

}  // namespace tilewright::tracker
