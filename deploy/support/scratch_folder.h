// Temporary folders whose remains are removed later if their process was killed. A folder is locked
// (flock) as long as its process, or a child that was forked from it, lives. The sweep removes
// unlocked folders of the same prefix and user. Functions are safe from any thread; an object has
// one owner.
#pragma once

#include <string>
#include <string_view>

#include "deploy/support/file.h"
#include "deploy/support/status.h"

namespace tilewright::support {

class ScratchFolder {
 public:
  // Makes a folder in `parent`, by default the system's temporary folder. Sweeps nothing.
  static absl::StatusOr<ScratchFolder> Create(std::string_view prefix,
                                              const std::string& parent = "");
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  const std::string& path() const { return folder_.path(); }
  std::string File(std::string_view name) const { return folder_.File(name); }

 private:
  ScratchFolder(TempDir folder, int lock) : folder_(std::move(folder)), lock_(lock) {}
  TempDir folder_;
  int lock_ = -1;
};

// Removes the folders of `prefix` in `parent` (by default the system's temporary folder) that no
// process holds. What cannot be removed stays. Returns how many were removed.
int SweepScratchFolders(std::string_view prefix, const std::string& parent = "");

}  // namespace tilewright::support
