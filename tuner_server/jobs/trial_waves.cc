#include "tuner_server/jobs/trial_waves.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "deploy/support/measure_units.h"

namespace tilewright::jobs {
namespace {

// The number of the first trial of the wave that is open. The trials of a wave follow each other
// and have the same batch, which those of the wave before it do not have.
int64_t FirstOfWave(const std::vector<EndedTrial>& ended, const log::TrialRow& open) {
  int64_t first = open.number;
  for (auto it = ended.rbegin(); it != ended.rend(); ++it) {
    if (it->trial.number > first) continue;
    if (it->trial.batch != open.batch) break;
    first = it->trial.number;
  }
  return first;
}

}  // namespace

bool TrialWaves::IsExact(const std::string& device_class) {
  return support::UnitOfClass(device_class).deterministic;
}

std::vector<EndedTrial> TrialWaves::TakeWave() {
  std::vector<EndedTrial> taken;
  for (auto& [number, ended] : wave_) taken.push_back(std::move(ended));
  wave_.clear();
  return taken;
}

std::vector<EndedTrial> TrialWaves::Add(EndedTrial ended, bool last) {
  if (!known_ && ended.record.has_value()) {
    NoteClasses(std::vector<std::string>{ended.record->key.device_class});
  }
  const int64_t number = ended.trial.number;
  wave_[number] = std::move(ended);
  return exact_ && !last ? std::vector<EndedTrial>() : TakeWave();
}

std::vector<EndedTrial> TrialWaves::Restore(std::vector<EndedTrial> ended,
                                            const log::TrialRow* open) {
  std::vector<std::string> classes;
  for (const EndedTrial& one : ended) {
    if (one.record.has_value()) classes.push_back(one.record->key.device_class);
  }
  if (!known_) NoteClasses(classes);
  if (!exact_) {
    std::stable_sort(ended.begin(), ended.end(), [](const EndedTrial& a, const EndedTrial& b) {
      return a.trial.ended_us < b.trial.ended_us;
    });
    return ended;
  }
  const int64_t wave =
      open == nullptr ? std::numeric_limits<int64_t>::max() : FirstOfWave(ended, *open);
  std::vector<EndedTrial> taken;
  for (EndedTrial& one : ended) {
    if (one.trial.number < wave) {
      taken.push_back(std::move(one));
    } else {
      wave_[one.trial.number] = std::move(one);
    }
  }
  return taken;
}

}  // namespace tilewright::jobs
