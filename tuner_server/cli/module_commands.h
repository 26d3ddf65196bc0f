// `tilewright modules …`: finished modules of a server. Fetching them is in module_fetch.h; keys,
// signatures and releases are in module_signing.h.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "deploy/support/status.h"
#include "tuner_server/cli/server_client.h"
#include "tuner_server/cli/shape_flags.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

// "projects/default/modules/m", and the version's number or alias (neither: the best one).
struct ModuleRef {
  std::string module;
  int64_t number = 0;
  std::string alias;
};
// "m", "m/3", "m/versions/3", "m@stable" or the same in full. invalid_argument (cli.usage.module).
absl::StatusOr<ModuleRef> ParseModule(std::string text);

// Criteria for a module: at least a module or a model.
struct ModuleQuestion {
  std::string module;           // as ParseModule reads it; empty: any
  std::string model;            // an ONNX file or its SHA-256; empty: any
  std::string target;           // may be "native"; empty: any
  std::string device_class;     // empty: any
  SizeFlags sizes;              // that it must take; none: any
  bool exact = false;           // no other number of threads
  std::string max_latency;      // "100us", "1.5ms", "2s"; empty: any
  std::string not_slower_than;  // a version, as ParseModule reads it, or a number; empty: any
};
// Asks the server. Where the question names no target, number or alias, versions for this machine
// are preferred. not_found (module.not_found) with the server's explanation if no version answers;
// failed_precondition (module.answer.other) if the answer is not what was asked for.
absl::StatusOr<v1::ResolveModuleResponse> ResolveModule(ServerClient& client,
                                                        const ModuleQuestion& question);
absl::StatusOr<v1::ModuleVersion> FindModule(ServerClient& client, const std::string& name);
// The target string of a version; "-" without one.
std::string TargetText(const v1::ModuleVersion& version);
// Microseconds of "100us", "1.5ms" or "2s". invalid_argument (cli.usage.latency).
absl::StatusOr<double> ParseLatency(const std::string& text);

nlohmann::json VersionJson(const v1::ModuleVersion& version);

int ModulesList(const ServerPlace& server, const std::string& module, OutputFormat format);
// Also prints who asked for it, and the measurements that it was built on.
int ModulesGet(const ServerPlace& server, const std::string& name, OutputFormat format);
int ModulesResolve(const ServerPlace& server, const ModuleQuestion& question, OutputFormat format);
// Points `alias` at the version that `name` names, or removes it from the module.
int ModulesAlias(const ServerPlace& server, const std::string& name, const std::string& alias,
                 bool remove);

struct ModulePruning {
  std::string module;     // empty: all
  int keep = 0;           // newest versions of each module; 0: no limit
  int64_t max_bytes = 0;  // of all modules; 0: no limit
  bool dry_run = false;
};
int ModulesPrune(const ServerPlace& server, const ModulePruning& pruning, OutputFormat format);

}  // namespace tilewright::cli
