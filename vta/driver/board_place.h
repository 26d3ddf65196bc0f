// Where the accelerator of a board is: the device files of its registers and of its memory, as
// Linux on a Zynq-class chip shows them. README.md says what the device tree has to have. Pure
// functions of what the files under a root folder say; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tilewright::vta {

struct BoardPlace {
  std::string registers = {};  // the device file: /dev/uio0
  int64_t register_bytes = 0;
  int64_t register_address = 0;  // in the address space of the processor; for messages
  std::string memory = {};       // the device file: /dev/tilewright-vta-43c00000
  int64_t memory_bytes = 0;      // contiguous
  int64_t memory_address = 0;    // of the first byte, as the hardware sees it
  // The processor's cache would hide what the hardware writes, so the memory is mapped without it.
  bool uncached = true;
};

// Returns the accelerators in the order of their register addresses. `root` is "" for this machine,
// or a folder that stands for "/".
//   NOT_FOUND vta.board.memory: an accelerator has registers but no memory; FAILED_PRECONDITION
//   vta.board.memory: memory that it cannot use; DATA_LOSS vta.board.sysfs: a file that does not
//   say what it should.
absl::StatusOr<std::vector<BoardPlace>> FindBoards(const std::string& root);

}  // namespace tilewright::vta
