// Operators whose result's shape depends on data, in models that state it: a run whose data makes
// the stated shape gives the result; any other is refused, by the interpreter and by the compiled
// module, and says which node it was.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/onnx/onnx_import.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/runtime.h"
#include "tests/conformance/shape_cases.h"
#include "tests/support/run_compiled.h"

namespace tilewright::graph::import_tests {
namespace {

using Tensors = std::vector<RefTensor>;

constexpr double kEnd = 0x1p63;  // the largest integer, which no double is

RefTensor Ints(const Numbers& values) {
  std::vector<int64_t> exact;
  for (const double v : values) {
    exact.push_back(v == kEnd ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(v));
  }
  return op::FromIntegers({ir::kI64, {static_cast<int64_t>(values.size())}}, exact);
}
RefTensor Number(double value, ir::DType type = ir::kI64) { return TensorOf({}, {value}, type); }
struct Case {
  std::string name;
  OnnxBuilder model;
  std::vector<Tensors> fitting, refused;
};

OnnxBuilder One(int64_t opset, const std::string& op, const std::vector<RefTensor>& inputs,
                const Shape& result, int result_type = pb::TensorProto::FLOAT,
                const std::function<void(pb::NodeProto*)>& attributes = {}) {
  OnnxBuilder b(opset);
  std::vector<std::string> names;
  for (const RefTensor& input : inputs) {
    names.push_back("in" + std::to_string(names.size()));
    const bool integers = input.type.dtype == ir::kI64, flags = input.type.dtype == ir::kBool;
    b.Input(names.back(), input.type.sizes(),
            integers ? kInt64
            : flags  ? kBool
                     : static_cast<int>(pb::TensorProto::FLOAT));
  }
  pb::NodeProto* node = b.Node(op, names, "y");
  if (attributes) attributes(node);
  b.Output("y", result, result_type);
  return b;
}

void Set(pb::NodeProto* node, const std::string& name, int64_t value) {
  OnnxBuilder::Attr(node, name, value);
}

using Add =
    std::function<void(std::string, OnnxBuilder, std::vector<Tensors>, std::vector<Tensors>)>;

// What the branch that is not taken would refuse is no reason to refuse a run.
void AddBranches(const Add& add) {
  OnnxBuilder b(14);
  b.Input("x", {2, 3}).Input("s", {2}, kInt64).Input("c", {}, kBool).Output("y", {3, 2});
  pb::NodeProto* node = b.Node("If", {"c"}, "y");
  const auto reshape = [](const std::string& name) {
    return [name](OnnxBuilder& g) {
      g.Node("Reshape", {"x", "s"}, name);
      auto* info = g.graph().add_value_info();
      info->set_name(name);
      auto* type = info->mutable_type()->mutable_tensor_type();
      type->set_elem_type(pb::TensorProto::FLOAT);
      for (const int64_t size : {3, 2}) type->mutable_shape()->add_dim()->set_dim_value(size);
    };
  };
  AddBody(node, "then_branch", {}, {"t"}, reshape("t"));
  AddBody(node, "else_branch", {}, {"e"}, [](OnnxBuilder& g) {
    g.Ints("fixed", {3, 2});
    g.Node("Reshape", {"x", "fixed"}, "e");
  });
  const RefTensor x = Ramp({2, 3}), yes = Number(1, ir::kBool), no = Number(0, ir::kBool);
  add("a branch", b, {{x, Ints({3, 2}), yes}, {x, Ints({3, 2}), no}, {x, Ints({6, 1}), no}},
      {{x, Ints({6, 1}), yes}});
}

// As many rows as trips: while the running sum of `x` is below 10, at most `trips` times.
void AddLoop(const Add& add) {
  OnnxBuilder b(13);
  b.Input("x", {}).Input("trips", {}, kInt64).Output("rows", {3});
  AddRunningSum(&b);
  const auto run = [](double x, double trips) {
    return Tensors{Number(x, ir::kF32), Number(trips)};
  };
  add("a loop", b, {run(1, 3), run(4, 99), run(3.5, 7)},
      {run(1, 4), run(1, 2), run(5, 99), run(20, 3), run(1, 0)});
}

void AddDetection(const Add& add) {
  OnnxBuilder boxes(11);
  boxes.Input("boxes", {1, 3, 4}).Input("scores", {1, 1, 3}).Ints("most", {3});
  boxes.Floats("iou", {0.5F}).Floats("least", {0.5F}).Output("y", {2, 3}, kInt64);
  boxes.Node("NonMaxSuppression", {"boxes", "scores", "most", "iou", "least"}, "y");
  const RefTensor apart = TensorOf({1, 3, 4}, {0, 0, 1, 1, 3, 3, 4, 4, 5, 5, 6, 6});
  const auto scores = [&](Numbers s) { return Tensors{apart, TensorOf({1, 1, 3}, std::move(s))}; };
  add("detection", boxes, {scores({0.9, 0.1, 0.8}), scores({0.2, 0.7, 0.9})},
      {scores({0.9, 0.9, 0.9}), scores({0.9, 0.1, 0.1}), scores({0, 0, 0})});
  OnnxBuilder grid(20);
  grid.Input("theta", {1, 2, 3}).Input("size", {4}, kInt64).Output("y", {1, 2, 3, 2});
  grid.Node("AffineGrid", {"theta", "size"}, "y");
  const RefTensor theta = TensorOf({1, 2, 3}, {2, 0, 10, 1, 3, 0});
  add("grid", grid, {{theta, Ints({1, 5, 2, 3})}, {theta, Ints({1, 1, 2, 3})}},
      {{theta, Ints({1, 5, 3, 2})}, {theta, Ints({2, 5, 2, 3})}});
  OnnxBuilder unpool(11);
  unpool.Input("x", {1, 1, 2}).Input("at", {1, 1, 2}, kInt64).Input("size", {3}, kInt64);
  unpool.Output("y", {1, 1, 5});
  pb::NodeProto* node = unpool.Node("MaxUnpool", {"x", "at", "size"}, "y");
  OnnxBuilder::Attr(node, "kernel_shape", Shape{2});
  OnnxBuilder::Attr(node, "strides", Shape{2});
  const RefTensor x = Ramp({1, 1, 2}), at = TensorOf({1, 1, 2}, {1, 3}, ir::kI64);
  add("unpooling", unpool, {{x, at, Ints({1, 1, 5})}}, {{x, at, Ints({1, 1, 4})}});
}

void AddResize(const Add& add) {
  const RefTensor image = Ramp({1, 1, 2, 2});
  const auto nearest = [&](std::vector<Numbers> lists, bool sizes) {
    std::vector<Tensors> inputs;
    for (Numbers& l : lists) {
      inputs.push_back({image, sizes ? Ints(l) : TensorOf({4}, std::move(l))});
    }
    return inputs;
  };
  {
    OnnxBuilder b(13);
    b.Input("x", {1, 1, 2, 2}).Input("s", {4}).Output("y", {1, 1, 4, 3});
    b.Node("Resize", {"x", "", "s"}, "y");
    add("resize by scales", b, nearest({{1, 1, 2, 1.5}, {1, 1, 2.25, 1.75}}, false),
        nearest({{1, 1, 2, 2}, {1, 1, 2.5, 1.5}}, false));
  }
  {
    OnnxBuilder b(13);
    b.Input("x", {1, 1, 2, 2}).Input("s", {4}, kInt64).Output("y", {1, 1, 4, 3});
    b.Node("Resize", {"x", "", "", "s"}, "y");
    add("resize to sizes", b, nearest({{1, 1, 4, 3}}, true),
        nearest({{1, 1, 3, 4}, {1, 1, 4, 4}}, true));
  }
}

std::vector<Case> Cases() {
  std::vector<Case> all;
  const auto add = [&](std::string name, OnnxBuilder model, std::vector<Tensors> fitting,
                       std::vector<Tensors> refused) {
    all.push_back({std::move(name), std::move(model), std::move(fitting), std::move(refused)});
  };
  const RefTensor x = Ramp({2, 3}), one = Ramp({1, 3, 1});
  const auto with = [&](const RefTensor& data, std::vector<Numbers> lists) {
    std::vector<Tensors> inputs;
    for (Numbers& list : lists) inputs.push_back({data, Ints(list)});
    return inputs;
  };
  add("reshape", One(14, "Reshape", {x, Ints({3, 2})}, {3, 2}), with(x, {{3, 2}, {-1, 2}, {3, -1}}),
      with(x, {{2, 3}, {0, 3}, {0, -1}, {6, 1}}));
  add("reshape that copies", One(14, "Reshape", {x, Ints({0, 0})}, {2, 3}),
      with(x, {{0, 0}, {0, -1}, {2, 3}}), with(x, {{3, 2}, {1, 0}}));
  add("squeeze", One(13, "Squeeze", {one, Ints({0})}, {3, 1}), with(one, {{0}, {-3}}),
      with(one, {{2}, {1}, {-1}}));
  add("squeeze of two", One(13, "Squeeze", {one, Ints({0, 2})}, {3}), with(one, {{0, 2}, {-1, 0}}),
      with(one, {{0, 1}, {2, 2}}));
  add("unsqueeze", One(13, "Unsqueeze", {x, Ints({0})}, {1, 2, 3}), with(x, {{0}, {-3}}),
      with(x, {{1}, {2}, {-1}}));
  add("unsqueeze by two", One(13, "Unsqueeze", {x, Ints({0, 1})}, {2, 1, 3, 1}),
      with(x, {{1, 3}, {-1, 1}}), with(x, {{0, 3}, {1, 2}, {1, 1}}));
  add("constant of shape", One(9, "ConstantOfShape", {Ints({2, 3})}, {2, 3}), {{Ints({2, 3})}},
      {{Ints({3, 2})}, {Ints({2, 4})}, {Ints({0, 3})}});
  const auto slices = [&](std::vector<std::vector<Numbers>> lists) {
    std::vector<Tensors> inputs;
    for (const auto& list : lists) {
      inputs.push_back({Ramp({5, 4})});
      for (const Numbers& numbers : list) inputs.back().push_back(Ints(numbers));
    }
    return inputs;
  };
  add("slice", One(13, "Slice", slices({{{0, 0}, {0, 0}, {0, 0}, {0, 0}}})[0], {2, 3}),
      slices({{{1, 0}, {3, 3}, {0, 1}, {1, 1}},
              {{-1, -1}, {-4, -5}, {1, 0}, {-1, -3}},
              {{3, 1}, {100, kEnd}, {0, 1}, {1, 1}}}),
      slices({{{1, 0}, {3, 3}, {1, 0}, {1, 1}},
              {{1, 0}, {4, 3}, {0, 1}, {1, 1}},
              {{1, 0}, {1, 3}, {0, 1}, {1, 1}},
              {{3, 0}, {0, 3}, {0, 1}, {1, 1}}}));
  {
    OnnxBuilder b(13);
    b.Input("x", {5, 2}).Input("s", {2}, kInt64).Output("y", {2, 2}).Output("z", {3, 2});
    b.Node("Split", {"x", "s"}, "y")->add_output("z");
    add("split", b, with(Ramp({5, 2}), {{2, 3}}), with(Ramp({5, 2}), {{3, 2}, {1, 4}, {2, 2}}));
  }
  add("pad", One(13, "Pad", {x, Ints({0, 0, 0, 0})}, {4, 4}),
      with(x, {{1, 1, 1, 0}, {0, 0, 2, 1}, {2, 2, 0, -1}}),
      with(x, {{1, 1, 1, 1}, {0, 1, 1, 0}, {1, 0, 0, 1}}));
  const RefTensor column = Ramp({2, 1});
  add("expand", One(13, "Expand", {column, Ints({1, 1, 1})}, {3, 2, 4}),
      with(column, {{3, 2, 4}, {3, 1, 4}}), with(column, {{3, 2, 1}, {1, 2, 4}, {4, 1, 3}}));
  add("tile", One(13, "Tile", {x, Ints({1, 1})}, {4, 3}), with(x, {{2, 1}}),
      with(x, {{1, 2}, {2, 2}, {1, 1}}));
  const auto ranges = [](std::vector<Numbers> lists, ir::DType type) {
    std::vector<Tensors> inputs;
    for (const Numbers& l : lists) {
      inputs.push_back({Number(l[0], type), Number(l[1], type), Number(l[2], type)});
    }
    return inputs;
  };
  add("range", One(11, "Range", ranges({{0, 0, 1}}, ir::kI64)[0], {4}, kInt64),
      ranges({{0, 4, 1}, {1, 8, 2}, {5, -3, -2}, {9, -1, -3}}, ir::kI64),
      ranges({{0, 5, 1}, {0, 3, 1}, {4, 0, 1}, {0, 4, -1}, {1, 9, 3}}, ir::kI64));
  add("range of floats", One(11, "Range", ranges({{0, 0, 1}}, ir::kF32)[0], {4}),
      ranges({{0, 2, 0.5}, {0, 1.75, 0.5}, {1, -1, -0.5}}, ir::kF32),
      ranges({{0, 2.25, 0.5}, {2, 0, 0.5}, {0, 1.5, 0.5}}, ir::kF32));
  {
    // What sums and products with numbers make of it says its length.
    OnnxBuilder b(13);
    b.Input("from", {}, kInt64).Input("to", {}, kInt64).Input("step", {}, kInt64);
    b.Output("y", {4}, kInt64).Node("Range", {"from", "to", "step"}, "r");
    b.Node("Mul", {"to", "r"}, "m");
    b.Node("Neg", {"r"}, "n");
    b.Node("Add", {"m", "n"}, "y");
    add("range behind sums", b, ranges({{0, 4, 1}, {5, -3, -2}}, ir::kI64),
        ranges({{0, 5, 1}, {4, 0, 1}}, ir::kI64));
  }
  const RefTensor indices = Ints({0, 2}), values = TensorOf({2}, {0, 1});
  add("one hot", One(11, "OneHot", {indices, Number(3), values}, {2, 3}),
      {{indices, Number(3), values}}, {{indices, Number(4), values}, {indices, Number(2), values}});
  add("window", One(17, "HannWindow", {Number(5)}, {5}), {{Number(5)}}, {{Number(4)}});
  const RefTensor wide = Ramp({2, 6});
  add("crop", One(18, "CenterCropPad", {wide, Ints({4, 4})}, {4, 4}), with(wide, {{4, 4}}),
      with(wide, {{2, 4}, {4, 6}}));
  const RefTensor list = Ramp({4});
  const auto chosen = [&](std::vector<Numbers> lists) {
    std::vector<Tensors> inputs;
    for (Numbers& l : lists) inputs.push_back({list, TensorOf({4}, std::move(l), ir::kBool)});
    return inputs;
  };
  add("compress",
      One(11, "Compress", chosen({{0, 0, 0, 0}})[0], {2}, pb::TensorProto::FLOAT,
          [](pb::NodeProto* node) { Set(node, "axis", 0); }),
      chosen({{0, 1, 1, 0}, {1, 0, 0, 1}}), chosen({{0, 1, 0, 0}, {1, 1, 1, 0}, {0, 0, 0, 0}}));
  add("non-zero", One(13, "NonZero", {x}, {2, 5}, kInt64), {{x}},
      {{TensorOf({2, 3}, {0, 0, 2, 3, 4, 5})}, {TensorOf({2, 3}, {9, 1, 2, 3, 4, 5})}});
  add("top k", One(11, "TopK", {list, Ints({2})}, {2}), with(list, {{2}}), with(list, {{1}, {3}}));
  add("sum over axes, kept", One(13, "ReduceSum", {Ramp({2, 3, 4}), Ints({0})}, {2, 1, 4}),
      with(Ramp({2, 3, 4}), {{1}, {-2}}), with(Ramp({2, 3, 4}), {{0}, {2}}));
  const auto drop = [](pb::NodeProto* node) { Set(node, "keepdims", 0); };
  add("sum over axes, removed",
      One(13, "ReduceSum", {Ramp({3, 3, 2}), Ints({0})}, {3, 2}, pb::TensorProto::FLOAT, drop),
      with(Ramp({3, 3, 2}), {{0}, {1}, {-3}}), with(Ramp({3, 3, 2}), {{2}}));
  AddResize(add);
  AddBranches(add);
  AddLoop(add);
  AddDetection(add);
  return all;
}

std::string Slug(const absl::Status& status) { return support::Slug(status); }

// The status of one run; the results are compared with `expected`.
absl::Status RunCompiled(runtime::Session* session, const Tensors& inputs,
                         const Tensors& expected) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string bytes = op::ToBytes(inputs[i]);
    TW_TRY(session->SetInput(i, bytes.data(), bytes.size()));
  }
  TW_TRY(session->Run());
  EXPECT_EQ(session->num_outputs(), expected.size());
  for (size_t o = 0; o < expected.size(); ++o) {
    const runtime::TensorView view = session->output(o);
    const std::string_view bytes(static_cast<const char*>(view.data), view.bytes);
    auto found = op::FromBytes(expected[o].type, bytes);
    EXPECT_TRUE(found.ok()) << found.status();
    if (found.ok()) ExpectNear(*found, expected[o].type.sizes(), expected[o].values, 1e-4);
  }
  return absl::OkStatus();
}

TEST(OnnxStatedShape, RunsConfirmIt) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const auto g = ImportOnnx(c.model.Bytes());
    ASSERT_TRUE(g.ok()) << g.status();
    ASSERT_FALSE(g->checks.empty());
    const auto fused = RunGraphPasses(*g);
    ASSERT_TRUE(fused.ok()) << fused.status();
    const auto again = ParseGraph(Print(*g), ConstantsOf(*g));
    ASSERT_TRUE(again.ok() && StructuralEqual(*g, *again)) << again.status();
    const auto bytes = driver::CompileModel(*fused, tests::WidestTarget(), nullptr, {}, nullptr);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    auto file = module::ModuleFile::FromBytes(*bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    auto loaded = runtime::LoadedModule::Load(*std::move(file));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    auto session = runtime::Session::Create(*loaded, {});
    ASSERT_TRUE(session.ok()) << session.status();
    for (const Tensors& inputs : c.fitting) {
      SCOPED_TRACE(::testing::PrintToString(inputs.back().values));
      const auto expected = Interpret(*g, inputs);
      ASSERT_TRUE(expected.ok()) << expected.status();
      EXPECT_TRUE(Interpret(*fused, inputs).ok());
      const absl::Status ran = RunCompiled(session->get(), inputs, *expected);
      EXPECT_TRUE(ran.ok()) << ran;
    }
    for (const Tensors& inputs : c.refused) {
      SCOPED_TRACE("refused " + ::testing::PrintToString(inputs.back().values));
      EXPECT_EQ(Slug(Interpret(*g, inputs).status()), "graph.interp.stated_shape");
      EXPECT_EQ(Slug(Interpret(*fused, inputs).status()), "graph.interp.stated_shape");
      const absl::Status ran = RunCompiled(session->get(), inputs, {});
      EXPECT_EQ(Slug(ran), "runtime.session.stated_shape");
      EXPECT_NE(ran.message().find(": node \""), std::string::npos) << ran;
    }
  }
}

}  // namespace
}  // namespace tilewright::graph::import_tests
