// `tilewright modules fetch`: fetches a module, and checks its digest and, if a key is given, its
// signature.
#pragma once

#include <string>

#include "tuner_server/cli/module_commands.h"

namespace tilewright::cli {

// Fetches files[0] (model.tw) and verifies it; resumes where an earlier call was cut off. Returns
// the number of bytes moved.
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
// Writes OUTPUT.sig next to OUTPUT if a key is given.
int ModulesFetch(const ServerPlace& server, const ModuleFetch& fetch);

}  // namespace tilewright::cli
