// Makes memory cold: for measurements of kernels whose weights are cold in a network.
#ifndef DEPLOY_RUNTIME_CACHE_EVICT_H_
#define DEPLOY_RUNTIME_CACHE_EVICT_H_

#include <cstddef>

namespace tilewright::runtime {

// Writes [data, data + bytes) back to memory and removes it from all caches of all cores. The
// values do not change. Takes about half a millisecond for 10 MB that were in a cache. Does nothing
// on processors other than x86-64 and AArch64, whose user programs may not do that.
void EvictFromCaches(const void* data, size_t bytes);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_CACHE_EVICT_H_
