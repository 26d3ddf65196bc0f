// Small tensor programs for tests of the schedule and of lowering, made with the tensor-expression
// builder. Pure functions.
#pragma once

#include "compiler/ir/ir.h"

namespace tilewright::tests {

// Y[i,j] = Σ_k A[i,k] * B[k,j]; blocks: Y.
ir::Function MatmulProgram(int64_t m, int64_t n, int64_t k);
// The same with Z = max(Y + bias[j], 0); blocks: Y, Z.
ir::Function DenseReluProgram(int64_t m, int64_t n, int64_t k);
// Padded NCHW convolution with bias and relu; blocks: pad, conv, out.
struct ConvShape {
  int64_t channels_in = 3, height = 7, width = 9, channels_out = 5, kernel = 3, stride = 1, pad = 1;
};
ir::Function ConvProgram(const ConvShape& shape);
// Blur = 3-point sum of (X + 1), twice; blocks: shifted, blur1, blur2. i32, so exact.
ir::Function StencilProgram(int64_t n);
// The same results in one stage of five taps; blocks: blur2.
ir::Function ComposedStencilProgram(int64_t n);
// Row maximum, exponentials of the difference, their sum, the quotient; blocks: top, e, total, out.
ir::Function SoftmaxProgram(int64_t rows, int64_t columns);
// Row sums, the differences from them, their squares; blocks: sum, apart, out.
ir::Function MeanProgram(int64_t rows, int64_t columns);
// Doubled rows, row sums, and the two added: doubled, sum, out.
ir::Function AddedRowsProgram(int64_t rows, int64_t columns);
// u8 by s8 products with a zero point, summed in i32, requantised to u8; blocks: acc, out.
ir::Function QuantizedDenseProgram(int64_t m, int64_t n, int64_t k);
// bf16 operands, products summed in f32, the result in bf16 again; blocks: acc, out.
ir::Function Bf16DenseProgram(int64_t m, int64_t n, int64_t k);
// A padded window maximum with stride; blocks: padded, out.
ir::Function MaxPoolProgram(int64_t channels, int64_t size, int64_t window, int64_t stride);
// A dense layer with a symbolic number of rows, relu; blocks: Y, Z.
ir::Function SymbolicDenseProgram(int64_t n, int64_t k);
// u8 × i8 dense layer with packed weights, a zero point of the data, and a requantising epilogue:
// acc[i,jo,ji] = Σ_{ko,ki} X[i, 4ko+ki] * W[jo,ko,ji,ki]; wsum[jo,ji] = Σ W; out = u8 clamp of
// round((acc - zero * wsum) * scale) + zero_out. Blocks: acc, wsum, out.
ir::Function PackedInt8DenseProgram(int64_t rows, int64_t blocks, int64_t lanes, int64_t groups);
// A padded convolution of u8 on channel blocks with packed i8 weights, 3 × 3, and a requantising
// epilogue: sums of four products each. Blocks: padded, acc, out.
ir::Function PackedInt8ConvProgram(int64_t blocks, int64_t size, int64_t lanes);
// Y[i,j] = X[i,j] * 2 + 1 with a symbolic number of rows; blocks: Y.
ir::Function SymbolicRowsProgram(int64_t columns);
// The largest value of each row of X and the first place of it; a tuple reduction; block: best.
ir::Function ArgMaxProgram(int64_t rows, int64_t columns);
// softmax(Q Kᵀ / √width) V in one pass over the keys: a tuple reduction (maximum, sum of weights,
// weighted sum); blocks: scores, top (the tuple), out.
ir::Function AttentionProgram(int64_t rows, int64_t keys, int64_t width, int64_t value_width);
// An LSTM cell over time as a scan, gates i, o, f, c in one matrix; hidden states of all steps;
// blocks: h_start, c_start, gates, c_next, h_next.
ir::Function LstmProgram(int64_t steps, int64_t batch, int64_t units);

}  // namespace tilewright::tests
