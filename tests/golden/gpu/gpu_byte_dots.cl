#pragma OPENCL FP_CONTRACT OFF
#ifdef __opencl_c_integer_dot_product_input_4x8bit
#define tw_dot4(sum, a, b) ((int)((uint)(sum) + (uint)dot(a, b)))
#else
static inline int tw_sum4(int sum, int4 p) {
  return (int)((uint)sum + (uint)(p.s0 + p.s1 + p.s2 + p.s3));
}
#define tw_dot4(sum, a, b) tw_sum4(sum, convert_int4(a) * convert_int4(b))
#endif
__kernel __attribute__((reqd_work_group_size(2, 1, 1)))
void dots_k0(__global const uchar* restrict A, __global const char* restrict W, __global int* restrict C) {
  const int i = (int)get_group_id(0);
  const int tx = (int)get_local_id(0);
  vstore4(((int4)(((int)(0)))), 0, C + ((i * 8) + (tx * 4)));
  for (int ko = 0; ko < 5; ++ko) {
    vstore4(((int4)(tw_dot4(C[((i * 8) + (tx * 4))], vload4(0, A + ((i * 20) + (ko * 4))), vload4(0, W + ((tx * 80) + (ko * 16)))), tw_dot4(C[(((i * 8) + (tx * 4)) + 1)], vload4(0, A + ((i * 20) + (ko * 4))), vload4(0, W + (((tx * 80) + (ko * 16)) + 4))), tw_dot4(C[(((i * 8) + (tx * 4)) + 2)], vload4(0, A + ((i * 20) + (ko * 4))), vload4(0, W + (((tx * 80) + (ko * 16)) + 8))), tw_dot4(C[(((i * 8) + (tx * 4)) + 3)], vload4(0, A + ((i * 20) + (ko * 4))), vload4(0, W + (((tx * 80) + (ko * 16)) + 12))))), 0, C + ((i * 8) + (tx * 4)));
  }
}
