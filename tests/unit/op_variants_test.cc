// Other algorithms for the same operator, against its reference.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/op/op.h"
#include "compiler/op/winograd.h"
#include "tests/unit/op_case.h"

namespace tilewright::op {
namespace {

using support::Rng;

struct Winograd {
  std::vector<int64_t> x, w;
  Attrs attrs;
  bool bias = false;
};

// The variant against the reference, by the bound that the header states and by what it is in
// practice.
void CheckWinograd(const Winograd& c, Rng* rng, double* largest_error) {
  const OpSpec* spec = FindOp("conv2d");
  std::vector<TensorType> types = {{ir::kF32, c.x}, {ir::kF32, c.w}};
  const bool ihwo = GetString(c.attrs, "weight_layout", "OIHW") == "IHWO";
  if (c.bias) types.push_back({ir::kF32, {ihwo ? c.w[3] : c.w[0]}});
  EXPECT_EQ(VariantsOf(*spec, types, c.attrs), (std::vector<std::string>{"direct", "winograd"}));
  std::vector<RefTensor> inputs;
  for (const TensorType& type : types) inputs.push_back(RandomTensor(type, -1, 1, rng));
  auto outputs = InferTypes(*spec, types, c.attrs);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  auto expected = Reference(*spec, inputs, c.attrs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  auto f = AsFunction(*spec, types, *outputs, c.attrs, "winograd");
  ASSERT_TRUE(f.ok()) << f.status();
  auto actual = Interpreted(*f, inputs, (*outputs)[0]);
  ASSERT_TRUE(actual.ok()) << actual.status();
  double error = 0, size = 0;
  for (size_t i = 0; i < actual->values.size(); ++i) {
    error = std::max(error, std::fabs(actual->values[i] - (*expected)[0].values[i]));
    size = std::max(size, std::fabs((*expected)[0].values[i]));
  }
  EXPECT_LE(error, WinogradErrorBound(ihwo ? c.w[0] : c.w[1], 1, 1));
  *largest_error = std::max(*largest_error, error / size);
}

TEST(OpVariants, WinogradComputesTheConvolution) {
  Rng rng(Seed());
  double error = 0;
  const std::vector<int64_t> same = {1, 1, 1, 1};
  const std::vector<Winograd> cases = {
      {{1, 3, 8, 8}, {4, 3, 3, 3}, {{"pads", same}}, true},
      {{2, 5, 7, 9}, {3, 5, 3, 3}, {{"pads", same}}},
      {{1, 2, 6, 6}, {2, 2, 3, 3}, {}},  // one whole tile, nothing padded
      {{1, 1, 3, 3}, {1, 1, 3, 3}, {}},  // one output
      {{1, 2, 5, 11}, {3, 2, 3, 3}, {{"pads", std::vector<int64_t>{2, 0, 1, 3}}}, true},
      {{1, 16, 9, 6}, {16, 3, 3, 5}, {{"weight_layout", std::string("IHWO")}, {"pads", same}}},
  };
  for (Winograd c : cases) {
    if (GetString(c.attrs, "weight_layout", "") == "IHWO") c.w = {16, 3, 3, 5};
    CheckWinograd(c, &rng, &error);
  }
  EXPECT_LE(error, 1e-5);
  std::printf("winograd: largest error %.2g of the largest output\n", error);
}

// Channel blocks: all sizes of tile, tiles that stick out, several blocks and images; tiles of five
// only where they save products.
TEST(OpVariants, WinogradOnChannelBlocks) {
  const OpSpec* spec = FindOp("conv2d");
  Rng rng(Seed());
  const Attrs attrs = {{"pads", std::vector<int64_t>{1, 1, 1, 1}},
                       {"data_layout", std::string("NCHW4c")},
                       {"weight_layout", std::string("OIHW4i4o")}};
  for (const std::vector<int64_t>& x :
       {std::vector<int64_t>{1, 2, 8, 8, 4}, {2, 1, 7, 6, 4}, {1, 1, 14, 9, 4}}) {
    const std::vector<TensorType> types = {{ir::kF32, x}, {ir::kF32, {3, x[1], 3, 3, 4, 4}}};
    std::vector<std::string> variants = {"direct", "winograd", "winograd_2"};
    if (x[2] == 14) variants.push_back("winograd_5");
    ASSERT_EQ(VariantsOf(*spec, types, attrs), variants);
    std::vector<RefTensor> inputs;
    for (const TensorType& type : types) inputs.push_back(RandomTensor(type, -1, 1, &rng));
    const auto outputs = InferTypes(*spec, types, attrs);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    const auto expected = Reference(*spec, inputs, attrs);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const std::string& variant : variants) {
      const auto f = AsFunction(*spec, types, *outputs, attrs, variant);
      ASSERT_TRUE(f.ok()) << f.status();
      const auto actual = Interpreted(*f, inputs, (*outputs)[0]);
      ASSERT_TRUE(actual.ok()) << actual.status();
      for (size_t i = 0; i < actual->values.size(); ++i) {
        ASSERT_NEAR(actual->values[i], (*expected)[0].values[i], 1e-4) << variant << " at " << i;
      }
    }
  }
}

TEST(OpVariants, OnlyWhatTheyAreFor) {
  const OpSpec* spec = FindOp("conv2d");
  auto f32 = [](std::vector<int64_t> shape) { return TensorType{ir::kF32, std::move(shape)}; };
  auto names = [&](std::vector<int64_t> w, Attrs attrs) {
    std::vector<TensorType> types = {f32({1, 4, 12, 12}), f32(std::move(w))};
    return VariantsOf(*spec, types, attrs).size();
  };
  EXPECT_EQ(names({4, 4, 3, 3}, {}), 2u);
  EXPECT_EQ(names({4, 4, 5, 5}, {}), 1u);
  EXPECT_EQ(names({4, 4, 3, 3}, {{"strides", std::vector<int64_t>{2, 2}}}), 1u);
  EXPECT_EQ(names({4, 4, 3, 3}, {{"dilations", std::vector<int64_t>{1, 2}}}), 1u);
  EXPECT_EQ(names({4, 2, 3, 3}, {{"groups", int64_t{2}}}), 1u);
  std::vector<TensorType> types = {f32({1, 4, 12, 12}), f32({4, 4, 5, 5})};
  auto outputs = InferTypes(*spec, types, {});
  ASSERT_TRUE(outputs.ok());
  EXPECT_EQ(support::Slug(AsFunction(*spec, types, *outputs, {}, "winograd").status()),
            "op.conv2d.variant");
}

}  // namespace
}  // namespace tilewright::op
