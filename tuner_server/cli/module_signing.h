// `tilewright modules keygen, sign, verify`: who released a module. Local files; only attaching a
// signature to a published version needs a server.
#pragma once

#include <string>

#include "tuner_server/cli/server_place.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

// Writes PATH and PATH.pub.
int ModulesKeygen(const std::string& path, OutputFormat format);

struct ModuleSigning {
  std::string path;  // the model.tw
  std::string key;   // private to sign, public to verify; empty to verify: TILEWRIGHT_MODULE_KEY
  std::string signature;  // the detached file; empty: PATH.sig
  std::string
      attach_to;  // a published version (MODULE/NUMBER) that has the same bytes; empty: none
  ServerPlace server;
  OutputFormat format = OutputFormat::kTable;
};
int ModulesSign(const ModuleSigning& signing);
// Exit code 5 if the signature is missing, is by another key, or does not match the bytes; 1 if the
// module itself is damaged.
int ModulesVerify(const ModuleSigning& signing);

}  // namespace tilewright::cli
