// Shell completion, made from the table of commands, so that it is always up to date. Pure
// functions over plain values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::cli {

struct CompletionFlag {
  std::vector<std::string> names;  // "--output", "-o"
  std::string what;                // for people; the first line counts
  bool takes_value = false;
  std::vector<std::string> values;  // allowed values; empty: any, and files are offered
};

struct CompletionCommand {
  std::string name;
  std::string what;
  std::vector<CompletionFlag> flags;
  std::vector<CompletionCommand> commands;  // without any, files are offered
};

// A script for "bash", "zsh" or "fish". invalid_argument (cli.usage.shell) for another shell.
absl::StatusOr<std::string> CompletionScript(const CompletionCommand& root, std::string_view shell);

}  // namespace tilewright::cli
