#include "compiler/onnx/onnx_external_data.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "compiler/onnx/onnx_importer.h"
#include "compiler/onnx/onnx_model.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

namespace fs = std::filesystem;

using support::Quote;
using support::StrCat;

// Initializers and attributes, those of subgraphs, too.
void ForEachTensor(pb::GraphProto* graph, const std::function<void(pb::TensorProto*)>& visit) {
  for (pb::TensorProto& tensor : *graph->mutable_initializer()) visit(&tensor);
  for (pb::NodeProto& node : *graph->mutable_node()) {
    for (pb::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) visit(attribute.mutable_t());
      for (pb::TensorProto& tensor : *attribute.mutable_tensors()) visit(&tensor);
      if (attribute.has_g()) ForEachTensor(attribute.mutable_g(), visit);
      for (pb::GraphProto& body : *attribute.mutable_graphs()) ForEachTensor(&body, visit);
    }
  }
}

// Where a tensor says that its data is.
struct Place {
  std::string file;
  int64_t offset = 0;
  std::optional<int64_t> length;
};

class Loader {
 public:
  Loader(const std::string& model_path, support::Sha256* digest) : digest_(digest) {
    std::error_code ignored;
    const fs::path model(model_path);
    folder_ = model.has_parent_path() ? model.parent_path() : fs::path(".");
    for (const fs::path& folder : {folder_, fs::canonical(model, ignored).parent_path()}) {
      std::error_code error;
      fs::path real = fs::canonical(folder, error);
      if (!error && !folder.empty()) allowed_.push_back(std::move(real));
    }
  }

  void Load(pb::TensorProto* tensor) {
    absl::Status status = Read(tensor);
    if (!status.ok()) loaded_.errors.emplace_back(tensor, std::move(status));
  }
  ExternalData Take() { return std::move(loaded_); }

 private:
  absl::Status Read(pb::TensorProto* tensor) {
    const std::string what = StrCat("tensor ", Quote(tensor->name()));
    TW_ASSIGN(const Place place, PlaceOf(*tensor, what));
    TW_ASSIGN(const fs::path path, PathOf(place, what));
    TW_ASSIGN(const int64_t bytes, BytesOf(*tensor, place, what));
    std::error_code error;
    const auto size = static_cast<int64_t>(fs::file_size(path, error));
    if (error || place.offset > size || bytes > size - place.offset) {
      return Bad("tensor_data",
                 StrCat(what, ": expected ", bytes, " bytes at ", place.offset, " of ",
                        Quote(place.file), ", found a file of ", error ? 0 : size));
    }
    if (bytes > kMaxExternalBytes - loaded_.bytes) {
      return Bad("too_large", StrCat(what, ": expected at most ", kMaxExternalBytes,
                                     " bytes of data in other files, found more"));
    }
    ++loaded_.tensors;
    loaded_.bytes += bytes;
    std::string data(static_cast<size_t>(bytes), '\0');
    std::ifstream in(path, std::ios::binary);
    in.seekg(place.offset);
    if (!in.read(data.data(), bytes)) {
      return Bad("external_data",
                 StrCat(what, ": expected a file that can be read, found ", Quote(place.file)));
    }
    if (digest_ != nullptr) digest_->Update(data);
    tensor->clear_external_data();
    tensor->clear_data_location();
    tensor->set_raw_data(std::move(data));
    return absl::OkStatus();
  }

  static absl::StatusOr<Place> PlaceOf(const pb::TensorProto& tensor, const std::string& what) {
    Place place{.file = ExternalFile(tensor), .length = std::nullopt};
    for (const auto& entry : tensor.external_data()) {
      if (entry.key() != "offset" && entry.key() != "length") continue;
      const std::optional<int64_t> value = support::ParseInt64(entry.value());
      if (!value || *value < 0) {
        return Bad("external_data", StrCat(what, ": expected a number as ", entry.key(), ", found ",
                                           Quote(entry.value(), 40)));
      }
      (entry.key() == "offset" ? place.offset : place.length.emplace()) = *value;
    }
    return place;
  }

  // The data must lie where the model does.
  absl::StatusOr<fs::path> PathOf(const Place& place, const std::string& what) {
    const auto known = paths_.find(place.file);
    if (known != paths_.end()) return known->second;
    const auto bad = [&](std::string_view found) {
      return Bad("external_data", StrCat(what, ": expected a file in the model's folder, found ",
                                         Quote(place.file), found));
    };
    const fs::path stated(place.file);
    if (place.file.empty() || place.file.find('\0') != std::string::npos || stated.is_absolute() ||
        std::any_of(stated.begin(), stated.end(), [](auto& part) { return part == ".."; })) {
      return bad(", which is not inside of it");
    }
    std::error_code error;
    fs::path real = fs::canonical(folder_ / stated, error);
    if (error) return bad(StrCat(": ", error.message()));
    const auto lies_in = [&](const fs::path& folder) {
      return std::mismatch(folder.begin(), folder.end(), real.begin(), real.end()).first ==
             folder.end();
    };
    if (std::none_of(allowed_.begin(), allowed_.end(), lies_in))
      return bad(", a link that leaves it");
    if (!fs::is_regular_file(real, error)) return bad(", which is no file");
    return paths_.emplace(place.file, std::move(real)).first->second;
  }

  static absl::StatusOr<int64_t> BytesOf(const pb::TensorProto& tensor, const Place& place,
                                         const std::string& what) {
    TW_ASSIGN(const StoredType stored, StoredTypeOf(tensor, kMaxExternalBytes));
    if (place.length.value_or(stored.bytes) != stored.bytes) {
      return Bad("tensor_data", StrCat(what, ": expected ", stored.bytes, " bytes of data, found ",
                                       *place.length, " in ", Quote(place.file)));
    }
    return stored.bytes;
  }

  support::Sha256* const digest_;
  fs::path folder_;
  std::vector<fs::path> allowed_;          // real folders
  std::map<std::string, fs::path> paths_;  // by what the model states
  ExternalData loaded_;
};

}  // namespace

ExternalData LoadExternalData(const std::string& model_path, pb::ModelProto* model,
                              support::Sha256* digest) {
  Loader loader(model_path, digest);
  if (!model->has_graph()) return {};
  ForEachTensor(model->mutable_graph(), [&](pb::TensorProto* tensor) {
    if (IsExternal(*tensor)) loader.Load(tensor);
  });
  return loader.Take();
}

}  // namespace tilewright::graph::onnx
