// A work item as the tracker keeps it, in memory and in its database: the bytes of the message, and
// the few fields on which decisions depend. A million parsed messages would take two gigabytes and
// most of a restart. Plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tilewright/v1/dispatch.pb.h"
#include "tracker/fair_share.h"
#include "tracker/work_queue.h"

namespace tilewright::tracker {

// What the items of one job mostly have in common, stored once for items that follow each other.
struct ItemTerms {
  QueueTerms queue;
  std::string pool;
  std::string target;
  std::string selector;
  int invalid_retries = 0;

  explicit ItemTerms(const v1::WorkItem& item);
  bool Fit(const v1::WorkItem& item) const;
};

class StoredItem {
 public:
  using SharedTerms = std::shared_ptr<const ItemTerms>;

  StoredItem();
  // `last`: in, the terms of the item packed before it, which this one shares if they are equal;
  // out, this item's terms. Null: this item shares no terms.
  explicit StoredItem(const v1::WorkItem& item, SharedTerms* last = nullptr);
  // The same from the bytes of `item`, which the caller has parsed.
  StoredItem(const v1::WorkItem& item, std::string bytes, SharedTerms* last);

  const std::string& name() const { return name_; }
  const std::string& job() const { return terms_->queue.flow.job; }
  const std::string& user() const { return terms_->queue.flow.user; }
  const ItemTerms& terms() const { return *terms_; }
  int attempts_before() const { return attempts_before_; }
  bool has_baseline() const { return has_baseline_; }
  int64_t queue_timeout_s() const { return queue_timeout_s_; }  // 0 = none
  // SHA-256 of the artifacts that it needs, 32 bytes each, one after the other.
  const std::string& digests() const { return digests_; }

  const std::string& SerializeAsString() const { return bytes_; }
  v1::WorkItem Unpack() const;
  // The item will not be measured again: only name, job and attempts_before stay in the bytes.
  void Close();

 private:
  std::string name_;
  std::string bytes_;
  std::string digests_;
  SharedTerms terms_;
  int64_t queue_timeout_s_ = 0;
  int attempts_before_ = 0;
  bool has_baseline_ = false;
};

}  // namespace tilewright::tracker
