// Runs small ONNX models in unit tests: what the graph gives, and that its passes do not change it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/onnx/onnx_import.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/open_model.h"
#include "tests/unit/onnx_builder.h"
#include "tilewright_onnx.pb.h"

namespace tilewright::tests {

// The model with the sizes of its inputs open, one variable for each size, as numbers again: it is
// refused for one of a few reasons, or computes the same.
inline void ExpectSameWhenOpen(const OnnxBuilder& b, const std::vector<op::RefTensor>& inputs,
                               const std::vector<op::RefTensor>& expected,
                               const std::set<int64_t>& fixed_sizes = {}) {
  tilewright_onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(b.Bytes()));
  graph::ImportOptions options;
  op::Sizes sizes = OpenModel(&model, &options, fixed_sizes);
  auto open = graph::ImportOnnx(model.SerializeAsString(), options);
  if (!open.ok()) {
    const std::string slug(support::Slug(open.status()));
    const bool known = slug == "graph.onnx.open_size" || slug.ends_with(".symbolic") ||
                       // What decides about a shape is no constant, and no shape is stated now.
                       slug == "graph.onnx.dynamic" ||
                       // A dimension of 0 beside an open one.
                       slug == "op.type.dimension";
    EXPECT_TRUE(known) << open.status();
    return;
  }
  for (auto it = sizes.begin(); it != sizes.end();) {
    it = graph::SizeVariables(*open).contains(it->first) ? std::next(it) : sizes.erase(it);
  }
  auto fixed = graph::Specialize(*open, sizes);
  ASSERT_TRUE(fixed.ok()) << fixed.status() << graph::Print(*open);
  auto found = graph::Interpret(*fixed, inputs);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), expected.size());
  for (size_t o = 0; o < expected.size(); ++o) {
    EXPECT_EQ((*found)[o].type, expected[o].type) << graph::Print(*open);
    EXPECT_EQ(op::ToBytes((*found)[o]), op::ToBytes(expected[o])) << graph::Print(*open);
  }
}

// The operators of the model's graph where its sizes are open; none after an error.
inline std::set<std::string> OperatorsWhenOpen(const OnnxBuilder& b,
                                               const std::set<int64_t>& fixed_sizes = {}) {
  tilewright_onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(b.Bytes()));
  graph::ImportOptions options;
  OpenModel(&model, &options, fixed_sizes);
  const auto open = graph::ImportOnnx(model.SerializeAsString(), options);
  EXPECT_TRUE(open.ok()) << open.status();
  std::set<std::string> operators;
  if (!open.ok()) return operators;
  for (const graph::Node& node : open->nodes) operators.insert(node.op);
  return operators;
}

// All outputs of the model. With and without the graph passes they are equal up to `tolerance`, or
// byte for byte where that is 0. After a failure: empty tensors.
inline std::vector<op::RefTensor> EvaluateOnnx(const OnnxBuilder& b,
                                               const std::vector<op::RefTensor>& inputs,
                                               double tolerance) {
  const std::vector<op::RefTensor> nothing(8);
  auto g = graph::ImportOnnx(b.Bytes());
  EXPECT_TRUE(g.ok()) << g.status();
  if (!g.ok()) return nothing;
  auto out = graph::Interpret(*g, inputs);
  auto fused = graph::RunGraphPasses(*g);
  EXPECT_TRUE(out.ok() && fused.ok()) << out.status() << fused.status();
  if (!out.ok() || !fused.ok()) return nothing;
  ExpectSameWhenOpen(b, inputs, *out);
  auto again = graph::Interpret(*fused, inputs);
  EXPECT_TRUE(again.ok()) << again.status();
  for (size_t o = 0; again.ok() && o < out->size(); ++o) {
    if (tolerance == 0) {
      EXPECT_EQ(op::ToBytes((*out)[o]), op::ToBytes((*again)[o])) << "after the passes";
      continue;
    }
    for (size_t i = 0; i < (*out)[o].values.size(); ++i) {
      EXPECT_NEAR((*out)[o].values[i], (*again)[o].values[i], tolerance) << "after the passes";
    }
  }
  return *std::move(out);
}

inline std::string OnnxSlug(const OnnxBuilder& b) {
  return support::Slug(graph::ImportOnnx(b.Bytes()).status());
}

inline op::RefTensor TensorOf(std::vector<int64_t> shape, std::vector<double> values,
                              ir::DType type = ir::kF32) {
  return {{type, std::move(shape)}, std::move(values)};
}

}  // namespace tilewright::tests

// The short names that tests of the import use.
namespace tilewright::graph::import_tests {

using op::RefTensor;
using tests::OnnxBuilder;
using tests::TensorOf;
inline constexpr auto Slug = tests::OnnxSlug;
namespace pb = tests::pb;
using Shape = std::vector<int64_t>;
using Numbers = std::vector<double>;

// Between -scale and scale, as floats hold them.
inline Numbers Random(int64_t count, double scale, uint64_t seed) {
  support::Rng rng(seed);
  Numbers values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>((2 * rng.UniformDouble() - 1) * scale));
  }
  return values;
}

inline void ExpectNear(const RefTensor& actual, const Shape& shape, const Numbers& expected,
                       double tolerance = 1e-3) {
  EXPECT_EQ(actual.type.sizes(), shape);
  ASSERT_EQ(actual.values.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual.values[i], expected[i], tolerance) << i;
  }
}

// What the graph gives, before and after its passes; each output's shape and numbers.
inline void ExpectRuns(const OnnxBuilder& b, const ImportOptions& options,
                       const std::vector<RefTensor>& inputs,
                       const std::vector<std::pair<Shape, Numbers>>& expected) {
  const auto g = ImportOnnx(b.Bytes(), options);
  ASSERT_TRUE(g.ok()) << g.status();
  const auto passed = RunGraphPasses(*g);
  ASSERT_TRUE(passed.ok()) << passed.status();
  for (const Graph& form : {*g, *passed}) {
    const auto out = Interpret(form, inputs);
    ASSERT_TRUE(out.ok()) << out.status();
    ASSERT_EQ(out->size(), expected.size());
    for (size_t i = 0; i < out->size(); ++i) {
      EXPECT_EQ((*out)[i].type.sizes(), expected[i].first) << i;
      EXPECT_EQ((*out)[i].values, expected[i].second) << i;
    }
  }
}

using Names = std::vector<std::string>;

// A subgraph of a node. Its inputs and outputs have no types, as many exporters write them.
inline void AddBody(pb::NodeProto* node, const std::string& name, const Names& inputs,
                    const Names& outputs, const std::function<void(OnnxBuilder&)>& fill) {
  OnnxBuilder body;
  for (const std::string& input : inputs) body.graph().add_input()->set_name(input);
  fill(body);
  for (const std::string& output : outputs) body.graph().add_output()->set_name(output);
  pb::AttributeProto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(pb::AttributeProto::GRAPH);
  *attribute->mutable_g() = body.graph();
}

inline constexpr int kInt64 = pb::TensorProto::INT64, kBool = pb::TensorProto::BOOL;

// A whole number without dimensions.
inline void AddNumber(OnnxBuilder& b, const char* name, int64_t number) {
  pb::TensorProto* tensor = b.graph().add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(kInt64);
  tensor->add_int64_data(number);
}

}  // namespace tilewright::graph::import_tests
