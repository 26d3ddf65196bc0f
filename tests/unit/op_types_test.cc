// Rows on all element types: integers are exact and wrap, up to the ends of 64 bits; operators that
// order elements know ties and NaN. The reference, the interpreter of the tensor IR and numbers
// worked out by hand give the same bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compiler/ir/numeric.h"
#include "compiler/op/op.h"
#include "tests/unit/op_case.h"

namespace tilewright::op {
namespace {

using support::Rng;
using Ints = std::vector<int64_t>;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max(), kMin = -kMax - 1;
constexpr ir::DType kIntegers[] = {ir::kI8, ir::kI16, ir::kI32, ir::kI64,
                                   ir::kU8, ir::kU16, ir::kU32, ir::kU64};

// Small numbers, ends of the type, and any numbers between.
RefTensor AnyIntegers(const TensorType& type, Rng* rng) {
  Ints values;
  for (int64_t i = 0; i < type.elements(); ++i) {
    const int64_t ends[] = {ir::MinInt(type.dtype), ir::MaxInt(type.dtype), 0, 1, -1};
    switch (rng->Uniform(3)) {
      case 0:
        values.push_back(rng->UniformInt(-9, 9));
        break;
      case 1:
        values.push_back(ends[rng->Uniform(std::size(ends))]);
        break;
      default:
        values.push_back(static_cast<int64_t>(rng->NextU64()));
    }
  }
  return FromIntegers(type, values);
}

RefTensor ReferenceOf(const std::string& name, const std::vector<RefTensor>& inputs,
                      const Attrs& attrs = {}) {
  auto result = Reference(*FindOp(name), inputs, attrs);
  EXPECT_TRUE(result.ok()) << name << result.status();
  return result.ok() ? (*result)[0] : RefTensor{};
}

// The compute rule gives the bytes of the reference.
void ExpectSameBytes(const std::string& name, const std::vector<RefTensor>& inputs,
                     const Attrs& attrs = {}) {
  const OpSpec& spec = *FindOp(name);
  std::vector<TensorType> types;
  for (const RefTensor& in : inputs) types.push_back(in.type);
  auto outputs = InferTypes(spec, types, attrs);
  ASSERT_TRUE(outputs.ok()) << name << outputs.status();
  auto function = AsFunction(spec, types, *outputs, attrs);
  ASSERT_TRUE(function.ok()) << name << function.status();
  auto actual = Interpreted(*function, inputs, (*outputs)[0]);
  ASSERT_TRUE(actual.ok()) << name << actual.status();
  EXPECT_EQ(ToBytes(*actual), ToBytes(ReferenceOf(name, inputs, attrs)))
      << name << " of " << ToText(types[0]);
}

TEST(OpTypes, IntegersOfEveryWidth) {
  Rng rng(Seed());
  for (const ir::DType type : kIntegers) {
    for (const char* name :
         {"add", "sub", "mul", "div", "max", "min", "bit_and", "bit_or", "bit_xor", "equal", "less",
          "less_equal", "greater", "greater_equal", "prelu", "mod"}) {
      const RefTensor a = AnyIntegers({type, {6, 20}}, &rng), b = AnyIntegers({type, {20}}, &rng);
      ExpectSameBytes(name, {a, b});
    }
    const RefTensor x = AnyIntegers({type, {5, 16}}, &rng);
    for (const char* name : {"neg", "abs", "sign", "relu", "identity", "bit_not"}) {
      ExpectSameBytes(name, {x});
    }
    ExpectSameBytes("mod", {x, AnyIntegers({type, {16}}, &rng)}, {{"fmod", int64_t{1}}});
    ExpectSameBytes("clip", {x}, {{"min", 3.0}, {"max", 90.0}});
    for (const char* kind : {"sum", "prod", "max", "min"}) {
      ExpectSameBytes("reduce", {x}, {{"axes", Ints{1}}, {"kind", std::string(kind)}});
    }
    for (const ir::DType to : kIntegers) {
      ExpectSameBytes("cast", {x}, {{"dtype", ir::TypeName(to)}});
    }
    for (const ir::DType to : {ir::kF64, ir::kF32, ir::kF16, ir::kBF16, ir::kBool}) {
      ExpectSameBytes("cast", {x}, {{"dtype", ir::TypeName(to)}});
    }
    if (type.code == ir::TypeCode::kUInt) {
      const RefTensor counts = RandomTensor({type, {16}}, 0, 70, &rng);
      ExpectSameBytes("shift_left", {x, counts});
      ExpectSameBytes("shift_right", {x, counts});
    }
  }
}

Ints OfI64(const std::string& name, const Ints& a, const Ints& b, const Attrs& attrs = {}) {
  const TensorType type = {ir::kI64, {static_cast<int64_t>(a.size())}};
  return IntegersOf(ReferenceOf(name, {FromIntegers(type, a), FromIntegers(type, b)}, attrs));
}

TEST(OpTypes, IntegersByHand) {
  EXPECT_EQ(OfI64("add", {kMax, kMin, 3}, {1, -1, 4}), (Ints{kMin, kMax, 7}));
  EXPECT_EQ(OfI64("mul", {kMax, (int64_t{1} << 53) + 1}, {2, 1}),
            (Ints{-2, (int64_t{1} << 53) + 1}));
  EXPECT_EQ(OfI64("div", {-7, 7, kMin, 5}, {2, -2, -1, 0}), (Ints{-3, -3, kMin, 0}));
  EXPECT_EQ(OfI64("mod", {-7, 7, -7, 7, 5}, {3, -3, -3, 3, 0}), (Ints{2, -2, -1, 1, 0}));
  EXPECT_EQ(OfI64("mod", {-7, 7, -7, 7, 5}, {3, -3, -3, 3, 0}, {{"fmod", int64_t{1}}}),
            (Ints{-1, 1, -1, 1, 0}));
  EXPECT_EQ(OfI64("max", {kMax - 1, kMin}, {kMax, kMin + 1}), (Ints{kMax, kMin + 1}));
  EXPECT_EQ(OfI64("equal", {kMax - 1, kMax}, {kMax, kMax}), (Ints{0, 1}));
  const RefTensor minus = FromIntegers({ir::kI8, {1}}, {-1});
  const RefTensor wide = ReferenceOf("cast", {minus}, {{"dtype", std::string("u64")}});
  EXPECT_EQ(wide.values[0], 18446744073709551615.0);
  EXPECT_EQ(IntegersOf(wide), (Ints{-1}));
  // Half of the largest number and a half is not a double: f32 rounds once.
  const RefTensor tie =
      FromIntegers({ir::kI64, {1}}, {(int64_t{1} << 60) + (int64_t{1} << 36) + 1});
  EXPECT_EQ(ReferenceOf("cast", {tie}, {{"dtype", std::string("f32")}}).values[0],
            std::ldexp(1 + std::ldexp(1, -23), 60));
}

TEST(OpTypes, WideIntegersMoveUnchanged) {
  const RefTensor x = FromIntegers({ir::kI64, {2, 2}}, {kMax, kMin, -1, (int64_t{1} << 60) + 1});
  const RefTensor which = FromIntegers({ir::kI64, {2}}, {1, -2});
  ExpectSameBytes("transpose", {x}, {{"perm", Ints{1, 0}}});
  ExpectSameBytes("gather", {x, which}, {{"axis", int64_t{0}}});
  ExpectSameBytes("concat", {x, x}, {{"axis", int64_t{1}}});
  ExpectSameBytes("slice", {x},
                  {{"starts", Ints{1, 1}}, {"steps", Ints{-1, -1}}, {"sizes", Ints{2, 2}}});
  EXPECT_EQ(IntegersOf(ReferenceOf("transpose", {x}, {{"perm", Ints{1, 0}}})),
            (Ints{kMax, -1, kMin, (int64_t{1} << 60) + 1}));
  const auto refused = Reference(*FindOp("pad"), std::vector<RefTensor>{x},
                                 {{"pads", Ints{0, 1, 0, 0}}, {"value", 1.0}});
  EXPECT_FALSE(refused.ok()) << "a double would lose digits";
}

TEST(OpTypes, FloatsWithSigns) {
  const double inf = INFINITY, nan = std::nan("");
  const RefTensor x{{ir::kF32, {6}}, {-inf, -2, 0, 3, inf, nan}};
  EXPECT_EQ(ReferenceOf("is_nan", {x}).values, (std::vector<double>{0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(ReferenceOf("is_inf", {x}).values, (std::vector<double>{1, 0, 0, 0, 1, 0}));
  const Attrs positive = {{"detect_negative", int64_t{0}}};
  EXPECT_EQ(ReferenceOf("is_inf", {x}, positive).values, (std::vector<double>{0, 0, 0, 0, 1, 0}));
  const Attrs none = {{"detect_negative", int64_t{0}}, {"detect_positive", int64_t{0}}};
  for (const Attrs& attrs : {Attrs{}, positive, none}) ExpectSameBytes("is_inf", {x}, attrs);
  ExpectSameBytes("is_nan", {x});
  ExpectSameBytes("sign", {x});
  const std::vector<RefTensor> quotient = {RefTensor{{ir::kF32, {4}}, {-7, 7.5, -6, 6}},
                                           RefTensor{{ir::kF32, {4}}, {3, -2, 3, -3}}};
  const Attrs truncates = {{"fmod", int64_t{1}}};
  EXPECT_EQ(ReferenceOf("mod", quotient, truncates).values, (std::vector<double>{-1, 1.5, 0, 0}));
  EXPECT_EQ(ReferenceOf("mod", quotient).values, (std::vector<double>{2, -0.5, 0, 0}));
  ExpectSameBytes("mod", quotient, truncates);
  ExpectSameBytes("mod", quotient);
  // Small numbers keep their digits.
  const RefTensor tiny{{ir::kF32, {2}},
                       {RoundToType(-1e-6, ir::kF32), RoundToType(1e-6, ir::kF32)}};
  for (const char* name : {"elu", "selu", "celu", "mish", "gelu_tanh", "swish", "sinh", "asinh"}) {
    auto f = ReferenceOf(name, {tiny});
    EXPECT_NE(f.values[0], 0) << name;
    EXPECT_NE(f.values[1], 0) << name;
  }
}

TEST(OpTypes, PositionsAlongAnAxis) {
  Rng rng(Seed());
  std::vector<ir::DType> types(std::begin(kIntegers), std::end(kIntegers));
  types.insert(types.end(), {ir::kF32, ir::kF64});
  for (const ir::DType type : types) {
    const RefTensor x = type.is_float() ? RandomTensor({type, {3, 7, 2}}, -3, 3, &rng)
                                        : AnyIntegers({type, {3, 7, 2}}, &rng);
    for (const int64_t axis : {0, 1, -1}) {
      for (const char* kind : {"max", "min"}) {
        for (const int64_t last : {0, 1}) {
          ExpectSameBytes(
              "arg_reduce", {x},
              {{"axis", axis}, {"kind", std::string(kind)}, {"last", last}, {"keepdims", last}});
        }
      }
      for (const int64_t largest : {0, 1}) {
        ExpectSameBytes("top_k", {x}, {{"axis", axis}, {"k", int64_t{2}}, {"largest", largest}});
      }
    }
  }
  const double nan = std::nan("");
  const RefTensor row{{ir::kF32, {6}}, {2, 5, 1, 5, 1, 2}};
  const RefTensor holes{{ir::kF32, {4}}, {1, nan, -INFINITY, nan}};
  const auto arg = [&](const RefTensor& x, const char* kind, int64_t last) {
    const Attrs attrs = {{"kind", std::string(kind)}, {"last", last}, {"keepdims", int64_t{0}}};
    return ReferenceOf("arg_reduce", {x}, attrs).values[0];
  };
  EXPECT_EQ(arg(row, "max", 0), 1);
  EXPECT_EQ(arg(row, "max", 1), 3);
  EXPECT_EQ(arg(row, "min", 0), 2);
  EXPECT_EQ(arg(row, "min", 1), 4);
  EXPECT_EQ(arg(holes, "max", 0), 1) << "NaN, as in NumPy";
  const auto top = [&](const RefTensor& x, int64_t largest) {
    const Attrs attrs = {{"k", int64_t{4}}, {"largest", largest}};
    ExpectSameBytes("top_k", {x}, attrs);
    return ReferenceOf("top_k", {x}, attrs).values;
  };
  EXPECT_EQ(top(row, 1), (std::vector<double>{1, 3, 0, 5}));
  EXPECT_EQ(top(row, 0), (std::vector<double>{2, 4, 0, 5}));
  EXPECT_EQ(top(holes, 1), (std::vector<double>{1, 3, 0, 2}));
  EXPECT_FALSE(InferTypes(*FindOp("top_k"), std::vector{row.type}, {{"k", int64_t{7}}}).ok());
  EXPECT_FALSE(
      InferTypes(*FindOp("arg_reduce"), std::vector{row.type}, {{"kind", std::string("median")}})
          .ok());
}

}  // namespace
}  // namespace tilewright::op
