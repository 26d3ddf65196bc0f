// What configurations take of a chip, by a program that synthesises them. Blocking; one thread.
#pragma once

#include <string>
#include <vector>

#include "tuner_server/cli/explore_command.h"

namespace tilewright::cli {

struct SynthesisOptions {
  // Called as PROGRAM --json CONFIGURATION. Prints {"cells": N, "block_ram": N}, or
  // {"error": "why not"}; says on standard error how far it is.
  std::string program;
  int64_t limit_ms = 0;  // of one configuration
};

// Sets the cells of each row. A row that the program does not synthesise in time keeps those that
// it has; its `cells_note` says why. process.start.*: the program cannot be started.
absl::Status Synthesise(const SynthesisOptions& options, std::vector<ExploredTarget>* rows);

}  // namespace tilewright::cli
