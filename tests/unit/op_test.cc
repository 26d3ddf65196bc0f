// Every row of the operator table: its types, costs, what it refuses; elementwise operators, run by
// the tensor IR's interpreter, against their plain reference.
#include "compiler/op/op.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "compiler/ir/visit.h"
#include "deploy/support/strings.h"
#include "tests/unit/op_case.h"

namespace tilewright::op {
namespace {

using support::Rng;
using support::StrCat;

TEST(OpTable, NamesAreUniqueAndRowsComplete) {
  std::set<std::string_view> names;
  for (const OpSpec& spec : Operators()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
    EXPECT_EQ(FindOp(spec.name), &spec);
    if (spec.control) {
      EXPECT_TRUE(spec.infer != nullptr && spec.reference == nullptr) << spec.name;
      continue;
    }
    const bool injective = spec.fusion == FusionClass::kInjective;
    if (spec.elementwise()) {
      EXPECT_TRUE(injective) << spec.name;
      const bool scalar = spec.scalar_reference != nullptr || spec.integer_reference != nullptr;
      EXPECT_NE(scalar, spec.reference != nullptr) << spec.name;
      const bool integers = (spec.types & kInts) != 0 && spec.infer == nullptr;
      EXPECT_TRUE(!integers || spec.integer_reference != nullptr) << spec.name;
    } else {
      EXPECT_TRUE(spec.infer != nullptr && spec.reference != nullptr) << spec.name;
      const bool view = spec.alias && spec.element == nullptr;  // no kernel computes it
      EXPECT_EQ(injective, spec.element != nullptr) << spec.name;
      EXPECT_EQ(injective || view, spec.compute == nullptr) << spec.name;
    }
  }
  EXPECT_EQ(FindOp("no_such_operator"), nullptr);
}

// Elementwise rows run over every broadcasting pattern; the domain keeps every function defined.
TEST(OpCompute, ElementwiseRowsMatchTheirReference) {
  Rng rng(Seed());
  for (const OpSpec& spec : Operators()) {
    // Rows with types of their own have tests of their own.
    if (!spec.elementwise() || spec.infer != nullptr) continue;
    const bool positive = spec.name == "log" || spec.name == "sqrt" || spec.name == "pow" ||
                          spec.name == "div" || spec.name == "mod" || spec.name == "reciprocal";
    const double low = positive || spec.types == kInts ? 0.5 : -2.5;
    Case c{std::string(spec.name), {}, {}, low, 2.5, ir::kF32};
    if (spec.types == kBools) c.dtype = ir::kBool;
    if (spec.types == kInts) c.dtype = ir::kU16;
    if (spec.name == "asin" || spec.name == "acos" || spec.name == "atanh") {
      c.low = -0.9, c.high = 0.9;
    }
    if (spec.name == "acosh") c.low = 1.1;
    if (spec.max_inputs == 1) {
      c.shapes = {{3, 1, 5}};
      ExpectComputeMatchesReference(c, &rng);
      c.shapes = {{}};
      ExpectComputeMatchesReference(c, &rng);
      continue;
    }
    for (const auto& shapes : std::vector<std::vector<std::vector<int64_t>>>{
             {{2, 3}, {2, 3}}, {{2, 3}, {3}}, {{1, 3}, {2, 1}}, {{}, {4}}, {{5, 1, 2}, {3, 1}}}) {
      c.shapes = shapes;
      ExpectComputeMatchesReference(c, &rng);
    }
  }
}

TEST(OpCompute, AttributesOfElementwiseRows) {
  Rng rng(Seed());
  ExpectComputeMatchesReference({"clip", {{4, 7}}, {{"min", -0.5}, {"max", 0.75}}}, &rng);
  ExpectComputeMatchesReference({"clip", {{4, 7}}, {{"max", 0.25}}}, &rng);
  ExpectComputeMatchesReference({"leaky_relu", {{9}}, {{"alpha", 0.3}}}, &rng);
  ExpectComputeMatchesReference({"elu", {{9}}, {{"alpha", 1.5}}}, &rng);
  ExpectComputeMatchesReference({"selu", {{9}}, {{"alpha", 1.5}, {"gamma", 2.0}}}, &rng);
  ExpectComputeMatchesReference({"celu", {{9}}, {{"alpha", 0.5}}}, &rng);
  ExpectComputeMatchesReference({"swish", {{9}}, {{"alpha", 0.5}}}, &rng);
  ExpectComputeMatchesReference({"thresholded_relu", {{9}}, {{"alpha", 0.3}}}, &rng);
  ExpectComputeMatchesReference({"shrink", {{40}}, {{"bias", 0.1}, {"lambd", 0.7}}}, &rng);
  ExpectComputeMatchesReference({"hard_sigmoid", {{9}}, {{"alpha", 0.3}, {"beta", 0.4}}}, &rng);
}

// Against the formula, with words of any bits, with and without zero points.
TEST(OpCompute, PackedDenseReadsFieldsOfWords) {
  Rng rng(Seed());
  for (const int64_t bits : {4, 8}) {
    for (const bool zeros : {false, true}) {
      const int64_t fields = 32 / bits, group = 2 * fields, k = 3 * group, n = 20;
      const TensorType parameters{ir::kF32, {2, 3, 16}};
      std::vector<RefTensor> inputs = {
          RandomTensor({ir::kF32, {2, k}}, -1, 1, &rng),
          RandomTensor({ir::kI32, {2, k / fields, 16}}, -0x1p31, 0x1p31, &rng),
          RandomTensor(parameters, 0.5, 1.5, &rng)};
      if (zeros) inputs.push_back(RandomTensor(parameters, 0, 9, &rng));
      const Attrs attrs = {{"bits", bits}, {"group", group}, {"units", n}};
      std::vector<TensorType> types;
      for (const RefTensor& input : inputs) types.push_back(input.type);
      const OpSpec& spec = *FindOp("packed_dense");
      auto outputs = InferTypes(spec, types, attrs);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      ASSERT_EQ((*outputs)[0], (TensorType{ir::kF32, {2, n}}));
      auto reference = Reference(spec, inputs, attrs);
      auto actual = Interpreted(*AsFunction(spec, types, *outputs, attrs), inputs, (*outputs)[0]);
      ASSERT_TRUE(reference.ok() && actual.ok()) << reference.status() << actual.status();
      for (int64_t at = 0; at < 2 * n; ++at) {
        const int64_t column = at % n, lane = column % 16, block = column / 16;
        double expected = 0;
        for (int64_t i = 0; i < k; ++i) {
          const auto word = static_cast<int64_t>(
              inputs[1].values[(block * (k / fields) + i / fields) * 16 + lane]);
          const int64_t q = (word >> (i % fields * bits)) & ((1 << bits) - 1);
          const int64_t of_group = (block * 3 + i / group) * 16 + lane;
          const double zero =
              zeros ? inputs[3].values[of_group] : static_cast<double>(1 << (bits - 1));
          expected += inputs[0].values[at / n * k + i] * inputs[2].values[of_group] *
                      (static_cast<double>(q) - zero);
        }
        EXPECT_NEAR(reference->at(0).values[at], expected, 1e-6 * (1 + std::fabs(expected)));
        EXPECT_NEAR(actual->values[at], expected, 1e-6 * static_cast<double>(k << bits));
      }
    }
  }
}

constexpr ir::DType kTypes[] = {ir::kF32, ir::kF64, ir::kF16, ir::kBF16, ir::kI8,
                                ir::kI16, ir::kI32, ir::kI64, ir::kU8,   ir::kU16,
                                ir::kU32, ir::kU64, ir::kBool};

TEST(OpCompute, CastsBetweenAllTypes) {
  Rng rng(Seed());
  const auto& types = kTypes;
  for (const ir::DType from : types) {
    for (const ir::DType to : types) {
      Case cast{"cast", {{3, 40}}, {{"dtype", ir::TypeName(to)}}};
      cast.dtype = from;
      // Some saturate.
      cast.low = from.is_float() || from.code == ir::TypeCode::kInt ? -300 : 0, cast.high = 300;
      ExpectComputeMatchesReference(cast, &rng);
      if (::testing::Test::HasFatalFailure()) FAIL() << ir::TypeName(from) << ir::TypeName(to);
    }
  }
}

// Half of the elements are equal; NaN is equal to nothing.
TEST(OpCompute, ComparisonsOfAllTypes) {
  Rng rng(Seed());
  for (const ir::DType type : kTypes) {
    for (const char* name : {"equal", "less", "less_equal", "greater", "greater_equal"}) {
      if (type.is_bool() && name != std::string("equal")) continue;
      Case c{name, {{4, 9}, {9}}, {}, 0, 3, type};
      ExpectComputeMatchesReference(c, &rng);
    }
  }
  const double nan = std::nan("");
  const std::vector<RefTensor> pair = {{{ir::kF32, {3}}, {nan, 1, nan}},
                                       {{ir::kF32, {3}}, {1, nan, nan}}};
  for (const char* name : {"equal", "less", "less_equal", "greater", "greater_equal"}) {
    auto result = Reference(*FindOp(name), pair, {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*result)[0].values, (std::vector<double>{0, 0, 0})) << name;
  }
}

TEST(OpCompute, ProductsOf16BitFloatsHaveWideSums) {
  Rng rng(Seed());
  for (const ir::DType type : {ir::kF16, ir::kBF16}) {
    for (const char* layout : {"NK", "KN"}) {
      const std::vector<int64_t> weights = std::string_view(layout) == "NK"
                                               ? std::vector<int64_t>{5, 40}
                                               : std::vector<int64_t>{40, 5};
      Case dense{"dense", {{3, 40}, weights}, {{"weight_layout", layout}}};
      dense.dtype = type;
      ExpectComputeMatchesReference(dense, &rng);
      dense.dtypes = {ir::kF32, type};
      ExpectComputeMatchesReference(dense, &rng);
    }
    Case matmul{"matmul", {{2, 3, 40}, {40, 5}}, {}};
    matmul.dtype = type;
    ExpectComputeMatchesReference(matmul, &rng);
    const std::vector<TensorType> types = {{type, {3, 40}}, {type, {40, 5}}};
    auto result = InferTypes(*FindOp("matmul"), types, {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ((*result)[0], (TensorType{ir::kF32, {3, 5}}));
  }
}

TEST(OpCompute, WhereChoosesByElement) {
  Rng rng(Seed());
  for (const ir::DType type : kTypes) {
    Case c{"where", {{2, 1, 5}, {3, 1}, {5}}, {}, 0, 2, type};
    c.dtypes = {ir::kBool, type, type};
    ExpectComputeMatchesReference(c, &rng);
  }
}

TEST(OpCompute, QuantizeSaturatesAndRoundsToEven) {
  Rng rng(Seed());
  for (const ir::DType type : {ir::kU8, ir::kI8}) {
    for (const auto& parameter : std::vector<std::vector<int64_t>>{{}, {4}, {3, 1}}) {
      Case c{"quantize", {{2, 3, 4}, parameter, parameter}, {}, 0.5, 90};  // some saturate
      c.dtypes = {ir::kF32, ir::kF32, type};
      ExpectComputeMatchesReference(c, &rng);
      Case back{"dequantize", {{2, 3, 4}, parameter, parameter}, {}, 0, 100};
      back.dtypes = {type, ir::kF32, type};
      ExpectComputeMatchesReference(back, &rng);
    }
  }
  Case sums{"dequantize", {{2, 5}, {5}, {}}, {}, -1000, 1000};
  sums.dtypes = {ir::kI32, ir::kF32, ir::kI32};
  ExpectComputeMatchesReference(sums, &rng);

  for (const int64_t shift : {0, 1, 7, 40}) {
    Case requantize{"requantize", {{2, 5}, {5}}, {{"shift", shift}}, -90000, 90000};
    requantize.dtypes = {ir::kI32, ir::kI32};
    ExpectComputeMatchesReference(requantize, &rng);
  }
  // Halves go up, results are cut, and nothing wraps.
  const RefTensor rows{{ir::kI32, {6}}, {3, -3, 1, -1, 1000, -2147483648.0}};
  const RefTensor by{{ir::kI32, {}}, {2147483647}};
  auto cut =
      Reference(*FindOp("requantize"), std::vector<RefTensor>{rows, by}, {{"shift", int64_t{32}}});
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ((*cut)[0].values, (std::vector<double>{1, -1, 0, 0, 127, -128}));
  const RefTensor two{{ir::kI32, {}}, {2}};
  auto halves =
      Reference(*FindOp("requantize"), std::vector<RefTensor>{rows, two}, {{"shift", int64_t{2}}});
  ASSERT_TRUE(halves.ok()) << halves.status();
  EXPECT_EQ((*halves)[0].values, (std::vector<double>{2, -1, 1, 0, 127, -128}));

  const double nan = std::nan("");
  const RefTensor x{{ir::kF32, {8}}, {0.5, 1.5, 2.5, -0.5, -1.5, 1e30, -1e30, nan}};
  const RefTensor one{{ir::kF32, {}}, {1}};
  auto quantized = [&](ir::DType type, double zero) {
    const RefTensor point{{type, {}}, {zero}};
    auto result = Reference(*FindOp("quantize"), std::vector<RefTensor>{x, one, point}, {});
    return result.ok() ? (*result)[0].values : std::vector<double>{};
  };
  EXPECT_EQ(quantized(ir::kU8, 1), (std::vector<double>{1, 3, 3, 1, 0, 255, 0, 0}));
  EXPECT_EQ(quantized(ir::kI8, -1), (std::vector<double>{-1, 1, 1, -1, -3, 127, -128, 0}));
}

TEST(OpCompute, SoftsignOfLargeValuesStaysBelowOne) {
  Rng rng(Seed());
  ExpectComputeMatchesReference({"softsign", {{64}}, {}, -1e30, 1e30}, &rng);
  const RefTensor ends{{ir::kF32, {2}}, {-1e30, 1e30}};
  auto far = Reference(*FindOp("softsign"), std::vector<RefTensor>{ends}, {});
  ASSERT_TRUE(far.ok()) << far.status();
  EXPECT_EQ((*far)[0].values, (std::vector<double>{-1, 1}));
}

TEST(OpCompute, IntegerElementwise) {
  Rng rng(Seed());
  for (const char* name : {"add", "sub", "mul", "max", "min"}) {
    ExpectComputeMatchesReference({name, {{3, 4}, {4}}, {}, -50, 50, ir::kI32}, &rng);
  }
  for (const char* name : {"relu", "neg", "identity"}) {
    ExpectComputeMatchesReference({name, {{3, 4}}, {}, -50, 50, ir::kI64}, &rng);
  }
  // Negative numbers are shifted as bits of their type; counts beyond it give 0.
  for (const char* name : {"shift_left", "shift_right"}) {
    ExpectComputeMatchesReference({name, {{9, 40}, {40}}, {}, -40, 40, ir::kI32}, &rng);
  }
  const TensorType ints{ir::kI32, {2}};
  EXPECT_FALSE(InferTypes(*FindOp("exp"), std::vector{ints}, {}).ok());
  EXPECT_FALSE(InferTypes(*FindOp("pow"), std::vector{ints, ints}, {}).ok());
}

TEST(OpCompute, RepeatedAndGatheredElements) {
  Rng rng(Seed());
  const std::vector<int64_t> wide = {2, 3, 4};
  for (const std::vector<int64_t>& from : {wide, {3, 1}, {2, 1, 4}, {}}) {
    ExpectComputeMatchesReference({"expand", {from}, {{"shape", wide}}}, &rng);
  }
  // Indices beyond both ends: a gather stays inside of its data.
  for (const int64_t axis : {0, 1, -1}) {
    Case c{"gather_elements", {{3, 4}, {2, 3}}, {{"axis", axis}}, -9, 9};
    c.dtypes = {ir::kF32, ir::kI64};
    ExpectComputeMatchesReference(c, &rng);
    c.dtypes[1] = ir::kI32;
    ExpectComputeMatchesReference(c, &rng);
  }
}

TEST(OpCompute, CountingMakesSteps) {
  Rng rng(Seed());
  const std::vector<int64_t> start = {-7}, shape = {9};
  for (const int64_t step : {1, -3, 0}) {
    ExpectComputeMatchesReference(
        {"counting", {}, {{"start", start}, {"step", step}, {"shape", shape}}}, &rng);
  }
  const auto three = Reference(*FindOp("counting"), {},
                               {{"start", start}, {"step", int64_t{4}}, {"shape", start}});
  EXPECT_FALSE(three.ok());  // no tensor has -7 elements
  const auto some = Reference(*FindOp("counting"), {},
                              {{"start", start}, {"step", int64_t{4}}, {"shape", shape}});
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ((*some)[0].values, (std::vector<double>{-7, -3, 1, 5, 9, 13, 17, 21, 25}));
}

// Every cell with all that it may have; clipping, activations with parameters.
TEST(OpCompute, RecurrentLayers) {
  Rng rng(Seed());
  using Doubles = std::vector<double>;
  const auto attrs = [](const char* cell, const char* names, Doubles alphas, Doubles betas) {
    return Attrs{{"cell", std::string(cell)},
                 {"activations", std::string(names)},
                 {"alphas", std::move(alphas)},
                 {"betas", std::move(betas)}};
  };
  const Doubles zero = {0}, zeros = {0, 0}, none = {0, 0, 0};
  Attrs lstm = attrs("lstm", "hard_sigmoid scaled_tanh affine", {0.3, 0.9, 0.8}, {0.4, 0.7, 0.1});
  Case all{"recurrent", {{4, 2, 20}, {5, 4, 5}, {2, 5}, {2, 5}}, lstm, -1, 1};
  ExpectComputeMatchesReference(all, &rng);
  all.attrs["clip"] = 0.25;
  all.attrs["peepholes"] = all.attrs["masked"] = int64_t{1};
  all.shapes.push_back({3, 5});
  all.shapes.push_back({4, 2});
  all.dtypes = {ir::kF32, ir::kF32, ir::kF32, ir::kF32, ir::kF32, ir::kBool};
  ExpectComputeMatchesReference(all, &rng);
  all.attrs["couples"] = int64_t{1};
  all.attrs["activations"] = std::string("sigmoid tanh tanh");
  ExpectComputeMatchesReference(all, &rng);
  all.shapes[1] = {4, 1, 5, 16};
  all.attrs["weight_layout"] = std::string("GUK16u");
  ExpectComputeMatchesReference(all, &rng);
  all.attrs["from_zero"] = int64_t{1};
  ExpectComputeMatchesReference(all, &rng);
  Case gru{
      "recurrent", {{3, 2, 12}, {4, 3, 4}, {2, 4}}, attrs("gru", "sigmoid tanh", zeros, zeros)};
  ExpectComputeMatchesReference(gru, &rng);
  gru.attrs["from_zero"] = int64_t{1};
  ExpectComputeMatchesReference(gru, &rng);
  gru.attrs["from_zero"] = int64_t{0};
  gru.attrs["linear_before_reset"] = gru.attrs["recurrent_bias"] = int64_t{1};
  gru.shapes.push_back({4});
  ExpectComputeMatchesReference(gru, &rng);
  Case blocked{"recurrent", {{2, 2, 54}, {3, 2, 18, 16}, {2, 18}}, gru.attrs};
  blocked.attrs["weight_layout"] = std::string("GUK16u");
  blocked.attrs["linear_before_reset"] = blocked.attrs["recurrent_bias"] = int64_t{0};
  ExpectComputeMatchesReference(blocked, &rng);
  for (const char* name :
       {"elu", "leaky_relu", "relu", "softplus", "softsign", "thresholded_relu", "tanh"}) {
    Case rnn{
        "recurrent", {{3, 1, 6}, {6, 1, 6}, {1, 6}}, attrs("rnn", name, {0.2}, zero), -0.5, 0.5};
    ExpectComputeMatchesReference(rnn, &rng);
  }
}

// Every rule, with query heads that share a key head; decay is not larger than 0.
TEST(OpCompute, LinearAttention) {
  Rng rng(Seed());
  const std::vector<std::vector<int64_t>> shapes = {
      {2, 3, 6, 4}, {2, 3, 2, 4}, {2, 3, 2, 5}, {2, 2, 4, 5}};
  for (const int64_t decay : {0, 1, 4}) {
    for (const int64_t beta : {0, 1}) {
      Case c{"linear_attention", shapes, {{"scale", 0.5}}, -1, 0};
      if (decay > 0) c.shapes.push_back({2, 3, 2, decay}), c.attrs["decay"] = int64_t{1};
      if (beta > 0) c.shapes.push_back({2, 3, 2, 1}), c.attrs["beta"] = int64_t{1};
      ExpectComputeMatchesReference(c, &rng);
      c.dtype = ir::kF64;
      ExpectComputeMatchesReference(c, &rng);
    }
  }
}

TEST(OpCompute, CumulatedRows) {
  Rng rng(Seed());
  for (const char* kind : {"sum", "prod"}) {
    for (const ir::DType type : {ir::kF32, ir::kF64, ir::kI64, ir::kI8, ir::kU32}) {
      for (const std::vector<int64_t>& shape : {std::vector<int64_t>{5, 3}, {1, 40}, {70, 1}}) {
        Case c{"cumulate", {shape}, {{"kind", std::string(kind)}}, -1, 1};
        c.dtypes = {type};
        ExpectComputeMatchesReference(c, &rng);
      }
    }
  }
  const TensorType list{ir::kF32, {3}}, matrix{ir::kF32, {3, 2}};
  const OpSpec& row = *FindOp("cumulate");
  EXPECT_EQ(support::Slug(InferTypes(row, {{list}}, {{"kind", std::string("sum")}}).status()),
            "op.cumulate.shape");
  EXPECT_EQ(support::Slug(InferTypes(row, {{matrix}}, {}).status()), "op.cumulate.attribute");
}

TEST(OpCompute, PickedBoxes) {
  Rng rng(Seed());
  for (const auto& [batches, classes, boxes, picks] :
       {std::array<int64_t, 4>{1, 1, 1, 1}, {2, 3, 20, 6}, {1, 2, 33, 40}}) {
    Case c{
        "pick_boxes", {{batches, 5, boxes}, {batches, classes, boxes}, {}, {}}, {{"picks", picks}}};
    ExpectComputeMatchesReference(c, &rng);
  }
  // Three boxes, of which the first two overlap by 10 of 11 parts of their union.
  const RefTensor boxes{{ir::kF32, {1, 5, 3}}, {0, 0, 2, 0, 0, 2, 1, 1, 3, 1, 1.1, 3, 1, 1.1, 1}};
  const RefTensor scores{{ir::kF32, {1, 1, 3}}, {0.5, 0.8, 0.3}};
  const auto picked = [&](double limit, double least) {
    const RefTensor a{{ir::kF32, {}}, {limit}}, b{{ir::kF32, {}}, {least}};
    const auto places =
        Reference(*FindOp("pick_boxes"), {{boxes, scores, a, b}}, {{"picks", int64_t{3}}});
    EXPECT_TRUE(places.ok()) << places.status();
    return (*places)[0].values;
  };
  EXPECT_EQ(picked(0.5, 0), (std::vector<double>{1, 2, -1}));
  EXPECT_EQ(picked(0.95, 0), (std::vector<double>{1, 0, 2}));
  EXPECT_EQ(picked(0.5, 0.4), (std::vector<double>{1, -1, -1}));
}

// Also of lists that are not sorted: the kernel takes the same way through them.
TEST(OpCompute, PlacesInSortedLists) {
  Rng rng(Seed());
  for (const ir::DType type : {ir::kF32, ir::kI64, ir::kU8}) {
    for (const auto& [length, steps] :
         {std::pair<int64_t, int64_t>{1, 1}, {3, 2}, {4, 3}, {200, 9}}) {
      Case c{"search_sorted", {{length}, {17}}, {{"steps", steps}}, -1, 1};
      c.dtypes = {type, type};
      ExpectComputeMatchesReference(c, &rng);
    }
  }
  const OpSpec& row = *FindOp("search_sorted");
  const RefTensor list{{ir::kF32, {4}}, {1, 3, 3, 8}}, values{{ir::kF32, {5}}, {0, 1, 3, 7, 9}};
  const auto places = Reference(row, {{list, values}}, {{"steps", int64_t{3}}});
  ASSERT_TRUE(places.ok()) << places.status();
  EXPECT_EQ((*places)[0].values, (std::vector<double>{0, 1, 3, 3, 4}));
  EXPECT_EQ(
      support::Slug(InferTypes(row, {{list.type, values.type}}, {{"steps", int64_t{2}}}).status()),
      "op.search_sorted.attribute");
}

TEST(OpCompute, IntegerReductionsWrap) {
  Rng rng(Seed());
  for (const char* kind : {"sum", "prod", "max", "min"}) {
    for (const ir::DType type : {ir::kI8, ir::kU8, ir::kI32, ir::kI64}) {
      Case c{"reduce", {{3, 5}}, {{"kind", std::string(kind)}, {"axes", std::vector<int64_t>{1}}}};
      c.dtype = type;
      c.low = type == ir::kU8 ? 0 : -100, c.high = 100;
      ExpectComputeMatchesReference(c, &rng);
    }
  }
}

struct Refusal {
  std::string op;
  std::vector<TensorType> inputs;
  Attrs attrs;
  std::string slug;
};

TEST(OpInfer, RecurrentLayersThatAreNone) {
  const auto f32 = [](std::vector<int64_t> shape) {
    return TensorType{ir::kF32, std::move(shape)};
  };
  const Refusal refusals[] = {
      {"recurrent", {f32({2, 1, 4}), f32({1, 4, 1}), f32({1, 1})}, {}, "op.recurrent.attribute"},
      {"recurrent",
       {f32({2, 1, 4}), f32({1, 4, 1}), f32({1, 1})},
       {{"cell", std::string("rnn")}, {"activations", std::string("sine")}},
       "op.recurrent.attribute"},
      {"recurrent",
       {f32({2, 1, 4}), f32({3, 1, 4}), f32({1, 3})},
       {{"cell", std::string("rnn")},
        {"activations", std::string("tanh")},
        {"alphas", std::vector<double>{0}},
        {"betas", std::vector<double>{0}}},
       "op.recurrent.shape"},
  };
  for (const Refusal& r : refusals) {
    const auto result = InferTypes(*FindOp(r.op), r.inputs, r.attrs);
    EXPECT_EQ(support::Slug(result.status()), r.slug) << result.status();
  }
}

TEST(OpInfer, LinearAttentionOfOtherShapes) {
  const auto f32 = [](std::vector<int64_t> shape) {
    return TensorType{ir::kF32, std::move(shape)};
  };
  const std::vector<TensorType> fine = {f32({1, 3, 4, 2}), f32({1, 3, 2, 2}), f32({1, 3, 2, 5}),
                                        f32({1, 2, 2, 5})};
  const OpSpec& row = *FindOp("linear_attention");
  EXPECT_TRUE(InferTypes(row, fine, {}).ok());
  for (size_t i = 0; i < fine.size(); ++i) {
    std::vector<TensorType> bad = fine;
    bad[i].shape[3] = 3;
    const auto result = InferTypes(row, bad, {});
    EXPECT_EQ(support::Slug(result.status()), "op.linear_attention.shape") << result.status();
  }
  std::vector<TensorType> heads = fine;
  heads[0].shape[2] = 3;
  EXPECT_EQ(support::Slug(InferTypes(row, heads, {}).status()), "op.linear_attention.shape");
  EXPECT_EQ(support::Slug(InferTypes(row, fine, {{"beta", int64_t{1}}}).status()),
            "op.linear_attention.inputs");
}

TEST(OpInfer, RefusesWithTheOperatorsName) {
  auto f32 = [](std::vector<int64_t> shape) { return TensorType{ir::kF32, std::move(shape)}; };
  const std::vector<int64_t> two = {2, 2};
  const Refusal refusals[] = {
      {"conv2d", {f32({1, 3, 8, 8})}, {}, "op.conv2d.inputs"},
      {"counting", {}, {{"shape", two}}, "op.counting.attribute"},
      {"pad", {f32({2, 2})}, {{"pads", two}}, "op.pad.attribute"},
      {"pad",
       {f32({2})},
       {{"pads", std::vector<int64_t>{int64_t{1} << 30, 0}}},
       "op.pad.attribute"},
      {"conv2d", {f32({1, 3, 8}), f32({4, 3, 3, 3})}, {}, "op.conv2d.shape"},
      {"conv2d", {f32({1, 3, 8, 8}), f32({4, 2, 3, 3})}, {}, "op.conv2d.channels"},
      {"conv2d",
       {f32({1, 4, 8, 8}), f32({3, 2, 3, 3})},
       {{"groups", int64_t{2}}},
       "op.conv2d.channels"},
      {"conv2d",
       {f32({1, 4, 8, 8}), f32({3, 4, 3, 3})},
       {{"groups", int64_t{0}}},
       "op.conv2d.channels"},
      {"conv2d", {f32({1, 3, 2, 2}), f32({4, 3, 3, 3})}, {}, "op.conv2d.kernel"},
      {"conv2d", {f32({1, 3, 8, 8}), f32({4, 3, 3, 3}), f32({3})}, {}, "op.conv2d.bias"},
      {"conv2d",
       {f32({1, 3, 8, 8}), f32({4, 3, 3, 3})},
       {{"strides", std::vector<int64_t>{0, 1}}},
       "op.conv2d.attribute"},
      {"conv2d",
       {f32({1, 3, 8, 8}), f32({4, 3, 3, 3})},
       {{"pads", std::vector<int64_t>{-1, 0, 0, 0}}},
       "op.conv2d.attribute"},
      {"conv2d",
       {f32({1, 3, 8, 8}), f32({4, 3, 3, 3})},
       {{"weight_layout", std::string("OIHWo")}},
       "op.conv2d.attribute"},
      {"conv2d",
       {f32({1, 3, 8, 8}), f32({4, 3, 3, 3})},
       {{"pad_value", int64_t{1}}},
       "op.conv2d.attribute"},
      {"conv2d", {f32({1, 3, 8, 8}), TensorType{ir::kI8, {4, 3, 3, 3}}}, {}, "op.conv2d.type"},
      {"quantize", {f32({4}), f32({}), f32({})}, {}, "op.quantize.type"},
      {"quantize", {f32({4}), f32({3, 1}), TensorType{ir::kU8, {}}}, {}, "op.quantize.shape"},
      {"dequantize", {f32({4}), f32({}), f32({})}, {}, "op.dequantize.type"},
      {"requantize", {f32({4}), f32({})}, {}, "op.requantize.type"},
      {"requantize",
       {TensorType{ir::kI32, {4}}, TensorType{ir::kI32, {}}},
       {{"shift", int64_t{63}}},
       "op.requantize.attribute"},
      {"dense",
       {TensorType{ir::kI8, {2, 8}}, TensorType{ir::kI8, {1, 2, 4, 4}}},
       {{"weight_layout", std::string("NK4n8k")}},
       "op.dense.shape"},
      {"dense", {f32({2, 3}), f32({4, 5})}, {}, "op.dense.shape"},
      {"packed_dense",
       {f32({2, 32}), TensorType{ir::kI32, {1, 4, 16}}, f32({1, 2, 16})},
       {{"bits", int64_t{4}}, {"group", int64_t{12}}},
       "op.packed_dense.attribute"},
      {"packed_dense",
       {f32({2, 32}), TensorType{ir::kI32, {1, 4, 16}}, f32({1, 1, 16})},
       {{"bits", int64_t{4}}, {"group", int64_t{16}}},
       "op.packed_dense.shape"},
      {"dense", {f32({2, 3}), TensorType{ir::kI32, {4, 3}}}, {}, "op.dense.type"},
      {"matmul", {f32({2, 3}), f32({4, 5})}, {}, "op.matmul.shape"},
      {"add", {f32({2, 3}), f32({2, 4})}, {}, "op.add.shape"},
      {"add", {f32({2}), TensorType{ir::kI32, {2}}}, {}, "op.add.type"},
      {"reshape", {f32({2, 3})}, {{"shape", std::vector<int64_t>{5}}}, "op.reshape.shape"},
      {"transpose", {f32({2, 3})}, {{"perm", std::vector<int64_t>{0, 0}}}, "op.transpose.perm"},
      {"softmax", {f32({2, 3})}, {{"axis", int64_t{2}}}, "op.softmax.axis"},
      {"normalize", {f32({2, 3})}, {{"kind", std::string("batch")}}, "op.normalize.attribute"},
      {"reduce", {f32({2, 3})}, {{"axes", std::vector<int64_t>{1, -1}}}, "op.reduce.axis"},
      {"reduce", {f32({2, 3})}, {{"kind", std::string("median")}}, "op.reduce.attribute"},
      {"pool2d", {f32({1, 1, 4, 4})}, {}, "op.pool2d.attribute"},
      {"pool2d",
       {TensorType{ir::kU8, {1, 1, 4, 4}}},
       {{"kernel", two}, {"kind", std::string("avg")}},
       "op.pool2d.type"},
      {"pool2d",
       {f32({1, 1, 4, 4})},
       {{"kernel", two}, {"pads", std::vector<int64_t>{2, 0, 0, 0}}},
       "op.pool2d.pads"},
      {"batch_norm",
       {f32({1, 3}), f32({3}), f32({3}), f32({3}), f32({4})},
       {},
       "op.batch_norm.shape"},
      {"concat", {f32({2, 3}), f32({3, 3})}, {{"axis", int64_t{1}}}, "op.concat.shape"},
      {"expand", {f32({2, 3})}, {{"shape", std::vector<int64_t>{2, 4}}}, "op.expand.shape"},
      {"gather_elements", {f32({4}), f32({4})}, {}, "op.gather_elements.type"},
      {"gather_elements",
       {f32({2, 3}), TensorType{ir::kI64, {1, 4}}},
       {},
       "op.gather_elements.shape"},
      {"reduce", {TensorType{ir::kI32, {4}}}, {{"kind", std::string("mean")}}, "op.reduce.type"},
      {"slice",
       {f32({4})},
       {{"starts", std::vector<int64_t>{2}},
        {"steps", std::vector<int64_t>{1}},
        {"sizes", std::vector<int64_t>{3}}},
       "op.slice.range"},
      {"gather", {f32({4}), f32({2})}, {}, "op.gather.type"},
      {"and", {f32({4}), f32({4})}, {}, "op.and.type"},
      {"less", {TensorType{ir::kBool, {4}}, TensorType{ir::kBool, {4}}}, {}, "op.less.type"},
      {"add", {TensorType{ir::kBool, {4}}, TensorType{ir::kBool, {4}}}, {}, "op.add.type"},
      {"where", {f32({4}), f32({4}), f32({4})}, {}, "op.where.type"},
      {"pad", {f32({4})}, {{"pads", std::vector<int64_t>{1}}}, "op.pad.attribute"},
      {"conv2d_transpose",
       {f32({1, 3, 4, 4}), f32({2, 2, 3, 3})},
       {},
       "op.conv2d_transpose.channels"},
      {"relu", {f32({0, 3})}, {}, "op.type.dimension"},
      {"relu", {f32({-1})}, {}, "op.type.dimension"},
      {"relu", {f32({int64_t{1} << 31, int64_t{1} << 31, 4})}, {}, "op.type.size"},
      {"add", {f32({int64_t{1} << 30, 1}), f32({1, int64_t{1} << 30})}, {}, "op.type.size"},
  };
  for (const Refusal& r : refusals) {
    auto result = InferTypes(*FindOp(r.op), r.inputs, r.attrs);
    ASSERT_FALSE(result.ok()) << r.op << " " << r.slug;
    EXPECT_EQ(support::Slug(result.status()), r.slug) << result.status();
    EXPECT_NE(std::string(result.status().message()).find("expected"), std::string::npos);
  }
}

TEST(OpInfer, TransposedConvolutionsInBlocksHaveOneGroup) {
  const std::vector<TensorType> types = {{ir::kF32, {1, 3, 4, 4, 8}},
                                         {ir::kF32, {3, 2, 3, 3, 8, 4}}};
  Attrs attrs = {{"data_layout", std::string("NCHW8c")},
                 {"weight_layout", std::string("IOHW8i4o")}};
  const OpSpec& row = *FindOp("conv2d_transpose");
  const auto result = InferTypes(row, types, attrs);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->front(), (TensorType{ir::kF32, {1, 2, 6, 6, 4}}));
  attrs["groups"] = int64_t{2};
  EXPECT_EQ(support::Slug(InferTypes(row, types, attrs).status()), "op.conv2d_transpose.attribute");
  attrs = {{"data_layout", std::string("NHWC")}};
  EXPECT_EQ(support::Slug(InferTypes(row, types, attrs).status()), "op.conv2d_transpose.attribute");
}

// The stages of a matrix unit.
TEST(OpTypes, StagedPoolsAreMaximaOfSignedBytes) {
  const auto infer = [](ir::DType type, const char* kind) {
    const std::vector<TensorType> image = {{type, {1, 1, 4, 4, 8}}};
    return InferTypes(*FindOp("pool2d"), image,
                      {{"kernel", std::vector<int64_t>{2, 2}},
                       {"kind", std::string(kind)},
                       {"staged", int64_t{1}}});
  };
  EXPECT_TRUE(infer(ir::kI8, "max").ok());
  for (const ir::DType type : {ir::kU8, ir::kI32, ir::kF32})
    EXPECT_EQ(support::Slug(infer(type, "max").status()), "op.pool2d.attribute");
  EXPECT_EQ(support::Slug(infer(ir::kF32, "avg").status()), "op.pool2d.attribute");
}

// The library's pow takes twenty times as long as what GPT-2's GELU means by pow(x, 3).
TEST(OpPow, SmallWholeExponentsCallNoLibrary) {
  const ir::Expr x = ir::MakeVar("x", ir::kF32);
  const auto calls = [&](double exponent) {
    const std::vector<ir::Expr> operands = {x, ir::Float(exponent, ir::kF32)};
    int found = 0;
    ir::VisitExprs(FindOp("pow")->scalar(operands, {}), [&](const ir::Expr& e) {
      found += e->kind == ir::ExprKind::kCall;
      return true;
    });
    return found;
  };
  for (double exponent : {2.0, 3.0, -1.0}) EXPECT_EQ(calls(exponent), 0) << exponent;
  for (double exponent : {0.5, 2.5, -3.0}) EXPECT_EQ(calls(exponent), 1) << exponent;
}

TEST(OpCost, FlopsAndReductionLength) {
  const std::vector<TensorType> conv = {{ir::kF32, {1, 4, 84, 84}}, {ir::kF32, {32, 4, 8, 8}}};
  const Attrs attrs = {{"strides", std::vector<int64_t>{4, 4}}};
  const OpSpec* spec = FindOp("conv2d");
  auto out = InferTypes(*spec, conv, attrs);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ((*out)[0].sizes(), (std::vector<int64_t>{1, 32, 20, 20}));
  EXPECT_EQ(Flops(*spec, conv, *out, attrs), 2.0 * 32 * 20 * 20 * 4 * 64);
  EXPECT_EQ(ReductionLength(*spec, conv, attrs), 256);
  const std::vector<TensorType> two = {{ir::kF32, {2}}, {ir::kF32, {2}}};
  const std::vector<TensorType> choice = {{ir::kBool, {2}}, {ir::kI8, {2}}, {ir::kI8, {2}}};
  EXPECT_EQ(OperandUses(*FindOp("add"), 0, two, {}), 1);
  EXPECT_EQ(OperandUses(*FindOp("gelu"), 0, std::span(two).first(1), {}), 2);
  EXPECT_EQ(OperandUses(*FindOp("pow"), 0, two, {}), 3);
  EXPECT_EQ(OperandUses(*FindOp("where"), 0, choice, {}), 1);
}

TEST(RefTensor, BytesRoundTripForEveryType) {
  for (ir::DType type :
       {ir::kF32, ir::kF64, ir::kF16, ir::kBF16, ir::kI8, ir::kU8, ir::kI32, ir::kI64, ir::kBool}) {
    RefTensor tensor{{type, {3}}, {0, 1, type.is_bool() ? 1.0 : 100}};
    auto back = FromBytes(tensor.type, ToBytes(tensor));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->values, tensor.values) << ir::TypeName(type);
  }
  EXPECT_FALSE(FromBytes({ir::kF32, {3}}, "short").ok());
  const TensorType wide = {ir::kU64, {2}};
  const std::string ends("\xff\xff\xff\xff\xff\xff\xff\xff\1\0\0\0\0\0\0\0", 16);
  EXPECT_EQ(ToBytes(*FromBytes(wide, ends)), ends);
  EXPECT_EQ(RoundToType(300, ir::kI8), 127);
  EXPECT_EQ(RoundToType(-1.7, ir::kI32), -1);
  EXPECT_EQ(RoundToType(1 + std::ldexp(1, -30), ir::kF32), 1);
}

}  // namespace
}  // namespace tilewright::op
