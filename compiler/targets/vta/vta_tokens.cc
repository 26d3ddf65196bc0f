#include "compiler/targets/vta/vta_tokens.h"

#include <array>
#include <cstdlib>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {
namespace {

using vta::Module;

// `later` waits for a token that `earlier` gives.
void Connect(VtaEvent* earlier, VtaEvent* later) {
  bool down = vta::ModuleOf(earlier->instruction) < vta::ModuleOf(later->instruction);
  (down ? earlier->instruction.push_next : earlier->instruction.push_prev) = 1;
  (down ? later->instruction.pop_prev : later->instruction.pop_next) = 1;
}

}  // namespace

bool Conflict(const VtaEvent& a, const VtaEvent& b) {
  for (const VtaRegion& x : a.regions) {
    for (const VtaRegion& y : b.regions) {
      bool overlap = x.space == y.space && x.begin < y.end && y.begin < x.end;
      if (overlap && (x.is_write || y.is_write)) return true;
    }
  }
  return false;
}

absl::Status DeriveVtaTokens(std::vector<VtaEvent>* events) {
  // Instructions so far of each module; waited[m][n]: how many of n's are known to be done when the
  // next of m starts, by the tokens between these two.
  std::array<std::vector<size_t>, vta::kModules> queues;
  size_t waited[vta::kModules][vta::kModules] = {};
  for (size_t at = 0; at < events->size(); ++at) {
    VtaEvent& event = (*events)[at];
    const int mine = static_cast<int>(vta::ModuleOf(event.instruction));
    const bool last = event.instruction.op == vta::Opcode::kFinish;
    for (int other = 0; other < vta::kModules; ++other) {
      if (other == mine) continue;
      const std::vector<size_t>& queue = queues[static_cast<size_t>(other)];
      size_t& done = waited[mine][other];
      for (size_t n = queue.size(); n > done; --n) {
        VtaEvent& earlier = (*events)[queue[n - 1]];
        if (!last && !Conflict(earlier, event)) continue;
        if (std::abs(mine - other) != 1) {
          return support::Unimplemented(
              "codegen.vta.dram_hazard",
              support::StrCat("expected loads of what no store of the same stream wrote, found ",
                              vta::Disassemble(earlier.instruction), " before ",
                              vta::Disassemble(event.instruction)));
        }
        Connect(&earlier, &event);
        done = n;
        break;
      }
    }
    queues[static_cast<size_t>(mine)].push_back(at);
  }
  return absl::OkStatus();
}

}  // namespace tilewright::vta
