#pragma OPENCL FP_CONTRACT OFF
__kernel __attribute__((reqd_work_group_size(8, 8, 1)))
void gemm_k0(__global const float* restrict A, __global const float* restrict B, __global float* restrict C) {
  __local float A_shared[768];
  __local float B_shared[768];
  const int j_0 = (int)get_group_id(0);
  const int ty = (int)get_local_id(1);
  const int tx = (int)get_local_id(0);
  {
    float C_local;
    float C_local_1;
    float C_local_2;
    float C_local_3;
    float C_local_4;
    float C_local_5;
    float C_local_6;
    float C_local_7;
    float C_local_8;
    float C_local_9;
    float C_local_10;
    float C_local_11;
    float C_local_12;
    float C_local_13;
    float C_local_14;
    float C_local_15;
    C_local = 0.0f;
    C_local_1 = 0.0f;
    C_local_2 = 0.0f;
    C_local_3 = 0.0f;
    C_local_4 = 0.0f;
    C_local_5 = 0.0f;
    C_local_6 = 0.0f;
    C_local_7 = 0.0f;
    C_local_8 = 0.0f;
    C_local_9 = 0.0f;
    C_local_10 = 0.0f;
    C_local_11 = 0.0f;
    C_local_12 = 0.0f;
    C_local_13 = 0.0f;
    C_local_14 = 0.0f;
    C_local_15 = 0.0f;
    for (int d0_r1_a_d1_r1_a_f_0 = 0; d0_r1_a_d1_r1_a_f_0 < 4; ++d0_r1_a_d1_r1_a_f_0) {
      B_shared[(((d0_r1_a_d1_r1_a_f_0 * 64) + (ty * 8)) + tx)] = B[(((((d0_r1_a_d1_r1_a_f_0 * 128) + ((ty / 4) * 64)) + (j_0 * 32)) + ((ty % 4) * 8)) + tx)];
    }
    for (int d0_a_d1_a_f_0 = 0; d0_a_d1_a_f_0 < 4; ++d0_a_d1_a_f_0) {
      A_shared[(((d0_a_d1_a_f_0 * 64) + (ty * 8)) + tx)] = A[(((d0_a_d1_a_f_0 * 256) + (ty * 32)) + tx)];
    }
    for (int d0_r1_a_d1_r1_a_f_0_1 = 0; d0_r1_a_d1_r1_a_f_0_1 < 4; ++d0_r1_a_d1_r1_a_f_0_1) {
      B_shared[((((d0_r1_a_d1_r1_a_f_0_1 * 64) + (ty * 8)) + tx) + 256)] = B[((((((d0_r1_a_d1_r1_a_f_0_1 * 128) + ((ty / 4) * 64)) + (j_0 * 32)) + ((ty % 4) * 8)) + tx) + 512)];
    }
    for (int d0_a_d1_a_f_0_1 = 0; d0_a_d1_a_f_0_1 < 4; ++d0_a_d1_a_f_0_1) {
      A_shared[((((d0_a_d1_a_f_0_1 * 64) + (ty * 8)) + tx) + 256)] = A[((((d0_a_d1_a_f_0_1 * 256) + (ty * 32)) + tx) + 8)];
    }
    for (int k_0 = 0; k_0 < 2; ++k_0) {
      barrier(CLK_LOCAL_MEM_FENCE);
      for (int d0_r1_a_d1_r1_a_f_0_2 = 0; d0_r1_a_d1_r1_a_f_0_2 < 4; ++d0_r1_a_d1_r1_a_f_0_2) {
        B_shared[((((((k_0 + 2) % 3) * 256) + (d0_r1_a_d1_r1_a_f_0_2 * 64)) + (ty * 8)) + tx)] = B[(((((((k_0 * 512) + (d0_r1_a_d1_r1_a_f_0_2 * 128)) + ((ty / 4) * 64)) + (j_0 * 32)) + ((ty % 4) * 8)) + tx) + 1024)];
      }
      for (int d0_a_d1_a_f_0_2 = 0; d0_a_d1_a_f_0_2 < 4; ++d0_a_d1_a_f_0_2) {
        A_shared[((((((k_0 + 2) % 3) * 256) + (d0_a_d1_a_f_0_2 * 64)) + (ty * 8)) + tx)] = A[(((((d0_a_d1_a_f_0_2 * 256) + (ty * 32)) + (k_0 * 8)) + tx) + 16)];
      }
      for (int k_1 = 0; k_1 < 8; ++k_1) {
        C_local = (C_local + (A_shared[(((k_0 * 256) + (ty * 32)) + k_1)] * B_shared[(((k_0 * 256) + (k_1 * 32)) + (tx * 4))]));
        C_local_1 = (C_local_1 + (A_shared[(((k_0 * 256) + (ty * 32)) + k_1)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 1)]));
        C_local_2 = (C_local_2 + (A_shared[(((k_0 * 256) + (ty * 32)) + k_1)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 2)]));
        C_local_3 = (C_local_3 + (A_shared[(((k_0 * 256) + (ty * 32)) + k_1)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 3)]));
        C_local_4 = (C_local_4 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 8)] * B_shared[(((k_0 * 256) + (k_1 * 32)) + (tx * 4))]));
        C_local_5 = (C_local_5 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 8)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 1)]));
        C_local_6 = (C_local_6 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 8)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 2)]));
        C_local_7 = (C_local_7 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 8)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 3)]));
        C_local_8 = (C_local_8 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 16)] * B_shared[(((k_0 * 256) + (k_1 * 32)) + (tx * 4))]));
        C_local_9 = (C_local_9 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 16)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 1)]));
        C_local_10 = (C_local_10 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 16)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 2)]));
        C_local_11 = (C_local_11 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 16)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 3)]));
        C_local_12 = (C_local_12 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 24)] * B_shared[(((k_0 * 256) + (k_1 * 32)) + (tx * 4))]));
        C_local_13 = (C_local_13 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 24)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 1)]));
        C_local_14 = (C_local_14 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 24)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 2)]));
        C_local_15 = (C_local_15 + (A_shared[((((k_0 * 256) + (ty * 32)) + k_1) + 24)] * B_shared[((((k_0 * 256) + (k_1 * 32)) + (tx * 4)) + 3)]));
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k_1_1 = 0; k_1_1 < 8; ++k_1_1) {
      C_local = (C_local + (A_shared[(((ty * 32) + k_1_1) + 512)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 512)]));
      C_local_1 = (C_local_1 + (A_shared[(((ty * 32) + k_1_1) + 512)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 513)]));
      C_local_2 = (C_local_2 + (A_shared[(((ty * 32) + k_1_1) + 512)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 514)]));
      C_local_3 = (C_local_3 + (A_shared[(((ty * 32) + k_1_1) + 512)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 515)]));
      C_local_4 = (C_local_4 + (A_shared[(((ty * 32) + k_1_1) + 520)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 512)]));
      C_local_5 = (C_local_5 + (A_shared[(((ty * 32) + k_1_1) + 520)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 513)]));
      C_local_6 = (C_local_6 + (A_shared[(((ty * 32) + k_1_1) + 520)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 514)]));
      C_local_7 = (C_local_7 + (A_shared[(((ty * 32) + k_1_1) + 520)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 515)]));
      C_local_8 = (C_local_8 + (A_shared[(((ty * 32) + k_1_1) + 528)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 512)]));
      C_local_9 = (C_local_9 + (A_shared[(((ty * 32) + k_1_1) + 528)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 513)]));
      C_local_10 = (C_local_10 + (A_shared[(((ty * 32) + k_1_1) + 528)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 514)]));
      C_local_11 = (C_local_11 + (A_shared[(((ty * 32) + k_1_1) + 528)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 515)]));
      C_local_12 = (C_local_12 + (A_shared[(((ty * 32) + k_1_1) + 536)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 512)]));
      C_local_13 = (C_local_13 + (A_shared[(((ty * 32) + k_1_1) + 536)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 513)]));
      C_local_14 = (C_local_14 + (A_shared[(((ty * 32) + k_1_1) + 536)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 514)]));
      C_local_15 = (C_local_15 + (A_shared[(((ty * 32) + k_1_1) + 536)] * B_shared[(((k_1_1 * 32) + (tx * 4)) + 515)]));
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k_1_2 = 0; k_1_2 < 8; ++k_1_2) {
      C_local = (C_local + (A_shared[((ty * 32) + k_1_2)] * B_shared[((k_1_2 * 32) + (tx * 4))]));
      C_local_1 = (C_local_1 + (A_shared[((ty * 32) + k_1_2)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 1)]));
      C_local_2 = (C_local_2 + (A_shared[((ty * 32) + k_1_2)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 2)]));
      C_local_3 = (C_local_3 + (A_shared[((ty * 32) + k_1_2)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 3)]));
      C_local_4 = (C_local_4 + (A_shared[(((ty * 32) + k_1_2) + 8)] * B_shared[((k_1_2 * 32) + (tx * 4))]));
      C_local_5 = (C_local_5 + (A_shared[(((ty * 32) + k_1_2) + 8)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 1)]));
      C_local_6 = (C_local_6 + (A_shared[(((ty * 32) + k_1_2) + 8)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 2)]));
      C_local_7 = (C_local_7 + (A_shared[(((ty * 32) + k_1_2) + 8)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 3)]));
      C_local_8 = (C_local_8 + (A_shared[(((ty * 32) + k_1_2) + 16)] * B_shared[((k_1_2 * 32) + (tx * 4))]));
      C_local_9 = (C_local_9 + (A_shared[(((ty * 32) + k_1_2) + 16)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 1)]));
      C_local_10 = (C_local_10 + (A_shared[(((ty * 32) + k_1_2) + 16)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 2)]));
      C_local_11 = (C_local_11 + (A_shared[(((ty * 32) + k_1_2) + 16)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 3)]));
      C_local_12 = (C_local_12 + (A_shared[(((ty * 32) + k_1_2) + 24)] * B_shared[((k_1_2 * 32) + (tx * 4))]));
      C_local_13 = (C_local_13 + (A_shared[(((ty * 32) + k_1_2) + 24)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 1)]));
      C_local_14 = (C_local_14 + (A_shared[(((ty * 32) + k_1_2) + 24)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 2)]));
      C_local_15 = (C_local_15 + (A_shared[(((ty * 32) + k_1_2) + 24)] * B_shared[(((k_1_2 * 32) + (tx * 4)) + 3)]));
    }
    vstore4(((float4)(C_local, C_local_1, C_local_2, C_local_3)), 0, C + (((ty * 256) + (j_0 * 32)) + (tx * 4)));
    vstore4(((float4)(C_local_4, C_local_5, C_local_6, C_local_7)), 0, C + ((((ty * 256) + (j_0 * 32)) + (tx * 4)) + 64));
    vstore4(((float4)(C_local_8, C_local_9, C_local_10, C_local_11)), 0, C + ((((ty * 256) + (j_0 * 32)) + (tx * 4)) + 128));
    vstore4(((float4)(C_local_12, C_local_13, C_local_14, C_local_15)), 0, C + ((((ty * 256) + (j_0 * 32)) + (tx * 4)) + 192));
  }
}
