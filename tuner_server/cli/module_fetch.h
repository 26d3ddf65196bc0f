// `tilewright modules fetch`: a module's bytes, with their digest and, where a key is given, their
// signature checked.
#pragma once

#include <string>

#include "tuner_server/cli/module_commands.h"

namespace tilewright::cli {

// Fetches files[0] (model.tw), verified; goes on where an earlier call was cut off; returns the
// bytes moved.
absl::StatusOr<int64_t> FetchModule(ServerClient& client, const v1::ModuleVersion& version,
                                    const std::string& output);

struct ModuleFetch {
  ModuleQuestion question;
  std::string output = "model.tw";
  std::string key;  // public key that must have signed it; empty: TILEWRIGHT_MODULE_KEY, else none
  bool if_newer = false;   // moves nothing when `output` holds that version's bytes already
  bool exit_code = false;  // then says so by exit code 6
  OutputFormat format = OutputFormat::kTable;
};
// An unsigned or wrongly signed module is refused (exit code 5) before any of its bytes move.
// Writes OUTPUT.sig beside OUTPUT when a key is given.
int ModulesFetch(const ServerPlace& server, const ModuleFetch& fetch);

}  // namespace tilewright::cli
