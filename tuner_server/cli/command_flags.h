// Shared by the files that declare flags (cli_main.cc and *_flags.cc, the only ones that include
// CLI11): how a command is added, and how it sets the action to run.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tuner_server/cli/server_place.h"
#include "tuner_server/cli/shape_flags.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

// Runs the chosen command; returns an exit code.
using Action = std::function<int()>;

inline constexpr char kOutputFlag[] = "-o,--output";
inline constexpr char kFormatFlag[] = "--format";

CLI::App* AddCommand(CLI::App* parent, const std::string& name, const std::string& what,
                     const std::string& examples);
// A command that only has commands.
CLI::App* AddGroup(CLI::App* parent, const std::string& name, const std::string& what,
                   const std::string& examples);
// Adds `-o json` to commands without an output file, `--format json` to others.
void AddFormat(CLI::App* command, const std::string& flag, OutputFormat* format);

// --input of a command that runs a module, and --seed of the inputs that are not given.
void AddInputs(CLI::App* command, std::vector<std::string>* inputs);
void AddSizes(CLI::App* command, std::vector<std::string>* shapes);
// --shape, --specialise and --state of a command that imports a model.
void AddModelSizes(CLI::App* command, SizeFlags* flags);
// --operators of a command that reads a model.
void AddOperatorFiles(CLI::App* command, std::vector<std::string>* files);
// --allow-library of a command that runs a module.
CLI::Option* AddLibraries(CLI::App* command, std::vector<std::string>* libraries);
void AddInputSeed(CLI::App* command, uint64_t* seed);

// --server and --identity.
void AddServer(CLI::App* command, ServerPlace* server);

void AddBench(CLI::App* app, Action* action);
void AddCheck(CLI::App* app, Action* action);
void AddCompare(CLI::App* app, Action* action);
void AddExplore(CLI::App* app, Action* action);
void AddQuantize(CLI::App* app, Action* action);
void AddOperators(CLI::App* app, Action* action);
void AddLog(CLI::App* app, Action* action);
void AddReport(CLI::App* app, Action* action);
void AddModules(CLI::App* app, Action* action);
// Knows the commands that were added before it; call it last.
void AddCompletion(CLI::App* app, Action* action);
// Certificates, tokens, the audit log: files only, no server.
void AddCerts(CLI::App* app, Action* action);
void AddTokens(CLI::App* app, Action* action);
void AddAudit(CLI::App* app, Action* action);
void AddBackup(CLI::App* app, Action* action);

}  // namespace tilewright::cli
