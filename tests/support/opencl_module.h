// Candidate modules for OpenCL devices: of a program and its schedule, by the compiler's own path
// (schedule, GPU passes, launches, OpenCL C), or of a text as it is. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/module/kernel_module.h"

namespace tilewright::tests {

// `program` is IR text of stage scheduled; `steps` schedule text. One launch that takes all of the
// program's buffers.
absl::StatusOr<std::string> OpenClModule(const std::string& program, const std::string& steps);

// A kernel KERNEL(long n, __global float* x, __global float* y) over n = `elements`, in
// groups of 64 threads.
std::string OpenClTextModule(const std::string& kernel, const std::string& text,
                             int64_t elements = 1024);

}  // namespace tilewright::tests
