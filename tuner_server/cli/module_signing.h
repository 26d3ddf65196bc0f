// `tilewright modules keygen, sign, verify`: keys, and signatures in files next to the module. Only
// `sign --attach-to` needs a server: it is a release (module_release.h) of a file at hand.
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
  std::string attach_to;  // a published version that has the same bytes; empty: none
  std::string module;     // to verify: the release must be of "dqn" or "dqn/3"; empty: any
  std::string target;     // to verify: likewise for this target; empty: any
  ServerPlace server;
  OutputFormat format = OutputFormat::kTable;
};
int ModulesSign(const ModuleSigning& signing);
// Exit code 5 if the signature is missing, is by another key, does not fit the bytes or is about
// another module, version or target than given; 1 if the module itself is damaged.
int ModulesVerify(const ModuleSigning& signing);

}  // namespace tilewright::cli
