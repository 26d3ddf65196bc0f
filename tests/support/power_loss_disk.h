// A disk under SQLite that forgets: what was written and not synced is lost when the power goes,
// wholly or in part, sector by sector in any order, some sectors torn; names that were made or
// removed since their folder was last synced are there or not. Processes that go on see what they
// wrote, as ever. A wrapper of SQLite's own file layer (sqlite3_vfs), which becomes the standard
// one for every database that is opened while the disk lives. One at a time; one thread.
//
// What the power leaves: for each sector of 512 bytes that was written since the last sync of its
// file, the content of the last sync or that of any later write; of a torn sector, the beginning of
// the later one. A folder is synced when SQLite's layer does so: at the first sync of a new journal
// or write-ahead log, and at a removal that asks for it.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deploy/support/rng.h"

namespace tilewright::tests {

class PowerLossDisk {
 public:
  explicit PowerLossDisk(uint64_t seed);
  ~PowerLossDisk();
  PowerLossDisk(const PowerLossDisk&) = delete;
  PowerLossDisk& operator=(const PowerLossDisk&) = delete;

  // The power goes in the middle of the n-th write, truncation, sync or removal from now on, n >=
  // 1; 0: it stays. From then on all of them fail.
  void CutAfter(int64_t operations) { left_ = operations; }
  bool off() const { return off_; }
  // The power is back: the files are what the disk kept. All databases must be closed.
  void Restore();

  // A planted bug: the disk says synced and is not.
  void set_forgets_syncs(bool forgets) { forgets_syncs_ = forgets; }

  // Since the beginning, to see that a test does what it is for.
  int64_t syncs() const { return syncs_; }
  int64_t lost_sectors() const { return lost_sectors_; }

 private:
  struct Change {
    int64_t offset = 0;  // of a write; of a truncation the new size
    std::string bytes;
    bool truncates = false;
  };
  struct Content {
    std::string synced;
    std::vector<Change> changes;  // since
    bool new_log = false;         // its first sync syncs the folder, too
  };
  struct File;  // of one open connection
  using Names = std::map<std::string, std::shared_ptr<Content>>;

  static PowerLossDisk* DiskOf(sqlite3_vfs* vfs);
  static File* Of(sqlite3_file* file);
  static const sqlite3_io_methods* Methods();
  static int Open(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags,
                  int* out_flags);
  static int Delete(sqlite3_vfs* vfs, const char* name, int sync_folder);
  static int Close(sqlite3_file* file);
  static int Write(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset);
  static int Truncate(sqlite3_file* file, sqlite3_int64 size);
  static int Sync(sqlite3_file* file, int flags);

  // Counts an operation; false when the power is off, or goes now.
  bool HasPower();
  std::shared_ptr<Content> Find(const std::string& path, int flags);
  std::string WhatIsLeft(const Content& content);

  sqlite3_vfs* const real_;
  sqlite3_vfs vfs_;
  support::Rng rng_;
  Names live_;     // as processes see the folder
  Names durable_;  // as it is after its last sync
  int64_t left_ = 0;
  bool off_ = false;
  bool forgets_syncs_ = false;
  int64_t syncs_ = 0;
  int64_t lost_sectors_ = 0;
};

}  // namespace tilewright::tests
