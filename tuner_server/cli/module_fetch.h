// `tilewright modules fetch`: a module's bytes. The digest is always checked; with a key, also who
// released the module, and that the release is of the name, version and target asked for.
#pragma once

#include <string>

#include "tuner_server/cli/module_commands.h"

namespace tilewright::cli {

// Fetches files[0] (model.tw), verified; continues where an earlier call was cut off. Returns the
// number of bytes moved.
absl::StatusOr<int64_t> FetchModule(ServerClient& client, const v1::ModuleVersion& version,
                                    const std::string& output);

struct ModuleFetch {
  ModuleQuestion question;
  std::string output = "model.tw";
  std::string key;  // public key that must have signed it; empty: TILEWRIGHT_MODULE_KEY, else none
  bool bytes_only =
      false;               // accepts a signature of format 1, which covers no name, version, target
  std::string digest;      // the version must have these bytes; empty: any
  bool if_newer = false;   // moves nothing when `output` holds that version's bytes already
  bool exit_code = false;  // then says so by exit code 6
  OutputFormat format = OutputFormat::kTable;
};
// Refuses an unsigned or wrongly signed module, and one with other bytes than pinned (exit code 5),
// before any of its bytes move. With a key it also writes OUTPUT.sig.
int ModulesFetch(const ServerPlace& server, const ModuleFetch& fetch);

}  // namespace tilewright::cli
