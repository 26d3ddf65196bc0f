#include "compiler/ir/storage_align.h"

#include <vector>

#include "deploy/support/strings.h"

namespace tilewright::ir {
namespace {

std::string AlignKey(std::string_view buffer) {
  return support::StrCat("storage_align.", std::string(buffer));
}

}  // namespace

void SetStorageAlign(Function* f, std::string_view buffer, const StorageAlign& align) {
  f->attrs[AlignKey(buffer)] = support::StrCat(align.dim, ",", align.factor, ",", align.offset);
}

std::optional<StorageAlign> StorageAlignOf(const Function& f, std::string_view buffer) {
  auto it = f.attrs.find(AlignKey(buffer));
  if (it == f.attrs.end()) return std::nullopt;
  const std::string* text = std::get_if<std::string>(&it->second);
  if (text == nullptr) return std::nullopt;
  std::vector<std::string> parts = support::Split(*text, ',');
  if (parts.size() != 3) return std::nullopt;
  auto dim = support::ParseInt64(parts[0]), factor = support::ParseInt64(parts[1]),
       offset = support::ParseInt64(parts[2]);
  bool sensible = dim.has_value() && factor.has_value() && offset.has_value() && *dim >= 0 &&
                  *dim < 64 && *factor >= 1 && *factor <= 4096 && *offset >= 0 && *offset < *factor;
  if (!sensible) return std::nullopt;
  return StorageAlign{static_cast<size_t>(*dim), *factor, *offset};
}

}  // namespace tilewright::ir
