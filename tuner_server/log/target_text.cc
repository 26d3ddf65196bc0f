#include "tuner_server/log/target_text.h"

#include <algorithm>
#include <vector>

#include "compiler/target/machine.h"
#include "deploy/support/strings.h"

namespace tilewright::log {
namespace {

constexpr size_t kMaxTargetBytes = 1024;
constexpr int64_t kMaxThreads = 4096;

std::string Render(const TargetText& target, bool with_threads) {
  std::string text = target.kind;
  for (const auto& [key, value] : target.settings) {
    if (key == "threads" && !with_threads) continue;
    text += "," + key + "=" + value;
  }
  return text;
}

absl::Status Bad(std::string_view text, std::string_view why) {
  return support::InvalidArgument(
      "target.text.bad",
      support::StrCat("expected KIND[,key=value...], found ", support::Quote(text), ": ", why));
}

bool IsWord(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '+';
  });
}

}  // namespace

std::string TargetText::ToString() const { return Render(*this, true); }
std::string TargetText::WithoutThreads() const { return Render(*this, false); }

int64_t TargetText::threads() const {
  const auto it = settings.find("threads");
  return it == settings.end() ? 1 : support::ParseInt64(it->second).value_or(1);
}

bool TargetText::driver_compiles() const {
  const target::Kind* known = target::FindKind(kind);
  return known != nullptr && known->families.front().driver_compiles;
}

absl::StatusOr<TargetText> ParseTargetText(std::string_view text) {
  if (text.size() > kMaxTargetBytes) return Bad(text, "too long");
  const std::vector<std::string> parts = support::Split(text, ',');
  TargetText target;
  target.kind = parts[0];
  if (target.kind == "native") {
    return support::InvalidArgument(
        "target.text.not_expanded",
        "expected a target that names its processor, found native: the client expands it");
  }
  if (!IsWord(target.kind)) return Bad(text, "the kind is not a word");
  if (target::FindKind(target.kind) == nullptr) {
    return support::InvalidArgument("target.text.unknown_kind",
                                    support::StrCat("expected one of ", target::KindNames(", "),
                                                    ", found ", support::Quote(target.kind)));
  }
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t equals = parts[i].find('=');
    if (equals == std::string::npos) return Bad(text, "a setting without =");
    const std::string key = parts[i].substr(0, equals);
    const std::string value = parts[i].substr(equals + 1);
    if (!IsWord(key) || !IsWord(value)) return Bad(text, "a setting is not key=value");
    if (!target.settings.emplace(key, value).second) return Bad(text, key + " is given twice");
  }
  const auto threads = target.settings.find("threads");
  if (threads != target.settings.end()) {
    const auto count = support::ParseInt64(threads->second);
    if (!count || *count < 1 || *count > kMaxThreads) return Bad(text, "threads out of range");
  }
  return target;
}

}  // namespace tilewright::log
