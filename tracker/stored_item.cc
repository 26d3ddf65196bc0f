#include "tracker/stored_item.h"

#include "deploy/support/duration.h"
#include "deploy/support/status.h"
#include "tracker/device_match.h"

namespace tilewright::tracker {
namespace {

constexpr int kDefaultPriority = 3;

double WeightOf(const v1::WorkItem& item) {
  return item.share_weight() > 0 ? item.share_weight() : 1;
}

int PriorityOf(const v1::WorkItem& item) {
  return item.priority() == 0 ? kDefaultPriority : item.priority();
}

std::string DigestsOf(const v1::Work& work) {
  std::string digests;
  digests.reserve(32);
  digests += work.artifact().hash();
  if (work.has_expected_output()) digests += work.expected_output().hash();
  if (work.has_baseline()) digests += work.baseline().hash();
  return digests;
}

const StoredItem::SharedTerms& NoTerms() {
  static const auto& terms =
      *new StoredItem::SharedTerms(std::make_shared<const ItemTerms>(v1::WorkItem()));
  return terms;
}

}  // namespace

ItemTerms::ItemTerms(const v1::WorkItem& item)
    : queue{{item.user(), item.job()},
            WeightOf(item),
            PriorityOf(item),
            item.max_batch(),
            Requirement{item.pool(), item.target(), item.selector()}.Key()},
      pool(item.pool()),
      target(item.target()),
      selector(item.selector()),
      invalid_retries(item.invalid_retries()) {}

bool ItemTerms::Fit(const v1::WorkItem& item) const {
  return queue.flow.job == item.job() && queue.flow.user == item.user() && pool == item.pool() &&
         target == item.target() && selector == item.selector() && queue.weight == WeightOf(item) &&
         queue.priority == PriorityOf(item) && queue.max_batch == item.max_batch() &&
         invalid_retries == item.invalid_retries();
}

StoredItem::StoredItem() : terms_(NoTerms()) {}

StoredItem::StoredItem(const v1::WorkItem& item, SharedTerms* last)
    : StoredItem(item, item.SerializeAsString(), last) {}

StoredItem::StoredItem(const v1::WorkItem& item, std::string bytes, SharedTerms* last)
    : name_(item.name()),
      bytes_(std::move(bytes)),
      digests_(DigestsOf(item.work())),
      queue_timeout_s_(support::DurationMs(item.queue_timeout()) / 1000),
      attempts_before_(item.attempts_before()),
      has_baseline_(item.work().has_baseline()) {
  if (last != nullptr && *last != nullptr && (*last)->Fit(item)) {
    terms_ = *last;
  } else {
    terms_ = std::make_shared<const ItemTerms>(item);
    if (last != nullptr) *last = terms_;
  }
}

v1::WorkItem StoredItem::Unpack() const {
  v1::WorkItem item;
  TW_CHECK(item.ParseFromString(bytes_)) << name_ << " was packed from a message";
  return item;
}

void StoredItem::Close() {
  v1::WorkItem kept;
  kept.set_name(name_);
  kept.set_job(job());
  kept.set_attempts_before(attempts_before_);
  bytes_ = kept.SerializeAsString();
  digests_ = std::string();
  queue_timeout_s_ = 0;
  has_baseline_ = false;
}

}  // namespace tilewright::tracker
