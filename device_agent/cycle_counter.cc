#include "device_agent/cycle_counter.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <string>

#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

bool IsCounter(volatile TwBoardCounter* counter) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(counter->magic == TW_BOARD_MAGIC ? 0 : 1);
  }
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

absl::StatusOr<CycleCounter> CycleCounter::At(std::string_view address) {
  std::string_view digits = address.starts_with("0x") ? address.substr(2) : address;
  uintptr_t number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  const bool sensible = error == std::errc() && end == digits.data() + digits.size() &&
                        number != 0 && number % alignof(TwBoardCounter) == 0;
  auto* counter = reinterpret_cast<volatile TwBoardCounter*>(sensible ? number : 0);
  if (counter != nullptr && IsCounter(counter)) return CycleCounter(counter);
  return support::InvalidArgument(
      "worker.counter.missing",
      support::StrCat("expected the counter of qemu_board.c at ", support::Quote(address),
                      ": start the worker by qemu-user with -plugin "
                      "libtilewright_qemu_board.so,at=ADDRESS"));
}

}  // namespace tilewright::device_agent
