// Candidate modules made of the kernels of measured_kernels.c, with the inputs and the expected
// output that go with them: y = 2 x + 1 on floats. Stateless.
#pragma once

#include <cstdint>
#include <string>

#include "tilewright/v1/common.pb.h"

namespace tilewright::tests {

struct KernelOptions {
  int64_t elements = 1024;  // 4096 bytes: no padding before the guard page
  int threads = 1;
  // Code with a constructor: 1 ends the process with status 0, 2 opens a file for writing.
  int constructor = 0;
  int64_t workspace_bytes = 0;
  std::string name = {};  // of the model; empty = the kernel's
  std::string code = {};  // other code, which has the kernel
};

// Code whose kernel "attack" carries out a row of attacks.def once: while it is loaded ('L') or
// when it first runs ('K'). It looks for what starts with "SECRET-", in file and process.
std::string AttackCode(const std::string& attack, char when, const std::string& secret_file,
                       int64_t victim);

// Bytes of a model.tw with one launch of the kernel.
std::string KernelModule(const std::string& kernel, const KernelOptions& options = {});

// A few samples of little time.
v1::MeasurementPlan ShortPlan();

v1::InputSpec KernelInputs(int64_t elements = 1024);
// What an honest kernel makes of those inputs, in the format of expected outputs.
std::string KernelExpected(int64_t elements = 1024);

}  // namespace tilewright::tests
