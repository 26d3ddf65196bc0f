#include "compiler/space/run_loops.h"

#include <algorithm>
#include <cmath>

#include "compiler/estimate/analytical_model.h"
#include "compiler/estimate/loop_summary.h"
#include "compiler/ir/bind_sizes.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/split_prepare.h"
#include "deploy/support/status.h"

namespace tilewright::space {

absl::StatusOr<ir::Function> LowerRun(const ir::Function& scheduled, const target::Target& target,
                                      const std::map<std::string, int64_t>& sizes) {
  transform::PassContext context;
  context.target = target;
  TW_ASSIGN(const transform::PreparedFunction split,
            transform::SplitPrepare(ir::BindSizes(scheduled, sizes)));
  TW_ASSIGN(ir::Function loops, transform::LowerToLoops(split.main, context));
  if (sizes.empty()) return loops;
  return transform::ShortenLoops(loops, context);
}

absl::StatusOr<double> EstimateRunNs(const ir::Function& scheduled, const target::Target& target,
                                     const std::map<std::string, int64_t>& sizes) {
  TW_ASSIGN(const ir::Function loops, LowerRun(scheduled, target, sizes));
  return estimate::EstimateTime(estimate::Summarize(loops), target).total_ns;
}

std::map<std::string, int64_t> Scaled(const std::map<std::string, int64_t>& sizes, double factor) {
  std::map<std::string, int64_t> scaled = sizes;
  for (auto& [name, size] : scaled)
    size = std::max<int64_t>(1, std::llround(static_cast<double>(size) * factor));
  return scaled;
}

}  // namespace tilewright::space
