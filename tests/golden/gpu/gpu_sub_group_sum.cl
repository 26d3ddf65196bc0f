#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void row_sum_k0(__global const float* restrict X, __global float* restrict Y) {
  __local float Y_rf[64];
  const int i_w_c = (int)get_group_id(0);
  const int tx = (int)get_local_id(0);
  {
    float Y_local;
    Y_rf[tx] = 0.0f;
    for (int k_0_a = 0; k_0_a < 4; ++k_0_a) {
      Y_rf[tx] = (Y_rf[tx] + X[(((i_w_c * 256) + (k_0_a * 64)) + tx)]);
    }
    Y_local = 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    {
      float part = 0.0f;
      for (int k_1_w_a = (int)get_sub_group_local_id(); k_1_w_a < 64; k_1_w_a += (int)get_sub_group_size()) {
        part = (part + Y_rf[k_1_w_a]);
      }
      const float whole = sub_group_reduce_add(part);
      Y_local = (Y_local + whole);
    }
    if ((tx == 0)) {
      Y[i_w_c] = Y_local;
    }
  }
}
