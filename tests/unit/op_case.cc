#include "tests/unit/op_case.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compiler/ir/interp.h"
#include "compiler/ir/verify.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/test_seed.h"

namespace tilewright::op {

using support::Rng;
using support::StrCat;

uint64_t Seed() {
  static const uint64_t seed = tests::TestSeed();
  return seed;
}

RefTensor RandomTensor(const TensorType& type, double low, double high, Rng* rng) {
  RefTensor tensor{type, std::vector<double>(type.elements())};
  for (double& v : tensor.values) {
    v = RoundToType(low + (high - low) * rng->UniformDouble(), type.dtype);
  }
  return tensor;
}

absl::StatusOr<ir::Function> AsFunction(const OpSpec& spec, const std::vector<TensorType>& inputs,
                                        const std::vector<TensorType>& outputs, const Attrs& attrs,
                                        std::string_view variant) {
  ir::FunctionBuilder b("test");
  std::vector<ir::Buffer> buffers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<ir::Expr> shape;
    for (int64_t dim : inputs[i].sizes()) shape.push_back(ir::Int(dim));
    buffers.push_back(b.Input(StrCat("x", i), inputs[i].dtype, shape));
  }
  auto results = ComputeVariant(spec, variant, {b, "y", buffers, inputs, outputs, attrs});
  if (!results.ok()) return results.status();
  return b.Finish(*results);
}

absl::StatusOr<RefTensor> Interpreted(const ir::Function& f, const std::vector<RefTensor>& inputs,
                                      const TensorType& result) {
  std::vector<ir::TensorData> data(inputs.size() + 1);
  std::vector<ir::TensorData*> args;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string bytes = ToBytes(inputs[i]);
    data[i].bytes.assign(bytes.begin(), bytes.end());
  }
  for (ir::TensorData& d : data) args.push_back(&d);
  TW_TRY(ir::Interpret(f, {}, args, {.check_regions = true}));
  const std::vector<uint8_t>& bytes = data.back().bytes;
  return FromBytes(result, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void ExpectComputeMatchesReference(const Case& c, Rng* rng) {
  const OpSpec* spec = FindOp(c.op);
  ASSERT_NE(spec, nullptr) << c.op;
  std::vector<RefTensor> inputs;
  std::vector<TensorType> types;
  for (const auto& shape : c.shapes) {
    const size_t i = types.size();
    types.push_back({i < c.dtypes.size() ? c.dtypes[i] : c.dtype, shape});
    inputs.push_back(RandomTensor(types.back(), c.low, c.high, rng));
  }
  auto outputs = InferTypes(*spec, types, c.attrs);
  ASSERT_TRUE(outputs.ok()) << c.op << ": " << outputs.status();
  auto expected = Reference(*spec, inputs, c.attrs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_EQ((*expected)[0].type, (*outputs)[0]);
  auto function = AsFunction(*spec, types, *outputs, c.attrs);
  ASSERT_TRUE(function.ok()) << function.status();
  ASSERT_TRUE(ir::Verify(*function).ok()) << c.op << ir::Verify(*function);

  auto actual = Interpreted(*function, inputs, (*outputs)[0]);
  ASSERT_TRUE(actual.ok()) << c.op << ": " << actual.status();
  for (size_t i = 0; i < actual->values.size(); ++i) {
    const double a = actual->values[i], e = (*expected)[0].values[i];
    if (!c.dtype.is_float()) {
      ASSERT_EQ(a, e) << c.op << " at " << i;
      continue;
    }
    if (std::isnan(e)) {
      ASSERT_TRUE(std::isnan(a)) << c.op << " at " << i;
    } else {
      ASSERT_NEAR(a, e, 2e-5 * (1 + std::fabs(e)))
          << c.op << " at " << i << " of " << ToText((*outputs)[0]);
    }
  }
}

}  // namespace tilewright::op
