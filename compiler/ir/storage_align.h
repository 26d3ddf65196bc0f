// The function attribute that pads the rows of a buffer: made by the schedule step storage_align,
// read by the pass flatten_buffers. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

// The stride of dimension `dim`, in elements, is `offset` modulo `factor`.
struct StorageAlign {
  size_t dim = 0;
  int64_t factor = 1, offset = 0;
};
void SetStorageAlign(Function* f, std::string_view buffer, const StorageAlign& align);
// Nothing where the buffer has none, or the attribute says nothing sensible.
std::optional<StorageAlign> StorageAlignOf(const Function& f, std::string_view buffer);

}  // namespace tilewright::ir
