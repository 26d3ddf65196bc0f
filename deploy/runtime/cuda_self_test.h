// The kernel by which the CUDA plug-in tests a device.
#ifndef DEPLOY_RUNTIME_CUDA_SELF_TEST_H_
#define DEPLOY_RUNTIME_CUDA_SELF_TEST_H_

namespace tilewright::cuda {

// The driver compiles PTX for any device. Written by hand after the text in the
// comment. Dependent integer steps of the first group make up most of its time, as in the other
// plug-ins.
constexpr char kSelfTestText[] = R"(/*CUDA
extern "C" __global__ void self_test(long n, const float* x, float* y) {
  const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (long j = 0; j < 16; ++j) {
    const long k = i + j < n ? i + j : i + j - n;
    sum += (float)(j + 1) * 0.125f * x[k];
  }
  unsigned chain = (unsigned)i + 1;
  const int steps = blockIdx.x == 0 ? 12288 : 1;
  for (int step = 0; step < steps; ++step) {
    chain ^= chain << 13;
    chain ^= chain >> 17;
    chain ^= chain << 5;
  }
  y[i] = chain == 0 ? 0.0f : sum;
}
*/
.version 6.4
.target sm_52
.address_size 64
.visible .entry self_test(.param .u64 p_n, .param .u64 p_x, .param .u64 p_y)
{
  .reg .pred %p<3>;
  .reg .f32 %f<4>;
  .reg .b32 %r<8>;
  .reg .b64 %n, %x, %y, %i, %k, %wrapped, %at;
  ld.param.u64 %n, [p_n];
  ld.param.u64 %x, [p_x];
  ld.param.u64 %y, [p_y];
  cvta.to.global.u64 %x, %x;
  cvta.to.global.u64 %y, %y;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  cvt.u64.u32 %i, %r4;
  mov.f32 %f1, 0f00000000;
  mov.u32 %r5, 0;
SUM:
  cvt.u64.u32 %k, %r5;
  add.s64 %k, %k, %i;
  sub.s64 %wrapped, %k, %n;
  setp.lt.s64 %p1, %k, %n;
  selp.b64 %k, %k, %wrapped, %p1;
  shl.b64 %at, %k, 2;
  add.s64 %at, %x, %at;
  ld.global.f32 %f2, [%at];
  add.u32 %r5, %r5, 1;
  cvt.rn.f32.u32 %f3, %r5;
  mul.rn.f32 %f3, %f3, 0f3E000000;
  mul.rn.f32 %f3, %f3, %f2;
  add.rn.f32 %f1, %f1, %f3;
  setp.lt.u32 %p1, %r5, 16;
  @%p1 bra SUM;
  add.u32 %r5, %r4, 1;
  setp.eq.u32 %p2, %r1, 0;
  selp.u32 %r6, 12288, 1, %p2;
CHAIN:
  shl.b32 %r7, %r5, 13;
  xor.b32 %r5, %r5, %r7;
  shr.u32 %r7, %r5, 17;
  xor.b32 %r5, %r5, %r7;
  shl.b32 %r7, %r5, 5;
  xor.b32 %r5, %r5, %r7;
  sub.u32 %r6, %r6, 1;
  setp.ne.u32 %p1, %r6, 0;
  @%p1 bra CHAIN;
  setp.eq.u32 %p1, %r5, 0;
  selp.f32 %f1, 0f00000000, %f1, %p1;
  shl.b64 %at, %i, 2;
  add.s64 %at, %y, %at;
  st.global.f32 [%at], %f1;
  ret;
}
)";

}  // namespace tilewright::cuda

#endif  // DEPLOY_RUNTIME_CUDA_SELF_TEST_H_
