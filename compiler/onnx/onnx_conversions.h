// ONNX operator conversions by family; the tables that name them are in onnx_ops.cc and
// onnx_microsoft_ops.cc. Each appends nodes and returns the value of the node's first output.
// Inside of the import.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/onnx/onnx_importer.h"

namespace tilewright::graph::onnx {

using Result = absl::StatusOr<ValueId>;
class Composer;

// For the tables. A limit that several operators have; what inputs may be, apart from kAnyInput.
inline constexpr std::string_view kBounded =
    "a shape that is constant, or that the model states, or that --shape bounds";
inline constexpr bool kContainers = true;  // takes sequences and optionals
inline constexpr bool kOpen = true;        // takes dimensions that are size variables
// The operators of com.microsoft.
std::span<const Conversion> MicrosoftConversions();

// onnx_custom_ops.cc
Result ImportCustom(NodeReader& n);
// onnx_elementwise_ops.cc
Result ImportBitCast(NodeReader& n);
Result ImportBitShift(NodeReader& n);
Result ImportCast(NodeReader& n);
Result ImportCastLike(NodeReader& n);
Result ImportClip(NodeReader& n);
Result ImportElementwise(NodeReader& n);
Result ImportIdentity(NodeReader& n);
Result ImportMod(NodeReader& n);
Result ImportPow(NodeReader& n);
Result ImportShrink(NodeReader& n);
Result ImportSwiGlu(NodeReader& n);
Result ImportVariadic(NodeReader& n);
// The row that an elementwise operator is; null for others.
const op::OpSpec* ElementwiseRow(std::string_view onnx_op);
// onnx_ordering_ops.cc
Result ImportArg(NodeReader& n);
Result ImportCumulative(NodeReader& n);
Result ImportHardmax(NodeReader& n);
Result ImportTopK(NodeReader& n);
// onnx_window_ops.cc
Result ImportConv(NodeReader& n);
Result ImportConvTranspose(NodeReader& n);
Result ImportPool(NodeReader& n);
Result ImportGlobalPool(NodeReader& n);
Result ImportLrn(NodeReader& n);
// onnx_patch_ops.cc
Result ImportCol2Im(NodeReader& n);
Result ImportMaxUnpool(NodeReader& n);
// onnx_sampling_ops.cc
Result ImportAffineGrid(NodeReader& n);
Result ImportGridSample(NodeReader& n);
// onnx_roi_align_ops.cc
Result ImportRoiAlign(NodeReader& n);
// onnx_region_ops.cc
Result ImportDeformConv(NodeReader& n);
Result ImportMaxRoiPool(NodeReader& n);
// onnx_fourier_ops.cc
Result ImportDft(NodeReader& n);
Result ImportMelWeightMatrix(NodeReader& n);
Result ImportStft(NodeReader& n);
// onnx_selection_ops.cc
Result ImportCompress(NodeReader& n);
Result ImportNonMaxSuppression(NodeReader& n);
Result ImportNonZero(NodeReader& n);
// How many of a list of bools hold: the size of the node's first result along `axis`.
op::Dim CountOfTrue(Composer& c, ValueId flags, int64_t axis);
// The first `count` positions at which a list of bools holds, i64[count]. Positions that there are
// none for are the length of the list.
ValueId PositionsOfTrue(Composer& c, ValueId flags, const op::Dim& count);
// The attribute axis. Without it the operand becomes a list of its elements.
absl::StatusOr<int64_t> AxisOrFlat(NodeReader& n, Composer& c, ValueId* x);
// onnx_ngram_ops.cc
Result ImportTfIdf(NodeReader& n);
// onnx_unique_ops.cc
Result ImportUnique(NodeReader& n);
// onnx_sequence_ops.cc
Result ImportConcatFromSequence(NodeReader& n);
Result ImportOptional(NodeReader& n);
Result ImportOptionalGetElement(NodeReader& n);
Result ImportOptionalHasElement(NodeReader& n);
Result ImportSequenceAt(NodeReader& n);
Result ImportSequenceConstruct(NodeReader& n);
Result ImportSequenceEmpty(NodeReader& n);
Result ImportSequenceErase(NodeReader& n);
Result ImportSequenceInsert(NodeReader& n);
Result ImportSequenceLength(NodeReader& n);
Result ImportSequenceMap(NodeReader& n);
Result ImportSplitToSequence(NodeReader& n);
// onnx_random_ops.cc
Result ImportBernoulli(NodeReader& n);
Result ImportMultinomial(NodeReader& n);
Result ImportRandom(NodeReader& n);
// onnx_control_ops.cc
Result ImportIf(NodeReader& n);
Result ImportLoop(NodeReader& n);
Result ImportScan(NodeReader& n);
// The subgraph that is the attribute of this name.
absl::StatusOr<const pb::GraphProto*> BodyOf(NodeReader& n, std::string_view name);
// Gives the node its results; the first is what the conversion returns.
Result BindAll(NodeReader& n, const std::vector<ValueId>& results);
// onnx_image_ops.cc
Result ImportCenterCropPad(NodeReader& n);
Result ImportDepthToSpace(NodeReader& n);
Result ImportImageDecoder(NodeReader& n);
Result ImportSpaceToDepth(NodeReader& n);
// onnx_signal_windows.cc
Result ImportWindowFunction(NodeReader& n);
// onnx_layout_ops.cc
Result ImportDropout(NodeReader& n);
Result ImportExpand(NodeReader& n);
Result ImportEyeLike(NodeReader& n);
Result ImportOneHot(NodeReader& n);
Result ImportRange(NodeReader& n);
Result ImportReverseSequence(NodeReader& n);
Result ImportSize(NodeReader& n);
Result ImportTile(NodeReader& n);
Result ImportTrilu(NodeReader& n);
// onnx_norm_ops.cc
Result ImportBatchNorm(NodeReader& n);
Result ImportGroupNorm(NodeReader& n);
Result ImportInstanceNorm(NodeReader& n);
Result ImportLayerNorm(NodeReader& n);
Result ImportLpNorm(NodeReader& n);
Result ImportMeanVarianceNorm(NodeReader& n);
Result ImportRmsNorm(NodeReader& n);
Result ImportSoftmax(NodeReader& n);
// onnx_loss_ops.cc
Result ImportNegativeLogLikelihoodLoss(NodeReader& n);
Result ImportSoftmaxCrossEntropyLoss(NodeReader& n);
// onnx_reduce_ops.cc
Result ImportLogSoftmax(NodeReader& n);
Result ImportMean(NodeReader& n);
Result ImportReduce(NodeReader& n);
// onnx_matrix_ops.cc
Result ImportDet(NodeReader& n);
Result ImportGemm(NodeReader& n);
Result ImportMatMul(NodeReader& n);
// onnx_quantized_ops.cc
Result ImportConvInteger(NodeReader& n);
Result ImportDequantizeLinear(NodeReader& n);
Result ImportDynamicQuantizeLinear(NodeReader& n);
Result ImportMatMulInteger(NodeReader& n);
Result ImportQLinearConv(NodeReader& n);
Result ImportQLinearMatMul(NodeReader& n);
Result ImportQuantizeLinear(NodeReader& n);
// onnx_packed_ops.cc
Result ImportMatMulNBits(NodeReader& n);
// onnx_qlinear_ops.cc
Result ImportQGemm(NodeReader& n);
Result ImportQLinearArithmetic(NodeReader& n);
Result ImportQLinearAveragePool(NodeReader& n);
Result ImportQLinearConcat(NodeReader& n);
Result ImportQLinearElementwise(NodeReader& n);
Result ImportQLinearGlobalAveragePool(NodeReader& n);
Result ImportQLinearReduceMean(NodeReader& n);
Result ImportQLinearSoftmax(NodeReader& n);
Result ImportQLinearWhere(NodeReader& n);
// onnx_fused_ops.cc
Result ImportBiasGelu(NodeReader& n);
Result ImportDynamicQuantizeMatMul(NodeReader& n);
Result ImportFusedConv(NodeReader& n);
Result ImportFusedGemm(NodeReader& n);
Result ImportFusedMatMul(NodeReader& n);
Result ImportMatMulIntegerToFloat(NodeReader& n);
Result ImportQuickGelu(NodeReader& n);
Result ImportSkipLayerNorm(NodeReader& n);
Result ImportSkipSimplifiedLayerNorm(NodeReader& n);
// onnx_encoder_ops.cc
Result ImportEmbedLayerNorm(NodeReader& n);
Result ImportMicrosoftAttention(NodeReader& n);
Result ImportMultiHeadAttention(NodeReader& n);
// onnx_shape_ops.cc
Result ImportConcat(NodeReader& n);
Result ImportConstant(NodeReader& n);
Result ImportConstantOfShape(NodeReader& n);
Result ImportFlatten(NodeReader& n);
Result ImportReshape(NodeReader& n);
Result ImportShape(NodeReader& n);
Result ImportSqueeze(NodeReader& n);
Result ImportTranspose(NodeReader& n);
Result ImportUnsqueeze(NodeReader& n);
// onnx_slice_ops.cc
Result ImportGather(NodeReader& n);
Result ImportPad(NodeReader& n);
Result ImportSlice(NodeReader& n);
Result ImportSplit(NodeReader& n);
// onnx_resize_ops.cc
Result ImportResize(NodeReader& n);
// onnx_scatter_ops.cc
Result ImportGatherElements(NodeReader& n);
Result ImportGatherNd(NodeReader& n);
Result ImportScatterElements(NodeReader& n);
Result ImportScatterNd(NodeReader& n);
Result ImportTensorScatter(NodeReader& n);
// The updates [o,u,i] at their positions along the second of three dimensions, [o,u,i] or [o,u,1],
// in data [o,a,i]; of several at one place the last. Positions outside of the data count for none.
ValueId ScatterLast(Composer& c, ValueId data, ValueId positions, ValueId updates);
// onnx_attention_ops.cc
Result ImportAttention(NodeReader& n);
Result ImportRotaryEmbedding(NodeReader& n);
// [batch, length, heads * size] → [batch, heads, length, size], and back.
ValueId HeadsApart(Composer& c, ValueId x, int64_t heads);
ValueId HeadsJoined(Composer& c, ValueId x);
// What is added to scores: 0 where `allowed` holds, else minus infinity.
ValueId Barred(Composer& c, ValueId allowed, ir::DType type);
Result RotaryEmbedding(Composer& c, ValueId x, ValueId cosine, ValueId sine, ValueId positions);
ValueId RotaryTurn(Composer& c, ValueId x, ValueId cosine, ValueId sine, bool pairs);
// onnx_state_ops.cc
Result ImportCausalConvWithState(NodeReader& n);
Result ImportLinearAttention(NodeReader& n);
// onnx_decoder_ops.cc
Result ImportGroupQueryAttention(NodeReader& n);
Result ImportMicrosoftRotaryEmbedding(NodeReader& n);
// onnx_einsum_ops.cc
Result ImportEinsum(NodeReader& n);
// onnx_recurrent_ops.cc
Result ImportRecurrent(NodeReader& n);

// Shared by the families.
std::string PartName(NodeReader& n, std::string_view suffix);  // of the node's first output
ValueId ScalarConstant(NodeReader& n, ir::DType type, double value, const std::string& name);
Result Reshaped(NodeReader& n, ValueId x, std::vector<int64_t> shape, const std::string& name);
Result ReshapedTo(NodeReader& n, ValueId x, const std::vector<op::Dim>& shape,
                  const std::string& name);
// A convolution of input, weight and maybe bias, with the attributes of the node.
Result EmitConv(NodeReader& n, const std::vector<ValueId>& operands, const std::string& name);
// The pool of the node's name and attributes.
Result EmitPool(NodeReader& n, ValueId x);
// A product of matrices or vectors, as NumPy's matmul has it.
Result EmitMatMul(NodeReader& n, ValueId a, ValueId b, const std::string& name);
// The elements start, start + step, ... (count of them) along one axis.
Result Sliced(NodeReader& n, ValueId x, int64_t axis, const op::Dim& start, int64_t step,
              const op::Dim& count, const std::string& name);
// Axes of Squeeze, Unsqueeze and the reductions: an attribute, later an input. Sorted, each once,
// >= 0.
absl::StatusOr<std::vector<int64_t>> ReadAxes(NodeReader& n, int input, int64_t rank);
// Attribute `axis` in [-rank, rank), made non-negative.
absl::StatusOr<int64_t> ReadAxis(NodeReader& n, int64_t fallback, int64_t rank);
// The element type that an attribute names; `fallback` where the node does not have it.
absl::StatusOr<ir::DType> ReadType(NodeReader& n, std::string_view attribute, ir::DType fallback);

}  // namespace tilewright::graph::onnx
