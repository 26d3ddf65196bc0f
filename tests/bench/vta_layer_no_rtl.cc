#include "deploy/support/status.h"
#include "tests/bench/vta_layer_run.h"

namespace tilewright::bench {

absl::StatusOr<RtlRun> RunOnRtl(const VtaProgram& /*program*/) {
  return support::FailedPrecondition(
      "bench.rtl.none", "this build has no RTL: configure it with -DTILEWRIGHT_BUILD_RTL=ON");
}

}  // namespace tilewright::bench
