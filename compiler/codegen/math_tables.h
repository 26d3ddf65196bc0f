// Coefficients of the functions that code generators compute themselves, printed by fit_math.py:
// lowest power first. llvm_math.cc says what each is a polynomial of. Constants.
#pragma once

#include <numbers>

namespace tilewright::codegen {

inline constexpr float kExpTable[] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558b4p-5f,
                                      0x1.12399cp-7f, 0x1.6a48fcp-10f};
inline constexpr float kLogTable[] = {0x1.555554p-2f,  -0x1.000226p-2f, 0x1.99a01cp-3f,
                                      -0x1.54728ap-3f, 0x1.22d92ep-3f,  -0x1.0d8242p-3f,
                                      0x1.055ec6p-3f,  -0x1.38c9dep-4f};
inline constexpr float kTanhTable[] = {-0x1.55553p-2f, 0x1.110678p-3f, -0x1.b82360p-5f,
                                       0x1.5177cep-6f, -0x1.72a7ep-8f};
inline constexpr float kErfTable[] = {0x1.06eba8p-3f, -0x1.81274p-2f, 0x1.ce2d5p-4f,
                                      -0x1.b7fe9p-6f, 0x1.542e1p-8f,  -0x1.a50b0ep-11f,
                                      0x1.4c344ep-14f};
inline constexpr float kErfcTable[] = {0x1.8a576ep-13f, -0x1.212c0cp+0f, -0x1.44356ep-1f,
                                       -0x1.bc14bep-4f, 0x1.9d01eap-6f,  -0x1.138acep-8f,
                                       0x1.cebf02p-12f, -0x1.6bcdb8p-16f};
// ln 2 in two parts; a multiple of the first by an exponent is exact.
inline constexpr float kLn2High = 0x1.63p-1f;
inline constexpr float kLn2Low = static_cast<float>(std::numbers::ln2 - kLn2High);

}  // namespace tilewright::codegen
