// The numbers of module versions, which are never used for other bytes: `dqn/3` is the same module
// for ever, also after the state folder was replaced by an older backup.
//
// The tuning log alone cannot promise that: a restored log does not know which numbers came after
// the backup. So the server writes each number into a file next to the log before it is used.
// The file recognises its copies (support/original_file.h):
// - The log is older than the file (tuner.db was copied back by hand): the file knows the numbers.
// - The file is a copy or is missing (the folder was restored, or copied): nothing in the folder
//   knows the numbers. From then on numbers start at the time of the start in seconds since 1970,
//   for every module; that is more than any number that was used before.
// A rolled back disk or machine cannot be recognised: remove the file after it.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::modules {

// The file in the state folder of a tuner.
inline constexpr char kNumbersFile[] = "module-numbers";

// The highest number of a module, and the bytes that have it.
struct LastNumber {
  int64_t number = 0;  // 0: none
  std::string sha256;
};

class VersionNumbers {
 public:
  // Reads or makes the file at `path`. The log is not owned. Errors of files and of the log.
  static absl::StatusOr<std::unique_ptr<VersionNumbers>> Open(const std::string& path,
                                                              log::TuningLog* log,
                                                              support::Clock* clock);

  // Returns the lowest number that a version of the module with these bytes may get, and writes it
  // down. The same bytes get the same number again until another version follows: a job that was
  // interrupted while it published gets the number that it had.
  absl::StatusOr<int64_t> Reserve(const std::string& module, const std::string& sha256);
  // Undoes the latest Reserve: its number was not used.
  absl::Status Withdraw();

  // More than 0: Open found a copy, and numbers start here.
  int64_t restarted_at() const { return restarted_at_; }

 private:
  VersionNumbers(std::string path, log::TuningLog* log) : path_(std::move(path)), log_(log) {}
  absl::Status Parse(const std::string& text);
  absl::Status Write() const;

  std::string path_;
  log::TuningLog* log_;
  int64_t floor_ = 0;  // no number below it is used any more
  int64_t restarted_at_ = 0;
  std::map<std::string, LastNumber> last_;                 // by module
  std::pair<std::string, LastNumber> before_reservation_;  // of that module; number 0: none
};

}  // namespace tilewright::modules
