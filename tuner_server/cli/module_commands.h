// `tilewright modules …`: finished modules of a server, and fetching them with their digest
// checked.
#pragma once

#include <string>

#include "deploy/support/status.h"
#include "tuner_server/cli/server_client.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

// A module is named "m", "m/3", "m/versions/3" or in full; without a version the newest is meant.
absl::StatusOr<v1::ModuleVersion> FindModule(ServerClient& client, const std::string& name);
// Fetches files[0] (model.tw), verified, written atomically.
absl::Status FetchModule(ServerClient& client, const v1::ModuleVersion& version,
                         const std::string& output);

int ModulesList(const ServerPlace& server, const std::string& module, OutputFormat format);
int ModulesGet(const ServerPlace& server, const std::string& name, OutputFormat format);
// `if_newer`: does nothing (exit 0) when `output` holds that version's bytes already.
int ModulesFetch(const ServerPlace& server, const std::string& name, const std::string& output,
                 bool if_newer);

}  // namespace tilewright::cli
