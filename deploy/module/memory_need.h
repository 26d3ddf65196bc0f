// The memory that one session of a module holds for its data, known before it runs: all of it is
// planned at compile time. With size variables: at their maxima. A pure function on values;
// thread-safe.
#ifndef DEPLOY_MODULE_MEMORY_NEED_H_
#define DEPLOY_MODULE_MEMORY_NEED_H_

#include <cstdint>

#include "deploy/module/manifest.h"

namespace tilewright::module {

// Bytes. Not in it: the program with its heap and stacks, and a device driver's own needs.
struct MemoryNeed {
  int64_t weights = 0;    // constants, mapped from the file
  int64_t arena = 0;      // intermediates, and weights in the kernels' layouts
  int64_t workspace = 0;  // scratch of the launch that needs most
  int64_t ends = 0;       // inputs and outputs of "main"
  int64_t state = 0;      // lists that are kept between runs
  int64_t code = 0;
  int64_t total() const { return weights + arena + workspace + ends + state + code; }
};

// REQUIRES: a valid manifest with a function "main".
MemoryNeed NeedOf(const Manifest& manifest);

}  // namespace tilewright::module

#endif  // DEPLOY_MODULE_MEMORY_NEED_H_
