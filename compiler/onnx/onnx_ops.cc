// ONNX operators → rows of the operator table. What ONNX lets a model say in several ways
// (attributes or inputs, padding modes, old broadcasting) becomes one explicit form here.
#include <algorithm>
#include <tuple>

#include "compiler/onnx/onnx_conversions.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace onnx {
namespace {

using support::StrCat;

constexpr std::string_view kMicrosoft = "com.microsoft";

// Limits that several operators have.
constexpr std::string_view kDrawnLimits =
    "numbers that are drawn at the import, the same in each run, for the largest sizes";
constexpr std::string_view kReduceLimits =
    "constant axes, or a stated shape of the result that at most 16 sets of axes give";
constexpr std::string_view kPosition = "a constant position in a sequence of known length";
constexpr uint32_t kCaches = 1u << 4 | 1u << 5;  // a cache at its beginning
constexpr uint32_t kLists = ~1u;                 // an empty list is none

// Elementwise operators that are not here are imported as their row says.
constexpr Conversion kConversions[] = {
    {"AffineGrid", ImportAffineGrid, kBounded, 0, false, kOpen},
    {"ArgMax", ImportArg, "", kAnyInput, false, kOpen},
    {"ArgMin", ImportArg, "", kAnyInput, false, kOpen},
    {"Attention", ImportAttention, "", kCaches, false, kOpen},
    {"AveragePool", ImportPool, "one to three spatial dimensions", 0, false, kOpen},
    {"BatchNormalization", ImportBatchNorm, "no training before opset 7", kAnyInput, false, kOpen},
    {"Bernoulli", ImportBernoulli, kDrawnLimits, 0, false, kOpen},
    {"BitCast", ImportBitCast, "no types below 8 bits", 0, false, kOpen},
    {"BitShift", ImportBitShift, "", kAnyInput, false, kOpen},
    {"BlackmanWindow", ImportWindowFunction, kBounded, 0, false, kOpen},
    {"Cast", ImportCast, "", kAnyInput, false, kOpen},
    {"CastLike", ImportCastLike, "", kAnyInput, false, kOpen},
    {"CenterCropPad", ImportCenterCropPad, "a constant shape, or a stated shape of the result", 0,
     false, kOpen},
    {"Clip", ImportClip, "", kAnyInput, false, kOpen},
    {"CausalConvWithState", ImportCausalConvWithState, "", 1u << 3, false, kOpen},
    {"Col2Im", ImportCol2Im,
     "shapes that are constant or give the stated one; at most 4194304 elements in the windows of "
     "an "
     "image"},
    {"Compress", ImportCompress, "", kAnyInput, false, kOpen},
    {"Concat", ImportConcat, "", kAnyInput, false, kOpen},
    {"ConcatFromSequence", ImportConcatFromSequence, "", kAnyInput, kContainers, kOpen},
    {"Constant", ImportConstant, "a tensor or numbers; no strings, no sparse tensors", kAnyInput,
     false, kOpen},
    {"ConstantOfShape", ImportConstantOfShape, kBounded, kAnyInput, false, kOpen},
    {"Conv", ImportConv, "one to three spatial dimensions", kAnyInput, false, kOpen},
    {"ConvInteger", ImportConvInteger, "one or two spatial dimensions", 0, false, kOpen},
    {"ConvTranspose", ImportConvTranspose, "one to three spatial dimensions", 0, false, kOpen},
    {"CumProd", ImportCumulative, "an axis that is not constant: at most 8 dimensions", kAnyInput,
     false, kOpen},
    {"CumSum", ImportCumulative, "an axis that is not constant: at most 8 dimensions", kAnyInput,
     false, kOpen},
    {"DFT", ImportDft,
     "a constant dft_length, a fixed length; an axis that is constant or gives the stated shape", 0,
     false, kOpen},
    {"DeformConv", ImportDeformConv,
     "two spatial dimensions; at most 4194304 elements in the windows of an image", 0, false,
     kOpen},
    {"DepthToSpace", ImportDepthToSpace, "", kAnyInput, false, kOpen},
    {"DequantizeLinear", ImportDequantizeLinear, "", 0, false, kOpen},
    {"Det", ImportDet, "matrices of at most 64 rows"},
    {"Dropout", ImportDropout, "inference only", kAnyInput, false, kOpen},
    {"DynamicQuantizeLinear", ImportDynamicQuantizeLinear, "", 0, false, kOpen},
    {"Einsum", ImportEinsum, "", 0, false, kOpen},
    {"Expand", ImportExpand, kBounded, kAnyInput, false, kOpen},
    {"EyeLike", ImportEyeLike, "", kAnyInput, false, kOpen},
    {"Flatten", ImportFlatten, "", kAnyInput, false, kOpen},
    {"GRU", ImportRecurrent, "at most 4096 steps, or an open number", 0, false, kOpen},
    {"Gather", ImportGather, "", kAnyInput, false, kOpen},
    {"GatherElements", ImportGatherElements, "", kAnyInput, false, kOpen},
    {"GatherND", ImportGatherNd, "", 2, false, kOpen},
    {"Gemm", ImportGemm, "matrices", kAnyInput, false, kOpen},
    {"GlobalAveragePool", ImportGlobalPool, "", kAnyInput, false, kOpen},
    {"GlobalLpPool", ImportGlobalPool, "", kAnyInput, false, kOpen},
    {"GlobalMaxPool", ImportGlobalPool, "", kAnyInput, false, kOpen},
    {"GridSample", ImportGridSample, "one to three spatial dimensions", 0, false, kOpen},
    {"GroupNormalization", ImportGroupNorm, "", 0, false, kOpen},
    {"HammingWindow", ImportWindowFunction, kBounded, 0, false, kOpen},
    {"HannWindow", ImportWindowFunction, kBounded, 0, false, kOpen},
    {"Hardmax", ImportHardmax, "", kAnyInput, false, kOpen},
    {"Identity", ImportIdentity, "", kAnyInput, kContainers, kOpen},
    {"If", ImportIf,
     "a constant condition, or branches whose results have the same types and ranks; devices "
     "compute both then",
     kAnyInput, kContainers, kOpen},
    {"ImageDecoder", ImportImageDecoder,
     "libtilewright_images.so decodes, which a run has to allow (custom_operators.md)", 0, false,
     kOpen},
    {"InstanceNormalization", ImportInstanceNorm, "", 0, false, kOpen},
    {"LRN", ImportLrn, "float", 0, false, kOpen},
    {"LSTM", ImportRecurrent, "at most 4096 steps, or an open number", 0, false, kOpen},
    {"LayerNormalization", ImportLayerNorm, "", 0, false, kOpen},
    {"LinearAttention", ImportLinearAttention, "", 0, false, kOpen},
    {"LogSoftmax", ImportLogSoftmax, "", kAnyInput, false, kOpen},
    {"Loop", ImportLoop,
     "at most 1024 trips where values change their types or ranks, or are sequences; on "
     "processors otherwise any number, up to what bounds the results that the trips stack",
     kAnyInput, kContainers, kOpen},
    {"LpNormalization", ImportLpNorm, "", 0, false, kOpen},
    {"LpPool", ImportPool, "one to three spatial dimensions", 0, false, kOpen},
    {"MatMul", ImportMatMul, "", kAnyInput, false, kOpen},
    {"MatMulInteger", ImportMatMulInteger, "", 0, false, kOpen},
    {"Max", ImportVariadic, "", kAnyInput, false, kOpen},
    {"MaxPool", ImportPool,
     "one to three spatial dimensions; with indices, at most 4194304 elements in the windows of an "
     "image",
     0, false, kOpen},
    {"MaxRoiPool", ImportMaxRoiPool, "", 0, false, kOpen},
    {"MaxUnpool", ImportMaxUnpool, "places inside of the element's own image and channel"},
    {"Mean", ImportMean, "", kAnyInput, false, kOpen},
    {"MeanVarianceNormalization", ImportMeanVarianceNorm, "", 0, false, kOpen},
    {"MelWeightMatrix", ImportMelWeightMatrix, "constant operands, or a stated shape"},
    {"Min", ImportVariadic, "", kAnyInput, false, kOpen},
    {"Mod", ImportMod, "", kAnyInput, false, kOpen},
    {"Multinomial", ImportMultinomial, kDrawnLimits, 0, false, kOpen},
    {"NegativeLogLikelihoodLoss", ImportNegativeLogLikelihoodLoss, "", 0, false, kOpen},
    {"NonMaxSuppression", ImportNonMaxSuppression, "", 0, false, kOpen},
    {"NonZero", ImportNonZero, "", kAnyInput, false, kOpen},
    {"OneHot", ImportOneHot, kBounded, kAnyInput, false, kOpen},
    {"Optional", ImportOptional, "", kAnyInput, kContainers, kOpen},
    {"OptionalGetElement", ImportOptionalGetElement, "", kAnyInput, kContainers, kOpen},
    {"OptionalHasElement", ImportOptionalHasElement, "", kAnyInput, kContainers, kOpen},
    {"Pad", ImportPad, kBounded, kAnyInput, false, kOpen},
    {"Pow", ImportPow, "", kAnyInput, false, kOpen},
    {"QLinearConv", ImportQLinearConv, "one or two spatial dimensions", 0, false, kOpen},
    {"QLinearMatMul", ImportQLinearMatMul, "", 0, false, kOpen},
    {"QuantizeLinear", ImportQuantizeLinear, "", 0, false, kOpen},
    {"RMSNormalization", ImportRmsNorm, "", 0, false, kOpen},
    {"RNN", ImportRecurrent, "at most 4096 steps, or an open number", 0, false, kOpen},
    {"RandomNormal", ImportRandom, kDrawnLimits, 0, false, kOpen},
    {"RandomNormalLike", ImportRandom, kDrawnLimits, 0, false, kOpen},
    {"RandomUniform", ImportRandom, kDrawnLimits, 0, false, kOpen},
    {"RandomUniformLike", ImportRandom, kDrawnLimits, 0, false, kOpen},
    {"Range", ImportRange, kBounded, 0, false, kOpen},
    {"ReduceL1", ImportReduce, kReduceLimits, kAnyInput, false, kOpen},
    {"ReduceL2", ImportReduce, kReduceLimits, kAnyInput, false, kOpen},
    {"ReduceLogSum", ImportReduce, kReduceLimits, kAnyInput, false, kOpen},
    {"ReduceLogSumExp", ImportReduce, kReduceLimits, kAnyInput, false, kOpen},
    {"ReduceMax", ImportReduce, kReduceLimits, kAnyInput, false, kOpen},
    {"ReduceMean", ImportReduce, kReduceLimits, kAnyInput, false, kOpen},
    {"ReduceMin", ImportReduce, kReduceLimits, kAnyInput, false, kOpen},
    {"ReduceProd", ImportReduce, kReduceLimits, kAnyInput, false, kOpen},
    {"ReduceSum", ImportReduce, kReduceLimits, kAnyInput, false, kOpen},
    {"ReduceSumSquare", ImportReduce, kReduceLimits, kAnyInput, false, kOpen},
    {"Reshape", ImportReshape, "", kAnyInput, false, kOpen},
    {"Resize", ImportResize, kBounded, kLists, false, kOpen},
    {"ReverseSequence", ImportReverseSequence, "", 0, false, kOpen},
    {"RoiAlign", ImportRoiAlign,
     "with sampling_ratio 0, regions about as large as the image at most", 0, false, kOpen},
    {"RotaryEmbedding", ImportRotaryEmbedding, "", 0, false, kOpen},
    {"Scan", ImportScan, "full lengths", 0, false, kOpen},
    {"STFT", ImportStft,
     "frame_step and frame_length constant or as a stated shape allows; at most 8388608 elements "
     "in all frames of a signal",
     0, false, kOpen},
    {"Scatter", ImportScatterElements, "", kAnyInput, false, kOpen},
    {"ScatterElements", ImportScatterElements, "", kAnyInput, false, kOpen},
    {"ScatterND", ImportScatterNd, "", kAnyInput, false, kOpen},
    {"SequenceAt", ImportSequenceAt, "", kAnyInput, kContainers, kOpen},
    {"SequenceConstruct", ImportSequenceConstruct, "", kAnyInput, false, kOpen},
    {"SequenceEmpty", ImportSequenceEmpty, "", kAnyInput, false, kOpen},
    {"SequenceErase", ImportSequenceErase, kPosition, kAnyInput, kContainers, kOpen},
    {"SequenceInsert", ImportSequenceInsert,
     "the end, or a constant position in a sequence of known length", kAnyInput, kContainers,
     kOpen},
    {"SequenceLength", ImportSequenceLength, "", kAnyInput, kContainers, kOpen},
    {"SequenceMap", ImportSequenceMap, "", kAnyInput, kContainers, kOpen},
    {"Shape", ImportShape, "", kAnyInput, false, kOpen},
    {"Shrink", ImportShrink, "floats, integers of at most 32 bits", kAnyInput, false, kOpen},
    {"SimplifiedLayerNormalization", ImportRmsNorm, "", 0, false, kOpen},
    {"Size", ImportSize, "", kAnyInput, false, kOpen},
    {"Slice", ImportSlice, "", kAnyInput, false, kOpen},
    {"Softmax", ImportSoftmax, "", kAnyInput, false, kOpen},
    {"SoftmaxCrossEntropyLoss", ImportSoftmaxCrossEntropyLoss, "", 0, false, kOpen},
    {"SpaceToDepth", ImportSpaceToDepth, "", kAnyInput, false, kOpen},
    {"Split", ImportSplit, "", kAnyInput, false, kOpen},
    {"SplitToSequence", ImportSplitToSequence,
     "constant sizes, which are 1 along a dimension of open size", kAnyInput, false, kOpen},
    {"Squeeze", ImportSqueeze, "constant axes, or a stated shape of the result", kAnyInput, false,
     kOpen},
    {"Sum", ImportVariadic, "", kAnyInput, false, kOpen},
    {"SwiGLU", ImportSwiGlu, "", kAnyInput, false, kOpen},
    {"TensorScatter", ImportTensorScatter, "", 0, false, kOpen},
    {"TfIdfVectorizer", ImportTfIdf,
     "integers, in rows of a fixed length; a place of its own for each n-gram", 0, false, kOpen},
    {"Tile", ImportTile, kBounded, kAnyInput, false, kOpen},
    {"TopK", ImportTopK, "", kAnyInput, false, kOpen},
    {"Transpose", ImportTranspose, "", kAnyInput, false, kOpen},
    {"Trilu", ImportTrilu, "", kAnyInput, false, kOpen},
    {"Unique", ImportUnique, "a constant operand, or at most 32768 elements or slices", 0, false,
     kOpen},
    {"Unsqueeze", ImportUnsqueeze, "constant axes, or a stated shape of the result", kAnyInput,
     false, kOpen},
    {"Upsample", ImportResize, kBounded, kLists, false, kOpen},
};

}  // namespace

std::string PartName(NodeReader& n, std::string_view suffix) {
  return StrCat(n.output_name(), suffix);
}

ValueId ScalarConstant(NodeReader& n, ir::DType type, double value, const std::string& name) {
  const op::RefTensor scalar{{type, {}}, {value}};
  return n.importer().Constant(name, scalar.type, op::ToBytes(scalar));
}

Result Reshaped(NodeReader& n, ValueId x, std::vector<int64_t> shape, const std::string& name) {
  return n.importer().Emit("reshape", {x}, {{"shape", std::move(shape)}}, name);
}

Result ReshapedTo(NodeReader& n, ValueId x, const std::vector<op::Dim>& shape,
                  const std::string& name) {
  return n.importer().Emit("reshape", {x}, {{"shape", op::ShapeAttr(shape)}}, name);
}

Result Sliced(NodeReader& n, ValueId x, int64_t axis, const op::Dim& start, int64_t step,
              const op::Dim& count, const std::string& name) {
  op::TensorType type = n.importer().TypeOf(x);
  std::vector<op::Dim> starts(type.shape.size(), 0);
  std::vector<int64_t> steps(type.shape.size(), 1);
  type.shape[axis] = count;
  if (count == op::Dim(0) || n.importer().IsEmpty(x)) {
    if (type.fixed()) return n.importer().Constant(name, type, "");
    return n.Error("open_size", StrCat("expected a slice with elements, found ", op::ToText(type)));
  }
  starts[axis] = start;
  steps[axis] = step;
  return n.importer().Emit(
      "slice", {x},
      {{"starts", op::ShapeAttr(starts)}, {"steps", steps}, {"sizes", op::ShapeAttr(type.shape)}},
      name);
}

absl::StatusOr<std::vector<int64_t>> ReadAxes(NodeReader& n, int input, int64_t rank) {
  std::vector<int64_t> axes;
  if (n.HasInput(input)) {
    TW_ASSIGN(axes, n.InputInts(input, "axes"));
  } else {
    TW_ASSIGN(axes, n.Ints("axes", {}));
  }
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) {
      return n.Error("axes",
                     StrCat("expected axes in ", -rank, " to ", rank - 1, ", found ", axis));
    }
    if (axis < 0) axis += rank;
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
    return n.Error("axes", "expected each axis once, found one twice");
  }
  return axes;
}

absl::StatusOr<ir::DType> ReadType(NodeReader& n, std::string_view attribute, ir::DType fallback) {
  if (n.Find(attribute) == nullptr) return fallback;
  TW_ASSIGN(const int64_t stated, n.Int(attribute, 0));
  return ElementType(stated);
}

absl::StatusOr<int64_t> ReadAxis(NodeReader& n, int64_t fallback, int64_t rank) {
  TW_ASSIGN(const int64_t axis, n.Int("axis", fallback));
  if (axis < -rank || axis >= rank) {
    return n.Error("axis", StrCat("expected an axis of rank ", rank, ", found ", axis));
  }
  return axis < 0 ? axis + rank : axis;
}

bool TakesEmpty(const Conversion& row, int i) {
  return (row.takes_empty >> std::min(i, 31) & 1) != 0;
}

const Conversion* FindConversion(std::string_view onnx_op, std::string_view domain) {
  if (domain == kMicrosoft) {
    for (const Conversion& row : MicrosoftConversions()) {
      if (row.onnx == onnx_op) return &row;
    }
  }
  if (!domain.empty() && domain != "ai.onnx") return nullptr;
  for (const Conversion& row : kConversions) {
    if (row.onnx == onnx_op) return &row;
  }
  static constexpr Conversion kElementwise = {"", ImportElementwise, "", kAnyInput, false, kOpen};
  return ElementwiseRow(onnx_op) == nullptr ? nullptr : &kElementwise;
}

OnnxSupport Supported() {
  OnnxSupport known{kOldestOpset, kNewestOpset, {}, {}};
  for (const ElementTypeRow& row : ElementTypes()) {
    known.element_types.push_back(ElementTypeName(row.onnx));
  }
  const auto add = [&](std::string_view name, std::string_view domain, std::string_view limits) {
    known.operators.push_back({std::string(name), std::string(domain), std::string(limits)});
  };
  for (const Conversion& row : kConversions) add(row.onnx, "", row.limits);
  for (const Conversion& row : MicrosoftConversions()) add(row.onnx, kMicrosoft, row.limits);
  for (const op::OpSpec& row : op::Operators()) {
    const std::string_view name = row.elementwise() && !row.onnx.empty() ? row.onnx[0] : "";
    if (name.empty() || FindConversion(name, "")->run != ImportElementwise) continue;
    add(name, "", "");
  }
  std::sort(known.operators.begin(), known.operators.end(), [](const auto& a, const auto& b) {
    return std::tie(a.domain, a.name) < std::tie(b.domain, b.name);
  });
  return known;
}

}  // namespace onnx

OnnxSupport SupportedOnnx() { return onnx::Supported(); }

}  // namespace tilewright::graph
