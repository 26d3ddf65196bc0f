// Models of old opsets: what the quantiser reads them as computes the same.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "compiler/onnx/onnx_import.h"
#include "compiler/quantize/quantize.h"
#include "tests/unit/onnx_builder.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::quantize {
namespace {

using graph::import_tests::Random;
using op::RefTensor;
using tests::OnnxBuilder;
using tests::TensorOf;
namespace pb = tests::pb;
using Ints = std::vector<int64_t>;

std::vector<RefTensor> ResultsOf(const std::string& onnx, const RefTensor& input) {
  auto g = graph::ImportOnnx(onnx);
  EXPECT_TRUE(g.ok()) << g.status();
  if (!g.ok()) return {};
  auto results = graph::Interpret(*g, {input});
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? *results : std::vector<RefTensor>();
}

// No node, of subgraphs too, has an attribute that opset 13 does not know.
void ExpectNoOldAttributes(const pb::GraphProto& graph) {
  for (const pb::NodeProto& node : graph.node()) {
    for (const pb::AttributeProto& attribute : node.attribute()) {
      for (const char* name : {"axes", "split", "starts", "ends", "k", "pads", "value", "min",
                               "max", "scales", "ratio", "spatial"}) {
        if (node.op_type() == "Constant") continue;
        EXPECT_NE(attribute.name(), name) << node.op_type();
      }
      if (attribute.has_g()) ExpectNoOldAttributes(attribute.g());
    }
  }
}

// x[2,3,4,4] -> what `fill` makes of it, "y" and perhaps others; and a layer next to it, since
// there is none without.
void ExpectSame(int64_t opset, const Ints& shape, const std::function<void(OnnxBuilder&)>& fill) {
  OnnxBuilder b(opset);
  b.Input("x", {2, 3, 4, 4}).Weight("w", {4, 3});
  b.Node("MatMul", {"x", "w"}, "layer");
  fill(b);
  b.Output("layer", {2, 3, 4, 3}).Output("y", shape);
  const auto model = FloatModel::Read(b.Bytes(), {});
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string raised = model->WithTensors().onnx;
  pb::ModelProto parsed;
  ASSERT_TRUE(parsed.ParseFromString(raised));
  EXPECT_EQ(parsed.opset_import(0).version(), 13);
  ExpectNoOldAttributes(parsed.graph());
  const RefTensor x = TensorOf({2, 3, 4, 4}, Random(96, 2, 3));
  const auto before = ResultsOf(b.Bytes(), x), after = ResultsOf(raised, x);
  ASSERT_EQ(before.size(), 2U);
  ASSERT_GE(after.size(), 2U);
  EXPECT_EQ(before[1].type.sizes(), shape);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(before[i].type.shape, after[i].type.shape);
    EXPECT_EQ(before[i].values, after[i].values);
  }
}

TEST(RaiseOpset, AttributesBecomeOperands) {
  ExpectSame(11, {2, 3, 4, 4, 1}, [](OnnxBuilder& b) {
    OnnxBuilder::Attr(b.Node("Unsqueeze", {"x"}, "y"), "axes", Ints{4});
  });
  ExpectSame(12, {2, 3, 4, 4}, [](OnnxBuilder& b) {
    OnnxBuilder::Attr(b.Node("Unsqueeze", {"x"}, "wide"), "axes", Ints{0});
    OnnxBuilder::Attr(b.Node("Squeeze", {"wide"}, "y"), "axes", Ints{0});
  });
  ExpectSame(12, {2, 4}, [](OnnxBuilder& b) {
    pb::NodeProto* node = b.Node("ReduceSum", {"x"}, "y");
    OnnxBuilder::Attr(node, "axes", Ints{1, 2});
    OnnxBuilder::Attr(node, "keepdims", int64_t{0});
  });
  ExpectSame(11, {2, 3, 1, 4}, [](OnnxBuilder& b) {
    pb::NodeProto* node = b.Node("Split", {"x"}, "left");
    node->add_output("y");
    OnnxBuilder::Attr(node, "axis", int64_t{2});
    OnnxBuilder::Attr(node, "split", Ints{3, 1});
  });
  ExpectSame(9, {2, 2, 4, 2}, [](OnnxBuilder& b) {
    pb::NodeProto* node = b.Node("Slice", {"x"}, "y");
    OnnxBuilder::Attr(node, "axes", Ints{1, 3});
    OnnxBuilder::Attr(node, "starts", Ints{1, 0});
    OnnxBuilder::Attr(node, "ends", Ints{3, 2});
  });
  ExpectSame(9, {2, 3, 4, 2}, [](OnnxBuilder& b) {
    pb::NodeProto* node = b.Node("TopK", {"x"}, "y");
    node->add_output("places");
    OnnxBuilder::Attr(node, "axis", int64_t{-1});
    OnnxBuilder::Attr(node, "k", int64_t{2});
  });
  ExpectSame(10, {2, 3, 5, 7}, [](OnnxBuilder& b) {
    pb::NodeProto* node = b.Node("Pad", {"x"}, "y");
    OnnxBuilder::Attr(node, "pads", Ints{0, 0, 1, 1, 0, 0, 0, 2});
    OnnxBuilder::AttrFloat(node, "value", 0.5F);
  });
}

TEST(RaiseOpset, ClipHasEachOfItsBounds) {
  for (const bool low : {false, true}) {
    for (const bool high : {false, true}) {
      ExpectSame(7, {2, 3, 4, 4}, [&](OnnxBuilder& b) {
        pb::NodeProto* node = b.Node("Clip", {"x"}, "y");
        if (low) OnnxBuilder::AttrFloat(node, "min", -0.5F);
        if (high) OnnxBuilder::AttrFloat(node, "max", 1.5F);
      });
    }
  }
}

TEST(RaiseOpset, SoftmaxIsOverAllDimensionsFromItsAxis) {
  for (const char* op : {"Softmax", "LogSoftmax", "Hardmax"}) {
    for (const int64_t axis : {0, 1, 2, 3}) {
      ExpectSame(11, {2, 3, 4, 4},
                 [&](OnnxBuilder& b) { OnnxBuilder::Attr(b.Node(op, {"x"}, "y"), "axis", axis); });
    }
    ExpectSame(9, {2, 3, 4, 4}, [&](OnnxBuilder& b) { b.Node(op, {"x"}, "y"); });
  }
}

TEST(RaiseOpset, UpsampleTakesThePixelThatIsNotBehind) {
  ExpectSame(7, {2, 3, 8, 12}, [](OnnxBuilder& b) {
    pb::AttributeProto* scales =
        OnnxBuilder::AttrFloat(b.Node("Upsample", {"x"}, "y"), "scales", 0);
    scales->set_type(pb::AttributeProto::FLOATS);
    for (const float scale : {1.0F, 1.0F, 2.0F, 3.0F}) scales->add_floats(scale);
  });
  for (const int64_t opset : {9, 10}) {
    ExpectSame(opset, {2, 3, 6, 8}, [&](OnnxBuilder& b) {
      b.Floats("scales", {1, 1, 1.5F, 2});
      OnnxBuilder::AttrText(b.Node(opset == 9 ? "Upsample" : "Resize", {"x", "scales"}, "y"),
                            "mode", opset == 9 ? "nearest" : "linear");
    });
  }
}

TEST(RaiseOpset, InferenceForgetsTraining) {
  ExpectSame(7, {2, 3, 4, 4}, [](OnnxBuilder& b) {
    OnnxBuilder::AttrFloat(b.Node("Dropout", {"x"}, "dropped"), "ratio", 0.3F);
    b.Floats("one", {1, 2, 3}).Floats("two", {3, 2, 1});
    OnnxBuilder::Attr(b.Node("BatchNormalization", {"dropped", "one", "two", "one", "two"}, "y"),
                      "spatial", int64_t{1});
  });
}

TEST(RaiseOpset, SubgraphsAreRaisedToo) {
  ExpectSame(11, {2, 3, 16}, [](OnnxBuilder& b) {
    b.graph().add_initializer()->set_name("yes");
    pb::TensorProto* yes =
        b.graph().mutable_initializer()->Mutable(b.graph().initializer_size() - 1);
    yes->set_data_type(pb::TensorProto::BOOL);
    yes->add_int32_data(1);
    pb::NodeProto* node = b.Node("If", {"yes"}, "y");
    for (const char* branch : {"then_branch", "else_branch"}) {
      const std::string name = branch;
      graph::import_tests::AddBody(node, branch, {}, {name + "_y"}, [&](OnnxBuilder& body) {
        body.Ints(name + "_shape", {2, 3, 16, 1});
        body.Node("Reshape", {"x", name + "_shape"}, name + "_flat");
        OnnxBuilder::Attr(body.Node("Squeeze", {name + "_flat"}, name + "_y"), "axes", Ints{3});
      });
    }
  });
}

TEST(RaiseOpset, RefusesWhatHasNoLaterForm) {
  const auto slug = [](const OnnxBuilder& b) {
    return support::Slug(FloatModel::Read(b.Bytes(), {}).status());
  };
  OnnxBuilder old(6);
  old.Input("x", {2, 3}).Weight("w", {3, 4}).Node("MatMul", {"x", "w"}, "y");
  EXPECT_EQ(slug(old), "quantize.model.opset");
  OnnxBuilder scan(8);
  scan.Input("x", {2, 3}).Weight("w", {3, 4}).Node("MatMul", {"x", "w"}, "y");
  scan.Node("Scan", {"", "y"}, "z");
  EXPECT_EQ(slug(scan), "quantize.model.opset");
  OnnxBuilder norm(7);
  norm.Input("x", {2, 3}).Weight("w", {3, 4}).Node("MatMul", {"x", "w"}, "y");
  OnnxBuilder::Attr(norm.Node("BatchNormalization", {"y", "w", "w", "w", "w"}, "z"), "spatial",
                    int64_t{0});
  EXPECT_EQ(slug(norm), "quantize.model.opset");
}

}  // namespace
}  // namespace tilewright::quantize
