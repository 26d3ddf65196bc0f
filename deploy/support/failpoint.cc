#include "deploy/support/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "deploy/support/strings.h"

namespace tilewright::support {
namespace {

std::atomic<int> hits_left{0};

}  // namespace

absl::Status ArmFailpoint(std::string_view spec) {
  const size_t equals = spec.find('=');
  const auto name =
      std::find(kFailpointNames.begin(), kFailpointNames.end(), spec.substr(0, equals));
  const auto hits =
      equals == std::string_view::npos ? std::nullopt : ParseInt64(spec.substr(equals + 1));
  if (name == kFailpointNames.end() || !hits || *hits < 1 || *hits > 1'000'000) {
    return InvalidArgument("support.failpoint.invalid",
                           "expected NAME=N with a name of failpoints.def, found " + Quote(spec));
  }
  hits_left.store(static_cast<int>(*hits));
  internal::armed_failpoint.store(static_cast<int>(name - kFailpointNames.begin()));
  return absl::OkStatus();
}

void internal::CountDownFailpoint() {
  if (hits_left.fetch_sub(1) == 1) kill(getpid(), SIGKILL);
}

}  // namespace tilewright::support
