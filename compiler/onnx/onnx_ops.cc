// ONNX operators → rows of the operator table. What ONNX lets a model say in several ways
// (attributes or inputs, padding modes, old broadcasting) becomes one explicit form here.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "compiler/onnx/onnx_conversions.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace onnx {
namespace {

using support::StrCat;

const op::OpSpec* FindElementwise(std::string_view onnx_op) {
  for (const op::OpSpec& row : op::Operators()) {
    if (row.elementwise() && !row.onnx.empty() && row.onnx[0] == onnx_op) return &row;
  }
  return nullptr;
}

Result Elementwise(NodeReader& n) {
  const op::OpSpec* spec = FindElementwise(n.op_type());
  TW_CHECK(spec != nullptr) << n.op_type();
  if (n.importer().opset() < 7 && spec->max_inputs == 2) {
    TW_ASSIGN(const int64_t broadcast, n.Int("broadcast", 0));
    if (broadcast != 0 && n.Find("axis") != nullptr) {
      return n.Error("broadcast", "expected NumPy broadcasting, found the axis form of opset 6");
    }
  }
  std::vector<ValueId> inputs;
  for (int i = 0; i < spec->max_inputs; ++i) {
    TW_ASSIGN(ValueId id, n.Input(i));
    inputs.push_back(id);
  }
  op::Attrs attrs;
  for (const char* name : {"alpha", "beta", "gamma"}) {
    if (n.Find(name) == nullptr) continue;
    TW_ASSIGN(attrs[name], n.Float(name, 0));
  }
  for (const char* name : {"detect_negative", "detect_positive"}) {
    if (n.Find(name) == nullptr) continue;
    TW_ASSIGN(attrs[name], n.Int(name, 1));
  }
  TW_ASSIGN(const std::string approximate, n.String("approximate", "none"));
  if (approximate != "none" && approximate != "tanh") {
    return n.Error("attribute", StrCat("expected approximate none or tanh, found ", approximate));
  }
  if (approximate == "tanh") {
    return n.importer().Emit("gelu_tanh", inputs, attrs, n.output_name());
  }
  if (spec->name == "prelu") {
    // ONNX aligns the slope of rank 1 with the channels.
    const auto &x = n.importer().TypeOf(inputs[0]), &slope = n.importer().TypeOf(inputs[1]);
    if (slope.shape.size() == 1 && x.shape.size() > 2 && slope.shape[0] == x.shape[1]) {
      std::vector<op::Dim> shape(x.shape.size() - 1, 1);
      shape[0] = x.shape[1];
      TW_ASSIGN(inputs[1], ReshapedTo(n, inputs[1], shape, PartName(n, "_slope")));
    }
  }
  return n.importer().Emit(spec->name, inputs, attrs, n.output_name());
}

// Sum, Max, Min of any number of operands: a chain.
Result Variadic(NodeReader& n) {
  const std::string row = n.op_type() == "Sum" ? "add" : n.op_type() == "Max" ? "max" : "min";
  TW_ASSIGN(ValueId value, n.Input(0));
  if (n.num_inputs() == 1) return n.importer().Emit("identity", {value}, {}, n.output_name());
  for (int i = 1; i < n.num_inputs(); ++i) {
    TW_ASSIGN(ValueId next, n.Input(i));
    const bool last = i + 1 == n.num_inputs();
    TW_ASSIGN(value, n.importer().Emit(row, {value, next}, {},
                                       last ? n.output_name() : PartName(n, StrCat("_part", i))));
  }
  return value;
}

// One bound of a clip: constant ones become attributes, others max or min.
absl::Status ClipBound(NodeReader& n, int input, const char* attribute, op::Attrs* attrs,
                       std::optional<ValueId>* dynamic) {
  if (n.importer().opset() < 11) {
    if (n.Find(attribute) == nullptr) return absl::OkStatus();
    TW_ASSIGN((*attrs)[attribute], n.Float(attribute, 0));
    return absl::OkStatus();
  }
  if (!n.HasInput(input)) return absl::OkStatus();
  TW_ASSIGN(ValueId id, n.Input(input));
  std::optional<double> value = n.importer().ConstantScalar(id);
  const ir::DType type = n.importer().TypeOf(id).dtype;
  if (type.is_int() && type.bits == 64) value.reset();  // an attribute would not be exact
  if (value) (*attrs)[attribute] = *value;
  if (!value) *dynamic = id;
  return absl::OkStatus();
}

Result Clip(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  op::Attrs attrs;
  std::optional<ValueId> low, high;
  TW_TRY(ClipBound(n, 1, "min", &attrs, &low));
  TW_TRY(ClipBound(n, 2, "max", &attrs, &high));
  if (low) {
    TW_ASSIGN(x, n.importer().Emit("max", {*low, x}, {}, PartName(n, "_low")));
  }
  if (high) {
    TW_ASSIGN(x, n.importer().Emit("min", {*high, x}, {}, PartName(n, "_high")));
  }
  return n.importer().Emit("clip", {x}, attrs, n.output_name());
}

Result Identity(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  if (n.importer().ContainerOf(x) != nullptr) return x;
  return n.importer().Emit("identity", {x}, {}, n.output_name());
}

Result Cast(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(const int64_t to, n.Int("to", 0));
  TW_ASSIGN(const ir::DType type, ElementType(to));
  return n.importer().Emit("cast", {x}, {{"dtype", ir::TypeName(type)}}, n.output_name());
}

Result BatchNorm(NodeReader& n) {
  std::vector<ValueId> inputs;
  for (int i = 0; i < 5; ++i) {
    TW_ASSIGN(ValueId id, n.Input(i));
    inputs.push_back(id);
  }
  TW_ASSIGN(const double epsilon, n.Float("epsilon", 1e-5));
  TW_ASSIGN(const int64_t training, n.Int("training_mode", 0));
  TW_ASSIGN(const int64_t spatial, n.Int("spatial", 1));
  if (training != 0 || spatial != 1) {
    return n.Error("attribute", "expected spatial inference mode, found another");
  }
  return n.importer().Emit("batch_norm", inputs, {{"epsilon", epsilon}}, n.output_name());
}

Result Softmax(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const std::vector<op::Dim> shape = n.importer().TypeOf(x).shape;
  const int64_t rank = static_cast<int64_t>(shape.size());
  const bool rows =
      n.importer().opset() < 13;  // older versions normalise all that follows the axis
  TW_ASSIGN(int64_t axis, n.Int("axis", rows ? 1 : -1));
  if (axis < -rank || axis >= rank) {
    return n.Error("attribute", StrCat("expected an axis of rank ", rank, ", found ", axis));
  }
  if (axis < 0) axis += rank;
  if (!rows || axis == rank - 1) {
    return n.importer().Emit("softmax", {x}, {{"axis", axis}}, n.output_name());
  }
  op::Dim outer = 1, inner = 1;
  for (int64_t d = 0; d < rank; ++d) {
    op::Dim& side = d < axis ? outer : inner;
    side = side * shape[d];
  }
  TW_ASSIGN(x, ReshapedTo(n, x, {outer, inner}, PartName(n, "_rows")));
  TW_ASSIGN(x, n.importer().Emit("softmax", {x}, {{"axis", int64_t{1}}}, PartName(n, "_softmax")));
  return ReshapedTo(n, x, shape, n.output_name());
}

// Limits that several operators have.
constexpr std::string_view kDrawnLimits =
    "numbers that are drawn at the import, the same in each run; a fixed shape";
constexpr std::string_view kReduceLimits =
    "constant axes, or a stated shape of the result that at most 16 sets of axes give";
constexpr std::string_view kPosition = "a constant position";
constexpr std::string_view kBounded =
    "a shape that is constant, or that the model states, or that --shape bounds";

// Inputs that may have no elements, apart from kAnyInput.
constexpr uint32_t kCaches = 1u << 4 | 1u << 5;  // a cache at its beginning
constexpr uint32_t kLists = ~1u;                 // an empty list is none
constexpr bool kContainers = true;               // takes sequences and optionals
constexpr bool kOpen = true;                     // takes dimensions that are size variables

// Elementwise operators that are not here are imported as their row says.
constexpr Conversion kConversions[] = {
    {"AffineGrid", ImportAffineGrid, "a constant size, or a stated shape of the result"},
    {"ArgMax", ImportArg, "", kAnyInput, false, kOpen},
    {"ArgMin", ImportArg, "", kAnyInput, false, kOpen},
    {"Attention", ImportAttention, "", kCaches, false, kOpen},
    {"AveragePool", ImportPool, "one to three spatial dimensions", 0, false, kOpen},
    {"BatchNormalization", BatchNorm, "inference only: training_mode 0, spatial 1", kAnyInput,
     false, kOpen},
    {"Bernoulli", ImportBernoulli, kDrawnLimits},
    {"BitCast", ImportBitCast,
     "a constant, or an integer type to another; no bool, no types of 4 bits"},
    {"BitShift", ImportBitShift, "", kAnyInput, false, kOpen},
    {"BlackmanWindow", ImportWindowFunction, "a constant size, or a stated shape of the result"},
    {"Cast", Cast, "", kAnyInput, false, kOpen},
    {"CastLike", ImportCastLike, "", kAnyInput, false, kOpen},
    {"CenterCropPad", ImportCenterCropPad, "a constant shape, or a stated shape of the result", 0,
     false, kOpen},
    {"Clip", Clip, "", kAnyInput, false, kOpen},
    {"Col2Im", ImportCol2Im,
     "constant shapes; at most 4194304 elements in the windows of an image"},
    {"Compress", ImportCompress, "", kAnyInput, false, kOpen},
    {"Concat", ImportConcat, "", kAnyInput, false, kOpen},
    {"ConcatFromSequence", ImportConcatFromSequence, "", kAnyInput, kContainers},
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
    {"DFT", ImportDft, "a constant dft_length and axis"},
    {"DeformConv", ImportDeformConv,
     "two spatial dimensions; at most 4194304 elements in the windows of an image"},
    {"DepthToSpace", ImportDepthToSpace, "", kAnyInput, false, kOpen},
    {"DequantizeLinear", ImportDequantizeLinear, "", 0, false, kOpen},
    {"Det", ImportDet, "matrices of at most 64 rows"},
    {"Dropout", ImportDropout, "inference only", kAnyInput, false, kOpen},
    {"DynamicQuantizeLinear", ImportDynamicQuantizeLinear, "", 0, false, kOpen},
    {"Einsum", ImportEinsum, "", 0, false, kOpen},
    {"Expand", ImportExpand, kBounded, kAnyInput, false, kOpen},
    {"EyeLike", ImportEyeLike, "", kAnyInput},
    {"Flatten", ImportFlatten, "", kAnyInput, false, kOpen},
    {"GRU", ImportRecurrent, "at most 4096 steps, or an open number", 0, false, kOpen},
    {"Gather", ImportGather, "", kAnyInput, false, kOpen},
    {"GatherElements", ImportGatherElements, "", kAnyInput, false, kOpen},
    {"GatherND", ImportGatherNd, "", 0, false, kOpen},
    {"Gemm", ImportGemm, "matrices", kAnyInput, false, kOpen},
    {"GlobalAveragePool", ImportGlobalPool, "", kAnyInput, false, kOpen},
    {"GlobalLpPool", ImportGlobalPool, "", kAnyInput, false, kOpen},
    {"GlobalMaxPool", ImportGlobalPool, "", kAnyInput, false, kOpen},
    {"GridSample", ImportGridSample, "one to three spatial dimensions"},
    {"GroupNormalization", ImportGroupNorm, "", 0, false, kOpen},
    {"HammingWindow", ImportWindowFunction, "a constant size, or a stated shape of the result"},
    {"HannWindow", ImportWindowFunction, "a constant size, or a stated shape of the result"},
    {"Hardmax", ImportHardmax, "", kAnyInput, false, kOpen},
    {"Identity", Identity, "", kAnyInput, kContainers, kOpen},
    {"If", ImportIf,
     "a constant condition, or branches whose results have the same shapes: then both are "
     "computed",
     kAnyInput, kContainers, kOpen},
    {"InstanceNormalization", ImportInstanceNorm, "", 0, false, kOpen},
    {"LRN", ImportLrn, "float", 0, false, kOpen},
    {"LSTM", ImportRecurrent, "at most 4096 steps, or an open number", 0, false, kOpen},
    {"LayerNormalization", ImportLayerNorm, "", 0, false, kOpen},
    {"LogSoftmax", ImportLogSoftmax, "", kAnyInput, false, kOpen},
    {"Loop", ImportLoop,
     "at most 1024 trips; their largest number is constant, or follows from the shape of a result "
     "that is stated or that --shape bounds; unrolled to at most 16384 operators",
     kAnyInput, kContainers, kOpen},
    {"LpNormalization", ImportLpNorm, "", 0, false, kOpen},
    {"LpPool", ImportPool, "one to three spatial dimensions", 0, false, kOpen},
    {"MatMul", ImportMatMul, "", kAnyInput, false, kOpen},
    {"MatMulInteger", ImportMatMulInteger, "", 0, false, kOpen},
    {"Max", Variadic, "", kAnyInput, false, kOpen},
    {"MaxPool", ImportPool,
     "one to three spatial dimensions; with indices, at most 4194304 elements in the windows of an "
     "image",
     0, false, kOpen},
    {"MaxRoiPool", ImportMaxRoiPool},
    {"MaxUnpool", ImportMaxUnpool, "places inside of the element's own image and channel"},
    {"Mean", ImportMean, "", kAnyInput, false, kOpen},
    {"MeanVarianceNormalization", ImportMeanVarianceNorm, "", 0, false, kOpen},
    {"MelWeightMatrix", ImportMelWeightMatrix, "constant operands"},
    {"Min", Variadic, "", kAnyInput, false, kOpen},
    {"Mod", ImportMod, "", kAnyInput, false, kOpen},
    {"Multinomial", ImportMultinomial, kDrawnLimits},
    {"NonMaxSuppression", ImportNonMaxSuppression, "", 0, false, kOpen},
    {"NonZero", ImportNonZero, "", kAnyInput, false, kOpen},
    {"OneHot", ImportOneHot, kBounded, kAnyInput, false, kOpen},
    {"Optional", ImportOptional, "", kAnyInput, kContainers},
    {"OptionalGetElement", ImportOptionalGetElement, "", kAnyInput, kContainers},
    {"OptionalHasElement", ImportOptionalHasElement, "", kAnyInput, kContainers},
    {"Pad", ImportPad, kBounded, kAnyInput, false, kOpen},
    {"Pow", ImportPow, "", kAnyInput, false, kOpen},
    {"QLinearConv", ImportQLinearConv, "one or two spatial dimensions", 0, false, kOpen},
    {"QLinearMatMul", ImportQLinearMatMul, "", 0, false, kOpen},
    {"QuantizeLinear", ImportQuantizeLinear, "", 0, false, kOpen},
    {"RMSNormalization", ImportRmsNorm, "", 0, false, kOpen},
    {"RNN", ImportRecurrent, "at most 4096 steps, or an open number", 0, false, kOpen},
    {"RandomNormal", ImportRandom, kDrawnLimits},
    {"RandomNormalLike", ImportRandom, kDrawnLimits},
    {"RandomUniform", ImportRandom, kDrawnLimits},
    {"RandomUniformLike", ImportRandom, kDrawnLimits},
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
    {"RoiAlign", ImportRoiAlign, "sampling_ratio of at least 1"},
    {"RotaryEmbedding", ImportRotaryEmbedding, "", 0, false, kOpen},
    {"Scan", ImportScan, "at most 1024 steps, unrolled to at most 16384 operators; full lengths", 0,
     false, kOpen},
    {"STFT", ImportStft,
     "a constant frame_step and frame_length; at most 8388608 elements in all frames of a signal"},
    {"Scatter", ImportScatterElements, "", kAnyInput, false, kOpen},
    {"ScatterElements", ImportScatterElements, "", kAnyInput, false, kOpen},
    {"ScatterND", ImportScatterNd, "", kAnyInput, false, kOpen},
    {"SequenceAt", ImportSequenceAt, kPosition, kAnyInput, kContainers},
    {"SequenceConstruct", ImportSequenceConstruct, "", kAnyInput},
    {"SequenceEmpty", ImportSequenceEmpty, "", kAnyInput},
    {"SequenceErase", ImportSequenceErase, kPosition, kAnyInput, kContainers},
    {"SequenceInsert", ImportSequenceInsert, kPosition, kAnyInput, kContainers},
    {"SequenceLength", ImportSequenceLength, "", kAnyInput, kContainers},
    {"Shape", ImportShape, "", kAnyInput, false, kOpen},
    {"Shrink", ImportShrink, "floats, integers of at most 32 bits", kAnyInput, false, kOpen},
    {"SimplifiedLayerNormalization", ImportRmsNorm, "", 0, false, kOpen},
    {"Size", ImportSize, "", kAnyInput, false, kOpen},
    {"Slice", ImportSlice, "", kAnyInput, false, kOpen},
    {"Softmax", Softmax, "", kAnyInput, false, kOpen},
    {"SpaceToDepth", ImportSpaceToDepth, "", kAnyInput, false, kOpen},
    {"Split", ImportSplit, "", kAnyInput, false, kOpen},
    {"SplitToSequence", ImportSplitToSequence, "constant sizes", kAnyInput},
    {"Squeeze", ImportSqueeze, "constant axes, or a stated shape of the result", kAnyInput, false,
     kOpen},
    {"Sum", Variadic, "", kAnyInput, false, kOpen},
    {"SwiGLU", ImportSwiGlu, "", kAnyInput, false, kOpen},
    {"TensorScatter", ImportTensorScatter},
    {"Tile", ImportTile, kBounded, kAnyInput, false, kOpen},
    {"TopK", ImportTopK, "", kAnyInput, false, kOpen},
    {"Transpose", ImportTranspose, "", kAnyInput, false, kOpen},
    {"Trilu", ImportTrilu, "", kAnyInput, false, kOpen},
    {"Unique", ImportUnique, "a constant operand, or at most 32768 elements as one list", 0, false,
     kOpen},
    {"Unsqueeze", ImportUnsqueeze, "constant axes, or a stated shape of the result", kAnyInput,
     false, kOpen},
    {"Upsample", ImportResize, kBounded, kLists, false, kOpen},
};

// Of other domains: what public quantised models and exported decoders have.
constexpr std::string_view kMicrosoft = "com.microsoft";
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
     "attention_bias, smooth_softmax",
     1u << 3 | 1u << 4, false, kOpen},
    {"LayerNormalization", ImportLayerNorm, "", 0, false, kOpen},
    {"MatMulIntegerToFloat", ImportMatMulIntegerToFloat, "", 0, false, kOpen},
    {"MatMulNBits", ImportMatMulNBits,
     "constant weights of 4 or 8 bits, K a multiple of block_size, no g_idx", 0, false, kOpen},
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
    for (const Conversion& row : kMicrosoftConversions) {
      if (row.onnx == onnx_op) return &row;
    }
  }
  if (!domain.empty() && domain != "ai.onnx") return nullptr;
  for (const Conversion& row : kConversions) {
    if (row.onnx == onnx_op) return &row;
  }
  static constexpr Conversion kElementwise = {"", Elementwise, "", kAnyInput, false, kOpen};
  return FindElementwise(onnx_op) == nullptr ? nullptr : &kElementwise;
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
  for (const Conversion& row : kMicrosoftConversions) add(row.onnx, kMicrosoft, row.limits);
  for (const op::OpSpec& row : op::Operators()) {
    const std::string_view name = row.elementwise() && !row.onnx.empty() ? row.onnx[0] : "";
    if (name.empty() || FindConversion(name, "")->run != Elementwise) continue;
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
