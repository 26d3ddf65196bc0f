// Makes memory cold, for measurements of kernels that find their weights so in a network.
#ifndef DEPLOY_RUNTIME_CACHE_EVICT_H_
#define DEPLOY_RUNTIME_CACHE_EVICT_H_

#include <cstddef>

namespace tilewright::runtime {

// Writes back and drops from every cache of every core what lies in [data, data + bytes); the
// values stay. About half a millisecond for 10 MB that were in a cache. Does nothing on processors
// whose user programs may not do that (neither x86-64 nor AArch64).
void EvictFromCaches(const void* data, size_t bytes);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_CACHE_EVICT_H_
