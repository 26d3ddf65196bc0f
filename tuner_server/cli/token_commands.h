// `tilewright tokens` and `tilewright audit`: who may call what, and who did. Local files only: a
// user that may write a daemon's token file administers the daemon.
#pragma once

#include <string>

#include "deploy/security/token_file.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct TokensOptions {
  std::string file;      // token file of a daemon
  std::string role;      // agent, tuner, ci, engineer or admin
  std::string name;      // of the person, pipeline, agent or tuner
  std::string id;        // of a token
  std::string identity;  // folder that gets the token; empty: print it
  std::string audit;     // audit log of the daemon, for the last use; empty: none
  int days = security::kTokenDays;
  double grace_hours = 24;
  OutputFormat format = OutputFormat::kTable;
};

// Each returns an exit code.
int TokensCreate(const TokensOptions& options);
int TokensList(const TokensOptions& options);
// Who may call what, on the tracker and on the tuner.
int TokensRoles(OutputFormat format);
int TokensRevoke(const TokensOptions& options);
int TokensRotate(const TokensOptions& options);
int AuditVerify(const std::string& path);

}  // namespace tilewright::cli
