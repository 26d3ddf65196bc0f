#pragma OPENCL FP_CONTRACT OFF
__kernel __attribute__((reqd_work_group_size(8, 8, 1)))
void split_k_k0(__global const float* restrict A, __global const float* restrict B, __global float* restrict C_rf) {
  const int k_0 = (int)get_group_id(2);
  const int i_0 = (int)get_group_id(1);
  const int j_0 = (int)get_group_id(0);
  const int ty = (int)get_local_id(1);
  const int tx = (int)get_local_id(0);
  {
    float C_rf_local;
    C_rf_local = 0.0f;
    for (int k_1 = 0; k_1 < 16; ++k_1) {
      C_rf_local = (C_rf_local + (A[((((i_0 * 512) + (ty * 64)) + (k_0 * 16)) + k_1)] * B[((((k_0 * 256) + (k_1 * 16)) + (j_0 * 8)) + tx)]));
    }
    C_rf[(((((k_0 * 256) + (i_0 * 128)) + (ty * 16)) + (j_0 * 8)) + tx)] = C_rf_local;
  }
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void split_k_k1(__global const float* restrict C_rf, __global float* restrict C) {
  const int i_w_j_w_f_0 = (int)get_group_id(0);
  const int tx = (int)get_local_id(0);
  C[((i_w_j_w_f_0 * 64) + tx)] = 0.0f;
  for (int k_0_w = 0; k_0_w < 4; ++k_0_w) {
    C[((i_w_j_w_f_0 * 64) + tx)] = (C[((i_w_j_w_f_0 * 64) + tx)] + C_rf[(((k_0_w * 256) + (i_w_j_w_f_0 * 64)) + tx)]);
  }
}
