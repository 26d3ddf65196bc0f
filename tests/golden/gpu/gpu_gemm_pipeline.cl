#pragma OPENCL FP_CONTRACT OFF
static inline long tw_floordiv_long(long a, long b) {
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}
static inline long tw_floormod_long(long a, long b) {
  return a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);
}
__kernel __attribute__((reqd_work_group_size(8, 8, 1)))
void gemm_k0(__global const float* restrict A, __global const float* restrict B, __global float* restrict C) {
  __local float A_shared[768];
  __local float B_shared[768];
  const long j_0 = (long)get_group_id(0);
  const long ty = (long)get_local_id(1);
  const long tx = (long)get_local_id(0);
  {
    float C_local[16];
    C_local[0L] = 0.0f;
    C_local[1L] = 0.0f;
    C_local[2L] = 0.0f;
    C_local[3L] = 0.0f;
    C_local[4L] = 0.0f;
    C_local[5L] = 0.0f;
    C_local[6L] = 0.0f;
    C_local[7L] = 0.0f;
    C_local[8L] = 0.0f;
    C_local[9L] = 0.0f;
    C_local[10L] = 0.0f;
    C_local[11L] = 0.0f;
    C_local[12L] = 0.0f;
    C_local[13L] = 0.0f;
    C_local[14L] = 0.0f;
    C_local[15L] = 0.0f;
    for (long d0_r1_a_d1_r1_a_f_0 = 0L; d0_r1_a_d1_r1_a_f_0 < 4L; ++d0_r1_a_d1_r1_a_f_0) {
      B_shared[(((d0_r1_a_d1_r1_a_f_0 * 64L) + (ty * 8L)) + tx)] = B[(((((d0_r1_a_d1_r1_a_f_0 * 128L) + (tw_floordiv_long(ty, 4L) * 64L)) + (j_0 * 32L)) + (tw_floormod_long(ty, 4L) * 8L)) + tx)];
    }
    for (long d0_a_d1_a_f_0 = 0L; d0_a_d1_a_f_0 < 4L; ++d0_a_d1_a_f_0) {
      A_shared[(((d0_a_d1_a_f_0 * 64L) + (ty * 8L)) + tx)] = A[(((d0_a_d1_a_f_0 * 256L) + (ty * 32L)) + tx)];
    }
    for (long d0_r1_a_d1_r1_a_f_0_1 = 0L; d0_r1_a_d1_r1_a_f_0_1 < 4L; ++d0_r1_a_d1_r1_a_f_0_1) {
      B_shared[((((d0_r1_a_d1_r1_a_f_0_1 * 64L) + (ty * 8L)) + tx) + 256L)] = B[((((((d0_r1_a_d1_r1_a_f_0_1 * 128L) + (tw_floordiv_long(ty, 4L) * 64L)) + (j_0 * 32L)) + (tw_floormod_long(ty, 4L) * 8L)) + tx) + 512L)];
    }
    for (long d0_a_d1_a_f_0_1 = 0L; d0_a_d1_a_f_0_1 < 4L; ++d0_a_d1_a_f_0_1) {
      A_shared[((((d0_a_d1_a_f_0_1 * 64L) + (ty * 8L)) + tx) + 256L)] = A[((((d0_a_d1_a_f_0_1 * 256L) + (ty * 32L)) + tx) + 8L)];
    }
    for (long k_0 = 0L; k_0 < 2L; ++k_0) {
      barrier(CLK_LOCAL_MEM_FENCE);
      for (long d0_r1_a_d1_r1_a_f_0_2 = 0L; d0_r1_a_d1_r1_a_f_0_2 < 4L; ++d0_r1_a_d1_r1_a_f_0_2) {
        B_shared[((((tw_floormod_long((k_0 + 2L), 3L) * 256L) + (d0_r1_a_d1_r1_a_f_0_2 * 64L)) + (ty * 8L)) + tx)] = B[(((((((k_0 * 512L) + (d0_r1_a_d1_r1_a_f_0_2 * 128L)) + (tw_floordiv_long(ty, 4L) * 64L)) + (j_0 * 32L)) + (tw_floormod_long(ty, 4L) * 8L)) + tx) + 1024L)];
      }
      for (long d0_a_d1_a_f_0_2 = 0L; d0_a_d1_a_f_0_2 < 4L; ++d0_a_d1_a_f_0_2) {
        A_shared[((((tw_floormod_long((k_0 + 2L), 3L) * 256L) + (d0_a_d1_a_f_0_2 * 64L)) + (ty * 8L)) + tx)] = A[(((((d0_a_d1_a_f_0_2 * 256L) + (ty * 32L)) + (k_0 * 8L)) + tx) + 16L)];
      }
      for (long k_1 = 0L; k_1 < 8L; ++k_1) {
        C_local[0L] = (C_local[0L] + (A_shared[(((k_0 * 256L) + (ty * 32L)) + k_1)] * B_shared[(((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L))]));
        C_local[1L] = (C_local[1L] + (A_shared[(((k_0 * 256L) + (ty * 32L)) + k_1)] * B_shared[((((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L)) + 1L)]));
        C_local[2L] = (C_local[2L] + (A_shared[(((k_0 * 256L) + (ty * 32L)) + k_1)] * B_shared[((((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L)) + 2L)]));
        C_local[3L] = (C_local[3L] + (A_shared[(((k_0 * 256L) + (ty * 32L)) + k_1)] * B_shared[((((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L)) + 3L)]));
        C_local[4L] = (C_local[4L] + (A_shared[((((k_0 * 256L) + (ty * 32L)) + k_1) + 8L)] * B_shared[(((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L))]));
        C_local[5L] = (C_local[5L] + (A_shared[((((k_0 * 256L) + (ty * 32L)) + k_1) + 8L)] * B_shared[((((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L)) + 1L)]));
        C_local[6L] = (C_local[6L] + (A_shared[((((k_0 * 256L) + (ty * 32L)) + k_1) + 8L)] * B_shared[((((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L)) + 2L)]));
        C_local[7L] = (C_local[7L] + (A_shared[((((k_0 * 256L) + (ty * 32L)) + k_1) + 8L)] * B_shared[((((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L)) + 3L)]));
        C_local[8L] = (C_local[8L] + (A_shared[((((k_0 * 256L) + (ty * 32L)) + k_1) + 16L)] * B_shared[(((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L))]));
        C_local[9L] = (C_local[9L] + (A_shared[((((k_0 * 256L) + (ty * 32L)) + k_1) + 16L)] * B_shared[((((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L)) + 1L)]));
        C_local[10L] = (C_local[10L] + (A_shared[((((k_0 * 256L) + (ty * 32L)) + k_1) + 16L)] * B_shared[((((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L)) + 2L)]));
        C_local[11L] = (C_local[11L] + (A_shared[((((k_0 * 256L) + (ty * 32L)) + k_1) + 16L)] * B_shared[((((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L)) + 3L)]));
        C_local[12L] = (C_local[12L] + (A_shared[((((k_0 * 256L) + (ty * 32L)) + k_1) + 24L)] * B_shared[(((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L))]));
        C_local[13L] = (C_local[13L] + (A_shared[((((k_0 * 256L) + (ty * 32L)) + k_1) + 24L)] * B_shared[((((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L)) + 1L)]));
        C_local[14L] = (C_local[14L] + (A_shared[((((k_0 * 256L) + (ty * 32L)) + k_1) + 24L)] * B_shared[((((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L)) + 2L)]));
        C_local[15L] = (C_local[15L] + (A_shared[((((k_0 * 256L) + (ty * 32L)) + k_1) + 24L)] * B_shared[((((k_0 * 256L) + (k_1 * 32L)) + (tx * 4L)) + 3L)]));
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (long k_1_1 = 0L; k_1_1 < 8L; ++k_1_1) {
      C_local[0L] = (C_local[0L] + (A_shared[(((ty * 32L) + k_1_1) + 512L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 512L)]));
      C_local[1L] = (C_local[1L] + (A_shared[(((ty * 32L) + k_1_1) + 512L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 513L)]));
      C_local[2L] = (C_local[2L] + (A_shared[(((ty * 32L) + k_1_1) + 512L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 514L)]));
      C_local[3L] = (C_local[3L] + (A_shared[(((ty * 32L) + k_1_1) + 512L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 515L)]));
      C_local[4L] = (C_local[4L] + (A_shared[(((ty * 32L) + k_1_1) + 520L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 512L)]));
      C_local[5L] = (C_local[5L] + (A_shared[(((ty * 32L) + k_1_1) + 520L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 513L)]));
      C_local[6L] = (C_local[6L] + (A_shared[(((ty * 32L) + k_1_1) + 520L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 514L)]));
      C_local[7L] = (C_local[7L] + (A_shared[(((ty * 32L) + k_1_1) + 520L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 515L)]));
      C_local[8L] = (C_local[8L] + (A_shared[(((ty * 32L) + k_1_1) + 528L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 512L)]));
      C_local[9L] = (C_local[9L] + (A_shared[(((ty * 32L) + k_1_1) + 528L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 513L)]));
      C_local[10L] = (C_local[10L] + (A_shared[(((ty * 32L) + k_1_1) + 528L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 514L)]));
      C_local[11L] = (C_local[11L] + (A_shared[(((ty * 32L) + k_1_1) + 528L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 515L)]));
      C_local[12L] = (C_local[12L] + (A_shared[(((ty * 32L) + k_1_1) + 536L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 512L)]));
      C_local[13L] = (C_local[13L] + (A_shared[(((ty * 32L) + k_1_1) + 536L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 513L)]));
      C_local[14L] = (C_local[14L] + (A_shared[(((ty * 32L) + k_1_1) + 536L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 514L)]));
      C_local[15L] = (C_local[15L] + (A_shared[(((ty * 32L) + k_1_1) + 536L)] * B_shared[(((k_1_1 * 32L) + (tx * 4L)) + 515L)]));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (long k_1_2 = 0L; k_1_2 < 8L; ++k_1_2) {
      C_local[0L] = (C_local[0L] + (A_shared[((ty * 32L) + k_1_2)] * B_shared[((k_1_2 * 32L) + (tx * 4L))]));
      C_local[1L] = (C_local[1L] + (A_shared[((ty * 32L) + k_1_2)] * B_shared[(((k_1_2 * 32L) + (tx * 4L)) + 1L)]));
      C_local[2L] = (C_local[2L] + (A_shared[((ty * 32L) + k_1_2)] * B_shared[(((k_1_2 * 32L) + (tx * 4L)) + 2L)]));
      C_local[3L] = (C_local[3L] + (A_shared[((ty * 32L) + k_1_2)] * B_shared[(((k_1_2 * 32L) + (tx * 4L)) + 3L)]));
      C_local[4L] = (C_local[4L] + (A_shared[(((ty * 32L) + k_1_2) + 8L)] * B_shared[((k_1_2 * 32L) + (tx * 4L))]));
      C_local[5L] = (C_local[5L] + (A_shared[(((ty * 32L) + k_1_2) + 8L)] * B_shared[(((k_1_2 * 32L) + (tx * 4L)) + 1L)]));
      C_local[6L] = (C_local[6L] + (A_shared[(((ty * 32L) + k_1_2) + 8L)] * B_shared[(((k_1_2 * 32L) + (tx * 4L)) + 2L)]));
      C_local[7L] = (C_local[7L] + (A_shared[(((ty * 32L) + k_1_2) + 8L)] * B_shared[(((k_1_2 * 32L) + (tx * 4L)) + 3L)]));
      C_local[8L] = (C_local[8L] + (A_shared[(((ty * 32L) + k_1_2) + 16L)] * B_shared[((k_1_2 * 32L) + (tx * 4L))]));
      C_local[9L] = (C_local[9L] + (A_shared[(((ty * 32L) + k_1_2) + 16L)] * B_shared[(((k_1_2 * 32L) + (tx * 4L)) + 1L)]));
      C_local[10L] = (C_local[10L] + (A_shared[(((ty * 32L) + k_1_2) + 16L)] * B_shared[(((k_1_2 * 32L) + (tx * 4L)) + 2L)]));
      C_local[11L] = (C_local[11L] + (A_shared[(((ty * 32L) + k_1_2) + 16L)] * B_shared[(((k_1_2 * 32L) + (tx * 4L)) + 3L)]));
      C_local[12L] = (C_local[12L] + (A_shared[(((ty * 32L) + k_1_2) + 24L)] * B_shared[((k_1_2 * 32L) + (tx * 4L))]));
      C_local[13L] = (C_local[13L] + (A_shared[(((ty * 32L) + k_1_2) + 24L)] * B_shared[(((k_1_2 * 32L) + (tx * 4L)) + 1L)]));
      C_local[14L] = (C_local[14L] + (A_shared[(((ty * 32L) + k_1_2) + 24L)] * B_shared[(((k_1_2 * 32L) + (tx * 4L)) + 2L)]));
      C_local[15L] = (C_local[15L] + (A_shared[(((ty * 32L) + k_1_2) + 24L)] * B_shared[(((k_1_2 * 32L) + (tx * 4L)) + 3L)]));
    }
    vstore4(vload4(0, C_local + 0L), 0, C + (((ty * 256L) + (j_0 * 32L)) + (tx * 4L)));
    vstore4(vload4(0, C_local + 4L), 0, C + ((((ty * 256L) + (j_0 * 32L)) + (tx * 4L)) + 64L));
    vstore4(vload4(0, C_local + 8L), 0, C + ((((ty * 256L) + (j_0 * 32L)) + (tx * 4L)) + 128L));
    vstore4(vload4(0, C_local + 12L), 0, C + ((((ty * 256L) + (j_0 * 32L)) + (tx * 4L)) + 192L));
  }
}
