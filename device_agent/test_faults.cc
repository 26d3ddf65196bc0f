#include "device_agent/test_faults.h"

#include <cstdint>

#include "deploy/support/rng.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {

v1::InjectedFault TestFaults::Choose(std::string_view measurement_id) const {
  const double draw = support::Rng(seed).Split(measurement_id).UniformDouble();
  if (draw < wrong) return v1::INJECTED_FAULT_WRONG;
  if (draw < wrong + crash) return v1::INJECTED_FAULT_CRASH;
  if (draw < wrong + crash + hang) return v1::INJECTED_FAULT_HANG;
  return v1::INJECTED_FAULT_UNSPECIFIED;
}

bool TestFaults::Disturbs(std::string_view measurement_id) const {
  if (noisy <= 0) return false;
  return support::Rng(seed).Split("noisy").Split(measurement_id).UniformDouble() < noisy;
}

absl::StatusOr<TestFaults> ParseTestFaults(std::string_view text) {
  const auto invalid = [&] {
    return support::InvalidArgument(
        "agent.test_faults.invalid",
        "expected \"seed=N,wrong=P,crash=P,hang=P,noisy=P,self_tests=N\" "
        "with shares of at most 1, those of wrong, crash and hang "
        "together, found " +
            support::Quote(text));
  };
  TestFaults faults;
  for (const std::string& part : support::Split(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) return invalid();
    const std::string key = part.substr(0, equals);
    const std::string_view value = std::string_view(part).substr(equals + 1);
    if (key == "seed") {
      const auto seed = support::ParseUint64(value);
      if (!seed.has_value()) return invalid();
      faults.seed = *seed;
      continue;
    }
    if (key == "self_tests") {
      const auto count = support::ParseInt64(value);
      if (!count.has_value() || *count < 0 || *count > INT32_MAX) return invalid();
      faults.self_tests = static_cast<int>(*count);
      continue;
    }
    const auto share = support::ParseDouble(value);
    if (!share.has_value() || !(*share >= 0) || !(*share <= 1)) return invalid();
    if (key == "wrong") {
      faults.wrong = *share;
    } else if (key == "crash") {
      faults.crash = *share;
    } else if (key == "hang") {
      faults.hang = *share;
    } else if (key == "noisy") {
      faults.noisy = *share;
    } else {
      return invalid();
    }
  }
  if (faults.wrong + faults.crash + faults.hang > 1) return invalid();
  return faults;
}

void MarkTestFault(v1::InjectedFault fault, v1::ModuleMeasured* measured) {
  const bool expected =
      (fault == v1::INJECTED_FAULT_WRONG && measured->outcome() == v1::WRONG_RESULT) ||
      (fault == v1::INJECTED_FAULT_CRASH && measured->outcome() == v1::RUN_CRASH) ||
      (fault == v1::INJECTED_FAULT_HANG && measured->outcome() == v1::RUN_TIMEOUT);
  if (!expected) return;
  measured->set_error_detail(support::StrCat("injected by --test-faults, found as ",
                                             measured->error_class(), ": ",
                                             measured->error_detail()));
  measured->set_error_class("TEST_FAULT");
}

void Disturb(v1::ModuleMeasured* measured) {
  constexpr double kSlowDown = 4;
  if (measured->outcome() != v1::OK) return;
  measured->set_baseline_after(kSlowDown * measured->baseline_before());
}

}  // namespace tilewright::device_agent
