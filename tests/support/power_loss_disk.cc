#include "tests/support/power_loss_disk.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "deploy/support/file.h"
#include "deploy/support/status.h"

namespace tilewright::tests {
namespace {

constexpr int64_t kSector = 512;
constexpr double kTorn = 0.1;
constexpr char kName[] = "tilewright-power-loss";

}  // namespace

// What SQLite allocates for each open file: this, and behind it the wrapped layer's own.
struct PowerLossDisk::File {
  sqlite3_file base;
  PowerLossDisk* disk;
  std::shared_ptr<Content>* content;  // null: not followed (temporary files)

  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

PowerLossDisk* PowerLossDisk::DiskOf(sqlite3_vfs* vfs) {
  return static_cast<PowerLossDisk*>(vfs->pAppData);
}

PowerLossDisk::File* PowerLossDisk::Of(sqlite3_file* file) { return reinterpret_cast<File*>(file); }

PowerLossDisk::PowerLossDisk(uint64_t seed)
    : real_(sqlite3_vfs_find(nullptr)), vfs_(*real_), rng_(seed) {
  vfs_.zName = kName;
  vfs_.pAppData = this;
  vfs_.pNext = nullptr;
  vfs_.szOsFile = static_cast<int>(sizeof(File)) + real_->szOsFile;
  vfs_.xOpen = Open;
  vfs_.xDelete = Delete;
  TW_CHECK(sqlite3_vfs_register(&vfs_, /*makeDflt=*/1) == SQLITE_OK);
}

PowerLossDisk::~PowerLossDisk() {
  sqlite3_vfs_unregister(&vfs_);
  sqlite3_vfs_register(real_, /*makeDflt=*/1);
}

bool PowerLossDisk::HasPower() {
  if (off_) return false;
  if (left_ > 0 && --left_ == 0) off_ = true;
  return !off_;
}

// The content behind a name, which may have been there before the disk.
std::shared_ptr<PowerLossDisk::Content> PowerLossDisk::Find(const std::string& path, int flags) {
  const auto it = live_.find(path);
  if (it != live_.end()) return it->second;
  auto content = std::make_shared<Content>();
  if (support::FileExists(path)) {
    content->synced = *support::ReadFile(path, INT64_MAX);
    durable_[path] = content;
  } else {
    content->new_log = (flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL)) != 0;
  }
  live_[path] = content;
  return content;
}

int PowerLossDisk::Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags,
                        int* out_flags) {
  PowerLossDisk* disk = DiskOf(vfs);
  File* opened = Of(file);
  opened->base.pMethods = nullptr;
  if (disk->off_) return SQLITE_CANTOPEN;
  std::shared_ptr<Content> content;
  if (name != nullptr) content = disk->Find(name, flags);
  const int code = disk->real_->xOpen(disk->real_, name, opened->real(), flags, out_flags);
  if (code != SQLITE_OK) return code;
  opened->disk = disk;
  opened->content = content == nullptr ? nullptr : new std::shared_ptr<Content>(content);
  opened->base.pMethods = Methods();
  return SQLITE_OK;
}

int PowerLossDisk::Delete(sqlite3_vfs* vfs, const char* name, int sync_folder) {
  PowerLossDisk* disk = DiskOf(vfs);
  if (!disk->HasPower()) return SQLITE_IOERR_DELETE;
  const int code = disk->real_->xDelete(disk->real_, name, /*syncDir=*/0);
  if (code != SQLITE_OK) return code;
  disk->live_.erase(name);
  if (sync_folder != 0 && !disk->forgets_syncs_) disk->durable_ = disk->live_;
  return SQLITE_OK;
}

int PowerLossDisk::Close(sqlite3_file* file) {
  delete Of(file)->content;
  sqlite3_file* real = Of(file)->real();
  return real->pMethods->xClose(real);
}

int PowerLossDisk::Write(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
  File* written = Of(file);
  if (written->disk->off_) return SQLITE_IOERR_WRITE;
  if (written->content != nullptr) {
    // Also of the write in which the power goes some sectors may arrive.
    (*written->content)
        ->changes.push_back(
            {offset, std::string(static_cast<const char*>(data), static_cast<size_t>(size))});
  }
  if (!written->disk->HasPower()) return SQLITE_IOERR_WRITE;
  return written->real()->pMethods->xWrite(written->real(), data, size, offset);
}

int PowerLossDisk::Truncate(sqlite3_file* file, sqlite3_int64 size) {
  File* cut = Of(file);
  if (cut->disk->off_) return SQLITE_IOERR_TRUNCATE;
  if (cut->content != nullptr) (*cut->content)->changes.push_back({size, "", true});
  if (!cut->disk->HasPower()) return SQLITE_IOERR_TRUNCATE;
  return cut->real()->pMethods->xTruncate(cut->real(), size);
}

int PowerLossDisk::Sync(sqlite3_file* file, int) {
  PowerLossDisk* disk = Of(file)->disk;
  if (!disk->HasPower()) return SQLITE_IOERR_FSYNC;
  ++disk->syncs_;
  if (disk->forgets_syncs_ || Of(file)->content == nullptr) return SQLITE_OK;
  Content& content = **Of(file)->content;
  for (const Change& change : content.changes) {
    const auto offset = static_cast<size_t>(change.offset);
    if (change.truncates) {
      content.synced.resize(std::min(content.synced.size(), offset));
      continue;
    }
    content.synced.resize(std::max(content.synced.size(), offset + change.bytes.size()));
    content.synced.replace(offset, change.bytes.size(), change.bytes);
  }
  content.changes.clear();
  if (std::exchange(content.new_log, false)) disk->durable_ = disk->live_;
  return SQLITE_OK;
}

const sqlite3_io_methods* PowerLossDisk::Methods() {
  // Version 2: shared memory, and no memory-mapped files, whose changes would not be seen here.
  static const sqlite3_io_methods methods = [] {
    sqlite3_io_methods m{};
    m.iVersion = 2;
    m.xClose = Close;
    m.xWrite = Write;
    m.xTruncate = Truncate;
    m.xSync = Sync;
#define TW_METHODS(file) Of(file)->real()->pMethods
#define TW_REAL(file) Of(file)->real()
    m.xRead = [](sqlite3_file* f, void* data, int size, sqlite3_int64 offset) {
      return TW_METHODS(f)->xRead(TW_REAL(f), data, size, offset);
    };
    m.xFileSize = [](sqlite3_file* f, sqlite3_int64* size) {
      return TW_METHODS(f)->xFileSize(TW_REAL(f), size);
    };
    m.xLock = [](sqlite3_file* f, int lock) { return TW_METHODS(f)->xLock(TW_REAL(f), lock); };
    m.xUnlock = [](sqlite3_file* f, int lock) { return TW_METHODS(f)->xUnlock(TW_REAL(f), lock); };
    m.xCheckReservedLock = [](sqlite3_file* f, int* out) {
      return TW_METHODS(f)->xCheckReservedLock(TW_REAL(f), out);
    };
    m.xFileControl = [](sqlite3_file* f, int what, void* argument) {
      return TW_METHODS(f)->xFileControl(TW_REAL(f), what, argument);
    };
    m.xSectorSize = [](sqlite3_file* f) { return TW_METHODS(f)->xSectorSize(TW_REAL(f)); };
    m.xDeviceCharacteristics = [](sqlite3_file* f) {
      return TW_METHODS(f)->xDeviceCharacteristics(TW_REAL(f));
    };
    m.xShmMap = [](sqlite3_file* f, int page, int size, int extend, void volatile** out) {
      return TW_METHODS(f)->xShmMap(TW_REAL(f), page, size, extend, out);
    };
    m.xShmLock = [](sqlite3_file* f, int offset, int count, int flags) {
      return TW_METHODS(f)->xShmLock(TW_REAL(f), offset, count, flags);
    };
    m.xShmBarrier = [](sqlite3_file* f) { TW_METHODS(f)->xShmBarrier(TW_REAL(f)); };
    m.xShmUnmap = [](sqlite3_file* f, int remove) {
      return TW_METHODS(f)->xShmUnmap(TW_REAL(f), remove);
    };
#undef TW_METHODS
#undef TW_REAL
    return m;
  }();
  return &methods;
}

std::string PowerLossDisk::WhatIsLeft(const Content& content) {
  constexpr double kKept[] = {0, 0.1, 0.5, 0.9, 1};
  const double kept = kKept[rng_.Uniform(std::size(kKept))];
  std::string left = content.synced;
  for (const Change& change : content.changes) {
    if (change.truncates) {
      if (rng_.Bernoulli(kept)) {
        left.resize(std::min(left.size(), static_cast<size_t>(change.offset)));
      }
      continue;
    }
    const int64_t end = change.offset + static_cast<int64_t>(change.bytes.size());
    for (int64_t at = change.offset; at < end;) {
      const int64_t sector_end = std::min(end, (at / kSector + 1) * kSector);
      auto size = static_cast<size_t>(sector_end - at);
      if (rng_.Bernoulli(kept)) {
        if (kept < 1 && rng_.Bernoulli(kTorn)) size = rng_.Uniform(size);
        left.resize(std::max(left.size(), static_cast<size_t>(at) + size));
        left.replace(static_cast<size_t>(at), size, change.bytes,
                     static_cast<size_t>(at - change.offset), size);
      } else {
        ++lost_sectors_;
      }
      at = sector_end;
    }
  }
  return left;
}

void PowerLossDisk::Restore() {
  Names names = durable_;
  for (const auto& [path, content] : live_) names.emplace(path, nullptr);
  const auto of = [](const Names& from, const std::string& path) {
    const auto it = from.find(path);
    return it == from.end() ? nullptr : it->second;
  };
  Names left;
  for (const auto& [path, unused] : names) {
    const bool as_live = rng_.Bernoulli(0.5);
    const std::shared_ptr<Content> content = of(as_live ? live_ : durable_, path);
    support::RemoveFile(path + "-shm").IgnoreError();
    if (content == nullptr) {
      support::RemoveFile(path).IgnoreError();
      continue;
    }
    auto after = std::make_shared<Content>();
    after->synced = WhatIsLeft(*content);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);  // nothing here must last
    file.write(after->synced.data(), static_cast<std::streamsize>(after->synced.size()));
    file.close();
    TW_CHECK(file.good()) << path;
    left[path] = std::move(after);
  }
  live_ = durable_ = left;
  off_ = false;
  left_ = 0;
}

}  // namespace tilewright::tests
