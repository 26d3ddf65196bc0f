// libtilewright_images.so, called as the runtime calls it: pixels of files that Pillow wrote, and
// bytes that are no image; ImageDecoder of ONNX in a compiled module.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/onnx/onnx_import.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/external_library.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/file.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "tests/support/run_compiled.h"
#include "tests/support/test_seed.h"
#include "tests/unit/onnx_builder.h"

namespace tilewright {
namespace {

constexpr int64_t kHeight = 6, kWidth = 9;
constexpr int64_t kOpen = -1;  // a size that a model does not state
constexpr const char* kFiles[] = {"bmp", "jpg", "jp2", "j2k", "png", "pnm", "tif", "webp"};
constexpr char kPath[] = TILEWRIGHT_IMAGES_LIBRARY;
enum { kOk = 0, kWrongCall = 1, kNoResources = 2 };

std::string File(const std::string& ending) {
  auto bytes =
      support::ReadFile(TILEWRIGHT_SOURCE_DIR "/tests/unit/images/image." + ending, 1 << 16);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.value_or("");
}
// What Pillow makes of a file: the lossy ones have pixels of their own.
std::string Pixels(const std::string& ending, const std::string& format) {
  if (format == "Grayscale") return File("gray");
  const bool lossy = ending == "jpg" || ending == "webp";
  std::string pixels = File(lossy ? ending + ".rgb" : "rgb");
  for (size_t i = 0; format == "BGR" && i < pixels.size(); i += 3) {
    std::swap(pixels[i], pixels[i + 2]);
  }
  return pixels;
}

DLTensor TensorOf(void* data, uint8_t code, uint8_t bits, std::vector<int64_t>& shape) {
  return {
      data, {kDLCPU, 0}, static_cast<int32_t>(shape.size()), {code, bits, 1}, shape.data(), nullptr,
      0};
}

class Images : public testing::Test {
 protected:
  void SetUp() override {
    if (kPath[0] == '\0') {
      std::fprintf(stderr, "[SKIP] built without TILEWRIGHT_BUILD_IMAGES: no image is decoded\n");
      GTEST_SKIP();
    }
    const auto use =
        libraries_.Load("libtilewright_images.so\n", std::array<std::string, 1>{kPath});
    ASSERT_TRUE(use.ok()) << use.status();
    size_ = *runtime::ExternalLibraries::Find(*use, "tilewright_image_size");
    decode_ = *runtime::ExternalLibraries::Find(*use, "tilewright_decode_image");
  }

  int SizeOf(std::string bytes, std::vector<int64_t>* size) {
    std::vector<int64_t> n = {static_cast<int64_t>(bytes.size())}, two = {2};
    *size = {-1, -1};
    const DLTensor in = TensorOf(bytes.data(), kDLUInt, 8, n);
    DLTensor out = TensorOf(size->data(), kDLInt, 64, two);
    return size_(&in, 1, &out, 1, "");
  }
  int Decode(std::string bytes, int64_t height, int64_t width, const std::string& format,
             std::string* pixels) {
    const int64_t channels = format == "Grayscale" ? 1 : 3;
    std::vector<int64_t> n = {static_cast<int64_t>(bytes.size())}, h = {height}, w = {width};
    std::vector<int64_t> shape = {height, width, channels};
    pixels->assign(static_cast<size_t>(height * width * channels), '\x5A');
    const DLTensor in[] = {TensorOf(bytes.data(), kDLUInt, 8, n), TensorOf(nullptr, kDLInt, 64, h),
                           TensorOf(nullptr, kDLInt, 64, w)};
    DLTensor out = TensorOf(pixels->data(), kDLUInt, 8, shape);
    return decode_(in, 3, &out, 1, ("pixel_format = \"" + format + "\"\n").c_str());
  }
  // Bytes that may be an image or not: no crash, no sanitizer's report, and both functions agree.
  void ExpectHandled(const std::string& bytes) {
    constexpr int64_t kMostPixels = 1 << 22;
    std::vector<int64_t> size;
    const int code = SizeOf(bytes, &size);
    ASSERT_TRUE(code == kOk || code == kNoResources) << code;
    if (code != kOk || size[0] * size[1] > kMostPixels) return;
    std::string pixels;
    ASSERT_EQ(Decode(bytes, size[0], size[1], "RGB", &pixels), kOk);
  }
  void ExpectNone(const std::string& bytes) {
    std::vector<int64_t> size;
    EXPECT_EQ(SizeOf(bytes, &size), kOk);
    EXPECT_EQ(size, (std::vector<int64_t>{0, 0}));
    std::string pixels;
    EXPECT_EQ(Decode(bytes, 0, 0, "RGB", &pixels), kOk);
    EXPECT_EQ(Decode(bytes, kHeight, kWidth, "RGB", &pixels), kOk);
    EXPECT_EQ(pixels, std::string(kHeight * kWidth * 3, '\0'));
  }

  runtime::ExternalLibraries libraries_;
  TwExternalKernel size_ = nullptr, decode_ = nullptr;
};

TEST_F(Images, FilesOfEachFormatGiveThePixelsOfPillow) {
  for (const std::string ending : kFiles) {
    std::vector<int64_t> size;
    EXPECT_EQ(SizeOf(File(ending), &size), kOk);
    EXPECT_EQ(size, (std::vector<int64_t>{kHeight, kWidth})) << ending;
    for (const std::string format : {"RGB", "BGR", "Grayscale"}) {
      if (format == "Grayscale" && Pixels(ending, "RGB") != File("rgb")) continue;  // lossy
      std::string pixels;
      EXPECT_EQ(Decode(File(ending), kHeight, kWidth, format, &pixels), kOk);
      EXPECT_EQ(pixels, Pixels(ending, format)) << ending << " " << format;
    }
  }
}

// What the size was asked of is not what is decoded.
TEST_F(Images, EachCallSeesItsOwnBytes) {
  std::vector<int64_t> size;
  std::string pixels;
  EXPECT_EQ(SizeOf(File("jpg"), &size), kOk);
  EXPECT_EQ(Decode(File("webp"), kHeight, kWidth, "RGB", &pixels), kOk);
  EXPECT_EQ(pixels, File("webp.rgb"));
  EXPECT_EQ(Decode(File("jpg"), kHeight, kWidth, "RGB", &pixels), kOk);
  EXPECT_EQ(pixels, File("jpg.rgb"));
}

TEST_F(Images, ThreadsDecodeAtTheSameTime) {
  std::vector<std::thread> threads;
  for (const std::string ending : kFiles) {
    threads.emplace_back([this, ending, file = File(ending), expected = Pixels(ending, "RGB")] {
      for (int round = 0; round < 50; ++round) {
        std::vector<int64_t> size;
        std::string pixels;
        EXPECT_EQ(SizeOf(file, &size), kOk);
        EXPECT_EQ(Decode(file, size[0], size[1], "RGB", &pixels), kOk);
        EXPECT_EQ(pixels, expected) << ending;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Images, OtherBytesAreNoImage) {
  ExpectNone("");
  for (const char* bytes :
       {"P", "P7\n", "BM", "\xFF\xD8\xFF", "GIF89a", "RIFF....WAVE", "%!PS-Adobe-3.0",
        "push graphic-context\nviewbox 0 0 9 6\n", "https://example.com/a.png",
        "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='6'/>"}) {
    ExpectNone(bytes);
  }
  for (const std::string ending : kFiles) {
    ExpectNone(File(ending).substr(0, File(ending).size() / 2));
    ExpectNone(File(ending).substr(1));
  }
}

TEST_F(Images, CutAndChangedFilesDoNoHarm) {
  support::Rng rng(tests::TestSeed());
  for (const std::string ending : kFiles) {
    const std::string whole = File(ending);
    for (size_t length = 0; length < whole.size(); ++length) {
      ExpectHandled(whole.substr(0, length));
    }
    for (int64_t round = tests::TestRounds(300); round > 0; --round) {
      std::string bytes = whole;
      for (uint64_t change = 1 + rng.Uniform(4); change > 0; --change) {
        bytes[rng.Uniform(bytes.size())] = static_cast<char>(rng.Uniform(256));
      }
      ExpectHandled(bytes);
    }
    if (HasFatalFailure()) FAIL() << ending;
  }
}

// Headers that promise more than there is.
TEST_F(Images, HugeSizesAreRefused) {
  std::string jpeg = File("jpg");
  const size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xFD\xE8\xFD\xE8");
  std::vector<int64_t> size;
  EXPECT_EQ(SizeOf(jpeg, &size), kNoResources);
  ExpectNone("P6 16000 16000 255\n0123456789");
  ExpectNone("P6 2000000000 2000000000 255\n0123456789");
}

TEST_F(Images, OutputsOfAnotherSizeAreZeros) {
  for (const auto& [height, width] :
       {std::pair{kHeight - 1, kWidth}, {kWidth, kHeight}, {0l, 0l}}) {
    std::string pixels;
    EXPECT_EQ(Decode(File("png"), height, width, "RGB", &pixels), kOk);
    EXPECT_EQ(pixels, std::string(pixels.size(), '\0'));
  }
  std::string pixels;
  EXPECT_EQ(Decode(File("png"), kHeight, kWidth, "CMYK", &pixels), kWrongCall);
}

// ------------------------------------------------------------ ImageDecoder

// Where `stated` is no size, the model leaves the sizes of the image to the run, up to `most`.
absl::StatusOr<std::shared_ptr<const runtime::LoadedModule>> Compiled(
    const std::string& format, int64_t stated, int64_t most,
    const std::vector<std::string>& libraries = {kPath}) {
  tests::OnnxBuilder b(20);
  b.Input("file", {-1}, tests::pb::TensorProto::UINT8);
  b.Output("y", {stated, stated, format == "Grayscale" ? 1 : 3}, tests::pb::TensorProto::UINT8);
  tests::OnnxBuilder::AttrText(b.Node("ImageDecoder", {"file"}, "y"), "pixel_format", format);
  graph::ImportOptions options;
  options.open = {{"file_0", {0, 4096}}};
  if (stated < 0) options.open.insert({{"y_0", {0, most}}, {"y_1", {0, most}}});
  TW_ASSIGN(const graph::Graph g, graph::ImportOnnx(b.Bytes(), options));
  TW_ASSIGN(const graph::Graph fused, graph::RunGraphPasses(g));
  TW_ASSIGN(const std::string bytes,
            driver::CompileModel(fused, tests::WidestTarget(), nullptr, {}, nullptr));
  return runtime::LoadedModule::Load(*module::ModuleFile::FromBytes(bytes), {libraries});
}

absl::Status RunOnce(runtime::Session* session, const std::string& file) {
  const int64_t bytes = static_cast<int64_t>(file.size());
  TW_TRY(session->SetInputShape(0, {&bytes, 1}));
  TW_TRY(session->SetInput(0, file.data(), file.size()));
  TW_TRY(session->Run());
  return session->CheckGuards();
}

TEST_F(Images, AModelDecodesFilesOfAnySize) {
  runtime::SessionOptions guarded;
  guarded.guard_pages = true;
  for (const std::string format : {"RGB", "BGR", "Grayscale"}) {
    const auto loaded = Compiled(format, kOpen, 64);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    auto session = runtime::Session::Create(*loaded, guarded);
    ASSERT_TRUE(session.ok()) << session.status();
    for (const std::string ending : {"png", "pnm", "", "bmp"}) {  // "": no file
      const absl::Status ran = RunOnce(session->get(), ending.empty() ? "" : File(ending));
      ASSERT_TRUE(ran.ok()) << ran;
      const runtime::TensorView y = (*session)->output(0);
      const std::string pixels(static_cast<const char*>(y.data), y.bytes);
      EXPECT_EQ(pixels, ending.empty() ? "" : Pixels(ending, format)) << ending << format;
      EXPECT_EQ(y.shape[0], ending.empty() ? 0 : kHeight);
      EXPECT_EQ(y.shape[1], ending.empty() ? 0 : kWidth);
    }
  }
}

TEST_F(Images, AModelRefusesLargerImagesThanItsBound) {
  const auto loaded = Compiled("RGB", kOpen, kWidth - 1);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  auto session = runtime::Session::Create(*loaded, {});
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(support::Slug(RunOnce(session->get(), File("png"))), "runtime.session.found_size");
  EXPECT_EQ(support::Slug(Compiled("RGB", kOpen, 64, {}).status()), "runtime.load.library");
}

// Equal sizes are one constant of the graph, which the function gets twice.
TEST_F(Images, AModelMayStateTheSize) {
  const auto loaded = Compiled("RGB", 2, 0);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  auto session = runtime::Session::Create(*loaded, {});
  ASSERT_TRUE(session.ok()) << session.status();
  const absl::Status ran = RunOnce(session->get(), "P6 2 2 255\nabcdefghijkl");
  ASSERT_TRUE(ran.ok()) << ran;
  const runtime::TensorView y = (*session)->output(0);
  EXPECT_EQ(std::string(static_cast<const char*>(y.data), y.bytes), "abcdefghijkl");
  for (const std::string ending : {"png", "jpg"}) {
    const absl::Status other = RunOnce(session->get(), File(ending));
    EXPECT_EQ(support::Slug(other), "runtime.session.stated_shape") << other;
  }
}

}  // namespace
}  // namespace tilewright
