#include "compiler/ir/streamed_writes.h"

#include <string>

#include "deploy/support/strings.h"

namespace tilewright::ir {
namespace {

std::string KeyOf(std::string_view buffer) {
  return support::StrCat("streamed_writes.", std::string(buffer));
}

}  // namespace

void SetStreamedWrites(Function* f, std::string_view buffer) {
  f->attrs[KeyOf(buffer)] = int64_t{1};
}

bool HasStreamedWrites(const Function& f, std::string_view buffer) {
  return f.attrs.find(KeyOf(buffer)) != f.attrs.end();
}

}  // namespace tilewright::ir
