// `tilewright modules keys …` and `modules revoke`: which keys may release modules on a server, and
// taking releases back.
#pragma once

#include <string>

#include "tuner_server/cli/server_place.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct ReleaseKeyAdding {
  std::string path;  // public key (FILE.pub), or a private one, of which the public half is sent
  std::string name;  // whose it is; empty: the file's name
  ServerPlace server;
  OutputFormat format = OutputFormat::kTable;
};
int ModulesKeysAdd(const ReleaseKeyAdding& adding);

int ModulesKeysList(const ServerPlace& server, OutputFormat format);

struct ReleaseRevoking {
  std::string name;    // of a version, NAME/NUMBER or NAME@ALIAS; empty: the key as a whole
  std::string key_id;  // or a file with the key
  std::string reason;
  ServerPlace server;
  OutputFormat format = OutputFormat::kTable;
};
// Revokes a key with all that it released.
int ModulesKeysRevoke(const ReleaseRevoking& revoking);
// Revokes what one key said of one version.
int ModulesRevoke(const ReleaseRevoking& revoking);

}  // namespace tilewright::cli
