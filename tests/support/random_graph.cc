#include "tests/support/random_graph.h"

#include <algorithm>
#include <cmath>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using op::Attrs;
using op::RefTensor;
using op::TensorType;
using support::Rng;
using Ints = std::vector<int64_t>;

constexpr int kAttempts = 200;

class Generator {
 public:
  Generator(Rng* rng, const RandomGraphOptions& options) : rng_(*rng), options_(options) {}

  Graph Run() {
    g_.name = "random";
    const int64_t inputs = rng_.UniformInt(1, 3);
    for (int64_t i = 0; i < inputs; ++i) values_.push_back(Input(RandomShape()));
    if (options_.bfloat_inputs && rng_.Bernoulli(0.3)) BFloatInput(RandomShape());
    const size_t nodes =
        static_cast<size_t>(rng_.UniformInt(options_.min_nodes, options_.max_nodes));
    for (int i = 0; i < kAttempts && g_.nodes.size() < nodes; ++i) Grow();
    ChooseOutputs();
    return graph::Compact(g_);
  }

 private:
  using Maker = void (Generator::*)();

  // ---- values

  ValueId Input(Ints shape) {
    const ValueId id = graph::AddValue(&g_, "x", {ir::kF32, std::move(shape)});
    g_.inputs.push_back(id);
    return id;
  }
  // Data as a model of bf16 has it.
  void BFloatInput(Ints shape) {
    const ValueId id = graph::AddValue(&g_, "x", {ir::kBF16, std::move(shape)});
    g_.inputs.push_back(id);
    Emit("cast", {id}, {{"dtype", std::string("f32")}});
  }
  Ints RandomShape() {
    if (rng_.Bernoulli(0.5)) {  // an image
      return {rng_.UniformInt(1, 2), rng_.UniformInt(1, 8), rng_.UniformInt(3, 9),
              rng_.UniformInt(3, 9)};
    }
    Ints shape;
    for (int64_t d = rng_.UniformInt(1, 3); d > 0; --d) shape.push_back(rng_.UniformInt(1, 9));
    return shape;
  }
  Ints ShapeOf(ValueId id) const { return g_.values[id].type.sizes(); }
  // Recent values more often, so that chains become long and some operands are shared.
  ValueId Pick() {
    if (rng_.Bernoulli(0.6)) return values_.back();
    return values_[rng_.Uniform(values_.size())];
  }
  // A value of the rank, if one turns up.
  ValueId PickRank(size_t rank) {
    for (int i = 0; i < 8; ++i) {
      const ValueId id = Pick();
      if (ShapeOf(id).size() == rank) return id;
    }
    return -1;
  }
  ValueId Constant(Ints shape, double low, double high, ir::DType type = ir::kF32) {
    RefTensor t{{type, std::move(shape)}, {}};
    for (int64_t i = 0; i < t.type.elements(); ++i) {
      t.values.push_back(op::RoundToType(low + (high - low) * rng_.UniformDouble(), type));
    }
    return graph::AddConstant(&g_, "c", t.type, op::ToBytes(t));
  }
  ValueId Scalar(double value) {
    return graph::AddConstant(&g_, "s", {ir::kF32, {}},
                              op::ToBytes({{ir::kF32, {}}, {op::RoundToType(value, ir::kF32)}}));
  }
  // Weights that keep the size of what they are multiplied with.
  static double WeightSize(int64_t sum) {
    return std::sqrt(3.0 / static_cast<double>(std::max<int64_t>(1, sum)));
  }
  // Weights as a model of 16-bit floats has them.
  ValueId HalfWeights(Ints shape, int64_t sum) {
    const double size = WeightSize(sum);
    const ir::DType type = rng_.Bernoulli(0.5) ? ir::kF16 : ir::kBF16;
    return Emit("cast", {Constant(std::move(shape), -size, size, type)},
                {{"dtype", std::string("f32")}});
  }
  ValueId Weights(Ints shape, int64_t sum) {
    const double size = WeightSize(sum);
    if (rng_.Bernoulli(0.15)) {
      const ValueId id = graph::AddValue(&g_, "w", {ir::kF32, std::move(shape)});
      g_.inputs.push_back(id);
      return id;
    }
    return Constant(std::move(shape), -size, size);
  }
  // Appends the node where its types are right and its result small; else -1.
  ValueId Emit(const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    const op::OpSpec* spec = op::FindOp(name);
    TW_CHECK(spec != nullptr) << name;
    std::vector<TensorType> types;
    for (ValueId id : inputs) {
      if (id < 0) return -1;
      types.push_back(g_.values[id].type);
    }
    auto results = op::InferTypes(*spec, types, attrs);
    if (!results.ok() || (*results)[0].elements() > options_.max_elements) return -1;
    Node node;
    node.name = node.op = name;
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    node.outputs = {graph::AddValue(&g_, name, (*results)[0])};
    g_.nodes.push_back(node);
    values_.push_back(node.outputs[0]);
    return node.outputs[0];
  }

  // ---- nodes

  void Grow() {
    static constexpr Maker kMakers[] = {
        &Generator::Unary,         &Generator::Unary,       &Generator::Binary,
        &Generator::Binary,        &Generator::ByConstant,  &Generator::ByConstant,
        &Generator::Positive,      &Generator::Conv,        &Generator::Conv,
        &Generator::ConvTranspose, &Generator::Norm,        &Generator::Pool,
        &Generator::Dense,         &Generator::Matmul,      &Generator::Reduce,
        &Generator::Softmax,       &Generator::Reshape,     &Generator::Transpose,
        &Generator::Slice,         &Generator::Concat,      &Generator::Pad,
        &Generator::Gather,        &Generator::Rounding,    &Generator::Again,
        &Generator::OfConstants,   &Generator::WideAndBack, &Generator::Quantized,
        &Generator::Bounded,       &Generator::Choice,      &Generator::Positions,
        &Generator::WholeNumbers,  &Generator::Repeated,    &Generator::Counted,
        &Generator::Custom,        &Generator::Custom,      &Generator::Cumulate,
        &Generator::Searched,      &Generator::Bits};
    (this->*kMakers[rng_.Uniform(std::size(kMakers))])();
  }

  // Elementwise operators of one operand that are defined everywhere and do not jump; makers below
  // know how to use the others.
  static std::vector<std::string> TotalFunctions() {
    static constexpr std::string_view kOthers[] = {"exp",    "log",
                                                   "sqrt",   "reciprocal",
                                                   "floor",  "ceil",
                                                   "round",  "cast",
                                                   "sign",   "sin",
                                                   "cos",    "tan",
                                                   "asin",   "acos",
                                                   "atan",   "acosh",
                                                   "atanh",  "sinh",
                                                   "cosh",   "asinh",
                                                   "shrink", "thresholded_relu"};
    std::vector<std::string> names = {"relu", "neg"};  // once more
    for (const op::OpSpec& spec : op::Operators()) {
      bool other =
          std::find(std::begin(kOthers), std::end(kOthers), spec.name) != std::end(kOthers);
      const bool fits = (spec.types & op::kFloats) != 0 && !spec.gives_bool;
      if (spec.elementwise() && spec.max_inputs == 1 && fits && !other)
        names.emplace_back(spec.name);
    }
    return names;
  }
  void Unary() {
    static const std::vector<std::string> names = TotalFunctions();
    const std::string& name = rng_.Choice(names);
    Attrs attrs;
    if (name == "clip") {
      if (rng_.Bernoulli(0.8)) attrs["min"] = rng_.Choice(std::vector<double>{0, -0.5, 0.25});
      if (rng_.Bernoulli(0.8)) attrs["max"] = rng_.Choice(std::vector<double>{6, 0.5, 1});
    }
    if (name == "leaky_relu" || name == "elu") attrs["alpha"] = 0.25;
    Emit(name, {Pick()}, attrs);
  }
  // To f64 and back: no rounding, so that nothing jumps.
  void WideAndBack() {
    const ValueId wide = Emit("cast", {Pick()}, {{"dtype", std::string("f64")}});
    if (wide < 0) return;
    values_.pop_back();  // the others' operands are f32
    Emit("cast", {wide}, {{"dtype", std::string("f32")}});
  }
  void Binary() {
    static const std::vector<std::string> names = {"add", "sub", "max", "min", "prelu", "mul"};
    const std::string& name = rng_.Choice(names);
    const ValueId a = Pick();
    for (int i = 0; i < 6; ++i) {
      const ValueId b = values_[rng_.Uniform(values_.size())];
      // Products of two results would grow without bound.
      const ValueId second = name == "mul" || name == "prelu" ? Emit("tanh", {b}) : b;
      if (Emit(name, {a, second}) >= 0) return;
    }
    Emit(name, {a, name == "mul" || name == "prelu" ? Emit("tanh", {a}) : a});
  }
  void ByConstant() {
    static const std::vector<std::string> names = {"add", "sub", "mul", "mul",
                                                   "add", "div", "max", "min"};
    const std::string& name = rng_.Choice(names);
    const ValueId x = Pick();
    const Ints shape = ShapeOf(x);
    if (shape.empty()) return;
    ValueId c;
    switch (rng_.Uniform(4)) {
      case 0:
        c = Scalar(rng_.Choice(std::vector<double>{1, 0.5, 2, 0.25, 8}));
        break;
      case 1:
        c = Scalar(name == "div" || name == "mul" ? 1 : 0);
        break;
      case 2:
        c = Constant(shape, 0.5, 1.5);
        break;
      default: {
        Ints channel(shape.size(), 1);
        const size_t axis = shape.size() > 1 ? 1 : 0;
        channel[axis] = shape[axis];
        c = Constant(channel, 0.5, 1.5);
      }
    }
    const bool left = name != "div" && rng_.Bernoulli(0.3);
    Emit(name, left ? std::vector<ValueId>{c, x} : std::vector<ValueId>{x, c});
  }
  // Roots, logarithms, powers and quotients of numbers between 1/2 and a few.
  void Positive() {
    ValueId x = Emit("sigmoid", {Pick()});
    x = Emit("add", {x, Scalar(0.5)});
    switch (rng_.Uniform(6)) {
      case 0:
        Emit("sqrt", {x});
        break;
      case 1:
        Emit("log", {x});
        break;
      case 2:
        Emit("reciprocal", {x});
        break;
      case 3:
        Emit("pow", {x, Scalar(rng_.Choice(std::vector<double>{1, 2, 3, 0.5}))});
        break;
      case 4:
        Emit("exp", {x});
        break;
      default:
        Emit("div", {Pick(), x});
    }
  }
  // Functions of numbers between -0.9 and 0.9, or above 1.1.
  void Bounded() {
    static const std::vector<std::string> names = {"sin",  "cos",  "tan",  "asin",  "acos",
                                                   "atan", "sinh", "cosh", "asinh", "atanh"};
    const ValueId x = Emit("mul", {Emit("tanh", {Pick()}), Scalar(0.9)});
    if (rng_.Bernoulli(0.9)) {
      Emit(rng_.Choice(names), {x});
    } else {
      Emit("acosh", {Emit("add", {x, Scalar(2)})});
    }
  }
  // Bools of inputs, which are the same in every form of the graph, choose between two values.
  void Choice() {
    static const std::vector<std::string> compare = {"equal", "less", "less_equal", "greater",
                                                     "greater_equal"};
    static const std::vector<std::string> combine = {"and", "or", "xor", "equal"};
    const ValueId x = values_[0], a = Pick(), b = Pick();
    const size_t before = values_.size();
    ValueId flag = Emit(rng_.Choice(compare), {x, Scalar(rng_.UniformInt(-1, 1) * 0.25)});
    if (rng_.Bernoulli(0.2)) flag = Emit(rng_.Bernoulli(0.5) ? "is_nan" : "is_inf", {x});
    if (rng_.Bernoulli(0.5)) {
      const ValueId other = Emit(rng_.Choice(compare), {x, Constant({ShapeOf(x).back()}, -1, 1)});
      flag = Emit(rng_.Choice(combine), {flag, other});
    }
    if (rng_.Bernoulli(0.3)) flag = Emit("not", {flag});
    ValueId y = Emit("where", {flag, a, b});
    if (y < 0) y = Emit("where", {flag, x, Scalar(0.5)});
    if (rng_.Bernoulli(0.2)) y = Emit("cast", {flag}, {{"dtype", std::string("f32")}});
    values_.resize(before);  // the others' operands are f32
    if (y >= 0) values_.push_back(y);
  }
  // Where the first elements of inputs in order are, as numbers.
  void Positions() {
    const ValueId x = values_[0];
    const int64_t rank = static_cast<int64_t>(ShapeOf(x).size());
    const size_t before = values_.size();
    Attrs attrs = {{"axis", rng_.UniformInt(-rank, rank - 1)}};
    ValueId at;
    if (rng_.Bernoulli(0.5)) {
      attrs["keepdims"] = rng_.UniformInt(0, 1);
      attrs["last"] = rng_.UniformInt(0, 1);
      attrs["kind"] = std::string(rng_.Bernoulli(0.5) ? "max" : "min");
      at = Emit("arg_reduce", {x}, attrs);
    } else {
      attrs["k"] = rng_.UniformInt(1, 3);
      attrs["largest"] = rng_.UniformInt(0, 1);
      at = Emit("top_k", {x}, attrs);
    }
    const ValueId y = Emit("cast", {at}, {{"dtype", std::string("f32")}});
    values_.resize(before);
    if (y >= 0) values_.push_back(Emit("mul", {y, Scalar(0.125)}));
  }
  // Remainders, bits and shifts of integers that are made of an input.
  void WholeNumbers() {
    static const std::vector<std::string> names = {"mod",     "bit_and",    "bit_or",
                                                   "bit_xor", "shift_left", "shift_right"};
    static const std::vector<std::string> types = {"i8", "u8", "i32", "i64"};
    const std::string& type = rng_.Choice(types);
    const size_t before = values_.size();
    ValueId x = Emit("mul", {values_[0], Scalar(16)});
    x = Emit("cast", {x}, {{"dtype", type}});
    const std::string& name = rng_.Choice(names);
    x = Emit(name, {x, Whole(type, rng_.UniformInt(1, name.starts_with("shift") ? 2 : 9))});
    if (rng_.Bernoulli(0.3)) x = Emit("bit_not", {x});
    const ValueId y = Emit("cast", {x}, {{"dtype", std::string("f32")}});
    values_.resize(before);  // the others' operands are f32
    if (y >= 0) values_.push_back(Emit("mul", {y, Scalar(0.0625)}));
  }
  // Numbers far from 0, where those that rounding makes of one number have neighbouring bits.
  void Bits() {
    const size_t before = values_.size();
    const auto as = [](const char* type) { return Attrs{{"dtype", std::string(type)}}; };
    const ValueId x = Emit("add", {Emit("abs", {Pick()}), Scalar(1)});
    ValueId bits = Emit("bitcast", {x}, as("i32"));
    if (rng_.Bernoulli(0.5)) bits = Emit("reshape", {bits}, {{"shape", Ints{-1}}});
    const ValueId y = rng_.Bernoulli(0.5)
                          ? Emit("bitcast", {bits}, as("f32"))
                          : Emit("mul", {Emit("cast", {bits}, as("f32")), Scalar(0x1p-30)});
    values_.resize(before);  // the others' operands are f32
    if (y >= 0) values_.push_back(y);
  }
  // One dimension more, along which the value stands several times.
  void Repeated() {
    const ValueId x = Pick();
    Ints shape = ShapeOf(x);
    shape.insert(shape.begin(), rng_.UniformInt(1, 3));
    Emit("expand", {x}, {{"shape", shape}});
  }
  // Definitions that users could write: of one element, of neighbours, of rows.
  void Custom() {
    const ValueId x = Pick();
    const auto element = [&](std::vector<ValueId> operands, const char* expression) {
      Emit("custom_elementwise", std::move(operands),
           {{"expression", std::string(expression)}, {"dtype", std::string("f32")}});
    };
    const auto rows = [&](std::string_view results, std::string_view stages) {
      Emit("custom", {x},
           {{"definition", support::StrCat("operator t::Rows(x: T[.., d]) -> (", results,
                                           ") type T in f32; { ", stages, " }")}});
    };
    switch (rng_.UniformInt(0, 4)) {
      case 0:
        return element({x}, "select((x0 < 0.0), (0.1 * x0), (0.5 * x0))");
      case 1:
        return element({x, x}, "(max(x0, 0.5) * sigmoid((x1 - 0.5)))");
      case 2:
        return rows("y: T[.., d]", "y[.., j] = (x[.., (j + 1)] - (0.5 * x[.., (j - 1)]));");
      case 3:
        return rows("y: T[.., d]",
                    "mean[..] = (sum(k: d, x[.., k]) / T(d)); "
                    "y[.., j] = ((x[.., j] - mean[..]) / (1.0 + max(k: d, abs(x[.., k]))));");
      default:
        return rows("y: T[..]", "y[..] = max(k: d, select((k > 0), x[.., (k - 1)], 0.0));");
    }
  }
  Attrs WindowAttrs(int64_t kernel) {
    const int64_t pad = rng_.UniformInt(0, kernel / 2);
    return {{"strides", Ints{rng_.UniformInt(1, 2), rng_.UniformInt(1, 2)}},
            {"pads", Ints{pad, pad, rng_.UniformInt(0, kernel / 2), pad}},
            {"dilations", Ints{rng_.Bernoulli(0.2) ? 2 : 1, 1}}};
  }
  int64_t Groups(int64_t channels) {
    if (rng_.Bernoulli(0.6)) return 1;
    return rng_.Bernoulli(0.5) || channels % 2 != 0 ? channels : 2;
  }
  void Conv() {
    const ValueId x = PickRank(4);
    if (x < 0) return;
    const int64_t c = ShapeOf(x)[1], k = rng_.UniformInt(1, 3), groups = Groups(c);
    const int64_t out = groups * rng_.UniformInt(1, groups == 1 ? 8 : 2);
    Attrs attrs = WindowAttrs(k);
    attrs["groups"] = groups;
    std::vector<ValueId> operands = {x, Weights({out, c / groups, k, k}, c / groups * k * k)};
    if (rng_.Bernoulli(0.5)) operands.push_back(Weights({out}, 3));
    Scaled(Emit("conv2d", operands, attrs));
  }
  void ConvTranspose() {
    const ValueId x = PickRank(4);
    if (x < 0) return;
    const int64_t c = ShapeOf(x)[1], k = rng_.UniformInt(1, 3), groups = Groups(c);
    const int64_t out = rng_.UniformInt(1, 4);
    Attrs attrs = {{"strides", Ints{rng_.UniformInt(1, 2), rng_.UniformInt(1, 2)}},
                   {"pads", Ints(4, rng_.UniformInt(0, k / 2))},
                   {"groups", groups}};
    std::vector<ValueId> operands = {x, Weights({c, out, k, k}, c / groups * k * k)};
    if (rng_.Bernoulli(0.4)) operands.push_back(Weights({out * groups}, 3));
    Scaled(Emit("conv2d_transpose", operands, attrs));
  }
  // What follows a linear operator in exported models.
  void Scaled(ValueId y) {
    if (y < 0) return;
    const Ints& shape = ShapeOf(y);
    Ints channel = {shape.back()};
    if (shape.size() == 4) channel = {shape[1], 1, 1};
    if (rng_.Bernoulli(0.3)) y = Emit("add", {y, Constant(channel, -0.5, 0.5)});
    if (rng_.Bernoulli(0.4)) y = Emit("mul", {y, Constant(channel, 0.5, 1.5)});
    if (y >= 0 && rng_.Bernoulli(0.4)) Emit("relu", {y});
  }
  void Norm() {
    const ValueId x = Pick();
    if (ShapeOf(x).size() < 2) return;
    const Ints c = {ShapeOf(x)[1]};
    Emit("batch_norm",
         {x, Constant(c, 0.5, 1.5), Constant(c, -0.5, 0.5), Constant(c, -0.5, 0.5),
          Constant(c, 0.5, 1.5)},
         {{"epsilon", 1e-5}});
  }
  void Pool() {
    const ValueId x = PickRank(4);
    if (x < 0) return;
    const int64_t k = rng_.UniformInt(1, 3);
    Attrs attrs = WindowAttrs(k);
    attrs["kernel"] = Ints{k, k};
    attrs["kind"] = std::string(rng_.Bernoulli(0.5) ? "max" : "avg");
    if (rng_.Bernoulli(0.3)) attrs["count_include_pad"] = int64_t{1};
    Emit("pool2d", {x}, attrs);
  }
  void Dense() {
    const ValueId x = Pick();
    if (ShapeOf(x).empty()) return;
    const int64_t k = ShapeOf(x).back(), n = rng_.UniformInt(1, 12);
    const bool kn = rng_.Bernoulli(0.5);
    const Ints shape = kn ? Ints{k, n} : Ints{n, k};
    const ValueId w = rng_.Bernoulli(0.3) ? HalfWeights(shape, k) : Weights(shape, k);
    if (w < 0) return;
    Scaled(Emit("dense", {x, w}, {{"weight_layout", std::string(kn ? "KN" : "NK")}}));
  }
  void Matmul() {
    const ValueId a = Pick();
    if (ShapeOf(a).size() < 2) return;
    const Ints shape = ShapeOf(a);
    const int64_t k = shape.back();
    for (int i = 0; i < 6; ++i) {
      const ValueId b = values_[rng_.Uniform(values_.size())];
      const ValueId small = Emit("tanh", {b});
      if (Emit("matmul", {a, small}) >= 0) return;
    }
    Ints wide = shape;
    wide[wide.size() - 2] = k;
    wide.back() = rng_.UniformInt(1, 6);
    Emit("matmul", {a, Weights(wide, k)});
  }
  void Reduce() {
    const ValueId x = Pick();
    const int64_t rank = static_cast<int64_t>(ShapeOf(x).size());
    if (rank == 0) return;
    Ints axes;
    for (int64_t d = 0; d < rank; ++d) {
      if (rng_.Bernoulli(0.5)) axes.push_back(d);
    }
    static const std::vector<std::string> kinds = {"mean", "max", "min", "mean", "sum", "prod"};
    std::string kind = rng_.Choice(kinds);
    double length = 1;
    for (int64_t d : axes) length *= static_cast<double>(ShapeOf(x)[d]);
    if (length > 16 && (kind == "sum" || kind == "prod")) kind = "mean";
    Emit("reduce", {x}, {{"axes", axes}, {"keepdims", rng_.UniformInt(0, 1)}, {"kind", kind}});
  }
  void Softmax() {
    if (rng_.Bernoulli(0.5)) return NormOfRows();
    const ValueId x = Pick();
    const int64_t rank = static_cast<int64_t>(ShapeOf(x).size());
    if (rank > 0) Emit("softmax", {x}, {{"axis", rng_.UniformInt(-rank, rank - 1)}});
  }
  ValueId OverRows(const char* kind, ValueId x) {
    return Emit("reduce", {x}, {{"axes", Ints{-1}}, {"kind", std::string(kind)}});
  }
  // Norms and softmax of rows in the forms of exporters, or with a part that others read.
  void NormOfRows() {
    ValueId x = Pick();
    const Ints shape = ShapeOf(x);
    if (shape.empty()) return;
    const int64_t form = rng_.UniformInt(0, 5);
    if (form == 0) {
      Emit("normalize", {x}, {{"kind", std::string(rng_.Bernoulli(0.5) ? "layer" : "rms")}});
      return;
    }
    if (form == 1) {
      const ValueId exps = Emit("exp", {Emit("sub", {x, OverRows("max", x)})});
      Emit("div", {exps, OverRows("sum", exps)});
      return;
    }
    const ValueId data = x, mean = rng_.Bernoulli(0.7) ? OverRows("mean", x) : -1;
    if (mean >= 0) x = Emit("sub", {x, mean});
    const ValueId square = rng_.Bernoulli(0.5) ? Emit("mul", {x, x}) : Emit("pow", {x, Scalar(2)});
    // Rows of one number have no deviation: the epsilon keeps the quotient small.
    const ValueId root = Emit("sqrt", {Emit("add", {OverRows("mean", square), Scalar(0.0625)})});
    if (form == 2) {
      Emit("div", {x, root});
    } else if (form == 3) {
      Emit("mul", {Emit("reciprocal", {root}), x});
    } else {
      const ValueId scale = Constant({shape.back()}, 0.5, 1.5);
      const ValueId factor = Emit("mul", {Emit("reciprocal", {root}), scale});
      if (form == 4 || mean < 0) {
        Emit("mul", {x, factor});
      } else {
        const ValueId shift = Constant({shape.back()}, -0.5, 0.5);
        Emit("add",
             {Emit("mul", {data, factor}), Emit("sub", {shift, Emit("mul", {mean, factor})})});
      }
    }
  }
  void Cumulate() {
    const ValueId x = Pick();
    const Ints shape = ShapeOf(x);
    if (shape.empty() || shape[0] > 16) return;
    const ValueId rows = Emit("reshape", {x}, {{"shape", Ints{shape[0], -1}}});
    Emit("cumulate", {rows}, {{"kind", std::string(rng_.Bernoulli(0.5) ? "sum" : "prod")}});
  }
  // The places of whole numbers among sums of whole numbers.
  void Searched() {
    const ValueId x = Pick();
    if (ShapeOf(x).empty()) return;
    const auto numbers = [&](int64_t count) {
      const Ints start = {rng_.UniformInt(-3, 3)}, shape = {count};
      return Emit("counting", {},
                  {{"start", start}, {"step", rng_.UniformInt(-1, 2)}, {"shape", shape}});
    };
    const ValueId rows =
        Emit("reshape", {numbers(rng_.UniformInt(1, 40))}, {{"shape", Ints{-1, 1}}});
    const ValueId sums = Emit("cumulate", {rows}, {{"kind", std::string("sum")}});
    const ValueId list = Emit("reshape", {sums}, {{"shape", Ints{-1}}});
    const ValueId places =
        Emit("search_sorted", {list, numbers(ShapeOf(x).back())}, {{"steps", int64_t{6}}});
    const ValueId table = Emit("cast", {places}, {{"dtype", std::string("f32")}});
    Emit("mul", {x, Emit("tanh", {table})});
  }
  void Reshape() {
    const ValueId x = Pick();
    const int64_t n = g_.values[x].type.elements();
    Ints shape;
    int64_t rest = n;
    while (rest > 1 && shape.size() < 3 && rng_.Bernoulli(0.7)) {
      Ints divisors;
      for (int64_t d = 1; d <= rest; ++d) {
        if (rest % d == 0) divisors.push_back(d);
      }
      shape.push_back(rng_.Choice(divisors));
      rest /= shape.back();
    }
    shape.push_back(rest);
    if (rng_.Bernoulli(0.2)) shape.push_back(1);
    Emit("reshape", {x}, {{"shape", shape}});
  }
  // A table that the module makes itself, as for the positions along an axis of open size.
  void Counted() {
    const ValueId x = Pick();
    if (ShapeOf(x).empty()) return;
    const Ints start = {rng_.UniformInt(-3, 3)}, shape = {ShapeOf(x).back()};
    const ValueId count = Emit(
        "counting", {}, {{"start", start}, {"step", rng_.UniformInt(-2, 2)}, {"shape", shape}});
    const ValueId table = Emit("cast", {count}, {{"dtype", std::string("f32")}});
    Emit("mul", {x, Emit("tanh", {table})});
  }
  void Transpose() {
    const ValueId x = Pick();
    Ints perm;
    for (size_t d = 0; d < ShapeOf(x).size(); ++d) perm.push_back(static_cast<int64_t>(d));
    rng_.Shuffle(&perm);
    const ValueId y = Emit("transpose", {x}, {{"perm", perm}});
    if (y < 0 || !rng_.Bernoulli(0.4)) return;
    rng_.Shuffle(&perm);
    Emit("transpose", {y}, {{"perm", perm}});
  }
  void Slice() {
    ValueId x = Pick();
    for (int twice = 0; twice < 2 && x >= 0; ++twice) {
      Ints starts, steps, sizes;
      for (int64_t extent : ShapeOf(x)) {
        const int64_t step = rng_.Choice(Ints{1, 1, 1, 2, -1});
        const int64_t start =
            step < 0 ? extent - 1 : rng_.UniformInt(0, std::min<int64_t>(extent - 1, 2));
        const int64_t room = step < 0 ? start + 1 : (extent - start + step - 1) / step;
        starts.push_back(start);
        steps.push_back(step);
        sizes.push_back(rng_.Bernoulli(0.5) ? room : rng_.UniformInt(1, room));
      }
      x = Emit("slice", {x}, {{"starts", starts}, {"steps", steps}, {"sizes", sizes}});
      if (rng_.Bernoulli(0.6)) break;
    }
  }
  void Concat() {
    std::vector<ValueId> parts = {Pick()};
    const int64_t rank = static_cast<int64_t>(ShapeOf(parts[0]).size());
    if (rank == 0) return;
    const int64_t axis = rng_.UniformInt(0, rank - 1);
    for (ValueId id : values_) {
      Ints like = ShapeOf(id);
      if (like.size() != ShapeOf(parts[0]).size()) continue;
      like[axis] = ShapeOf(parts[0])[axis];
      if (like == ShapeOf(parts[0]) && rng_.Bernoulli(0.5) && parts.size() < 4) parts.push_back(id);
    }
    Emit("concat", parts, {{"axis", axis}});
  }
  void Pad() {
    const ValueId x = Pick();
    Ints pads;
    for (size_t i = 0; i < 2 * ShapeOf(x).size(); ++i) {
      pads.push_back(rng_.Bernoulli(0.6) ? 0 : rng_.UniformInt(1, 2));
    }
    Emit("pad", {x}, {{"pads", pads}, {"value", rng_.Bernoulli(0.5) ? 0.0 : 0.5}});
  }
  void Gather() {
    const ValueId x = Pick();
    const int64_t rank = static_cast<int64_t>(ShapeOf(x).size());
    if (rank == 0) return;
    const int64_t axis = rng_.UniformInt(0, rank - 1);
    const bool each = rng_.Bernoulli(0.4);  // an index for each element of the result
    RefTensor index{{ir::kI64, {rng_.UniformInt(1, 4)}}, {}};
    if (each) {
      index.type.shape = g_.values[x].type.shape;
      index.type.shape[axis] = rng_.UniformInt(1, 4);
    }
    for (int64_t i = 0; i < index.type.elements(); ++i) {
      index.values.push_back(static_cast<double>(rng_.UniformInt(0, ShapeOf(x)[axis] - 1)));
    }
    ValueId id;
    if (rng_.Bernoulli(0.5)) {
      id = graph::AddConstant(&g_, "index", index.type, op::ToBytes(index));
    } else {
      id = graph::AddValue(&g_, "index", index.type);
      g_.inputs.push_back(id);
    }
    Emit(each ? "gather_elements" : "gather", {x, id}, {{"axis", axis}});
  }
  // Rounding makes any difference in its operand a whole one: inputs only.
  void Rounding() {
    static const std::vector<std::string> names = {"floor", "ceil",   "round",
                                                   "sign",  "shrink", "thresholded_relu"};
    const ValueId x = Emit(rng_.Choice(names), {values_[0]});
    if (rng_.Bernoulli(0.5)) Emit(rng_.Choice(names), {x});
  }
  // Numbers as bytes and back, as they are or convolved. The rounding is of inputs only, too.
  void Quantized() {
    const std::string type = rng_.Bernoulli(0.6) ? "u8" : "i8";
    const ValueId x = values_[0];
    const size_t before = values_.size();
    const ValueId q = Emit("quantize", {x, Scalar(0.0117), Whole(type, rng_.UniformInt(0, 90))});
    if (q < 0) return;  // too large, or not of floats
    const ValueId zero = g_.nodes.back().inputs[2];
    ValueId y = Emit("dequantize", {q, Scalar(0.0117), zero});
    const Ints shape = ShapeOf(x);
    if (shape.size() == 4 && rng_.Bernoulli(0.7)) {
      const int64_t c = shape[1], k = rng_.UniformInt(1, 3), groups = Groups(c);
      const int64_t out = groups * rng_.UniformInt(1, groups == 1 ? 8 : 2);
      Attrs attrs = WindowAttrs(k);
      attrs["groups"] = groups;
      const ValueId w = Bytes({out, c / groups, k, k});
      y = Emit("conv2d", {y, Emit("dequantize", {w, Scalar(0.004), Whole("i8", 0)})}, attrs);
    } else if (!shape.empty() && rng_.Bernoulli(0.7)) {
      const ValueId w = Bytes({rng_.UniformInt(1, 40), shape.back()});
      y = Emit("dense", {y, Emit("dequantize", {w, Scalar(0.004), Whole("i8", 0)})});
    }
    values_.resize(before);  // the others' operands are f32 and no weights
    if (y >= 0) values_.push_back(y);
  }
  ValueId Whole(const std::string& type, int64_t value) {
    TensorType scalar{ir::kU8, {}};
    TW_CHECK(ir::ParseType(type, &scalar.dtype)) << type;
    return graph::AddConstant(&g_, "z", scalar,
                              op::ToBytes({scalar, {static_cast<double>(value)}}));
  }
  ValueId Bytes(Ints shape) {
    RefTensor t{{ir::kI8, std::move(shape)}, {}};
    for (int64_t i = 0; i < t.type.elements(); ++i) {
      t.values.push_back(static_cast<double>(rng_.UniformInt(-127, 127)));
    }
    return graph::AddConstant(&g_, "bytes", t.type, op::ToBytes(t));
  }
  // A node that stands there already.
  void Again() {
    if (g_.nodes.empty()) return;
    const Node node = g_.nodes[rng_.Uniform(g_.nodes.size())];
    Emit(node.op, node.inputs, node.attrs);
  }
  void OfConstants() {
    const Ints shape = ShapeOf(Pick());
    const ValueId c = Emit("add", {Constant(shape, -1, 1), Constant(shape, -1, 1)});
    if (c >= 0) Emit("mul", {Emit("tanh", {Pick()}), c});
  }

  void ChooseOutputs() {
    const auto readers = graph::Readers(g_);
    for (const Node& node : g_.nodes) {
      const ValueId id = node.outputs[0];
      if (readers[id].empty() || rng_.Bernoulli(0.08)) g_.outputs.push_back(id);
    }
    if (g_.outputs.empty()) {
      const ValueId id = Emit("relu", {values_[0]});
      g_.outputs.push_back(id);
    }
    while (g_.outputs.size() > 5) g_.outputs.erase(g_.outputs.begin());
    // An input or a constant as an output, and unused inputs, are allowed too.
    if (rng_.Bernoulli(0.05)) g_.outputs.push_back(g_.inputs[0]);
  }

  Rng& rng_;
  const RandomGraphOptions& options_;
  Graph g_;
  std::vector<ValueId> values_;
};

// The graph without node n: its results become inputs.
Graph WithoutNode(const Graph& g, size_t n) {
  Graph cut = g;
  for (ValueId id : cut.nodes[n].outputs) cut.inputs.push_back(id);
  cut.nodes.erase(cut.nodes.begin() + static_cast<std::ptrdiff_t>(n));
  return graph::Compact(cut);
}

// Inputs that nothing reads go away too.
Graph WithoutIdleInputs(Graph g) {
  const auto readers = graph::Readers(g);
  std::erase_if(g.inputs, [&](ValueId id) {
    return readers[id].empty() && std::count(g.outputs.begin(), g.outputs.end(), id) == 0;
  });
  return graph::Compact(g);
}

}  // namespace

Graph RandomGraph(Rng* rng, const RandomGraphOptions& options) {
  return Generator(rng, options).Run();
}

std::vector<std::pair<std::string, std::string>> OperatorsLeftOut() {
  constexpr char kLoops[] = "random_loops_test has it";
  return {
      {"append", "made by KeepState; keep_state_test has it, and tests/e2e/decoder.py"},
      {"attention", "made by the pass fuse_attention; attention_test has it"},
      {"external", "a library computes it; tests/e2e/custom_operators.py has it"},
      {"loop_end", kLoops},
      {"loop_result", kLoops},
      {"loop_stack", kLoops},
      {"loop_value", kLoops},
      {"linear_attention", "OpenCompute.LinearAttention has it"},
      {"packed_dense", "made by the pass pack_weights; CompiledPackedWeights has it"},
      {"recurrent", "made where the number of steps is open; OpenCompute.RecurrentLayers has it"},
      {"pick_boxes",
       "scores that rounding makes equal choose others; OpCompute.PickedBoxes has it"},
      {"requantize", "made by the pass requantize_sums, for a matrix unit"}};
}

std::vector<RefTensor> RandomGraphInputs(const Graph& g, uint64_t seed) {
  Rng rng(seed);
  std::vector<RefTensor> inputs;
  for (ValueId id : g.inputs) {
    RefTensor t{g.values[id].type, {}};
    for (int64_t i = 0; i < t.type.elements(); ++i) {
      t.values.push_back(t.type.dtype.is_float()
                             ? op::RoundToType(rng.UniformDouble() * 2 - 1, t.type.dtype)
                             : static_cast<double>(rng.Uniform(t.type.dtype.is_bool() ? 2 : 4)));
    }
    inputs.push_back(std::move(t));
  }
  return inputs;
}

Graph ShrinkGraph(Graph g, const std::function<bool(const Graph&)>& fails) {
  auto keep = [&](Graph smaller) {
    smaller = WithoutIdleInputs(std::move(smaller));
    if (!graph::Verify(smaller).ok() || !fails(smaller)) return false;
    g = std::move(smaller);
    return true;
  };
  for (bool shrunk = true; shrunk;) {
    shrunk = false;
    for (size_t o = 0; o < g.outputs.size() && g.outputs.size() > 1; ++o) {
      Graph smaller = g;
      smaller.outputs = {g.outputs[o]};
      if (keep(graph::Compact(smaller))) {
        shrunk = true;
        break;
      }
    }
    for (size_t n = 0; n < g.nodes.size();) {
      const size_t before = g.nodes.size();
      if (!keep(WithoutNode(g, n))) ++n;
      shrunk = shrunk || g.nodes.size() < before;
    }
  }
  return g;
}

}  // namespace tilewright::tests
