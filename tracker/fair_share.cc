#include "tracker/fair_share.h"

#include <algorithm>
#include <limits>

namespace tilewright::tracker {
namespace {

// Expected of an item before the first one of its device class was measured.
constexpr double kUnknownItemSeconds = 1;
// Weight of what is known when new batches are learned from: the last five or so count.
constexpr double kMemory = 0.8;
// Names that take no part any more are forgotten beyond this many.
constexpr size_t kMaxNames = 1000;

}  // namespace

void VirtualClock::Compete(const std::set<std::string>& names) {
  const auto goes_on = [this](const Tag& tag) {
    return tag.in_service > 0 || (tag.turn != 0 && tag.turn == turn_);
  };
  double least = std::numeric_limits<double>::infinity();
  for (const std::string& name : names) {
    const Tag& tag = tags_[name];
    if (goes_on(tag)) least = std::min(least, tag.start);
  }
  if (least != std::numeric_limits<double>::infinity()) floor_ = std::max(floor_, least);
  for (const std::string& name : names) {
    Tag& tag = tags_[name];
    if (!goes_on(tag)) tag.start = std::max(tag.start, floor_);
  }
  ++turn_;
  for (const std::string& name : names) tags_[name].turn = turn_;
  if (tags_.size() > names.size() + kMaxNames) Forget();
}

// A name at or below the floor would start at the floor again: nothing is lost with it. Only those
// that were served far ahead are forgiven.
void VirtualClock::Forget() {
  std::erase_if(tags_, [this](const auto& entry) {
    return entry.second.in_service == 0 && entry.second.turn != turn_;
  });
}

double VirtualClock::start(const std::string& name) const {
  const auto it = tags_.find(name);
  return it == tags_.end() ? floor_ : it->second.start;
}

void VirtualClock::Charge(const std::string& name, double cost) { tags_[name].start += cost; }

void VirtualClock::EndService(const std::string& name) {
  Tag& tag = tags_[name];
  tag.in_service = std::max(0, tag.in_service - 1);
}

void FairShare::Compete(const std::string& device_class, const std::set<Flow>& flows) {
  Class& one = classes_[device_class];
  std::map<std::string, std::set<std::string>> jobs_of;
  for (const Flow& flow : flows) jobs_of[flow.user].insert(flow.job);
  std::set<std::string> users;
  for (const auto& [user, jobs] : jobs_of) {
    users.insert(user);
    one.user[user].jobs.Compete(jobs);
  }
  one.users.Compete(users);
}

FairShare::Rank FairShare::RankOf(const std::string& device_class, const Flow& flow) const {
  const auto one = classes_.find(device_class);
  if (one == classes_.end()) return {};
  const auto user = one->second.user.find(flow.user);
  return {one->second.users.start(flow.user),
          user == one->second.user.end() ? 0.0 : user->second.jobs.start(flow.job)};
}

double FairShare::ItemSeconds(const std::string& device_class, const Flow& flow) const {
  const auto one = classes_.find(device_class);
  if (one == classes_.end()) return kUnknownItemSeconds;
  const auto known = [](const Cost& cost, double otherwise) {
    return cost.items > 0 ? cost.seconds / cost.items : otherwise;
  };
  const double usual = known(one->second.cost, kUnknownItemSeconds);
  const auto user = one->second.user.find(flow.user);
  if (user == one->second.user.end()) return usual;
  const auto job = user->second.job.find(flow.job);
  return job == user->second.job.end() ? usual : known(job->second.cost, usual);
}

void FairShare::Begin(const std::string& device_class, const Flow& flow, double weight) {
  Class& one = classes_[device_class];
  UserShare& user = one.user[flow.user];
  JobShare& job = user.job[flow.job];
  job.weight = weight;
  ++job.in_service;
  one.users.BeginService(flow.user);
  user.jobs.BeginService(flow.job);
}

void FairShare::Charge(const std::string& device_class, const Flow& flow, double seconds) {
  Class& one = classes_[device_class];
  UserShare& user = one.user[flow.user];
  one.users.Charge(flow.user, seconds / policy_.Of(flow.user).weight);
  user.jobs.Charge(flow.job, seconds / user.job[flow.job].weight);
}

void FairShare::Learn(Cost* cost, double seconds, int items) {
  cost->seconds = kMemory * cost->seconds + seconds;
  cost->items = kMemory * cost->items + items;
}

void FairShare::End(const std::string& device_class, const Flow& flow, double seconds, int items) {
  Class& one = classes_[device_class];
  UserShare& user = one.user[flow.user];
  JobShare& job = user.job[flow.job];
  one.users.EndService(flow.user);
  user.jobs.EndService(flow.job);
  job.in_service = std::max(0, job.in_service - 1);
  if (items > 0) {
    Learn(&job.cost, seconds, items);
    Learn(&one.cost, seconds, items);
  }
  if (user.job.size() <= kMaxNames) return;
  std::erase_if(user.job, [&](const auto& entry) {
    return entry.second.in_service == 0 && entry.first != flow.job;
  });
}

}  // namespace tilewright::tracker
