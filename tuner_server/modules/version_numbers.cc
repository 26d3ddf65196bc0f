#include "tuner_server/modules/version_numbers.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "deploy/support/original_file.h"

namespace tilewright::modules {
namespace {

constexpr int kSchema = 1;
constexpr uint64_t kMaxFileBytes = 64 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<VersionNumbers>> VersionNumbers::Open(const std::string& path,
                                                                     log::TuningLog* log,
                                                                     support::Clock* clock) {
  std::unique_ptr<VersionNumbers> numbers(new VersionNumbers(path, log));
  const absl::StatusOr<std::string> text = support::ReadOriginalFile(path, kMaxFileBytes);
  absl::Status known = text.ok() ? numbers->Parse(*text) : text.status();
  if (absl::IsNotFound(known)) {
    TW_ASSIGN(const bool kept, log->ModuleNumbersKept());
    // A new server, or the first start of a version that writes the file.
    if (!kept) known = numbers->Write();
  }
  if (absl::IsNotFound(known) || absl::IsFailedPrecondition(known) || absl::IsDataLoss(known)) {
    numbers->last_.clear();
    numbers->restarted_at_ = clock->WallMicros() / 1'000'000;
    numbers->floor_ = numbers->restarted_at_;
    known = numbers->Write();
  }
  TW_TRY(known);
  // After the file: a crash in between must not look like a file that was lost.
  TW_TRY(log->KeepModuleNumbers(clock->WallMicros()));
  return numbers;
}

absl::StatusOr<int64_t> VersionNumbers::Reserve(const std::string& module,
                                                const std::string& sha256) {
  const log::ModuleQuery newest{.module = module, .limit = 1};
  TW_ASSIGN(const log::ModulePage page, log_->ListModuleVersions(newest));
  int64_t number = std::max<int64_t>(floor_, 1);
  if (!page.versions.empty()) number = std::max(number, page.versions.front().number + 1);
  const auto last = last_.find(module);
  if (last != last_.end()) {
    const bool again = last->second.sha256 == sha256;
    number = std::max(number, last->second.number + (again ? 0 : 1));
  }
  before_reservation_ = {module, last == last_.end() ? LastNumber{} : last->second};
  last_[module] = {number, sha256};
  TW_TRY(Write());
  return number;
}

absl::Status VersionNumbers::Withdraw() {
  const auto& [module, before] = before_reservation_;
  if (before.number == 0) {
    last_.erase(module);
  } else {
    last_[module] = before;
  }
  return Write();
}

absl::Status VersionNumbers::Parse(const std::string& text) {
  const absl::Status bad =
      support::DataLoss("modules.numbers.malformed", path_ + " is not what a tuner writes");
  const nlohmann::json file = nlohmann::json::parse(text, nullptr, false);
  if (!file.is_object() || file.value("schema", nlohmann::json()) != nlohmann::json(kSchema)) {
    return bad;
  }
  const auto floor = file.find("floor");
  const auto last = file.find("last");
  if (floor == file.end() || !floor->is_number_integer() || last == file.end() ||
      !last->is_object()) {
    return bad;
  }
  floor_ = floor->get<int64_t>();
  for (const auto& [module, row] : last->items()) {
    if (!row.is_array() || row.size() != 2 || !row[0].is_number_integer() || !row[1].is_string()) {
      return bad;
    }
    last_[module] = {row[0].get<int64_t>(), row[1].get<std::string>()};
  }
  return absl::OkStatus();
}

absl::Status VersionNumbers::Write() const {
  nlohmann::json last = nlohmann::json::object();
  for (const auto& [module, row] : last_) last[module] = {row.number, row.sha256};
  const nlohmann::json file = {{"schema", kSchema}, {"floor", floor_}, {"last", last}};
  return support::WriteOriginalFile(path_, file.dump(1) + "\n");
}

}  // namespace tilewright::modules
