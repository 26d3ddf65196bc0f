// CUDA C for the emulator: the words of the language that generated texts use.
#include "tests/support/simt/simt_cpp.h"

#define __global__
#define __device__
#define __forceinline__
#define __launch_bounds__(...)
// The memory that the launch gives begins at a multiple of 1,024.
#define TW_DYNAMIC_SHARED(type, name, count, offset) \
  SIMT_SHARED_AT(type, name, count, ((offset) | 1024) & -((offset) | 1024))

#define threadIdx simt_thread()
#define blockIdx simt_group()
#define blockDim simt_threads()
#define gridDim simt_groups()

SIMT_PLAIN void simt_barrier(unsigned long site) { simt->barrier(simt, 1, site); }
#define __syncthreads() simt_barrier(__LINE__)

#define __shfl_xor_sync(mask, value, bits) simt_shuffle(mask, value, simt_lane() ^ (bits), __LINE__)
#define __shfl_down_sync(mask, value, n) simt_shuffle(mask, value, simt_lane() + (n), __LINE__)
#define __shfl_sync(mask, value, lane) simt_shuffle(mask, value, lane, __LINE__)

#define __int_as_float(bits) simt_float_of(bits)
#define __uint_as_float(bits) simt_float_of((int)(bits))
SIMT_PLAIN unsigned simt_bits_of(float value) {
  unsigned bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}
#define __float_as_uint(value) simt_bits_of(value)

// The instruction dp4a: each operand is four bytes, signed or not, and the sum wraps.
SIMT_PLAIN int simt_byte(unsigned four, int i, bool is_signed) {
  const unsigned byte = four >> 8 * i & 0xFF;
  return is_signed && byte >= 128 ? (int)byte - 256 : (int)byte;
}
SIMT_PLAIN int simt_dp4a(bool a_signed, bool b_signed, int sum, unsigned a, unsigned b) {
  for (int i = 0; i < 4; ++i)
    sum = (int)((unsigned)sum + (unsigned)(simt_byte(a, i, a_signed) * simt_byte(b, i, b_signed)));
  return sum;
}
#define TW_DP4A(a_type, b_type, sum, a, b) \
  sum = simt_dp4a(#a_type[0] == 's', #b_type[0] == 's', sum, a, b)

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};

// Tensor cores. A warp's fragments, as the PTX ISA lays them out: a register holds 4 bytes of the
// terms of a row of A, or of a column of B.
struct SimtFactors {
  unsigned a[4], b[2];
};
SIMT_PLAIN unsigned simt_bits_at(unsigned word, int byte, int bytes) {
  return word >> 8 * (byte % 4) & (bytes == 1 ? 0xFFu : bytes == 2 ? 0xFFFFu : ~0u);
}
// Bits of the term that begins at `byte`, of 32, in a row of A or a column of B.
SIMT_PLAIN unsigned simt_a_bits(const SimtFactors* warp, int row, int byte, int bytes) {
  const SimtFactors& lane = warp[row % 8 * 4 + byte % 16 / 4];
  return simt_bits_at(lane.a[row / 8 + byte / 16 * 2], byte, bytes);
}
SIMT_PLAIN unsigned simt_b_bits(const SimtFactors* warp, int column, int byte, int bytes) {
  const SimtFactors& lane = warp[column * 4 + byte % 16 / 4];
  return simt_bits_at(lane.b[byte / 16], byte, bytes);
}
// Rounds a float to 11 bits, away from zero where two are as near; what is no number stays so.
SIMT_PLAIN unsigned simt_round_tf32(unsigned bits) {
  const bool finite = (bits & 0x7F800000u) != 0x7F800000u;
  return finite ? (bits + 0x1000u) & ~0x1FFFu : bits;
}
#define TW_ROUND_TF32(bits) bits = simt_round_tf32(bits)
// Of the type that its letter in the instruction's name says: f16, bf16 or tf32, of which a device
// does not read the last bits.
SIMT_PLAIN float simt_term(unsigned bits, char type) {
  if (type == 't') return simt_float_of((int)(bits & ~0x1FFFu));
  return type == 'b' ? simt_float_of((int)(bits << 16)) : tw_half_to_float((unsigned short)bits);
}
// A device adds the terms up in an order of its own. Here the sum is exact, and rounded once.
SIMT_PLAIN float simt_add_terms(float d, const SimtFactors* warp, int row, int column, char a,
                                char b) {
  double sum = d;
  const int bytes = a == 't' ? 4 : 2;
  for (int byte = 0; byte < 32; byte += bytes)
    sum += (double)simt_term(simt_a_bits(warp, row, byte, bytes), a) *
           simt_term(simt_b_bits(warp, column, byte, bytes), b);
  return (float)sum;
}
SIMT_PLAIN int simt_add_terms(int d, const SimtFactors* warp, int row, int column, char a, char b) {
  unsigned sum = (unsigned)d;
  for (int byte = 0; byte < 32; ++byte)
    sum += (unsigned)(simt_byte(simt_a_bits(warp, row, byte, 1), 0, a == 's') *
                      simt_byte(simt_b_bits(warp, column, byte, 1), 0, b == 's'));
  return (int)sum;
}
template <class T>
SIMT_PLAIN void simt_mma(const char* form, T (&d)[4], const unsigned (&a)[4],
                         const unsigned (&b)[2], unsigned long site) {
  const SimtFactors own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const auto* warp = (const SimtFactors*)simt->gather(simt, &own, sizeof own, site);
  // "m16n8k32.row.col.s32.u8.s8.s32": the types of A and B are behind the fourth and fifth dot.
  const char* type = form;
  for (int dots = 0; dots < 4; ++type) dots += *type == '.';
  const char a_type = *type;
  while (*type != '.') ++type;
  const char b_type = type[1];
  const int lane = (int)simt_lane();
  for (int e = 0; e < 4; ++e)
    d[e] = simt_add_terms(d[e], warp, lane / 4 + e / 2 * 8, lane % 4 * 2 + e % 2, a_type, b_type);
}
#define TW_MMA(form, kind, d, a, b) simt_mma(form, d, a, b, __LINE__)

struct alignas(16) SimtRow {
  unsigned short v[8];
};
// Thread 8 m + r of a warp names row r of matrix m, of 8 rows of 16 bytes: a read of its own.
template <int count>
SIMT_PLAIN void simt_ldmatrix(bool turned, unsigned (&f)[count], const void* row,
                              unsigned long site) {
  const int lane = (int)simt_lane();
  SimtRow own = {};
  if (lane < 8 * count) {
    simt->access(simt, row, 16, 16, 0, (const void*)site);
    own = *(const SimtRow*)row;
  }
  const auto* rows = (const SimtRow*)simt->gather(simt, &own, sizeof own, site);
  for (int m = 0; m < count; ++m) {
    const SimtRow* matrix = rows + 8 * m;
    const int one = lane / 4, two = lane % 4 * 2;
    f[m] = turned ? matrix[two].v[one] | (unsigned)matrix[two + 1].v[one] << 16
                  : matrix[one].v[two] | (unsigned)matrix[one].v[two + 1] << 16;
  }
}
#define TW_LDMATRIX4(turned, f, row) simt_ldmatrix(sizeof turned > 1, f, row, __LINE__)
#define TW_LDMATRIX2(turned, f, row) simt_ldmatrix(sizeof turned > 1, f, row, __LINE__)

// Copies that a thread starts (cp.async): the source is read when they start; they land when the
// thread waits for their group, as late as a device may do it. Until then their place has neither
// the old values nor the new ones.
struct SimtCopy {
  char* to;
  unsigned bytes, group;
  char value[16];
};
struct SimtCopies {
  unsigned run, groups, count;
  SimtCopy copies[128];
};
static SimtCopies simt_copies[1024];
SIMT_PLAIN SimtCopies& simt_own_copies() {
  SimtCopies& own = simt_copies[simt_number()];
  if (own.run != simt->run) own = {simt->run, 0, 0, {}};
  return own;
}
SIMT_PLAIN void simt_copy_async(void* to, const void* from, bool copies, unsigned bytes,
                                unsigned long site) {
  if (copies) simt->access(simt, from, bytes, bytes, 0, (const void*)site);
  simt->access(simt, to, bytes, bytes, 1, (const void*)site);
  SimtCopies& own = simt_own_copies();
  if (own.count == 128) simt->fail(simt, "simt.copies", "expected 128 copies under way at most");
  SimtCopy& copy = own.copies[own.count++];
  copy.to = (char*)to, copy.bytes = bytes, copy.group = own.groups;
  __builtin_memset(copy.value, 0, bytes);
  if (copies) __builtin_memcpy(copy.value, from, bytes);
  __builtin_memset(to, 0x7F, bytes);  // what is there until it lands
}
SIMT_PLAIN void simt_wait_async(unsigned groups, unsigned long site) {
  SimtCopies& own = simt_own_copies();
  unsigned left = 0;
  for (unsigned i = 0; i < own.count; ++i) {
    const SimtCopy copy = own.copies[i];
    if (copy.group + groups >= own.groups) {
      own.copies[left++] = copy;
      continue;
    }
    simt->access(simt, copy.to, copy.bytes, copy.bytes, 1, (const void*)site);
    __builtin_memcpy(copy.to, copy.value, copy.bytes);
  }
  own.count = left;
}
#define TW_COPY_ASYNC(to, from, copies) simt_copy_async(to, from, copies, sizeof(*to), __LINE__)
SIMT_PLAIN void simt_commit_async() { ++simt_own_copies().groups; }
#define TW_COMMIT_ASYNC() simt_commit_async()
#define TW_WAIT_ASYNC(groups) simt_wait_async(groups, __LINE__)
#include "tests/support/simt/simt_bulk_copies.h"
#include "tests/support/simt/simt_warp_groups.h"
