// `tilewright run`: executes a module on this machine with given or seeded inputs, checks and
// writes its outputs, and prints the latency. Nothing is written unless everything succeeded. The
// module's code runs in a child process: a crash there is an error (run.code.crashed).
#pragma once

#include <string>
#include <vector>

#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct RunOptions {
  std::string module_path;
  std::string key;        // public key that must have released it; empty: TILEWRIGHT_MODULE_KEY
  std::string signature;  // empty: module_path + ".sig"
  bool sandbox = false;   // in a confined process (run_sandbox.h)
  std::string bridge;     // shell command: in such a process on another machine
  bool allow_weak_sandbox = false;
  std::vector<std::string> libraries;  // paths of those whose functions the module may call
  std::vector<std::string> inputs;     // NAME=FILE.pb|.npy
  std::vector<std::string> shapes;     // N=7: sizes of variables (tensor_files.h)
  std::vector<std::string> expects;    // NAME=FILE.pb|.npy
  double rtol = 1e-3;                  // |a - e| <= atol + rtol * |e|
  double atol = 1e-5;
  std::string output_dir;
  std::string output_format = "pb";  // "pb" or "npy": the files in output_dir
  int repeat = 10;
  int threads = 0;     // 0 = what the module's target names
  std::string device;  // index or name, for modules with launches on a device; empty: the first
  uint64_t seed = 0;
  bool profile = false;
  std::string trace;     // file for the profile as a trace; "" = none
  std::string html;      // file for the profile as a page of the model's layers; "" = none
  std::string timeline;  // folder for what a device did in each launch; "" = none
  OutputFormat format = OutputFormat::kTable;
};
// Returns the exit code.
int RunModule(const RunOptions& options);

}  // namespace tilewright::cli
