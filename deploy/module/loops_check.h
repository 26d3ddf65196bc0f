// Loops of a function: their tensors, and the part of ValidateManifest (manifest.h) that is about
// them. Pure functions.
#ifndef DEPLOY_MODULE_LOOPS_CHECK_H_
#define DEPLOY_MODULE_LOOPS_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "deploy/module/manifest.h"

namespace tilewright::module {

// The tensors that loops read and write between launches, some of them several times.
std::vector<int64_t> LoopTensors(const Function& function);
// Those that they write.
std::vector<int64_t> WrittenByLoops(const Function& function);

// The loop that begins with launch `at` and ends at `end` or before, one of the first `limit`: of
// several the one around the others; -1 without one.
int LoopAt(const Function& function, int64_t at, int64_t end, size_t limit);

// INVALID_ARGUMENT `module.manifest.loop`. `where` is the function. REQUIRES: a valid list of
// tensors and of code.
absl::Status CheckLoops(const Manifest& manifest, const Function& function,
                        const std::string& where);

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_LOOPS_CHECK_H_
