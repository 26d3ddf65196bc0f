#pragma OPENCL FP_CONTRACT OFF
__kernel __attribute__((reqd_work_group_size(32, 1, 1)))
void row_sum_k0(__global const float* restrict X, __global float* restrict Y) {
  __local float Y_rf[32];
  const long i_w = (long)get_group_id(0);
  const long tx = (long)get_local_id(0);
  Y_rf[tx] = 0.0f;
  for (long k_0_a = 0L; k_0_a < 8L; ++k_0_a) {
    Y_rf[tx] = (Y_rf[tx] + X[(((i_w * 256L) + (k_0_a * 32L)) + tx)]);
  }
  if ((tx == 0L)) {
    Y[i_w] = 0.0f;
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if ((tx == 0L)) {
    for (long k_1_w = 0L; k_1_w < 32L; ++k_1_w) {
      Y[i_w] = (Y[i_w] + Y_rf[k_1_w]);
    }
  }
}
