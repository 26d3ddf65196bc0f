// External kernels (deploy/runtime/external_kernel.h) that decode images, for ONNX's ImageDecoder.
// ImageMagick decodes. The bytes may come from anybody: their first ones say which of the formats
// below they are, and that decoder gets them, no other. Thread-safe.
#include <magick/MagickCore.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/runtime/external_kernel.h"

namespace {

using namespace std::string_view_literals;

// What a function returns; deploy/docs/custom_operators.md says it to users.
enum Result : int32_t {
  kOk = 0,
  kWrongCall = 1,    // another number of tensors, another type, rank or attribute
  kNoResources = 2,  // more than kMostSide, or than the machine's limits for ImageMagick
  kNoDecoder = 3,    // this installation of ImageMagick lacks the decoder
};

constexpr MagickSizeType kMostSide = 16384;  // pixels

struct Format {
  std::string_view start;
  const char* decoder;
};
constexpr Format kFormats[] = {
    {"BM"sv, "BMP"},
    {"\xFF\xD8\xFF"sv, "JPEG"},
    {"\0\0\0\x0CjP  \r\n\x87\n"sv, "JP2"},
    {"\xFF\x4F\xFF\x51"sv, "J2K"},
    {"\x89PNG\r\n\x1A\n"sv, "PNG"},
    {"II*\0"sv, "TIFF"},
    {"MM\0*"sv, "TIFF"},
    {"P1"sv, "PNM"},
    {"P2"sv, "PNM"},
    {"P3"sv, "PNM"},
    {"P4"sv, "PNM"},
    {"P5"sv, "PNM"},
    {"P6"sv, "PNM"},
};

// Null for other bytes.
const char* DecoderOf(std::string_view bytes) {
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP")) return "WEBP";
  for (const Format& format : kFormats) {
    if (bytes.starts_with(format.start)) return format.decoder;
  }
  return nullptr;
}

struct FreeImages {
  void operator()(Image* images) const { DestroyImageList(images); }
};
using Images = std::unique_ptr<Image, FreeImages>;

void StartOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    MagickCoreGenesis(nullptr, MagickFalse);  // false: no signal handlers
    SetMagickResourceLimit(WidthResource, kMostSide);
    SetMagickResourceLimit(HeightResource, kMostSide);
    SetMagickResourceLimit(ThreadResource, 1);
  });
}

// Of an image that was not decoded: kOk where the bytes are the reason.
Result ReasonOf(ExceptionType severity) {
  switch (severity) {
    case ResourceLimitError:
    case ResourceLimitFatalError:
    case CacheError:
    case ImageError:
    case PolicyError:
      return kNoResources;
    case MissingDelegateError:
    case ModuleError:
      return kNoDecoder;
    default:
      return kOk;
  }
}

bool IsProblem(ExceptionType severity) {
  return severity >= ErrorException || severity == CorruptImageWarning;
}

// The first image as RGB or grayscale; null where the bytes cannot be decoded as a whole.
Result Decode(std::string_view bytes, Images* image) {
  image->reset();
  const char* decoder = DecoderOf(bytes);
  if (decoder == nullptr) return kOk;
  StartOnce();
  const std::unique_ptr<ImageInfo, ImageInfo* (*)(ImageInfo*)> info(AcquireImageInfo(),
                                                                    DestroyImageInfo);
  const std::unique_ptr<ExceptionInfo, ExceptionInfo* (*)(ExceptionInfo*)> problem(
      AcquireExceptionInfo(), DestroyExceptionInfo);
  CopyMagickString(info->magick, decoder, MaxTextExtent);
  info->number_scenes = 1;
  SetImageOption(info.get(), "tiff:ignore-layers", "true");  // Photoshop's, inside of a TIFF
  Images decoded(BlobToImage(info.get(), bytes.data(), bytes.size(), problem.get()));
  if (decoded == nullptr || IsProblem(problem->severity)) return ReasonOf(problem->severity);
  if (IsProblem(decoded->exception.severity)) return ReasonOf(decoded->exception.severity);
  if (decoded->columns == 0 || decoded->rows == 0) return kOk;
  // Others keep their numbers, as those of a PNG with a gamma.
  const bool other = decoded->colorspace == CMYKColorspace ||
                     decoded->colorspace == LabColorspace || decoded->colorspace == YCbCrColorspace;
  if (other && TransformImageColorspace(decoded.get(), sRGBColorspace) == MagickFalse) {
    return kNoResources;
  }
  *image = std::move(decoded);
  return kOk;
}

// What a thread decoded for its size, until it asks for the elements: both functions see the same
// bytes in a run.
struct Kept {
  std::string bytes;
  Images image;
};
thread_local Kept kept;

bool HasType(const DLTensor& tensor, uint8_t code, uint8_t bits, int32_t rank) {
  return tensor.dtype.code == code && tensor.dtype.bits == bits && tensor.ndim == rank;
}

std::string_view BytesOf(const DLTensor& tensor) {
  return {static_cast<const char*>(tensor.data), static_cast<size_t>(tensor.shape[0])};
}

// Three channels in the order of `map`.
bool Export(const Image& image, int64_t row, int64_t rows, const char* map, uint8_t* out) {
  ExceptionInfo* problem = AcquireExceptionInfo();
  const MagickBooleanType done = ExportImagePixels(
      &image, 0, row, image.columns, static_cast<size_t>(rows), map, CharPixel, out, problem);
  DestroyExceptionInfo(problem);
  return done == MagickTrue;
}

// ITU-R 601 in 16 bits, rounded: what Pillow computes, and so ONNX's own tests.
bool ExportGrayscale(const Image& image, uint8_t* out) {
  std::vector<uint8_t> rgb(image.columns * 3);
  for (int64_t row = 0; row < static_cast<int64_t>(image.rows); ++row) {
    if (!Export(image, row, 1, "RGB", rgb.data())) return false;
    for (size_t x = 0; x < rgb.size(); x += 3) {
      const int sum = 19595 * rgb[x] + 38470 * rgb[x + 1] + 7471 * rgb[x + 2];
      *out++ = static_cast<uint8_t>((sum + 0x8000) >> 16);
    }
  }
  return true;
}

}  // namespace

#define TW_EXPORTED extern "C" __attribute__((visibility("default")))

// bytes u8[n] -> height and width i64[2]; 0 and 0 for what cannot be decoded.
TW_EXPORTED int32_t tilewright_image_size(const DLTensor* in, int32_t ins, DLTensor* out,
                                          int32_t outs, const char*) {
  if (ins != 1 || outs != 1 || !HasType(in[0], kDLUInt, 8, 1) || !HasType(out[0], kDLInt, 64, 1) ||
      out[0].shape[0] != 2) {
    return kWrongCall;
  }
  const std::string_view bytes = BytesOf(in[0]);
  const Result result = Decode(bytes, &kept.image);
  if (result != kOk) return result;
  auto* size = static_cast<int64_t*>(out[0].data);
  size[0] = kept.image == nullptr ? 0 : static_cast<int64_t>(kept.image->rows);
  size[1] = kept.image == nullptr ? 0 : static_cast<int64_t>(kept.image->columns);
  kept.bytes = kept.image == nullptr ? "" : bytes;
  return kOk;
}

// bytes u8[n], height [h], width [w], of which only the shapes count -> pixels u8[h, w, c]
TW_EXPORTED int32_t tilewright_decode_image(const DLTensor* in, int32_t ins, DLTensor* out,
                                            int32_t outs, const char* attributes) {
  const std::string_view format = attributes;
  const bool gray = format == "pixel_format = \"Grayscale\"\n";
  const bool rgb = format == "pixel_format = \"RGB\"\n";
  const bool known = gray || rgb || format == "pixel_format = \"BGR\"\n";
  if (ins != 3 || outs != 1 || !known || !HasType(in[0], kDLUInt, 8, 1) ||
      !HasType(out[0], kDLUInt, 8, 3) || out[0].shape[2] != (gray ? 1 : 3)) {
    return kWrongCall;
  }
  Images image;
  if (kept.image != nullptr && kept.bytes == BytesOf(in[0])) {
    image = std::exchange(kept, {}).image;
  } else if (const Result result = Decode(BytesOf(in[0]), &image); result != kOk) {
    return result;
  }
  const int64_t height = image == nullptr ? 0 : static_cast<int64_t>(image->rows);
  const int64_t width = image == nullptr ? 0 : static_cast<int64_t>(image->columns);
  auto* pixels = static_cast<uint8_t*>(out[0].data);
  if (out[0].shape[0] != height || out[0].shape[1] != width) {
    const int64_t bytes = out[0].shape[0] * out[0].shape[1] * out[0].shape[2];
    std::fill_n(pixels, bytes, uint8_t{0});  // the run finds that the model states another size
    return kOk;
  }
  if (image == nullptr) return kOk;
  const bool done = gray ? ExportGrayscale(*image, pixels)
                         : Export(*image, 0, height, rgb ? "RGB" : "BGR", pixels);
  return done ? kOk : kNoResources;
}
