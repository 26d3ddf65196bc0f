#pragma OPENCL FP_CONTRACT OFF
__kernel __attribute__((reqd_work_group_size(32, 1, 1)))
void row_sum_k0(__global const float* restrict X, __global float* Y) {
  __local float Y_rf[32];
  const int i_w = (int)get_group_id(0);
  const int tx = (int)get_local_id(0);
  Y_rf[tx] = 0.0f;
  for (int k_0_a = 0; k_0_a < 8; ++k_0_a) {
    Y_rf[tx] = (Y_rf[tx] + X[(((i_w * 256) + (k_0_a * 32)) + tx)]);
  }
  if ((tx == 0)) {
    Y[i_w] = 0.0f;
  }
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if ((tx == 0)) {
    for (int k_1_w = 0; k_1_w < 32; ++k_1_w) {
      Y[i_w] = (Y[i_w] + Y_rf[k_1_w]);
    }
  }
}
