// Operators of com.microsoft, ONNX Runtime's own domain: what public quantised models and exported
// decoders have.
#include "compiler/onnx/onnx_conversions.h"

namespace tilewright::graph::onnx {
namespace {

constexpr std::string_view kMaskLimits =
    "masks of lengths (and starts), of keys, or of queries and keys; a cache of exactly the past "
    "entries; no rotary positions inside, no output qk";
constexpr Conversion kMicrosoftConversions[] = {
    {"Attention", ImportMicrosoftAttention, kMaskLimits, 1u << 4, false, kOpen},
    {"BiasGelu", ImportBiasGelu, "", kAnyInput, false, kOpen},
    {"DequantizeLinear", ImportDequantizeLinear, "", 0, false, kOpen},
    {"DynamicQuantizeMatMul", ImportDynamicQuantizeMatMul, "", 0, false, kOpen},
    {"EmbedLayerNormalization", ImportEmbedLayerNorm, "", 0, false, kOpen},
    {"FastGelu", ImportBiasGelu, "", kAnyInput, false, kOpen},
    {"FusedConv", ImportFusedConv,
     "one to three spatial dimensions; activations: Clip, Elu, HardSigmoid, LeakyRelu, Relu, "
     "Sigmoid, Silu, Tanh",
     kAnyInput, false, kOpen},
    {"FusedGemm", ImportFusedGemm,
     "matrices; activations: Clip, Elu, HardSigmoid, LeakyRelu, Relu, Sigmoid, Silu, Tanh",
     kAnyInput, false, kOpen},
    {"FusedMatMul", ImportFusedMatMul, "", kAnyInput, false, kOpen},
    {"Gelu", ImportBiasGelu, "", kAnyInput, false, kOpen},
    {"GroupQueryAttention", ImportGroupQueryAttention,
     "sequences of one length if the cache is state; a cache of exactly the past entries; no "
     "output_qk",
     1u << 3 | 1u << 4, false, kOpen},
    {"LayerNormalization", ImportLayerNorm, "", 0, false, kOpen},
    {"MatMulIntegerToFloat", ImportMatMulIntegerToFloat, "", 0, false, kOpen},
    {"MatMulNBits", ImportMatMulNBits, "constant weights of 2, 4 or 8 bits", 0, false, kOpen},
    {"MultiHeadAttention", ImportMultiHeadAttention, kMaskLimits, 1u << 6 | 1u << 7, false, kOpen},
    {"QGemm", ImportQGemm, "matrices", 0, false, kOpen},
    {"QLinearAdd", ImportQLinearArithmetic, "", 0, false, kOpen},
    {"QLinearAveragePool", ImportQLinearAveragePool, "one to three spatial dimensions", 0, false,
     kOpen},
    {"QLinearConcat", ImportQLinearConcat, "", 0, false, kOpen},
    {"QLinearGlobalAveragePool", ImportQLinearGlobalAveragePool, "", 0, false, kOpen},
    {"QLinearLeakyRelu", ImportQLinearElementwise, "", 0, false, kOpen},
    {"QLinearMul", ImportQLinearArithmetic, "", 0, false, kOpen},
    {"QLinearReduceMean", ImportQLinearReduceMean, "", 0, false, kOpen},
    {"QLinearSigmoid", ImportQLinearElementwise, "", 0, false, kOpen},
    {"QLinearSoftmax", ImportQLinearSoftmax, "", 0, false, kOpen},
    {"QLinearWhere", ImportQLinearWhere, "", 0, false, kOpen},
    {"QuantizeLinear", ImportQuantizeLinear, "", 0, false, kOpen},
    {"QuickGelu", ImportQuickGelu, "", kAnyInput, false, kOpen},
    {"RotaryEmbedding", ImportMicrosoftRotaryEmbedding, "scale 1", 0, false, kOpen},
    {"SimplifiedLayerNormalization", ImportRmsNorm, "", 0, false, kOpen},
    {"SkipLayerNormalization", ImportSkipLayerNorm, "", 0, false, kOpen},
    {"SkipSimplifiedLayerNormalization", ImportSkipSimplifiedLayerNorm, "", 0, false, kOpen},
};

}  // namespace

std::span<const Conversion> MicrosoftConversions() { return kMicrosoftConversions; }

}  // namespace tilewright::graph::onnx
