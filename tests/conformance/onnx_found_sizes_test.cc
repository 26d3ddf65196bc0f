// Operators whose result's size only a run finds, in models that do not state it: the interpreter
// and the compiled module give the result at the size that the data makes, run after run.
#include <gtest/gtest.h>

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

constexpr int64_t kUnknown = -1;  // a dimension that the model does not state

// What a run gives for its inputs.
struct Example {
  Tensors inputs, outputs;
};

std::shared_ptr<const runtime::LoadedModule> Compiled(const Graph& fused) {
  const auto bytes = driver::CompileModel(fused, tests::WidestTarget(), nullptr, {}, nullptr);
  EXPECT_TRUE(bytes.ok()) << bytes.status() << Print(fused);
  if (!bytes.ok()) return nullptr;
  auto file = module::ModuleFile::FromBytes(*bytes);
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return nullptr;
  auto loaded = runtime::LoadedModule::Load(*std::move(file));
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? *loaded : nullptr;
}

void SetInputs(runtime::Session* session, const Tensors& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_TRUE(session->SetInputShape(i, inputs[i].type.sizes()).ok());
    const std::string bytes = op::ToBytes(inputs[i]);
    const absl::Status set = session->SetInput(i, bytes.data(), bytes.size());
    ASSERT_TRUE(set.ok()) << set;
  }
}

void ExpectOutputs(const runtime::Session& session, const Tensors& expected) {
  ASSERT_EQ(session.num_outputs(), expected.size());
  for (size_t o = 0; o < expected.size(); ++o) {
    const runtime::TensorView view = session.output(o);
    ASSERT_EQ(view.shape, expected[o].type.sizes()) << "output " << o;
    const std::string_view bytes(static_cast<const char*>(view.data), view.bytes);
    const auto found = op::FromBytes(expected[o].type, bytes);
    ASSERT_TRUE(found.ok()) << found.status();
    ExpectNear(*found, expected[o].type.sizes(), expected[o].values, 1e-4);
  }
}

void ExpectSame(const absl::StatusOr<Tensors>& found, const Tensors& expected) {
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), expected.size());
  for (size_t o = 0; o < expected.size(); ++o) {
    ASSERT_EQ((*found)[o].type, expected[o].type);
    ExpectNear((*found)[o], expected[o].type.sizes(), expected[o].values, 1e-4);
  }
}

// The graph, what the passes make of it, and the module give these results; with guard pages too.
void ExpectRuns(const OnnxBuilder& model, const std::vector<Example>& runs,
                const ImportOptions& options = {}) {
  const auto g = ImportOnnx(model.Bytes(), options);
  ASSERT_TRUE(g.ok()) << g.status();
  const auto again = ParseGraph(Print(*g), ConstantsOf(*g));
  ASSERT_TRUE(again.ok() && StructuralEqual(*g, *again)) << again.status();
  const auto fused = RunGraphPasses(*g);
  ASSERT_TRUE(fused.ok()) << fused.status();
  const auto module = Compiled(*fused);
  ASSERT_NE(module, nullptr);
  for (const bool guard : {false, true}) {
    auto session = runtime::Session::Create(module, {.guard_pages = guard});
    ASSERT_TRUE(session.ok()) << session.status();
    for (const Example& run : runs) {
      SCOPED_TRACE(::testing::PrintToString(run.inputs.back().values));
      if (!guard) {
        SCOPED_TRACE("interpreted");
        ExpectSame(Interpret(*g, run.inputs), run.outputs);
        ExpectSame(Interpret(*fused, run.inputs), run.outputs);
      }
      ASSERT_NO_FATAL_FAILURE(SetInputs(session->get(), run.inputs));
      (*session)->Poison(0xff);
      const absl::Status ran = (*session)->Run();
      ASSERT_TRUE(ran.ok()) << ran;
      ExpectOutputs(**session, run.outputs);
      EXPECT_TRUE((*session)->CheckGuards().ok());
    }
  }
}

// Runs without a result: the data makes a size that is out of its range, or sizes that do not fit.
void ExpectRefused(const OnnxBuilder& model, const std::vector<Tensors>& refused,
                   const ImportOptions& options = {}, const std::string& reason = "") {
  const auto g = ImportOnnx(model.Bytes(), options);
  ASSERT_TRUE(g.ok()) << g.status();
  const auto fused = RunGraphPasses(*g);
  ASSERT_TRUE(fused.ok()) << fused.status();
  const auto module = Compiled(*fused);
  ASSERT_NE(module, nullptr);
  auto session = runtime::Session::Create(module, {});
  ASSERT_TRUE(session.ok()) << session.status();
  for (const Tensors& inputs : refused) {
    SCOPED_TRACE(::testing::PrintToString(inputs.back().values));
    EXPECT_FALSE(Interpret(*g, inputs).ok());
    ASSERT_NO_FATAL_FAILURE(SetInputs(session->get(), inputs));
    const absl::Status ran = (*session)->Run();
    EXPECT_EQ(ran.code(), absl::StatusCode::kInvalidArgument) << ran;
    EXPECT_TRUE(reason.empty() || support::Slug(ran) == "runtime.session." + reason) << ran;
  }
}

RefTensor Ints(const Numbers& values) {
  return TensorOf({static_cast<int64_t>(values.size())}, values, ir::kI64);
}

TEST(OnnxFoundSizes, NonZero) {
  OnnxBuilder b(13);
  b.Input("x", {2, 3}).Output("y", {2, kUnknown}, kInt64);
  b.Node("NonZero", {"x"}, "y");
  const auto places = [](Numbers values) {
    const auto count = static_cast<int64_t>(values.size()) / 2;
    return TensorOf({2, count}, std::move(values), ir::kI64);
  };
  ExpectRuns(
      b, {{{TensorOf({2, 3}, {0, 5, 0, 1, 0, 2})}, {places({0, 1, 1, 1, 0, 2})}},
          {{TensorOf({2, 3}, {1, 2, 3, 4, 5, 6})}, {places({0, 0, 0, 1, 1, 1, 0, 1, 2, 0, 1, 2})}},
          {{TensorOf({2, 3}, {0, 0, 0, 0, 0, 0})}, {places({})}},
          {{TensorOf({2, 3}, {0, 0, 0, 0, 0, 9})}, {places({1, 2})}}});
}

// Also in a long list, where each place is searched for.
TEST(OnnxFoundSizes, NonZeroOfManyElements) {
  constexpr int64_t kLength = 3000;
  OnnxBuilder b(13);
  b.Input("x", {kLength}).Output("y", {1, kUnknown}, kInt64);
  b.Node("NonZero", {"x"}, "y");
  std::vector<Example> runs;
  for (const int64_t step : {1, 7, 2999, 5000}) {
    Numbers x(kLength, 0), y;
    for (int64_t i = 1; i < kLength; i += step) {
      x[static_cast<size_t>(i)] = 1;
      y.push_back(static_cast<double>(i));
    }
    const auto count = static_cast<int64_t>(y.size());
    runs.push_back({{TensorOf({kLength}, x)}, {TensorOf({1, count}, y, ir::kI64)}});
  }
  ExpectRuns(b, runs);
}

// What torch.onnx makes of x[x > 2] * 10: elements at found places, and sums over them.
TEST(OnnxFoundSizes, MaskedElements) {
  OnnxBuilder b(13);
  b.Input("x", {2, 3}).Output("y", {kUnknown}).Output("sum", {1});
  b.Scalar("two", 2).Scalar("ten", 10);
  b.Node("Greater", {"x", "two"}, "mask");
  b.Node("NonZero", {"mask"}, "places");
  b.Node("Transpose", {"places"}, "rows");
  b.Node("GatherND", {"x", "rows"}, "chosen");
  b.Node("Mul", {"chosen", "ten"}, "y");
  b.Node("ReduceSum", {"y"}, "sum");
  ExpectRuns(b, {{{TensorOf({2, 3}, {0, 5, 1, 3, 2, 4})},
                  {TensorOf({3}, {50, 30, 40}), TensorOf({1}, {120})}},
                 {{TensorOf({2, 3}, {0, 0, 0, 0, 0, 0})}, {TensorOf({0}, {}), TensorOf({1}, {0})}},
                 {{TensorOf({2, 3}, {9, 8, 7, 6, 5, 4})},
                  {TensorOf({6}, {90, 80, 70, 60, 50, 40}), TensorOf({1}, {390})}}});
}

TEST(OnnxFoundSizes, Compress) {
  OnnxBuilder b(11);
  b.Input("x", {2, 3}).Input("keep", {3}, kBool).Output("y", {2, kUnknown});
  OnnxBuilder::Attr(b.Node("Compress", {"x", "keep"}, "y"), "axis", 1);
  const RefTensor x = Ramp({2, 3});
  const auto flags = [](Numbers values) { return TensorOf({3}, std::move(values), ir::kBool); };
  ExpectRuns(b, {{{x, flags({1, 0, 1})}, {TensorOf({2, 2}, {0, 2, 3, 5})}},
                 {{x, flags({0, 0, 0})}, {TensorOf({2, 0}, {})}},
                 {{x, flags({1, 1, 1})}, {x}}});
}

TEST(OnnxFoundSizes, NonMaxSuppression) {
  OnnxBuilder b(11);
  b.Input("boxes", {1, 3, 4}).Input("scores", {1, 1, 3}).Output("y", {kUnknown, 3}, kInt64);
  b.Ints("most", {3}).Scalar("overlap", 0.5F).Scalar("least", 0.1F);
  b.Node("NonMaxSuppression", {"boxes", "scores", "most", "overlap", "least"}, "y");
  const RefTensor boxes = TensorOf({1, 3, 4}, {0, 0, 1, 1, 0, 0, 1, 1.1, 2, 2, 3, 3});
  const auto scores = [](Numbers values) { return TensorOf({1, 1, 3}, std::move(values)); };
  const auto rows = [](const Numbers& chosen) {
    Numbers values;
    for (const double box : chosen) values.insert(values.end(), {0, 0, box});
    return TensorOf({static_cast<int64_t>(chosen.size()), 3}, values, ir::kI64);
  };
  ExpectRuns(b, {{{boxes, scores({0.9, 0.8, 0.7})}, {rows({0, 2})}},
                 {{boxes, scores({0.5, 0.8, 0})}, {rows({1})}},
                 {{boxes, scores({0, 0, 0.05})}, {rows({})}},
                 {{boxes, scores({0.2, 0.3, 0.4})}, {rows({2, 1})}}});
}

// More boxes than a kernel each would be good for: 300 in a row, each overlaps its neighbours.
TEST(OnnxFoundSizes, NonMaxSuppressionOfManyBoxes) {
  constexpr int64_t kBoxes = 300;
  OnnxBuilder b(11);
  b.Input("boxes", {1, kBoxes, 4}).Input("scores", {1, 1, kBoxes});
  b.Output("y", {kUnknown, 3}, kInt64).Ints("most", {1000}).Scalar("overlap", 0.25F);
  b.Node("NonMaxSuppression", {"boxes", "scores", "most", "overlap"}, "y");
  Numbers sides, scores, rows;
  for (int64_t i = 0; i < kBoxes; ++i) {
    const auto at = static_cast<double>(i);
    sides.insert(sides.end(), {at, 0, at + 2, 1});  // a third of the union with the next one
    scores.push_back(1 - at / 1000);
    if (i % 2 == 0) rows.insert(rows.end(), {0, 0, at});
  }
  ExpectRuns(b, {{{TensorOf({1, kBoxes, 4}, sides), TensorOf({1, 1, kBoxes}, scores)},
                  {TensorOf({kBoxes / 2, 3}, rows, ir::kI64)}}});
}

TEST(OnnxFoundSizes, Unique) {
  for (const int64_t sorted : {1, 0}) {
    SCOPED_TRACE(sorted);
    OnnxBuilder b(11);
    b.Input("x", {6}).Output("y", {kUnknown});
    pb::NodeProto* node = b.Node("Unique", {"x"}, "y");
    for (const char* name : {"first", "which", "count"}) {
      node->add_output(name);
      b.Output(name, {kUnknown}, kInt64);
    }
    OnnxBuilder::Attr(node, "sorted", sorted);
    const RefTensor x = TensorOf({6}, {2, 1, 1, 3, 4, 3}), same = TensorOf({6}, Numbers(6, 7.0));
    const Example mixed = sorted != 0 ? Example{{x},
                                                {TensorOf({4}, {1, 2, 3, 4}), Ints({1, 0, 3, 4}),
                                                 Ints({1, 0, 0, 2, 3, 2}), Ints({2, 1, 2, 1})}}
                                      : Example{{x},
                                                {TensorOf({4}, {2, 1, 3, 4}), Ints({0, 1, 3, 4}),
                                                 Ints({0, 1, 1, 2, 3, 2}), Ints({1, 2, 2, 1})}};
    const Numbers ramp = {0, 1, 2, 3, 4, 5};
    ExpectRuns(b, {mixed,
                   {{same}, {TensorOf({1}, {7}), Ints({0}), Ints({0, 0, 0, 0, 0, 0}), Ints({6})}},
                   {{TensorOf({6}, ramp)},
                    {TensorOf({6}, ramp), Ints(ramp), Ints(ramp), Ints({1, 1, 1, 1, 1, 1})}}});
  }
}

// Slices along an axis, compared element by element.
TEST(OnnxFoundSizes, UniqueSlices) {
  const RefTensor x = TensorOf({2, 4, 2}, {3, 1, 2, 9, 3, 1, 2, 9, 5, 0, 5, 0, 4, 7, 5, 0});
  const RefTensor turned = TensorOf({2, 4, 2}, {5, 0, 5, 0, 4, 7, 5, 0, 3, 1, 2, 9, 3, 1, 2, 9});
  const RefTensor twos = TensorOf({2, 4, 2}, Numbers(16, 2.0));
  // Along axis 1: (3,1 5,0) (2,9 5,0) (3,1 4,7) (2,9 5,0).
  const std::map<std::pair<int64_t, int64_t>, std::vector<Example>> runs = {
      {{1, 1},
       {{{x},
         {TensorOf({2, 3, 2}, {2, 9, 3, 1, 3, 1, 5, 0, 4, 7, 5, 0}), Ints({1, 2, 0}),
          Ints({2, 0, 1, 0}), Ints({2, 1, 1})}},
        {{twos}, {TensorOf({2, 1, 2}, {2, 2, 2, 2}), Ints({0}), Ints({0, 0, 0, 0}), Ints({4})}}}},
      {{1, 0},
       {{{x},
         {TensorOf({2, 3, 2}, {3, 1, 2, 9, 3, 1, 5, 0, 5, 0, 4, 7}), Ints({0, 1, 2}),
          Ints({0, 1, 2, 1}), Ints({1, 2, 1})}}}},
      {{-3, 1},
       {{{x}, {x, Ints({0, 1}), Ints({0, 1}), Ints({1, 1})}},
        {{turned}, {x, Ints({1, 0}), Ints({1, 0}), Ints({1, 1})}}}}};
  for (const auto& [attributes, examples] : runs) {
    const auto [axis, sorted] = attributes;
    SCOPED_TRACE(testing::Message() << axis << " " << sorted);
    OnnxBuilder b(11);
    b.Input("x", {2, 4, 2}).Output("y", {axis == 1 ? 2 : kUnknown, axis == 1 ? kUnknown : 4, 2});
    pb::NodeProto* node = b.Node("Unique", {"x"}, "y");
    for (const char* name : {"first", "which", "count"}) {
      node->add_output(name);
      b.Output(name, {kUnknown}, kInt64);
    }
    OnnxBuilder::Attr(node, "axis", axis);
    OnnxBuilder::Attr(node, "sorted", sorted);
    ExpectRuns(b, examples);
  }
}

// NaN comes last, and is one number.
TEST(OnnxFoundSizes, UniqueSlicesWithNaN) {
  OnnxBuilder b(11);
  b.Input("x", {4, 1});
  pb::NodeProto* node = b.Node("Unique", {"x"}, "y");
  for (const char* name : {"first", "which", "count"}) {
    node->add_output(name);
    b.Output(name, {kUnknown}, kInt64);
  }
  OnnxBuilder::Attr(node, "axis", int64_t{0});
  const double nan = std::nan("");
  ExpectRuns(b, {{{TensorOf({4, 1}, {nan, 1, nan, -3})},
                  {Ints({3, 1, 0}), Ints({2, 1, 2, 0}), Ints({1, 1, 2})}}});
}

TEST(OnnxFoundSizes, TopK) {
  OnnxBuilder b(11);
  b.Input("x", {4})
      .Input("k", {1}, kInt64)
      .Output("y", {kUnknown})
      .Output("at", {kUnknown}, kInt64);
  b.Node("TopK", {"x", "k"}, "y")->add_output("at");
  const RefTensor x = TensorOf({4}, {3, 9, 1, 7});
  ExpectRuns(b, {{{x, Ints({2})}, {TensorOf({2}, {9, 7}), Ints({1, 3})}},
                 {{x, Ints({4})}, {TensorOf({4}, {9, 7, 3, 1}), Ints({1, 3, 0, 2})}},
                 {{x, Ints({0})}, {TensorOf({0}, {}), Ints({})}}});
}

TEST(OnnxFoundSizes, Slice) {
  OnnxBuilder b(13);
  b.Input("x", {2, 4}).Input("from", {1}, kInt64).Input("to", {1}, kInt64);
  b.Output("y", {2, kUnknown}).Ints("axis", {1});
  b.Node("Slice", {"x", "from", "to", "axis"}, "y");
  const RefTensor x = Ramp({2, 4});
  ExpectRuns(b, {{{x, Ints({1}), Ints({3})}, {TensorOf({2, 2}, {1, 2, 5, 6})}},
                 {{x, Ints({-1}), Ints({99})}, {TensorOf({2, 1}, {3, 7})}},
                 {{x, Ints({3}), Ints({1})}, {TensorOf({2, 0}, {})}},
                 {{x, Ints({0}), Ints({4})}, {x}}});
}

TEST(OnnxFoundSizes, Split) {
  OnnxBuilder b(13);
  b.Input("x", {5}).Input("sizes", {2}, kInt64).Output("a", {kUnknown}).Output("b", {kUnknown});
  b.Node("Split", {"x", "sizes"}, "a")->add_output("b");
  const RefTensor x = Ramp({5});
  ExpectRuns(b, {{{x, Ints({2, 3})}, {TensorOf({2}, {0, 1}), TensorOf({3}, {2, 3, 4})}},
                 {{x, Ints({4, 1})}, {TensorOf({4}, {0, 1, 2, 3}), TensorOf({1}, {4})}},
                 {{x, Ints({0, 5})}, {TensorOf({0}, {}), x}}});
  ExpectRefused(b, {{x, Ints({2, 2})}, {x, Ints({6, -1})}, {x, Ints({-1, 6})}});
}

TEST(OnnxFoundSizes, Reshape) {
  OnnxBuilder b(14);
  b.Input("x", {2, 6}).Input("shape", {2}, kInt64).Output("y", {kUnknown, kUnknown});
  b.Node("Reshape", {"x", "shape"}, "y");
  const RefTensor x = Ramp({2, 6});
  const auto as = [&](Shape shape) { return TensorOf(std::move(shape), x.values); };
  ExpectRuns(b, {{{x, Ints({3, 4})}, {as({3, 4})}},
                 {{x, Ints({-1, 2})}, {as({6, 2})}},
                 {{x, Ints({0, -1})}, {x}},
                 {{x, Ints({12, 1})}, {as({12, 1})}}});
  ExpectRefused(b, {{x, Ints({5, 2})}, {x, Ints({5, -1})}, {x, Ints({-3, -4})}, {x, Ints({3, 5})}});
}

// Sizes that nothing bounds are bounded by the user.
TEST(OnnxFoundSizes, BoundsOfTheUser) {
  OnnxBuilder b(13);
  b.Input("limit", {}, kInt64).Output("y", {kUnknown}, kInt64);
  b.Small("zero32", pb::TensorProto::INT32, {}, {0})
      .Small("two32", pb::TensorProto::INT32, {}, {2});
  for (const char* number : {"zero", "two"}) {
    OnnxBuilder::Attr(b.Node("Cast", {std::string(number) + "32"}, number), "to", kInt64);
  }
  b.Node("Range", {"zero", "limit", "two"}, "y");
  const auto refused = ImportOnnx(b.Bytes());
  EXPECT_EQ(support::Slug(refused.status()), "graph.onnx.size_bound") << refused.status();
  EXPECT_NE(refused.status().message().find("--shape y_0=0..N"), std::string::npos);
  ImportOptions options;
  options.open["y_0"] = {0, 5};
  const auto limit = [](double value) { return TensorOf({}, {value}, ir::kI64); };
  ExpectRuns(b,
             {{{limit(6)}, {Ints({0, 2, 4})}},
              {{limit(9)}, {Ints({0, 2, 4, 6, 8})}},
              {{limit(-3)}, {Ints({})}}},
             options);
  ExpectRefused(b, {{limit(12)}}, options, "found_size");
  options.open["y_1"] = {0, 5};
  EXPECT_EQ(support::Slug(ImportOnnx(b.Bytes(), options).status()), "graph.onnx.shape_override");
  ImportOptions number;
  number.shapes["y_0"] = {3};
  ExpectRuns(b, {{{limit(6)}, {Ints({0, 2, 4})}}}, number);
  ExpectRefused(b, {{limit(7)}}, number);
}

TEST(OnnxFoundSizes, ShapesAsData) {
  ImportOptions options;
  for (const char* size : {"filled_0", "filled_1", "wide_0", "tiled_0", "hot_1", "padded_0"}) {
    options.open[size] = {0, 8};
  }
  OnnxBuilder b(13);
  b.Input("x", {3}).Input("s", {2}, kInt64).Input("k", {1}, kInt64);
  b.Output("filled", {kUnknown, kUnknown})
      .Output("wide", {kUnknown, 3})
      .Output("tiled", {kUnknown});
  b.Output("hot", {2, kUnknown}).Output("padded", {kUnknown});
  b.Node("ConstantOfShape", {"s"}, "filled");
  b.Ints("three", {3}).Ints("which", {0, 2}).Floats("values", {0, 1}).Ints("none", {0});
  b.Node("Concat", {"k", "three"}, "wanted");
  OnnxBuilder::Attr(&*b.graph().mutable_node()->rbegin(), "axis", 0);
  b.Node("Expand", {"x", "wanted"}, "wide");
  b.Node("Tile", {"x", "k"}, "tiled");
  b.Node("OneHot", {"which", "k", "values"}, "hot");
  b.Node("Concat", {"none", "k"}, "pads");
  OnnxBuilder::Attr(&*b.graph().mutable_node()->rbegin(), "axis", 0);
  b.Node("Pad", {"x", "pads"}, "padded");
  const RefTensor x = TensorOf({3}, {1, 2, 3});
  ExpectRuns(b,
             {{{x, Ints({2, 3}), Ints({2})},
               {TensorOf({2, 3}, {0, 0, 0, 0, 0, 0}), TensorOf({2, 3}, {1, 2, 3, 1, 2, 3}),
                TensorOf({6}, {1, 2, 3, 1, 2, 3}), TensorOf({2, 2}, {1, 0, 0, 0}),
                TensorOf({5}, {1, 2, 3, 0, 0})}},
              {{x, Ints({0, 8}), Ints({1})},
               {TensorOf({0, 8}, {}), TensorOf({1, 3}, {1, 2, 3}), x, TensorOf({2, 1}, {1, 0}),
                TensorOf({4}, {1, 2, 3, 0})}}},
             options);
}

// The running sum of x while it is below 10, `trips` times at most: an entry per trip.
TEST(OnnxFoundSizes, Loop) {
  for (const bool constant_trips : {true, false}) {
    SCOPED_TRACE(constant_trips);
    OnnxBuilder b(13);
    b.Input("x", {}).Output("rows", {kUnknown}).Output("total", {});
    if (constant_trips) {
      b.Ints("most", {4});
      b.Node("Squeeze", {"most"}, "trips");
    } else {
      b.Input("trips", {}, kInt64);
    }
    AddRunningSum(&b);
    const auto example = [&](double x, double trips, Numbers rows) {
      Tensors inputs = {TensorOf({}, {x})};
      if (!constant_trips) inputs.push_back(TensorOf({}, {trips}, ir::kI64));
      const double total = rows.empty() ? 0 : rows.back();
      const auto count = static_cast<int64_t>(rows.size());
      return Example{std::move(inputs),
                     {TensorOf({count}, std::move(rows)), TensorOf({}, {total})}};
    };
    ImportOptions options;
    if (!constant_trips) {
      EXPECT_EQ(support::Slug(ImportOnnx(b.Bytes()).status()), "graph.onnx.size_bound");
      options.open["rows_0"] = {0, 4};
    }
    ExpectRuns(b, {example(1, 4, {1, 2, 3, 4}), example(4, 4, {4, 8, 12}), example(20, 4, {20})},
               options);
    if (constant_trips) continue;
    ExpectRuns(b, {example(1, 2, {1, 2}), example(1, 0, {}), example(6, 3, {6, 12})}, options);
  }
}

// What the model says of a result counts, however many casts lie between; a number that an output
// had in the run of the exporter does not, where other operators lie between; "?" is no name.
TEST(OnnxFoundSizes, WhatTheModelStates) {
  const auto model = [](const Shape& y, const std::string& param) {
    OnnxBuilder b(13);
    b.Input("x", {4}).Output("y", y, pb::TensorProto::FLOAT);
    if (!param.empty()) {
      for (auto& dim : *b.graph()
                            .mutable_output(0)
                            ->mutable_type()
                            ->mutable_tensor_type()
                            ->mutable_shape()
                            ->mutable_dim()) {
        if (dim.dim_value() < 0) dim.set_dim_param(param);
      }
    }
    b.Node("NonZero", {"x"}, "places");
    OnnxBuilder::Attr(b.Node("Cast", {"places"}, "y"), "to", pb::TensorProto::FLOAT);
    return b;
  };
  const Example two = {{TensorOf({4}, {0, 1, 0, 2})}, {TensorOf({1, 2}, {1, 3})}};
  const Example one = {{TensorOf({4}, {0, 0, 0, 2})}, {TensorOf({1, 1}, {3})}};
  ExpectRuns(model({1, 2}, ""), {two});
  ExpectRefused(model({1, 2}, ""), {one.inputs}, {}, "stated_shape");
  ExpectRuns(model({1, kUnknown}, "count"), {two, one});
  ExpectRuns(model({1, kUnknown}, "?"), {two, one});
  EXPECT_TRUE(
      ImportOnnx(model({1, kUnknown}, "count").Bytes())->size_ranges.contains("count_plus_1"));
  OnnxBuilder turned(13);
  turned.Input("x", {4}).Output("y", {2, 1}, kInt64);
  turned.Node("NonZero", {"x"}, "places");
  turned.Node("Transpose", {"places"}, "y");
  ExpectRuns(turned, {{{TensorOf({4}, {0, 0, 0, 2})}, {TensorOf({1, 1}, {3}, ir::kI64)}},
                      {{TensorOf({4}, {0, 1, 0, 2})}, {TensorOf({2, 1}, {1, 3}, ir::kI64)}}});
}

// A found size that another result's is made of, and one that is found among found elements.
TEST(OnnxFoundSizes, FoundAmongFound) {
  OnnxBuilder b(13);
  b.Input("x", {6}).Output("small", {kUnknown}).Output("both", {kUnknown});
  b.Scalar("two", 2).Scalar("five", 5);
  b.Node("Greater", {"x", "two"}, "large");
  b.Node("Compress", {"x", "large"}, "kept");
  b.Node("Less", {"kept", "five"}, "below");
  b.Node("Compress", {"kept", "below"}, "small");
  b.Node("Concat", {"kept", "small"}, "both");
  OnnxBuilder::Attr(&*b.graph().mutable_node()->rbegin(), "axis", 0);
  ExpectRuns(b, {{{TensorOf({6}, {3, 1, 9, 4, 0, 7})},
                  {TensorOf({2}, {3, 4}), TensorOf({6}, {3, 9, 4, 7, 3, 4})}},
                 {{TensorOf({6}, {0, 0, 0, 0, 0, 0})}, {TensorOf({0}, {}), TensorOf({0}, {})}},
                 {{TensorOf({6}, {9, 9, 9, 9, 9, 9})},
                  {TensorOf({0}, {}), TensorOf({6}, {9, 9, 9, 9, 9, 9})}},
                 {{TensorOf({6}, {3, 3, 3, 3, 3, 3})},
                  {TensorOf({6}, {3, 3, 3, 3, 3, 3}),
                   TensorOf({12}, {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3})}}});
}

}  // namespace
}  // namespace tilewright::graph::import_tests
