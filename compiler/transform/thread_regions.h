// Which thread of a block touches which part of a buffer: for passes that move private buffers into
// threads and that decide where threads have to meet. Internal to compiler/transform. Pure
// functions.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"

namespace tilewright::transform {

// The threads of one launch: x, y, z. An axis without threads has extent 1 and no variable.
struct ThreadAxes {
  std::array<ir::Var, 3> var;
  std::array<int64_t, 3> extent = {1, 1, 1};

  // Bits of the axes that have several threads.
  unsigned Several() const {
    unsigned set = 0;
    for (size_t a = 0; a < 3; ++a) set |= extent[a] > 1 ? 1u << a : 0u;
    return set;
  }
  bool Mentions(const ir::Expr& e) const;
};

// Returns whether the kind of a loop in `s`, or of `s`, passes the test.
bool HasLoop(const ir::Stmt& s, bool (*test)(ir::ForKind));

// The buffers that a statement stores to, and all that it loads or stores, by name. Without those
// that it allocates itself.
struct TouchedBuffers {
  std::map<std::string, ir::Buffer> stored, all;
};
TouchedBuffers TouchedIn(const ir::Stmt& s);

// Whether no element lies in the boxes of two threads that differ on one of `axes`. A box is what a
// thread touches: its ends are expressions over the thread variables and what is the same for all
// threads. "No" when in doubt.
bool OwnedByThreads(const std::vector<ir::BufferRegion>& boxes, const ThreadAxes& threads,
                    unsigned axes);

// Whether the statement surely stores to each element at most once, over all its loops.
bool StoresOnce(const ir::Stmt& s);

// Whether two boxes of one buffer surely share no element (the variables in them are the same for
// both).
bool SurelyApart(const ir::BufferRegion& a, const ir::BufferRegion& b);

}  // namespace tilewright::transform
