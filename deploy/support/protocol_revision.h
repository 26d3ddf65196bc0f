// The revision of the protocols between tracker, agent and worker (proto/README.md says when it
// rises). A program refuses a peer of another revision.
#pragma once

namespace tilewright::support {

inline constexpr int kProtocolRevision = 1;

}  // namespace tilewright::support
