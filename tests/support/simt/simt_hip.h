// HIP for the emulator: CUDA's words, which the texts define anew by clang's builtins for amdgcn,
// and those builtins.
#include "tests/support/simt/simt_cuda.h"

#define _Float16 simt_half
#define SIMT_AXES(name, axes)                                     \
  SIMT_PLAIN unsigned simt_##name##_x() { return simt->axes[0]; } \
  SIMT_PLAIN unsigned simt_##name##_y() { return simt->axes[1]; } \
  SIMT_PLAIN unsigned simt_##name##_z() { return simt->axes[2]; }
SIMT_AXES(workitem_id, thread)
SIMT_AXES(workgroup_id, group)
SIMT_AXES(workgroup_size, threads)
#define __builtin_amdgcn_workitem_id_x simt_workitem_id_x
#define __builtin_amdgcn_workitem_id_y simt_workitem_id_y
#define __builtin_amdgcn_workitem_id_z simt_workitem_id_z
#define __builtin_amdgcn_workgroup_id_x simt_workgroup_id_x
#define __builtin_amdgcn_workgroup_id_y simt_workgroup_id_y
#define __builtin_amdgcn_workgroup_id_z simt_workgroup_id_z
#define __builtin_amdgcn_workgroup_size_x simt_workgroup_size_x
#define __builtin_amdgcn_workgroup_size_y simt_workgroup_size_y
#define __builtin_amdgcn_workgroup_size_z simt_workgroup_size_z
// The fence orders what the barrier does not, of a device; here a barrier orders all memory.
#define __builtin_amdgcn_fence(order, scope) ((void)0)
#define __builtin_amdgcn_s_barrier() simt_barrier(__LINE__)
// The word of another thread of the warp, by four times its number, which wraps. All threads of the
// warp must be there: a device gives zeros for the others.
SIMT_PLAIN int simt_bpermute(int address, int word, unsigned long site) {
  const unsigned from = (unsigned)address / 4 % simt->warp;
  return simt_shuffle(simt_whole_warp(), word, from, site);
}
#define __builtin_amdgcn_ds_bpermute(address, word) simt_bpermute(address, word, __LINE__)

// ROCm's device libraries.
#define TW_LIBRARY(name, type, suffix) \
  SIMT_PLAIN type tw_##name(type x) { return simt_math::name(x); }
#define TW_LIBRARY2(name, type, suffix) \
  SIMT_PLAIN type tw_##name(type x, type y) { return simt_math::name(x, y); }
