// Content-addressed files on disk: each blob is named by the SHA-256 of its bytes, written
// atomically, verified whenever it is read. A corrupt blob is removed and reported as data_loss, so
// that its owner uploads it again. Thread-safe; several objects or processes must not share a
// folder (the daemons' lock of the state folder prevents it).
//
// Layout: DIR/objects/ab/<64 hexadecimal digits>, DIR/tmp for writes in progress (emptied at open).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/mutex.h"
#include "deploy/support/status.h"

namespace tilewright::daemon {

class BlobStore {
 public:
  // Whether a blob survives a power cut.
  //   kSynced  yes, from Put or Commit on
  //   kSoon    soon: a thread of the store syncs it later; for blobs that their owner sends again
  //            if they are missing
  //   kCache   perhaps not: a read finds it damaged and it is made again; far cheaper
  enum class Durability { kSynced, kSoon, kCache };

  // Creates the folder if missing.
  static absl::StatusOr<std::unique_ptr<BlobStore>> Open(
      const std::string& dir, Durability durability = Durability::kSynced);

  ~BlobStore();

  // `hex` is always a lower-case hexadecimal SHA-256; anything else is never contained.
  bool Contains(std::string_view hex) const;

  // Stores the bytes; returns their name. Storing what is there already costs one hash.
  absl::StatusOr<std::string> Put(std::string_view data);
  // data_loss (artifact.write.digest_mismatch) when the bytes are not what `hex` names.
  absl::Status PutVerified(std::string_view hex, std::string_view data);

  // Writes a blob piece by piece; nothing is visible before Commit, and everything is removed
  // without one. One owner, one thread at a time.
  class Writer {
   public:
    ~Writer();
    absl::Status Append(std::string_view data);
    int64_t size() const { return size_; }
    // Makes the blob durable and visible. data_loss (artifact.write.digest_mismatch) when
    // `expected_hex` is not empty and differs. Returns the name. REQUIRES: called once, last.
    absl::StatusOr<std::string> Commit(std::string_view expected_hex);

   private:
    friend class BlobStore;
    Writer(BlobStore* store, std::string path, int fd)
        : store_(store), path_(std::move(path)), fd_(fd) {}
    BlobStore* store_;
    std::string path_;
    int fd_;
    int64_t size_ = 0;
    support::Sha256 hash_;
  };
  absl::StatusOr<std::unique_ptr<Writer>> NewWriter();

  // The whole blob, verified. not_found (artifact.read.not_found), data_loss
  // (artifact.read.corrupt; the blob is removed).
  absl::StatusOr<std::string> Get(std::string_view hex);

  // A mapping of the whole blob, verified; stays valid when the blob is removed.
  absl::StatusOr<support::MappedFile> Map(std::string_view hex);

  // Verifies the blob and returns the path of its file.
  absl::StatusOr<std::string> Path(std::string_view hex);

  // not_found (artifact.read.not_found). Does not read the blob.
  absl::StatusOr<int64_t> Size(std::string_view hex) const;

  absl::Status Remove(std::string_view hex);

  int64_t total_bytes() const;
  int64_t count() const;

  // Removes least recently used blobs until at most max_bytes are left, never one for which `keep`
  // says true. Returns how many it removed. `keep` must not call back into this store.
  int64_t Collect(int64_t max_bytes, const std::function<bool(const std::string&)>& keep);

 private:
  struct Entry {
    int64_t size = 0;
    uint64_t last_use = 0;
  };

  BlobStore(std::string dir, Durability durability)
      : dir_(std::move(dir)), durability_(durability) {}
  absl::Status Scan();
  std::string PathOf(std::string_view hex) const;
  std::string NewTempPath();
  void Note(const std::string& hex, int64_t size);
  void Touch(std::string_view hex);
  void Forget(const std::string& hex);
  // kSoon: what the thread does, and one blob of it.
  void SyncBehind();
  void SyncLater(const std::string& hex);
  static absl::Status SyncFile(const std::string& path);

  const std::string dir_;
  const Durability durability_;
  mutable support::Mutex mutex_;
  std::map<std::string, Entry, std::less<>> entries_ TW_GUARDED_BY(mutex_);
  int64_t total_bytes_ TW_GUARDED_BY(mutex_) = 0;
  uint64_t use_counter_ TW_GUARDED_BY(mutex_) = 0;
  uint64_t temp_counter_ TW_GUARDED_BY(mutex_) = 0;
  support::CondVar unsynced_there_;
  std::vector<std::string> unsynced_ TW_GUARDED_BY(mutex_);
  bool ending_ TW_GUARDED_BY(mutex_) = false;
  std::thread syncer_;
};

}  // namespace tilewright::daemon
