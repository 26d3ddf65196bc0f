// The accelerator of a board as a device of the driver: control registers that Linux maps, and
// contiguous memory that the hardware reads and writes (board_place.h finds both). It polls for the
// end: the hardware has no interrupt. Its values are nanoseconds, from the hardware's counter of
// cycles and the frequency of its clock. Objects belong to one thread; one process at a time has a
// board.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "deploy/support/clock.h"
#include "vta/driver/board_place.h"
#include "vta/driver/vta_backend.h"

namespace tilewright::vta {

struct BoardTimes {
  // A counter of cycles that stands so long, or a stop that is not answered so long: the hardware
  // hangs.
  int64_t stuck_ms = 1'000;
};

// Opens a board, and ends what a process before has left running there. `clock` outlives it.
//   UNAVAILABLE vta.board.dead: the registers do not answer; FAILED_PRECONDITION
//   vta.board.identity: hardware of a configuration without a name here; vta.board.clock: hardware
//   that does not know its clock; vta.board.registers: fewer registers than the manual has;
//   vta.board.stuck: it does not stop; as MappedDevice::Open.
// Errors of Run: INVALID_ARGUMENT vta.board.illegal; FAILED_PRECONDITION vta.board.unfinished: work
// or tokens left at the finish; DEADLINE_EXCEEDED vta.board.timeout: more cycles than allowed;
// UNAVAILABLE vta.board.hang: no cycles any more. After UNAVAILABLE vta.board.stuck or
// vta.board.dead every later run fails with the same error: the board needs a reset.
absl::StatusOr<std::unique_ptr<Backend>> OpenBoard(const BoardPlace& place, support::Clock* clock,
                                                   const BoardTimes& times = {});

}  // namespace tilewright::vta
