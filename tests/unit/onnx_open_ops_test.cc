// Operators with open sizes: the graph of one import with size variables, at several sizes, against
// the import at those sizes. EvaluateOnnx of the other tests has the size of the model itself only.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "deploy/support/strings.h"
#include "tests/unit/onnx_evaluate.h"

namespace tilewright::graph {
namespace {

using namespace import_tests;
using support::StrCat;
using Sizes = std::map<std::string, int64_t>;

// An input of these dimensions; words are names of sizes.
struct OpenInput {
  std::string name;
  std::vector<std::string> dims;
  int type = pb::TensorProto::FLOAT;
  double scale = 1;  // of its numbers
};

struct OpenCase {
  std::string what;
  int64_t opset;
  std::vector<OpenInput> inputs;
  std::function<void(OnnxBuilder&)> fill;  // nodes; the result is y
  std::vector<Sizes> sizes;
  int64_t least = 1;  // of each size
};

bool IsName(const std::string& dim) { return dim[0] >= 'A'; }

OnnxBuilder ModelOf(const OpenCase& c) {
  OnnxBuilder b(c.opset);
  for (const OpenInput& input : c.inputs) {
    b.Input(input.name, Shape(input.dims.size(), 1), input.type);
    auto* info = b.graph().mutable_input(b.graph().input_size() - 1);
    auto* shape = info->mutable_type()->mutable_tensor_type()->mutable_shape();
    for (size_t d = 0; d < input.dims.size(); ++d) {
      auto* dim = shape->mutable_dim(static_cast<int>(d));
      if (IsName(input.dims[d])) dim->set_dim_param(input.dims[d]);
      if (!IsName(input.dims[d])) dim->set_dim_value(std::stoll(input.dims[d]));
    }
  }
  c.fill(b);
  b.graph().add_output()->set_name("y");
  return b;
}

void ExpectTheSameAtAllSizes(const OpenCase& c) {
  SCOPED_TRACE(c.what);
  const std::string bytes = ModelOf(c).Bytes();
  ImportOptions options;
  for (const auto& [name, size] : c.sizes[0])
    options.open[name] = {name == "N" ? 1 : std::min(c.least, size), 12};
  const auto open = ImportOnnx(bytes, options);
  ASSERT_TRUE(open.ok()) << open.status();
  for (const Sizes& sizes : c.sizes) {
    ImportOptions given;
    for (const auto& [name, size] : sizes) given.shapes[name] = {size};
    const auto fixed = ImportOnnx(bytes, given);
    ASSERT_TRUE(fixed.ok()) << fixed.status();
    const auto same = Specialize(*open, {sizes.begin(), sizes.end()});
    ASSERT_TRUE(same.ok()) << same.status() << Print(*open);
    std::vector<RefTensor> inputs;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const op::TensorType& type = fixed->values[fixed->inputs[i]].type;
      RefTensor x{type, Random(type.elements(), c.inputs[i].scale, i + 1)};
      if (type.dtype.is_int()) x.values.assign(x.values.size(), c.inputs[i].scale);
      inputs.push_back(std::move(x));
    }
    const auto expected = Interpret(*fixed, inputs), found = Interpret(*same, inputs);
    ASSERT_TRUE(expected.ok() && found.ok()) << expected.status() << found.status();
    ExpectNear((*found)[0], (*expected)[0].type.sizes(), (*expected)[0].values, 1e-5);
  }
}

TEST(OnnxOpenOps, ReadAtComputedPlaces) {
  for (const char* mode : {"linear", "nearest", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (const int64_t align : {0, 1}) {
        ExpectTheSameAtAllSizes({StrCat("GridSample ", mode, " ", padding, " ", align),
                                 20,
                                 {{"x", {"N", "2", "H", "W"}}, {"g", {"N", "P", "Q", "2"}, 1, 1.7}},
                                 [&](OnnxBuilder& b) {
                                   pb::NodeProto* node = b.Node("GridSample", {"x", "g"}, "y");
                                   OnnxBuilder::AttrText(node, "mode", mode);
                                   OnnxBuilder::AttrText(node, "padding_mode", padding);
                                   OnnxBuilder::Attr(node, "align_corners", align);
                                 },
                                 {{{"N", 1}, {"H", 1}, {"W", 5}, {"P", 3}, {"Q", 2}},
                                  {{"N", 2}, {"H", 6}, {"W", 4}, {"P", 1}, {"Q", 7}}}});
      }
    }
  }
}

TEST(OnnxOpenOps, RegionsOfImages) {
  for (const int64_t ratio : {0, 2}) {
    for (const char* mode : {"avg", "max"}) {
      ExpectTheSameAtAllSizes(
          {StrCat("RoiAlign ", ratio, " ", mode),
           16,
           {{"x", {"N", "C", "H", "W"}}, {"rois", {"R", "4"}, 1, 3}, {"n", {"R"}, kInt64, 0}},
           [&](OnnxBuilder& b) {
             pb::NodeProto* node = b.Node("RoiAlign", {"x", "rois", "n"}, "y");
             OnnxBuilder::AttrText(node, "mode", mode);
             OnnxBuilder::Attr(node, "sampling_ratio", ratio);
             OnnxBuilder::Attr(node, "output_height", int64_t{2});
             OnnxBuilder::Attr(node, "output_width", int64_t{2});
           },
           {{{"N", 1}, {"C", 1}, {"H", 10}, {"W", 12}, {"R", 3}},
            {{"N", 2}, {"C", 3}, {"H", 11}, {"W", 10}, {"R", 7}}}});
    }
  }
}

TEST(OnnxOpenOps, MatricesAndWindows) {
  ExpectTheSameAtAllSizes(
      {"EyeLike",
       9,
       {{"x", {"N", "M"}}},
       [](OnnxBuilder& b) { OnnxBuilder::Attr(b.Node("EyeLike", {"x"}, "y"), "k", int64_t{-1}); },
       {{{"N", 3}, {"M", 5}}, {{"N", 4}, {"M", 1}}}});
  for (const char* op : {"HannWindow", "HammingWindow", "BlackmanWindow"}) {
    for (const int64_t periodic : {0, 1}) {
      ExpectTheSameAtAllSizes({StrCat(op, " ", periodic),
                               17,
                               {{"x", {"N", "2"}}},
                               [&](OnnxBuilder& b) {
                                 b.Ints("first", {0});
                                 b.Node("Shape", {"x"}, "shape");
                                 b.Node("Gather", {"shape", "first"}, "size");
                                 OnnxBuilder::Attr(b.Node(op, {"size"}, "w"), "periodic", periodic);
                                 b.Node("MatMul", {"w", "x"}, "y");
                               },
                               {{{"N", 1}}, {{"N", 2}}, {{"N", 9}}}});
    }
  }
}

// As torchvision's detectors choose their candidates: the best min(3, all) of N.
TEST(OnnxOpenOps, AtMostAsManyAsThereAre) {
  for (const int64_t largest : {0, 1}) {
    ExpectTheSameAtAllSizes({StrCat("TopK ", largest),
                             18,
                             {{"x", {"2", "N"}}},
                             [&](OnnxBuilder& b) {
                               b.Ints("last", {1}).Ints("three", {3});
                               b.Node("Shape", {"x"}, "shape");
                               b.Node("Gather", {"shape", "last"}, "all");
                               b.Node("Min", {"three", "all"}, "k");
                               pb::NodeProto* node = b.Node("TopK", {"x", "k"}, "y");
                               node->add_output("places");
                               OnnxBuilder::Attr(node, "largest", largest);
                             },
                             {{{"N", 2}}, {{"N", 3}}, {{"N", 9}}}});
  }
}

TEST(OnnxOpenOps, SliceOfASliceToTheEnd) {
  ExpectTheSameAtAllSizes({"Slice",
                           18,
                           {{"x", {"L"}}},
                           [](OnnxBuilder& b) {
                             b.Ints("one", {1}).Ints("zero", {0}).Ints("end", {INT64_MAX});
                             b.Node("Slice", {"x", "one", "end"}, "rest");
                             b.Node("Slice", {"rest", "zero", "end"}, "y");
                           },
                           {{{"L", 2}}, {{"L", 9}}},
                           2});
}

// A model's constants stay inputs of fixed size.
TEST(OnnxOpenOps, Spectra) {
  for (const int64_t onesided : {0, 1}) {
    ExpectTheSameAtAllSizes({StrCat("STFT ", onesided),
                             17,
                             {{"x", {"N", "L", "1"}}, {"w", {"4"}}},
                             [&](OnnxBuilder& b) {
                               b.Ints("step", {3});
                               OnnxBuilder::Attr(b.Node("STFT", {"x", "step", "w"}, "y"),
                                                 "onesided", onesided);
                             },
                             {{{"N", 1}, {"L", 4}}, {{"N", 3}, {"L", 12}}, {{"N", 2}, {"L", 9}}},
                             4});
    ExpectTheSameAtAllSizes({StrCat("DFT ", onesided),
                             20,
                             {{"x", {"N", "6", "M", "1"}}},
                             [&](OnnxBuilder& b) {
                               b.Ints("axis", {1}).graph().mutable_initializer(0)->clear_dims();
                               OnnxBuilder::Attr(b.Node("DFT", {"x", "", "axis"}, "y"), "onesided",
                                                 onesided);
                             },
                             {{{"N", 1}, {"M", 5}}, {{"N", 4}, {"M", 2}}}});
  }
  OnnxBuilder b(20);
  b.Input("x", {1, 1, 1}).Node("DFT", {"x"}, "y");
  b.graph().add_output()->set_name("y");
  b.NameSize(0, 1, "L");
  ImportOptions options;
  options.open["L"] = {1, 12};
  EXPECT_EQ(support::Slug(ImportOnnx(b.Bytes(), options).status()), "graph.onnx.open_size");
}

TEST(OnnxOpenOps, CachesAtPlacesOfTheirOwn) {
  for (const char* mode : {"linear", "circular"}) {
    ExpectTheSameAtAllSizes(
        {StrCat("TensorScatter ", mode),
         24,
         {{"cache", {"N", "2", "L", "3"}}, {"new", {"N", "2", "2", "3"}}, {"at", {"N"}, kInt64, 4}},
         [&](OnnxBuilder& b) {
           OnnxBuilder::AttrText(b.Node("TensorScatter", {"cache", "new", "at"}, "y"), "mode",
                                 mode);
         },
         {{{"N", 1}, {"L", 6}}, {{"N", 3}, {"L", 11}}},
         6});
  }
}

TEST(OnnxOpenOps, WindowsAtComputedPlaces) {
  ExpectTheSameAtAllSizes({"DeformConv",
                           19,
                           {{"x", {"N", "4", "H", "W"}},
                            {"w", {"6", "2", "3", "2"}},
                            {"offset", {"N", "24", "P", "Q"}, 1, 1.5},
                            {"mask", {"N", "12", "P", "Q"}}},
                           [](OnnxBuilder& b) {
                             pb::NodeProto* node =
                                 b.Node("DeformConv", {"x", "w", "offset", "", "mask"}, "y");
                             OnnxBuilder::Attr(node, "group", int64_t{2});
                             OnnxBuilder::Attr(node, "offset_group", int64_t{2});
                             OnnxBuilder::Attr(node, "strides", Shape{2, 1});
                             OnnxBuilder::Attr(node, "pads", Shape{1, 0, 1, 1});
                           },
                           {{{"N", 1}, {"H", 3}, {"W", 4}, {"P", 2}, {"Q", 4}},
                            {{"N", 2}, {"H", 8}, {"W", 2}, {"P", 4}, {"Q", 2}}},
                           2});
  ExpectTheSameAtAllSizes(
      {"MaxRoiPool",
       1,
       {{"x", {"1", "C", "H", "W"}}, {"rois", {"R", "5"}, 1, 0.4}},
       [](OnnxBuilder& b) {
         pb::NodeProto* node = b.Node("MaxRoiPool", {"x", "rois"}, "y");
         OnnxBuilder::Attr(node, "pooled_shape", Shape{2, 3});
         OnnxBuilder::AttrFloat(node, "spatial_scale", 10);
       },
       {{{"C", 1}, {"H", 5}, {"W", 4}, {"R", 2}}, {{"C", 3}, {"H", 7}, {"W", 9}, {"R", 5}}}});
}

TEST(OnnxOpenOps, RegularGrids) {
  for (const int64_t align : {0, 1}) {
    ExpectTheSameAtAllSizes(
        {StrCat("AffineGrid ", align),
         20,
         {{"theta", {"N", "2", "3"}}, {"x", {"N", "C", "H", "W"}}},
         [&](OnnxBuilder& b) {
           b.Node("Shape", {"x"}, "size");
           OnnxBuilder::Attr(b.Node("AffineGrid", {"theta", "size"}, "y"), "align_corners", align);
         },
         {{{"N", 1}, {"C", 2}, {"H", 1}, {"W", 5}}, {{"N", 3}, {"C", 1}, {"H", 4}, {"W", 2}}}});
  }
}

// As tf2onnx writes an einsum: the axes of a batch are multiplied, and the result is cut again.
TEST(OnnxOpenOps, ProductsOfSizesAreSizes) {
  ExpectTheSameAtAllSizes({"ReduceProd of Shape",
                           13,
                           {{"x", {"N", "M", "3"}}},
                           [&](OnnxBuilder& b) {
                             b.Ints("two", {0, 1}).Ints("rest", {-1});
                             b.Node("Shape", {"x"}, "shape");
                             b.Node("Gather", {"shape", "two"}, "sizes");
                             b.Node("ReduceProd", {"sizes"}, "rows");
                             OnnxBuilder::Attr(b.Node("Concat", {"rows", "rest"}, "flat"), "axis",
                                               int64_t{0});
                             b.Node("Reshape", {"x", "flat"}, "matrix");
                             b.Node("Neg", {"matrix"}, "y");
                           },
                           {{{"N", 1}, {"M", 5}}, {{"N", 3}, {"M", 2}}}});
}

TEST(OnnxOpenOps, RefusesOpenSizesNextToNone) {
  OnnxBuilder b(14);
  b.Input("x", {0, 1}).Node("Trilu", {"x"}, "y");
  b.graph().add_output()->set_name("y");
  pb::TypeProto* type = b.graph().mutable_input(0)->mutable_type();
  type->mutable_tensor_type()->mutable_shape()->mutable_dim(1)->set_dim_param("N");
  ImportOptions options;
  options.open["N"] = {1, 12};
  EXPECT_EQ(support::Slug(ImportOnnx(b.Bytes(), options).status()), "op.greater_equal.empty");
  OnnxBuilder sum(13);
  sum.Input("a", {1}).Input("b", {0}).Node("Sum", {"a", "b"}, "y");
  sum.graph().add_output()->set_name("y");
  type = sum.graph().mutable_input(0)->mutable_type();
  type->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param("N");
  EXPECT_EQ(support::Slug(ImportOnnx(sum.Bytes(), options).status()), "op.add.shape");
}

TEST(OnnxOpenOps, RefusesListsThatAreNone) {
  OnnxBuilder b(13);
  b.Input("x", {2}).Input("pads", {}, kInt64).Output("y", {2});
  b.Node("Pad", {"x", "pads"}, "y");
  EXPECT_EQ(Slug(b), "graph.onnx.shape");
  OnnxBuilder unknown(13);
  unknown.Input("x", {2}).Output("y", {2});
  unknown.Node("Expand", {"x", "nothing"}, "y");
  EXPECT_EQ(Slug(unknown), "graph.onnx.missing_input");
  OnnxBuilder angles(23);
  angles.Input("x", {}).Input("cos", {4, 2}).Input("sin", {4, 2}).Output("y", {});
  angles.Node("RotaryEmbedding", {"x", "cos", "sin"}, "y");
  EXPECT_EQ(Slug(angles), "graph.onnx.shape");
  // A shape of more dimensions than a model has, of which a run finds some.
  OnnxBuilder many(13);
  many.Input("x", {2}).Input("size", {1}, kInt64).Ints("count", {1 << 20});
  many.graph().add_output()->set_name("y");
  many.Node("ConstantOfShape", {"count"}, "zeros");
  OnnxBuilder::Attr(many.Node("Cast", {"zeros"}, "ones"), "to", int64_t{kInt64});
  OnnxBuilder::Attr(many.Node("Concat", {"size", "ones"}, "shape"), "axis", int64_t{0});
  many.Node("Reshape", {"x", "shape"}, "y");
  EXPECT_EQ(Slug(many), "graph.onnx.too_large");
  // As many numbers as nobody knows.
  OnnxBuilder open(13);
  open.Input("x", {2}).Input("list", {1}, kInt64).Node("Expand", {"x", "list"}, "y");
  open.graph().add_output()->set_name("y");
  pb::TypeProto* type = open.graph().mutable_input(1)->mutable_type();
  type->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_param("N");
  ImportOptions options;
  options.open["N"] = {1, 3};
  for (const char* op : {"Expand", "Reshape", "Tile", "ConstantOfShape", "Pad"}) {
    pb::NodeProto* node = open.graph().mutable_node(0);
    node->set_op_type(op);
    node->clear_input();
    if (std::string_view(op) != "ConstantOfShape") node->add_input("x");
    node->add_input("list");
    const absl::Status status = ImportOnnx(open.Bytes(), options).status();
    EXPECT_EQ(support::Slug(status), "graph.onnx.open_size") << op << " " << status;
  }
}

// A size that is data is one that the run finds, at most what --shape says.
TEST(OnnxOpenOps, AWindowOfASizeThatIsData) {
  OnnxBuilder b(17);
  b.Input("size", {}, kInt64).Input("x", {8});
  OnnxBuilder::Attr(b.Node("HannWindow", {"size"}, "y"), "periodic", int64_t{0});
  b.graph().add_output()->set_name("y");
  EXPECT_EQ(Slug(b), "graph.onnx.size_bound");
  ImportOptions options;
  const absl::Status asked = ImportOnnx(b.Bytes()).status();
  const std::string message(asked.message());
  const size_t from = message.find("--shape ") + 8;
  options.open[message.substr(from, message.find("=0..N") - from)] = {0, 16};
  const auto g = ImportOnnx(b.Bytes(), options);
  ASSERT_TRUE(g.ok()) << g.status();
  for (const double size : {5.0, 1.0, 16.0}) {
    const auto y = Interpret(*g, {TensorOf({}, {size}, ir::kI64), TensorOf({8}, Numbers(8, 0))});
    ASSERT_TRUE(y.ok()) << y.status();
    Numbers expected;
    for (double i = 0; i < size; ++i) {
      expected.push_back(size == 1 ? 1 : 0.5 - 0.5 * std::cos(2 * M_PI * i / (size - 1)));
    }
    ExpectNear((*y)[0], {static_cast<int64_t>(size)}, expected, 1e-5);
  }
}

TEST(OnnxOpenOps, Sequences) {
  ExpectTheSameAtAllSizes(
      {"split, map, join",
       17,
       {{"x", {"N", "4"}}, {"z", {"N", "1"}}},
       [](OnnxBuilder& b) {
         OnnxBuilder::Attr(b.Node("SplitToSequence", {"x"}, "parts"), "axis", int64_t{1});
         pb::NodeProto* node = b.Node("SequenceMap", {"parts", "z"}, "sums");
         AddBody(node, "body", {"part", "same"}, {"sum"},
                 [](OnnxBuilder& body) { body.Node("Add", {"part", "same"}, "sum"); });
         b.Ints("last", {-1}).Node("SequenceErase", {"sums", "last"}, "three");
         b.Node("SequenceInsert", {"three", "z"}, "four");
         OnnxBuilder::Attr(b.Node("ConcatFromSequence", {"four"}, "y"), "axis", int64_t{1});
       },
       {{{"N", 1}}, {{"N", 5}}}});
}

}  // namespace
}  // namespace tilewright::graph
