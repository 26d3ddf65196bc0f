#include "vta/driver/device_list.h"

#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/env.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/driver/board_backend.h"
#include "vta/driver/board_place.h"
#include "vta/driver/simulated_backends.h"
#ifdef TILEWRIGHT_BUILD_RTL
#include "vta/driver/rtl_backend.h"
#endif

namespace tilewright::vta {
namespace {

constexpr std::unique_ptr<Backend> (*kSimulated[])() = {
    [] { return MakeCycleModel(); },
    [] { return MakeFunctionalSimulator(); },
#ifdef TILEWRIGHT_BUILD_RTL
    [] { return MakeRtl(CycleTiming().dram_latency); },
#endif
};

absl::StatusOr<std::vector<BoardPlace>> Boards() {
  return FindBoards(support::GetEnv("TILEWRIGHT_VTA_ROOT").value_or(""));
}

support::Clock* BoardClock() {
  static support::SystemClock* const kClock = new support::SystemClock();
  return kClock;
}

absl::StatusOr<std::shared_ptr<Accelerator>> OpenSharedBoard(const BoardPlace& place) {
  static std::mutex* const mutex = new std::mutex();
  static auto* const open = new std::map<std::string, std::weak_ptr<Accelerator>>();  // by place
  const std::lock_guard lock(*mutex);
  std::weak_ptr<Accelerator>& known = (*open)[place.registers];
  if (std::shared_ptr<Accelerator> board = known.lock()) return board;
  TW_ASSIGN(std::unique_ptr<Backend> backend, OpenBoard(place, BoardClock()));
  auto board = std::make_shared<Accelerator>(std::move(backend));
  known = board;
  return board;
}

}  // namespace

int32_t CountDevices() {
  const auto boards = Boards();
  return static_cast<int32_t>(std::size(kSimulated) + (boards.ok() ? boards->size() : 0));
}

absl::StatusOr<std::shared_ptr<Accelerator>> OpenDevice(int32_t index) {
  const auto at = static_cast<size_t>(index);
  if (index >= 0 && at < std::size(kSimulated)) {
    return std::make_shared<Accelerator>(kSimulated[at]());
  }
  TW_ASSIGN(const std::vector<BoardPlace> boards, Boards());
  const size_t devices = std::size(kSimulated) + boards.size();
  if (index < 0 || at >= devices) {
    return support::NotFound("vta.driver.index", support::StrCat("expected one of ", devices,
                                                                 " devices, found ", index));
  }
  return OpenSharedBoard(boards[at - std::size(kSimulated)]);
}

}  // namespace tilewright::vta
