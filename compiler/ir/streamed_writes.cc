#include "compiler/ir/streamed_writes.h"

#include <string>

#include "deploy/support/strings.h"

namespace tilewright::ir {
namespace {

std::string StreamKey(std::string_view buffer) {
  return support::StrCat("streamed_writes.", std::string(buffer));
}

}  // namespace

void SetStreamedWrites(Function* f, std::string_view buffer) {
  f->attrs[StreamKey(buffer)] = int64_t{1};
}

bool HasStreamedWrites(const Function& f, std::string_view buffer) {
  return f.attrs.find(StreamKey(buffer)) != f.attrs.end();
}

}  // namespace tilewright::ir
