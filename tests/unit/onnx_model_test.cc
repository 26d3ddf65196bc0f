// Models as files: weights that graphs share, and data in other files, which hostile models name,
// too.
#include "compiler/onnx/onnx_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "compiler/onnx/onnx_import.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "tests/support/process_status.h"
#include "tests/unit/onnx_builder.h"

namespace tilewright::graph {
namespace {

namespace fs = std::filesystem;
namespace pb = ::tilewright_onnx;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::OnnxBuilder;

OnnxModel::OpenOptions WithData() {
  OnnxModel::OpenOptions options;
  options.external_data = true;
  return options;
}

// y = (x w + k) * c with a large weight, a small one, and a constant of a node.
class OnnxModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create("onnx-model");
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_.emplace(*std::move(dir));
    b_.Input("x", {1, 64}).Output("y", {1, 32}).Weight("w", {64, 32}).Weight("k", {32});
    OnnxBuilder other(13, 2);
    other.Weight("c", {32});
    pb::NodeProto* constant = b_.graph().add_node();
    constant->set_op_type("Constant");
    constant->set_name("c");
    constant->add_output("c");
    pb::AttributeProto* value = constant->add_attribute();
    value->set_name("value");
    value->set_type(pb::AttributeProto::TENSOR);
    *value->mutable_t() = other.graph().initializer(0);
    b_.Node("MatMul", {"x", "w"}, "m");
    b_.Node("Add", {"m", "k"}, "s");
    b_.Node("Mul", {"s", "c"}, "y");
  }

  std::string File(std::string_view name) const { return dir_->File(name); }
  void Write(std::string_view name, std::string_view data) const {
    ASSERT_TRUE(support::WriteFileAtomic(File(name), data).ok()) << name;
  }

  std::vector<pb::TensorProto*> Tensors() {
    return {b_.graph().mutable_initializer(0), b_.graph().mutable_initializer(1),
            b_.graph().mutable_node(0)->mutable_attribute(0)->mutable_t()};
  }

  // Moves the tensors' data behind each other into one file, in a place of 4 bytes more.
  std::string MoveData(const std::string& file) {
    std::string data = "????";
    for (pb::TensorProto* tensor : Tensors()) {
      std::string bytes(tensor->float_data_size() * sizeof(float), '\0');
      std::memcpy(bytes.data(), tensor->float_data().data(), bytes.size());
      tensor->clear_float_data();
      tensor->set_data_location(pb::TensorProto::EXTERNAL);
      Entry(tensor, "location", file);
      Entry(tensor, "offset", std::to_string(data.size()));
      Entry(tensor, "length", std::to_string(bytes.size()));
      data += bytes;
    }
    return data;
  }
  static void Entry(pb::TensorProto* tensor, const std::string& key, const std::string& value) {
    for (auto& entry : *tensor->mutable_external_data()) {
      if (entry.key() == key) return entry.set_value(value);
    }
    auto* entry = tensor->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }

  std::string ImportedText(const OnnxModel& model) {
    auto graph = ImportOnnx(model);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return graph.ok() ? Print(*graph) : "";
  }
  absl::Status Opened() {
    Write("m.onnx", b_.Bytes());
    return OnnxModel::Open(File("m.onnx"), WithData()).status();
  }

  std::optional<support::TempDir> dir_;
  OnnxBuilder b_;
};

TEST_F(OnnxModelTest, FilesAndBytesAreOneModel) {
  const std::string bytes = b_.Bytes();
  Write("m.onnx", bytes);
  auto parsed = OnnxModel::Parse(bytes), opened = OnnxModel::Open(File("m.onnx"), {});
  ASSERT_TRUE(parsed.ok() && opened.ok()) << parsed.status() << opened.status();
  EXPECT_EQ(parsed->digest(), support::Sha256Hex(bytes));
  EXPECT_EQ(opened->digest(), parsed->digest());
  EXPECT_EQ(opened->bytes(), static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(ImportedText(*opened), ImportedText(*parsed));
}

TEST_F(OnnxModelTest, DataInAnotherFileIsThatOfTheModel) {
  auto inside = OnnxModel::Parse(b_.Bytes());
  ASSERT_TRUE(inside.ok()) << inside.status();
  fs::create_directory(File("sub"));
  Write("sub/w.bin", MoveData("sub/w.bin"));
  Write("m.onnx", b_.Bytes());
  auto outside = OnnxModel::Open(File("m.onnx"), WithData());
  ASSERT_TRUE(outside.ok()) << outside.status();
  EXPECT_EQ(ImportedText(*outside), ImportedText(*inside));

  const size_t data = (64 * 32 + 32 + 32) * sizeof(float);
  EXPECT_EQ(outside->bytes(), static_cast<int64_t>(b_.Bytes().size() + data));
  std::string changed = *support::ReadFile(File("sub/w.bin"), 1 << 20);
  changed[100] ^= 1;
  Write("sub/w.bin", changed);
  auto other = OnnxModel::Open(File("m.onnx"), WithData());
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(other->digest(), outside->digest());

  // Who may not name files gets none.
  auto sent = OnnxModel::Open(File("m.onnx"), {});
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(support::Slug(ImportOnnx(*sent).status()), "graph.onnx.external_data");
  EXPECT_EQ(support::Slug(ImportOnnx(b_.Bytes()).status()), "graph.onnx.external_data");
}

TEST_F(OnnxModelTest, EmbeddedDataMakesOneFile) {
  auto inside = OnnxModel::Parse(b_.Bytes());
  std::string bytes = b_.Bytes();
  const std::string before = bytes;
  ASSERT_TRUE(EmbedExternalData(File("m.onnx"), &bytes).ok());
  EXPECT_EQ(bytes, before) << "nothing lies outside";
  Write("w.bin", MoveData("w.bin"));
  bytes = b_.Bytes();
  const absl::Status embedded = EmbedExternalData(File("m.onnx"), &bytes);
  ASSERT_TRUE(embedded.ok()) << embedded;
  auto one = OnnxModel::Parse(bytes);
  ASSERT_TRUE(one.ok() && inside.ok()) << one.status();
  EXPECT_EQ(ImportedText(*one), ImportedText(*inside));
}

TEST_F(OnnxModelTest, GraphsShareWeights) {
  Write("w.bin", MoveData("w.bin"));
  Write("m.onnx", b_.Bytes());
  auto model = OnnxModel::Open(File("m.onnx"), WithData());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto data_of = [&] {
    auto graph = ImportOnnx(*model);
    EXPECT_TRUE(graph.ok()) << graph.status();
    for (const Value& value : graph->values) {
      if (value.name == "w") return value.constant;
    }
    return std::shared_ptr<const ConstantData>();
  };
  const auto first = data_of();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first, data_of());
}

// Reading a model and importing it takes the memory of its weights once.
TEST_F(OnnxModelTest, WeightsAreInMemoryOnce) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "memory under a sanitizer says nothing";
#endif
  constexpr int64_t kSide = 1024, kLayers = 24;  // 96 MiB
  for (const bool external : {false, true}) {
    OnnxBuilder b;
    b.Input("x", {1, kSide}).Output("m" + std::to_string(kLayers - 1), {1, kSide});
    const std::string data(kSide * kSide * sizeof(float), '\1');
    for (int64_t i = 0; i < kLayers; ++i) {
      const std::string n = std::to_string(i);
      pb::TensorProto* w = b.graph().add_initializer();
      w->set_name("w" + n);
      w->set_data_type(pb::TensorProto::FLOAT);
      w->add_dims(kSide);
      w->add_dims(kSide);
      if (external) {
        w->set_data_location(pb::TensorProto::EXTERNAL);
        Entry(w, "location", "w" + n);
        Write("w" + n, data);
      } else {
        w->set_raw_data(data);
      }
      b.Node("MatMul", {i == 0 ? "x" : "m" + std::to_string(i - 1), "w" + n}, "m" + n);
    }
    Write("large.onnx", b.Bytes());
    b = OnnxBuilder();
    malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts here
    const int64_t before = tests::StatusKb("VmRSS");
    auto model = OnnxModel::Open(File("large.onnx"), WithData());
    ASSERT_TRUE(model.ok()) << model.status();
    auto graph = ImportOnnx(*model);
    ASSERT_TRUE(graph.ok()) << graph.status();
    const int64_t weights = kLayers * static_cast<int64_t>(data.size()) / 1024;
    EXPECT_GE(tests::StatusKb("VmHWM") - before, weights) << "it measures nothing";
    EXPECT_LE(tests::StatusKb("VmHWM") - before, weights * 5 / 4) << external;
  }
}

// A cache of downloads: links from names to files of one folder.
TEST_F(OnnxModelTest, LinksIntoTheFolderOfTheModelsFile) {
  auto inside = OnnxModel::Parse(b_.Bytes());
  fs::create_directories(File("blobs"));
  fs::create_directories(File("snapshot"));
  Write("blobs/1", MoveData("w.bin"));
  Write("blobs/2", b_.Bytes());
  fs::create_symlink("../blobs/1", File("snapshot/w.bin"));
  fs::create_symlink("../blobs/2", File("snapshot/m.onnx"));
  auto linked = OnnxModel::Open(File("snapshot/m.onnx"), WithData());
  ASSERT_TRUE(linked.ok() && inside.ok()) << linked.status();
  EXPECT_EQ(ImportedText(*linked), ImportedText(*inside));
}

TEST_F(OnnxModelTest, FilesOutsideOfTheFolderAreNotRead) {
  const std::string data = MoveData("w.bin");
  fs::create_directories(File("models/sub"));
  fs::create_directories(File("models/w.dir"));
  Write("secret.bin", data);
  Write("models/w.bin", data);
  fs::create_symlink("../secret.bin", File("models/link.bin"));
  fs::create_symlink("..", File("models/up"));
  const auto status_of = [&](const std::string& location) {
    for (pb::TensorProto* tensor : Tensors()) Entry(tensor, "location", location);
    Write("models/m.onnx", b_.Bytes());
    return OnnxModel::Open(File("models/m.onnx"), WithData()).status();
  };
  for (const std::string& location :
       {std::string("../secret.bin"), File("secret.bin"), File("models/w.bin"),
        std::string("sub/../../secret.bin"), std::string("link.bin"), std::string("up/secret.bin"),
        std::string("w.dir"), std::string(""), std::string("w.bin\0x", 7), std::string("none"),
        std::string(5000, 'a'), std::string("/dev/zero")}) {
    const absl::Status status = status_of(location);
    EXPECT_EQ(support::Slug(status), "graph.onnx.external_data") << location << " " << status;
    EXPECT_THAT(support::Detail(status), HasSubstr("tensor \"w\"")) << location;
  }
  EXPECT_TRUE(status_of("w.bin").ok());
  EXPECT_TRUE(status_of("./w.bin").ok());
}

TEST_F(OnnxModelTest, PlacesInTheFileAreChecked) {
  const std::string data = MoveData("w.bin");
  Write("w.bin", data);
  pb::TensorProto* w = Tensors()[0];
  const auto slug_with = [&](const char* key, const std::string& value) {
    const pb::TensorProto before = *w;
    Entry(w, key, value);
    const absl::Status status = Opened();
    *w = before;
    return support::Slug(status);
  };
  EXPECT_TRUE(Opened().ok());
  EXPECT_EQ(slug_with("offset", "x"), "graph.onnx.external_data");
  EXPECT_EQ(slug_with("offset", "-4"), "graph.onnx.external_data");
  EXPECT_EQ(slug_with("offset", "99999999999999999999"), "graph.onnx.external_data");
  EXPECT_EQ(slug_with("offset", "9223372036854775807"), "graph.onnx.tensor_data");
  EXPECT_EQ(slug_with("offset", std::to_string(data.size() - 4)), "graph.onnx.tensor_data");
  EXPECT_EQ(slug_with("length", "8"), "graph.onnx.tensor_data");
  w->set_dims(0, int64_t{1} << 40);
  EXPECT_EQ(support::Slug(Opened()), "graph.onnx.too_large");
  w->set_dims(0, 64);
  Write("w.bin", data.substr(0, data.size() - 1));
  EXPECT_EQ(support::Slug(Opened()), "graph.onnx.tensor_data");
}

TEST_F(OnnxModelTest, CheckSaysWhatIsMissing) {
  MoveData("w.bin");
  Write("m.onnx", b_.Bytes());
  OnnxModel::OpenOptions options = WithData();
  EXPECT_EQ(support::Slug(OnnxModel::Open(File("m.onnx"), options).status()),
            "graph.onnx.external_data");
  options.keep_going = true;
  auto model = OnnxModel::Open(File("m.onnx"), options);
  ASSERT_TRUE(model.ok()) << model.status();
  auto check = CheckOnnx(*model);
  ASSERT_TRUE(check.ok()) << check.status();
  ASSERT_FALSE(check->problems.empty());
  EXPECT_EQ(check->problems[0].slug, "graph.onnx.external_data");
  EXPECT_EQ(check->problems[0].what, "w.bin");
  EXPECT_THAT(check->problems[0].detail, HasSubstr("No such file"));
  EXPECT_THAT(check->problems[0].where, ElementsAre("\"w\"", "\"k\""));
}

TEST_F(OnnxModelTest, WhatIsNoModel) {
  Write("m.onnx", "no model");
  EXPECT_EQ(support::Slug(OnnxModel::Open(File("m.onnx"), {}).status()), "graph.onnx.not_onnx");
  Write("m.onnx", "");
  EXPECT_EQ(support::Slug(OnnxModel::Open(File("m.onnx"), {}).status()), "graph.onnx.not_onnx");
  Write("m.onnx", b_.Bytes().substr(0, 2000));
  EXPECT_EQ(support::Slug(OnnxModel::Open(File("m.onnx"), {}).status()), "graph.onnx.not_onnx");
  OnnxModel::OpenOptions small;
  small.max_bytes = 1000;
  EXPECT_EQ(support::Slug(OnnxModel::Open(File("m.onnx"), small).status()), "graph.onnx.too_large");
  EXPECT_TRUE(absl::IsNotFound(OnnxModel::Open(File("none.onnx"), {}).status()));
  EXPECT_FALSE(OnnxModel::Open(File(""), {}).ok()) << "a folder";
}

}  // namespace
}  // namespace tilewright::graph
