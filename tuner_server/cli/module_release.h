// `tilewright modules release`: says that a published version may be used, by a signature over its
// module, number, target and bytes. Publishing a module does not release it.
#pragma once

#include <string>

#include "deploy/security/module_signature.h"
#include "tuner_server/cli/server_place.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct ModuleRelease {
  std::string name;       // NAME/NUMBER or NAME@ALIAS
  std::string key;        // private key; empty: the server signs with its own
  std::string file;       // the module that was tested; the version must have its bytes. Empty: any
  std::string digest;     // likewise its digest
  std::string signature;  // also writes the detached signature there; empty: no file
  ServerPlace server;
  OutputFormat format = OutputFormat::kTable;
};

// Signs, and adds the signature to the version. Without a file to compare with, reads the version's
// bytes first: nothing is signed that is not an intact module for the target that the version
// names.
absl::StatusOr<security::DetachedSignature> Release(const ModuleRelease& release);
// Exit code 5 if the version has other bytes than the file or digest.
int ModulesRelease(const ModuleRelease& release);

}  // namespace tilewright::cli
