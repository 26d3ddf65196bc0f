#pragma OPENCL FP_CONTRACT OFF
__kernel __attribute__((reqd_work_group_size(8, 8, 1)))
void split_k_k0(__global const float* restrict A, __global const float* restrict B, __global float* restrict C_rf) {
  const long k_0 = (long)get_group_id(2);
  const long i_0 = (long)get_group_id(1);
  const long j_0 = (long)get_group_id(0);
  const long ty = (long)get_local_id(1);
  const long tx = (long)get_local_id(0);
  {
    float C_rf_local[1];
    C_rf_local[0L] = 0.0f;
    for (long k_1 = 0L; k_1 < 16L; ++k_1) {
      C_rf_local[0L] = (C_rf_local[0L] + (A[((((i_0 * 512L) + (ty * 64L)) + (k_0 * 16L)) + k_1)] * B[((((k_0 * 256L) + (k_1 * 16L)) + (j_0 * 8L)) + tx)]));
    }
    C_rf[(((((k_0 * 256L) + (i_0 * 128L)) + (ty * 16L)) + (j_0 * 8L)) + tx)] = C_rf_local[0L];
  }
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void split_k_k1(__global const float* restrict C_rf, __global float* restrict C) {
  const long i_w_j_w_f_0 = (long)get_group_id(0);
  const long tx = (long)get_local_id(0);
  C[((i_w_j_w_f_0 * 64L) + tx)] = 0.0f;
  for (long k_0_w = 0L; k_0_w < 4L; ++k_0_w) {
    C[((i_w_j_w_f_0 * 64L) + tx)] = (C[((i_w_j_w_f_0 * 64L) + tx)] + C_rf[(((k_0_w * 256L) + (i_w_j_w_f_0 * 64L)) + tx)]);
  }
}
