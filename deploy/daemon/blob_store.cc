#include "deploy/daemon/blob_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "deploy/support/failpoint.h"
#include "deploy/support/strings.h"

namespace tilewright::daemon {
namespace {

absl::Status NoSuchBlob(std::string_view hex) {
  return support::NotFound("artifact.read.not_found", "no artifact " + support::Quote(hex, 80));
}

// Makes a rename in the folder durable.
absl::Status SyncDir(const std::string& dir) {
  const int fd = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return support::ErrnoError(errno, "artifact.write.failed", "open " + dir);
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  if (result != 0) return support::ErrnoError(error, "artifact.write.failed", "fsync " + dir);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlobStore>> BlobStore::Open(const std::string& dir,
                                                           Durability durability) {
  auto store = std::unique_ptr<BlobStore>(new BlobStore(dir, durability));
  const std::string tmp = support::PathJoin(dir, "tmp");
  TW_TRY(support::RemoveTree(tmp));
  TW_TRY(support::MakeDirs(tmp));
  TW_TRY(support::MakeDirs(support::PathJoin(dir, "objects")));
  TW_TRY(store->Scan());
  if (durability == Durability::kSoon) {
    store->syncer_ = std::thread([raw = store.get()] { raw->SyncBehind(); });
  }
  return store;
}

BlobStore::~BlobStore() {
  {
    support::MutexLock lock(mutex_);
    ending_ = true;
    unsynced_there_.NotifyAll();
  }
  if (syncer_.joinable()) syncer_.join();
}

void BlobStore::SyncLater(const std::string& hex) {
  support::MutexLock lock(mutex_);
  unsynced_.push_back(hex);
  unsynced_there_.NotifyAll();
}

absl::Status BlobStore::SyncFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  // Collected in the meantime.
  if (fd < 0) return absl::OkStatus();
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  if (result != 0) return support::ErrnoError(error, "artifact.write.failed", "fsync " + path);
  return SyncDir(support::DirName(path));
}

void BlobStore::SyncBehind() {
  while (true) {
    std::vector<std::string> batch;
    {
      support::MutexLock lock(mutex_);
      while (unsynced_.empty() && !ending_) unsynced_there_.Wait(mutex_);
      if (unsynced_.empty()) return;
      batch.swap(unsynced_);
    }
    for (const std::string& hex : batch) {
      // What the disk refuses is not there: its owner sends it again.
      if (!SyncFile(PathOf(hex)).ok()) (void)Remove(hex);
    }
  }
}

absl::Status BlobStore::Scan() {
  struct Found {
    std::string hex;
    int64_t size;
    int64_t modified;
  };
  std::vector<Found> found;
  const std::string objects = support::PathJoin(dir_, "objects");
  TW_ASSIGN(const std::vector<std::string> prefixes, support::ListDir(objects));
  for (const std::string& prefix : prefixes) {
    TW_ASSIGN(const std::vector<std::string> names,
              support::ListDir(support::PathJoin(objects, prefix)));
    for (const std::string& name : names) {
      struct stat info{};
      if (!support::IsSha256Hex(name) || stat(PathOf(name).c_str(), &info) != 0) continue;
      found.push_back({name, static_cast<int64_t>(info.st_size),
                       static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 +
                           static_cast<int64_t>(info.st_mtim.tv_nsec)});
    }
  }
  // Between runs the age of a file stands for its last use.
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::pair(a.modified, a.hex) < std::pair(b.modified, b.hex);
  });
  for (const Found& file : found) Note(file.hex, file.size);
  return absl::OkStatus();
}

std::string BlobStore::PathOf(std::string_view hex) const {
  return support::StrCat(dir_, "/objects/", hex.substr(0, 2), "/", hex);
}

std::string BlobStore::NewTempPath() {
  support::MutexLock lock(mutex_);
  return support::StrCat(dir_, "/tmp/", ++temp_counter_);
}

void BlobStore::Note(const std::string& hex, int64_t size) {
  support::MutexLock lock(mutex_);
  auto [it, inserted] = entries_.try_emplace(hex);
  if (inserted) {
    it->second.size = size;
    total_bytes_ += size;
  }
  it->second.last_use = ++use_counter_;
}

void BlobStore::Touch(std::string_view hex) {
  support::MutexLock lock(mutex_);
  const auto it = entries_.find(hex);
  if (it != entries_.end()) it->second.last_use = ++use_counter_;
}

void BlobStore::Forget(const std::string& hex) {
  support::MutexLock lock(mutex_);
  const auto it = entries_.find(hex);
  if (it == entries_.end()) return;
  total_bytes_ -= it->second.size;
  entries_.erase(it);
}

bool BlobStore::Contains(std::string_view hex) const {
  support::MutexLock lock(mutex_);
  return entries_.find(hex) != entries_.end();
}

absl::StatusOr<std::string> BlobStore::Put(std::string_view data) {
  const std::string hex = support::Sha256Hex(data);
  TW_TRY(PutVerified(hex, data));
  return hex;
}

absl::Status BlobStore::PutVerified(std::string_view hex, std::string_view data) {
  if (Contains(hex) && support::Sha256Hex(data) == hex) {
    Touch(hex);
    return absl::OkStatus();
  }
  TW_ASSIGN(const std::unique_ptr<Writer> writer, NewWriter());
  TW_TRY(writer->Append(data));
  return writer->Commit(hex).status();
}

absl::StatusOr<std::unique_ptr<BlobStore::Writer>> BlobStore::NewWriter() {
  std::string path = NewTempPath();
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return support::ErrnoError(errno, "artifact.write.failed", "create " + path);
  return std::unique_ptr<Writer>(new Writer(this, std::move(path), fd));
}

BlobStore::Writer::~Writer() {
  if (fd_ >= 0) {
    close(fd_);
    unlink(path_.c_str());
  }
}

absl::Status BlobStore::Writer::Append(std::string_view data) {
  size_t done = 0;
  while (done < data.size()) {
    const ssize_t n = write(fd_, data.data() + done, data.size() - done);
    if (n < 0) {
      if (errno == EINTR) continue;
      return support::ErrnoError(errno, "artifact.write.failed", "write " + path_);
    }
    done += static_cast<size_t>(n);
  }
  support::HitFailpoint(support::Failpoint::store_appended);
  hash_.Update(data);
  size_ += static_cast<int64_t>(data.size());
  return absl::OkStatus();
}

absl::StatusOr<std::string> BlobStore::Writer::Commit(std::string_view expected_hex) {
  const std::string hex = support::DigestHex(hash_.Finish());
  if (!expected_hex.empty() && hex != expected_hex) {
    return support::DataLoss(
        "artifact.write.digest_mismatch",
        support::StrCat("expected ", support::Quote(expected_hex, 80), ", found ", hex));
  }
  if (store_->Contains(hex)) {  // the same bytes are there; ours are dropped
    store_->Touch(hex);
    return hex;
  }
  const bool synced = store_->durability_ == Durability::kSynced;
  if (synced && fsync(fd_) != 0)
    return support::ErrnoError(errno, "artifact.write.failed", "fsync " + path_);
  support::HitFailpoint(support::Failpoint::store_synced);
  const std::string target = store_->PathOf(hex);
  const std::string folder = support::DirName(target);
  TW_TRY(support::MakeDirs(folder));
  if (rename(path_.c_str(), target.c_str()) != 0) {
    return support::ErrnoError(errno, "artifact.write.failed", "rename to " + target);
  }
  close(fd_);
  fd_ = -1;
  support::HitFailpoint(support::Failpoint::store_renamed);
  if (synced) TW_TRY(SyncDir(folder));
  store_->Note(hex, size_);
  if (store_->durability_ == Durability::kSoon) store_->SyncLater(hex);
  support::HitFailpoint(support::Failpoint::store_noted);
  return hex;
}

absl::StatusOr<support::MappedFile> BlobStore::Map(std::string_view hex) {
  if (!Contains(hex)) return NoSuchBlob(hex);
  auto file = support::MappedFile::Open(PathOf(hex));
  if (!file.ok()) {
    if (absl::IsNotFound(file.status())) {  // removed behind our back
      Forget(std::string(hex));
      return NoSuchBlob(hex);
    }
    return file.status();
  }
  if (support::Sha256Hex(file->view()) != hex) {
    TW_TRY(Remove(hex));
    return support::DataLoss("artifact.read.corrupt",
                             support::StrCat("artifact ", hex, " was damaged and is removed"));
  }
  Touch(hex);
  return file;
}

absl::StatusOr<std::string> BlobStore::Get(std::string_view hex) {
  TW_ASSIGN(const support::MappedFile file, Map(hex));
  return std::string(file.view());
}

absl::StatusOr<std::string> BlobStore::Path(std::string_view hex) {
  TW_TRY(Map(hex).status());
  return PathOf(hex);
}

absl::StatusOr<int64_t> BlobStore::Size(std::string_view hex) const {
  support::MutexLock lock(mutex_);
  const auto it = entries_.find(hex);
  if (it == entries_.end()) return NoSuchBlob(hex);
  return it->second.size;
}

absl::Status BlobStore::Remove(std::string_view hex) {
  if (!Contains(hex)) return absl::OkStatus();
  Forget(std::string(hex));
  return support::RemoveFile(PathOf(hex));
}

int64_t BlobStore::total_bytes() const {
  support::MutexLock lock(mutex_);
  return total_bytes_;
}

int64_t BlobStore::count() const {
  support::MutexLock lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

int64_t BlobStore::Collect(int64_t max_bytes, const std::function<bool(const std::string&)>& keep) {
  std::vector<std::string> victims;
  {
    support::MutexLock lock(mutex_);
    std::vector<std::pair<uint64_t, std::string>> by_age;
    by_age.reserve(entries_.size());
    for (const auto& [hex, entry] : entries_) by_age.emplace_back(entry.last_use, hex);
    std::sort(by_age.begin(), by_age.end());
    int64_t left = total_bytes_;
    for (const auto& [use, hex] : by_age) {
      if (left <= max_bytes) break;
      if (keep && keep(hex)) continue;
      left -= entries_.find(hex)->second.size;
      victims.push_back(hex);
    }
  }
  int64_t removed = 0;
  for (const std::string& hex : victims) {
    if (Remove(hex).ok()) ++removed;
  }
  return removed;
}

}  // namespace tilewright::daemon
