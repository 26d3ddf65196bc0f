// Targets: what a target string says (DESIGN.md section 8), and the machine behind it.
// `cpu,arch=x86_64,cpu=znver4,threads=2`. `native` is expanded (CLI only) from the machine it runs
// on. Values; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/target/machine.h"

namespace tilewright::target {

struct Target {
  std::string kind = {};
  // Empty for kinds whose targets name no machine.
  std::string arch = {};
  std::string cpu = {};  // LLVM's name of the processor, or the name of a configuration
  int threads = 1;
  Machine machine = {};  // the row that the string names

  std::string ToString() const;        // canonical, keys sorted; parses back
  std::string WithoutThreads() const;  // part of a record's key
  // The row of the table of kinds. REQUIRES: a target that ParseTarget returned.
  const Family& family() const;
};
// ir.target.unknown_kind | unknown_cpu | bad_value | native (the command line expands that one)
absl::StatusOr<Target> ParseTarget(std::string_view text);

// "native[,threads=N]" becomes the canonical text for the machine described by the other arguments
// (`threads` where the text names none); any other target is checked and made canonical.
absl::StatusOr<std::string> ExpandNative(std::string_view text, std::string_view arch,
                                         std::string_view cpu, int threads);

}  // namespace tilewright::target
