#include "compiler/onnx/onnx_model.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fstream>
#include <utility>

#include "compiler/onnx/onnx_custom_ops.h"
#include "compiler/onnx/onnx_external_data.h"
#include "compiler/onnx/onnx_functions.h"
#include "compiler/onnx/onnx_import.h"
#include "compiler/onnx/onnx_importer.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace onnx {
namespace {

using support::StrCat;

// Smaller tensors may be shapes, which conversions read; they stay in their messages.
constexpr size_t kMinWeight = 4096;

absl::Status CheckSize(uint64_t bytes, int64_t max_bytes) {
  const auto limit = static_cast<uint64_t>(std::min<int64_t>(max_bytes, INT_MAX));
  if (bytes <= limit) return absl::OkStatus();
  return Bad("too_large", StrCat("expected a model of at most ", limit, " bytes, found ", bytes));
}

absl::Status ParseStream(google::protobuf::io::ZeroCopyInputStream* stream, uint64_t bytes,
                         pb::ModelProto* model) {
  google::protobuf::io::CodedInputStream coded(stream);
  coded.SetTotalBytesLimit(INT_MAX);
  if (bytes == 0 || !model->ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) {
    return Bad("not_onnx", StrCat("expected an ONNX model, found ", bytes,
                                  " bytes that are none or a part of one"));
  }
  if (!model->has_graph()) return absl::OkStatus();
  ReadInputsAsTensors(*model->mutable_graph());
  NameUnknownSizes(*model->mutable_graph());
  return absl::OkStatus();
}

// Bytes of a file, which join a digest on their way.
class HashedFile : public google::protobuf::io::CopyingInputStream {
 public:
  HashedFile(const std::string& path, support::Sha256* digest)
      : in_(path, std::ios::binary), digest_(*digest) {}
  bool is_open() const { return in_.is_open(); }
  bool failed() const { return in_.bad(); }
  int Read(void* buffer, int size) override {
    in_.read(static_cast<char*>(buffer), size);
    const auto got = static_cast<int>(in_.gcount());
    digest_.Update(buffer, static_cast<size_t>(got));
    return in_.bad() ? -1 : got;
  }

 private:
  std::ifstream in_;
  support::Sha256& digest_;
};

// What the import converts itself, or by definitions that its user gave, is better known than by
// the body that came with the model.
absl::Status InlineUnknownFunctions(pb::ModelProto* model) {
  if (model->functions_size() == 0 || !model->has_graph()) return absl::OkStatus();
  CustomOperators custom;
  const bool read = custom.Read(*model).ok();  // the import says what is wrong with them
  return InlineFunctions(
      [&](const pb::NodeProto& node) {
        return (read && custom.Find(node) != nullptr) ||
               FindConversion(node.op_type(), node.domain()) != nullptr;
      },
      model);
}

void TakeWeights(OnnxModel::Parsed* parsed) {
  if (!parsed->proto.has_graph()) return;
  for (pb::TensorProto& tensor : *parsed->proto.mutable_graph()->mutable_initializer()) {
    if (IsExternal(tensor) || tensor.raw_data().size() < kMinWeight) continue;
    const absl::StatusOr<StoredType> stored = StoredTypeOf(tensor, kMaxExternalBytes);
    if (!stored.ok() || stored->packed != nullptr) continue;
    parsed->weights[&tensor] =
        std::make_shared<ConstantData>(std::move(*tensor.mutable_raw_data()));
  }
}

}  // namespace

absl::StatusOr<pb::ModelProto> ParseModel(std::string_view bytes, int64_t max_bytes) {
  TW_TRY(CheckSize(bytes.size(), max_bytes));
  pb::ModelProto model;
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  TW_TRY(ParseStream(&stream, bytes.size(), &model));
  return model;
}

}  // namespace onnx

absl::StatusOr<OnnxModel> OnnxModel::Parse(std::string_view bytes, int64_t max_bytes) {
  auto parsed = std::make_shared<Parsed>();
  TW_ASSIGN(parsed->proto, onnx::ParseModel(bytes, max_bytes));
  TW_TRY(onnx::InlineUnknownFunctions(&parsed->proto));
  onnx::TakeWeights(parsed.get());
  parsed->digest = support::Sha256Hex(bytes);
  parsed->bytes = static_cast<int64_t>(bytes.size());
  return OnnxModel(std::move(parsed));
}

absl::StatusOr<OnnxModel> OnnxModel::Open(const std::string& path, const OpenOptions& options) {
  auto parsed = std::make_shared<Parsed>();
  onnx::pb::ModelProto& proto = parsed->proto;
  TW_ASSIGN(const uint64_t size, support::FileSize(path));
  TW_TRY(onnx::CheckSize(size, options.max_bytes));
  support::Sha256 digest;
  {
    errno = 0;
    onnx::HashedFile file(path, &digest);
    if (!file.is_open()) return support::ErrnoError(errno, "file.read.failed", path);
    google::protobuf::io::CopyingInputStreamAdaptor stream(&file);
    const absl::Status status = onnx::ParseStream(&stream, size, &proto);
    if (file.failed()) return support::ErrnoError(errno, "file.read.failed", path);
    TW_TRY(status);
  }
  parsed->bytes = static_cast<int64_t>(size);
  for (const OperatorFile& file : options.operators) {
    std::string more;
    TW_TRY(AddOperators(file, &more));
    if (!proto.MergeFromString(more)) return onnx::Bad("not_onnx", "operators do not join it");
    digest.Update(more);
    parsed->bytes += static_cast<int64_t>(more.size());
  }
  TW_TRY(onnx::InlineUnknownFunctions(&proto));
  if (options.external_data) {
    onnx::ExternalData external = onnx::LoadExternalData(path, &proto, &digest);
    if (!external.errors.empty() && !options.keep_going) return external.errors[0].second;
    parsed->bytes += external.bytes;
    parsed->not_loaded = std::move(external.errors);
  }
  onnx::TakeWeights(parsed.get());
  parsed->digest = support::DigestHex(digest.Finish());
  return OnnxModel(std::move(parsed));
}

const std::string& OnnxModel::digest() const { return parsed_->digest; }
int64_t OnnxModel::bytes() const { return parsed_->bytes; }

absl::Status EmbedExternalData(const std::string& model_path, std::string* bytes) {
  TW_ASSIGN(onnx::pb::ModelProto model, onnx::ParseModel(*bytes, int64_t{kMaxModelBytes}));
  const onnx::ExternalData external = onnx::LoadExternalData(model_path, &model, nullptr);
  if (!external.errors.empty()) return external.errors[0].second;
  if (external.tensors == 0) return absl::OkStatus();
  TW_TRY(onnx::CheckSize(bytes->size() + static_cast<uint64_t>(external.bytes), INT_MAX));
  if (!model.SerializeToString(bytes)) {
    return onnx::Bad("too_large", "expected a model that fits one file of 2 GiB, found more");
  }
  return absl::OkStatus();
}

}  // namespace tilewright::graph
