// The variant fixed_point of packed_dense: as exact as plain sums of floats, whatever the numbers
// are; by default where the machine multiplies bytes fast; the same from every schedule of its rule
// and on every machine that runs here.
#include "compiler/op/fixed_point_dense.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/verify.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/space.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/run_compiled.h"
#include "tests/support/test_seed.h"
#include "tests/unit/op_case.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr int64_t kColumns = 48;

struct Layer {
  int64_t bits = 4, group = 32, groups = 3, rows = 1;
  bool zeros = false;
};

std::vector<TensorType> TypesOf(const Layer& c) {
  const int64_t k = c.group * c.groups, blocks = kColumns / kWeightBlock;
  std::vector<TensorType> types = {{ir::kF32, {c.rows, k}},
                                   {ir::kI32, {blocks, k * c.bits / 32, kWeightBlock}},
                                   {ir::kF32, {blocks, c.groups, kWeightBlock}}};
  if (c.zeros) types.push_back(types[2]);
  return types;
}

Attrs AttrsOf(const Layer& c) { return {{"bits", c.bits}, {"group", c.group}}; }

std::vector<RefTensor> InputsOf(const Layer& c, support::Rng* rng) {
  const std::vector<TensorType> types = TypesOf(c);
  std::vector<RefTensor> inputs = {RandomTensor(types[0], -2, 2, rng),
                                   RandomTensor(types[1], -0x1p31, 0x1p31, rng),
                                   RandomTensor(types[2], 0.01, 0.02, rng)};
  const double most = static_cast<double>(1 << c.bits) - 0.5;
  if (c.zeros) inputs.push_back(RandomTensor(types[3], 0, most, rng));
  return inputs;
}

// What the header states, for a column: each number off by one last place, and a few roundings of
// sums of as many products as a group has, all of the largest size.
double BoundOf(const Layer& c, const std::vector<RefTensor>& inputs, int64_t row) {
  constexpr double kRoundings = 4, kScale = 0.02;
  double bound = 0;
  for (int64_t g = 0; g < c.groups; ++g) {
    double peak = 0x1p-100;
    for (int64_t i = 0; i < c.group; ++i) {
      const int64_t at = (row * c.groups + g) * c.group + i;
      peak = std::max(peak, std::fabs(inputs[0].values[static_cast<size_t>(at)]));
    }
    bound += peak * static_cast<double>(c.group << c.bits) * kScale * (1 + kRoundings) * 0x1p-23;
  }
  return bound;
}

// The root of the mean square error of an algorithm against the reference in double.
double ErrorOf(const std::string& variant, const Layer& c, const std::vector<RefTensor>& inputs) {
  const OpSpec& spec = *FindOp("packed_dense");
  const auto outputs = InferTypes(spec, TypesOf(c), AttrsOf(c));
  const auto expected = Reference(spec, inputs, AttrsOf(c));
  const auto f = AsFunction(spec, TypesOf(c), *outputs, AttrsOf(c), variant);
  EXPECT_TRUE(outputs.ok() && expected.ok() && f.ok()) << variant << f.status();
  const auto actual = Interpreted(*f, inputs, (*outputs)[0]);
  EXPECT_TRUE(actual.ok()) << actual.status();
  double sum = 0;
  for (size_t i = 0; i < actual->values.size(); ++i) {
    const double error = actual->values[i] - (*expected)[0].values[i];
    EXPECT_LE(std::fabs(error), BoundOf(c, inputs, static_cast<int64_t>(i) / kColumns)) << variant;
    sum += error * error;
  }
  return std::sqrt(sum / static_cast<double>(actual->values.size()));
}

std::vector<Layer> Layers() {
  return {{},
          {.rows = 3, .zeros = true},
          {.group = 16, .groups = 5},
          {.group = 128, .groups = 2, .zeros = true},
          {.group = kFixedPointGroup, .groups = 1},
          {.bits = 8},
          {.bits = 8, .group = 4, .groups = 7, .rows = 2, .zeros = true},
          {.bits = 8, .group = kFixedPointGroup, .groups = 1, .zeros = true}};
}

// Numbers of one size; numbers of every size; the smallest; none. Where one of each group outweighs
// all others, these lose what lies below its last place: plain sums lose most of it, too.
TEST(FixedPointDense, IsAsExactAsSumsOfFloats) {
  support::Rng rng(Seed());
  std::map<std::string, double> total;
  for (const Layer& c : Layers()) {
    const std::vector<RefTensor> inputs = InputsOf(c, &rng);
    for (const std::string kind : {"even", "spread", "tiny", "zero", "outlier"}) {
      std::vector<RefTensor> changed = inputs;
      for (size_t i = 0; i < changed[0].values.size(); ++i) {
        double& x = changed[0].values[i];
        if (kind == "outlier" && i % static_cast<size_t>(c.group) == 1) x *= 1e4;
        if (kind == "spread") x *= std::exp2(-static_cast<double>(i % 24));
        if (kind == "tiny") x *= 0x1p-90;
        if (kind == "zero") x = 0;
        x = RoundToType(x, ir::kF32);
      }
      const double fixed = ErrorOf("fixed_point", c, changed);
      const double plain = ErrorOf("direct", c, changed);
      EXPECT_EQ(fixed == 0, plain == 0) << kind;
      total[kind] += fixed > 0 ? std::log(fixed / plain) : 0;
    }
  }
  const std::map<std::string, double> most = {
      {"even", 1.15}, {"spread", 1.4}, {"tiny", 1.15}, {"zero", 1}, {"outlier", 2.2}};
  for (const auto& [kind, sum] : total) {
    const double ratio = std::exp(sum / static_cast<double>(Layers().size()));
    std::printf("%s: %.2f of the error of floats (geometric mean)\n", kind.c_str(), ratio);
    EXPECT_LE(ratio, most.at(kind)) << kind;
  }
}

// One that is not a number or not finite makes the columns' sums NaN, as plain sums do.
TEST(FixedPointDense, WhatIsNotFiniteIsSeen) {
  support::Rng rng(Seed());
  const Layer c{.rows = 2};
  const OpSpec& spec = *FindOp("packed_dense");
  const auto outputs = InferTypes(spec, TypesOf(c), AttrsOf(c));
  for (const double value :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    for (const int64_t at : {int64_t{0}, int64_t{37}}) {
      std::vector<RefTensor> inputs = InputsOf(c, &rng);
      inputs[0].values[static_cast<size_t>(at)] = value;
      for (const char* variant : {"direct", "fixed_point"}) {
        const auto f = AsFunction(spec, TypesOf(c), *outputs, AttrsOf(c), variant);
        const auto actual = Interpreted(*f, inputs, (*outputs)[0]);
        ASSERT_TRUE(actual.ok()) << actual.status();
        for (int64_t i = 0; i < 2 * kColumns; ++i) {
          EXPECT_EQ(std::isnan(actual->values[static_cast<size_t>(i)]), i < kColumns)
              << variant << " " << value << " at " << i;
        }
      }
    }
  }
}

std::string Task(const Layer& c) {
  const std::vector<TensorType> types = TypesOf(c);
  const std::string y = StrCat("f32[", c.rows, ",", kColumns, "]");
  return StrCat("graph {\n  input %0: ", ToText(types[0]), "\n  input %1: ", y,
                "\n  weight %2: ", ToText(types[1]), "\n  weight %3: ", ToText(types[2]),
                "\n  %4: ", y, " = packed_dense(%0, %2, %3) {bits=", c.bits, ", group=", c.group,
                "}\n  %5: ", y, " = add(%4, %1)\n  output %5\n}\n");
}

std::vector<schedule::Variant> VariantsOf(const std::string& task) {
  auto variants = driver::TaskVariants(task);
  EXPECT_TRUE(variants.ok()) << support::StatusText(variants.status()) << task;
  return variants.ok() ? *std::move(variants) : std::vector<schedule::Variant>();
}

TEST(FixedPointDense, IsTheDefaultWhereBytesAreMultipliedFast) {
  const auto by_default = [](const std::string& task, const std::string& target) {
    const auto variants = VariantsOf(task);
    return variants[space::DefaultVariant(variants, *target::ParseTarget(target))].name;
  };
  EXPECT_EQ(by_default(Task({}), "cpu,arch=x86_64,cpu=cascadelake"), "fixed_point");
  EXPECT_EQ(by_default(Task({.bits = 8}), "cpu,arch=x86_64,cpu=alderlake"), "fixed_point");
  // vpmaddubsw is exact for fields of four bits, not for bytes.
  EXPECT_EQ(by_default(Task({}), "cpu,arch=x86_64,cpu=x86-64-v4"), "fixed_point");
  EXPECT_EQ(by_default(Task({}), "cpu,arch=x86_64,cpu=znver3"), "fixed_point");
  EXPECT_EQ(by_default(Task({.bits = 8}), "cpu,arch=x86_64,cpu=znver3"), "direct");
  EXPECT_EQ(by_default(Task({}), "cpu,arch=x86_64,cpu=x86-64"), "direct");
  EXPECT_EQ(by_default(Task({}), "cpu,arch=x86_64,cpu=x86-64-v2"), "fixed_point");
  EXPECT_EQ(by_default(Task({}), "opencl"), "direct");
  // Groups whose sums do not fit.
  EXPECT_EQ(VariantsOf(Task({.group = 2 * kFixedPointGroup, .groups = 1})).size(), 1u);
}

// Inputs in the order of the function's parameters, then the result.
std::vector<ir::TensorData> ArgumentsOf(const ir::Function& f, const Layer& c, support::Rng* rng) {
  std::vector<ir::TensorData> arguments;
  const std::vector<RefTensor> inputs = InputsOf(c, rng);
  std::vector<size_t> order = {0, 3, 1, 2};  // inputs before weights
  for (const size_t i : order) {
    const RefTensor tensor =
        i < inputs.size() ? inputs[i] : RandomTensor({ir::kF32, {c.rows, kColumns}}, -1, 1, rng);
    const std::string bytes = ToBytes(tensor);
    arguments.push_back({std::vector<uint8_t>(bytes.begin(), bytes.end())});
  }
  arguments.push_back({std::vector<uint8_t>(static_cast<size_t>(4 * c.rows * kColumns), 0xff)});
  EXPECT_EQ(arguments.size(), f.params.size());
  return arguments;
}

void ExpectNear(const ir::TensorData& found, const ir::TensorData& expected,
                const std::string& what) {
  ASSERT_EQ(found.bytes.size(), expected.bytes.size()) << what;
  for (size_t i = 0; i < found.bytes.size(); i += 4) {
    float a = 0, b = 0;
    std::memcpy(&a, found.bytes.data() + i, 4);
    std::memcpy(&b, expected.bytes.data() + i, 4);
    ASSERT_NEAR(a, b, 1e-4) << what << " at " << i / 4;
  }
}

TEST(FixedPointDense, EveryScheduleOfItsRuleComputesTheSame) {
  support::Rng rng(tests::TestSeed(5));
  for (const Layer& c :
       {Layer{}, Layer{.rows = 3}, Layer{.group = 48, .rows = 2}, Layer{.bits = 8}}) {
    const auto variants = VariantsOf(Task(c));
    ASSERT_EQ(variants.size(), 2u);
    for (const target::Target& target : tests::RunnableDotTargets()) {
      auto made = target::ParseTarget(target.ToString() + ",threads=2");
      auto space = space::Space::Create(variants, made.ok() ? *made : target);
      ASSERT_TRUE(space.ok());
      std::vector<ir::TensorData> plain = ArgumentsOf(variants[0].function, c, &rng);
      std::vector<ir::TensorData*> pointers;
      for (ir::TensorData& data : plain) pointers.push_back(&data);
      ASSERT_TRUE(ir::Interpret(variants[0].function, {}, pointers).ok());
      int points = 0;
      for (size_t sketch = 0; sketch < (*space)->sketches().size(); ++sketch) {
        const space::Sketch& of = *(*space)->sketches()[sketch];
        if (of.name() != "field_sums") continue;
        for (int i = 0; i < static_cast<int>(of.knobs()[0].menu.size()); ++i) {
          const space::Point point{static_cast<int>(sketch), {i}};
          if (!(*space)->Feasible(point)) continue;
          ++points;
          const auto schedule = (*space)->Apply(point);
          ASSERT_TRUE(schedule.ok()) << support::StatusText(schedule.status());
          const std::string steps = schedule::ToText(schedule->steps());
          EXPECT_NE(steps.find(c.bits == 4 ? "dot4_nibbles" : "dot4_bytes"), std::string::npos);
          ASSERT_TRUE(ir::Verify(schedule->function()).ok()) << steps;
          std::vector<ir::TensorData> data = plain;
          data.back().bytes.assign(data.back().bytes.size(), 0xff);
          for (size_t a = 0; a < data.size(); ++a) pointers[a] = &data[a];
          const absl::Status ran =
              tests::RunCompiled(schedule->function(), target, 2, {}, pointers);
          ASSERT_TRUE(ran.ok()) << ran << steps;
          ExpectNear(data.back(), plain.back(), StrCat(target.ToString(), ": ", steps));
        }
      }
      EXPECT_GT(points, 0) << target.ToString();
    }
  }
}

}  // namespace
}  // namespace tilewright::op
