#pragma OPENCL FP_CONTRACT OFF
__kernel __attribute__((reqd_work_group_size(32, 1, 1)))
void stream_k_k0(__global const float* restrict A, __global const float* restrict B, __global const float* restrict bias, __global float* restrict D, __global float* restrict C_rest_rf) {
  __local float B_shared[128];
  __local float A_shared[64];
  const int i_0_j_0_f_both = (int)get_group_id(0);
  const int tx = (int)get_local_id(0);
  if ((i_0_j_0_f_both < 6)) {
    {
      float4 C;
      C = ((float4)(0.0f));
      for (int k_a_0 = 0; k_a_0 < 4; ++k_a_0) {
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        vstore4(vload4(0, B + ((((tx / 2) * 32) + (k_a_0 * 8)) + ((tx % 2) * 4))), 0, B_shared + (tx * 4));
        if ((tx < 16)) {
          vstore4(vload4(0, A + ((((i_0_j_0_f_both * 256) + ((tx / 2) * 32)) + (k_a_0 * 8)) + ((tx % 2) * 4))), 0, A_shared + (tx * 4));
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        for (int k_a_1 = 0; k_a_1 < 8; ++k_a_1) {
          C = (C + (((float4)(A_shared[(((tx / 4) * 8) + k_a_1)])) * ((float4)(B_shared[(((tx % 4) * 32) + k_a_1)], B_shared[((((tx % 4) * 32) + k_a_1) + 8)], B_shared[((((tx % 4) * 32) + k_a_1) + 16)], B_shared[((((tx % 4) * 32) + k_a_1) + 24)]))));
        }
      }
      vstore4(select(((float4)(0.0f)), (C + vload4(0, bias + ((tx % 4) * 4))), (C + vload4(0, bias + ((tx % 4) * 4))) > ((float4)(0.0f))), 0, D + ((i_0_j_0_f_both * 128) + (tx * 4)));
    }
  }
  else {
    {
      float4 C_rest_rf_local;
      C_rest_rf_local = ((float4)(0.0f));
      for (int k_r_1_a_0 = 0; k_r_1_a_0 < 2; ++k_r_1_a_0) {
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        vstore4(vload4(0, B + ((((((tx / 2) * 32) + ((i_0_j_0_f_both / 2) * 16)) + (k_r_1_a_0 * 8)) + ((tx % 2) * 4)) - 48)), 0, B_shared + (tx * 4));
        if ((tx < 16)) {
          vstore4(vload4(0, A + (((((((i_0_j_0_f_both % 2) * 256) + ((tx / 2) * 32)) + ((i_0_j_0_f_both / 2) * 16)) + (k_r_1_a_0 * 8)) + ((tx % 2) * 4)) + 1488)), 0, A_shared + (tx * 4));
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        for (int k_r_1_a_1 = 0; k_r_1_a_1 < 8; ++k_r_1_a_1) {
          C_rest_rf_local = (C_rest_rf_local + (((float4)(A_shared[(((tx / 4) * 8) + k_r_1_a_1)])) * ((float4)(B_shared[(((tx % 4) * 32) + k_r_1_a_1)], B_shared[((((tx % 4) * 32) + k_r_1_a_1) + 8)], B_shared[((((tx % 4) * 32) + k_r_1_a_1) + 16)], B_shared[((((tx % 4) * 32) + k_r_1_a_1) + 24)]))));
        }
      }
      vstore4(C_rest_rf_local, 0, C_rest_rf + (((i_0_j_0_f_both * 128) + (tx * 4)) - 768));
    }
  }
}

__kernel __attribute__((reqd_work_group_size(128, 1, 1)))
void stream_k_k1(__global const float* restrict bias, __global const float* restrict C_rest_rf, __global float* restrict D) {
  const int i_r_r1_j_r_r1_f_0 = (int)get_group_id(0);
  const int tx = (int)get_local_id(0);
  {
    float C_rest;
    C_rest = 0.0f;
    for (int k_r_0_w_a = 0; k_r_0_w_a < 2; ++k_r_0_w_a) {
      C_rest = (C_rest + C_rest_rf[(((k_r_0_w_a * 256) + (i_r_r1_j_r_r1_f_0 * 128)) + tx)]);
    }
    D[(((i_r_r1_j_r_r1_f_0 * 128) + tx) + 768)] = ((C_rest + bias[(tx % 16)]) > 0.0f ? (C_rest + bias[(tx % 16)]) : 0.0f);
  }
}
