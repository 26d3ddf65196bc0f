#include "compiler/op/tensor_type.h"

#include <algorithm>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr size_t kMaxRank = 16;

}  // namespace

bool TensorType::fixed() const {
  return std::all_of(shape.begin(), shape.end(), [](const Dim& d) { return d.is_constant(); });
}

std::vector<int64_t> TensorType::sizes() const {
  std::vector<int64_t> result;
  result.reserve(shape.size());
  for (const Dim& dim : shape) result.push_back(dim.value());
  return result;
}

int64_t TensorType::elements() const {
  int64_t count = 1;
  for (const Dim& dim : shape) count *= dim.value();
  return count;
}

int64_t TensorType::bytes() const { return elements() * dtype.bytes(); }

std::optional<Dim> BytesOf(const TensorType& type) {
  const std::optional<Dim> elements = Dim::Product(type.shape);
  if (!elements) return std::nullopt;
  return *elements * Dim(type.dtype.bytes());
}

bool SameElements(const TensorType& a, const TensorType& b) {
  if (a.shape == b.shape) return true;
  const std::optional<Dim> x = Dim::Product(a.shape), y = Dim::Product(b.shape);
  return x && y && *x == *y;
}

std::string ToText(const TensorType& type) {
  return StrCat(ir::TypeName(type.dtype), DimsText(type.shape));
}

absl::Status CheckType(const TensorType& type) {
  if (type.shape.size() > kMaxRank) {
    return support::InvalidArgument(
        "op.type.rank",
        StrCat("expected at most ", kMaxRank, " dimensions, found ", type.shape.size()));
  }
  int64_t bytes = type.dtype.bytes();
  for (const Dim& dim : type.shape) {
    const int64_t least = dim.constant().value_or(1);
    if (least < 1) {
      return support::InvalidArgument("op.type.dimension",
                                      StrCat("expected dimensions of at least 1, found ", least));
    }
    if (__builtin_mul_overflow(bytes, least, &bytes) || bytes > kMaxTensorBytes) {
      return support::InvalidArgument(
          "op.type.size",
          StrCat("expected a tensor of at most ", kMaxTensorBytes, " bytes, found ", ToText(type)));
    }
  }
  return absl::OkStatus();
}

}  // namespace tilewright::op
