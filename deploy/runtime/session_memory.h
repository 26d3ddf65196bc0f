// The memory of a session that its functions share. It grows with the sizes of calls and never
// shrinks: half as much again each time, so that lengths that grow step by step cost little, but
// no further than what the largest sizes need. One thread at a time.
#ifndef DEPLOY_RUNTIME_SESSION_MEMORY_H_
#define DEPLOY_RUNTIME_SESSION_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "deploy/module/manifest.h"
#include "deploy/runtime/buffer.h"

namespace tilewright::runtime {

// An input or output with the shape that it has now.
struct SessionEnd {
  const module::Tensor* tensor = nullptr;
  Buffer buffer;
  std::vector<int64_t> shape;
  size_t bytes = 0;
};

class SessionMemory {
 public:
  // `limit_bytes` of all buffers, 0 for none. With `guard`, ends lie between guard pages and are
  // exactly as large as their tensors.
  SessionMemory(int64_t limit_bytes, bool guard) : limit_bytes_(limit_bytes), guard_(guard) {}

  // Each gives at least so many bytes. RESOURCE_EXHAUSTED `runtime.session.memory_limit`,
  // `runtime.buffer.memory`. Contents of the arena and the workspace are lost where they move;
  // after an error there are none.
  absl::Status GrowArena(int64_t bytes, int64_t most);
  absl::Status GrowWorkspace(int64_t bytes, int64_t most);
  absl::Status AllocatePrepared(int64_t bytes);
  // Of one list of the state, by the tensor's id. Once.
  absl::Status AllocateState(int64_t list, int64_t bytes);
  // Gives the end a shape. Its contents are undefined then if its bytes changed. After an error it
  // is as before.
  absl::Status Reshape(SessionEnd* end, std::span<const int64_t> shape, int64_t bytes);

  void* arena() const { return arena_.data(); }
  void* prepared() const { return prepared_.data(); }
  // REQUIRES: it was allocated.
  void* state(int64_t list) const { return state_.at(list).data(); }
  void* workspace() const { return workspace_.data(); }
  size_t workspace_bytes() const { return workspace_.bytes(); }
  // Changes whenever an address did.
  uint64_t version() const { return version_; }

  std::vector<SessionEnd> inputs;
  std::vector<SessionEnd> outputs;

 private:
  int64_t Held() const;
  absl::StatusOr<int64_t> Capacity(const Buffer& buffer, int64_t bytes, int64_t most) const;
  absl::Status Grow(Buffer* buffer, int64_t bytes, int64_t most);

  const int64_t limit_bytes_;
  const bool guard_;
  Buffer arena_;
  Buffer workspace_;
  Buffer prepared_;
  std::map<int64_t, Buffer> state_;
  uint64_t version_ = 1;
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_SESSION_MEMORY_H_
