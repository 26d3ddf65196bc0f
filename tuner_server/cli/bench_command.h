// `tilewright bench diff A.tw B.tw`: which of two modules of a model is faster on this machine, and
// where. Both run here in turns, on the same inputs, in a child process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct BenchDiffOptions {
  std::string a_path, b_path;
  double seconds = 5;               // for the race, without loading
  int threads = 0;                  // 0: what each module's target says
  uint64_t seed = 0;                // of inputs that are not given
  std::vector<std::string> inputs;  // NAME=FILE.pb|.npy
  std::vector<std::string> shapes;  // N=7: sizes of variables (tensor_files.h)
  bool profile = false;             // kernels side by side
  double at_least = 0;  // exit code 5 if b is certainly not that many times as fast as a; 0: never
  OutputFormat format = OutputFormat::kTable;
};
// Returns the exit code.
int BenchDiff(const BenchDiffOptions& options);

}  // namespace tilewright::cli
