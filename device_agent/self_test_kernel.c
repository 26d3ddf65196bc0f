/* The kernel of a device's self-test (self_test.h): plain arithmetic with a known answer, through
 * the same door as every candidate. y[i] = sum over j < TAPS of (j + 1) / 8 * x[(i + j) mod n]. */
#include "deploy/runtime/c_abi.h"

enum { TAPS = 16 };

int32_t tw_kernel_self_test(TwContext* ctx, void* const* buffers, const int64_t* sizes,
                            void* workspace) {
  const float* x = buffers[0];
  float* y = buffers[1];
  const int64_t n = sizes[0];
  (void)ctx;
  (void)workspace;
  for (int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < TAPS; ++j) sum += (float)(j + 1) / 8.0F * x[(i + j) % n];
    y[i] = sum;
  }
  return TW_OK;
}
