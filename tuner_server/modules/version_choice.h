// Which of the versions that answer a question is the answer. Pure functions over rows.
#pragma once

#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/log/log_types.h"
#include "tuner_server/log/model_sizes.h"

namespace tilewright::modules {

enum class Match {
  kExact,       // tuned for the wanted target
  kCompatible,  // tuned for the same processor with another number of threads
  kFallback,    // tuned for something else; only where the target is a preference
};

struct VersionWish {
  std::string target = {};     // canonical text; empty: any
  bool exact = false;          // no other number of threads
  bool preference = false;     // versions for other targets come last, but they answer
  log::ModelSizes sizes = {};  // only versions that take these; empty: any
};

struct Choice {
  Match match = Match::kExact;
  log::ModuleVersionRow version;
  std::string explanation;  // for people: why this one
};

// Whether a version that takes `us` counts as not slower than `best`: their times differ by at most
// 3 %, or by at most the sum of both intervals if that is more, but never by more than 10 %. A
// difference of 3 % between two measurements hardly ever has the wrong sign.
bool NotSlower(const log::ModuleVersionRow& version, const log::ModuleVersionRow& best);

// Chooses, by these rules:
// 1. Versions tuned for the target come first. Then come those for fewer threads (the caller has
//    the threads that they were measured with), then those for more, the nearest number first.
// 2. If sizes are wanted, versions with tuned kernels for these come before those that run them in
//    kernels of all sizes (log::SizeFit).
// 3. Of these, only versions of the newest one's model, sizes and device class (and target, where
//    any will do) are compared: times of other models or sizes say nothing. Where the target is a
//    preference, the newest model comes before rule 1.
// 4. The fastest that was measured wins; of those that are NotSlower the newest.
// `newest_first`: all that answer otherwise. not_found (module.not_found) if none fits the target
// or the sizes; data_loss if the sizes of one cannot be read.
absl::StatusOr<Choice> ChooseVersion(const std::vector<log::ModuleVersionRow>& newest_first,
                                     const VersionWish& wish);

// "dqn/3"
std::string ShortName(const log::ModuleVersionRow& version);
// "107.3 µs", or "an unknown time" of a version that was not measured.
std::string MedianText(const log::ModuleVersionRow& version);

}  // namespace tilewright::modules
