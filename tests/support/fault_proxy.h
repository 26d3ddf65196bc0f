// A TCP proxy that misbehaves as networks do: delays, narrow links, stalls in one or both
// directions, connections reset, cut in the middle of a message, or silently forgotten. What random
// choices it makes come from a seed. Bytes are never reordered, dropped or changed within a
// connection that goes on: TCP never does that. One thread of its own; all methods are thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "deploy/support/clock.h"
#include "deploy/support/mutex.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"

namespace tilewright::tests {

// How the link is from now on, for all connections.
struct LinkFault {
  int64_t delay_ms = 0;     // per direction
  int64_t jitter_ms = 0;    // up to so much more, drawn per piece; order is kept
  int64_t bytes_per_s = 0;  // per connection and direction; 0 = no limit
  bool stall_up = false;    // what clients send waits
  bool stall_down = false;  // what servers send waits
  bool refuse = false;      // new connections are reset
};

// How the connections of this moment end.
enum class Cut {
  kReset,       // both ends get RST
  kMidMessage,  // both ends get RST, after a part of whatever travels next
  kSilent,      // neither end hears anything any more, though both are still connected
  kServerOnly,  // the server sees the end, the client nothing (a forgetful NAT)
};
inline constexpr int kCutCount = 4;

class FaultProxy {
 public:
  // Listens on a port of its own on loopback; each connection goes on to `upstream`
  // ("127.0.0.1:5").
  static absl::StatusOr<std::unique_ptr<FaultProxy>> Start(const std::string& upstream,
                                                           uint64_t seed);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  const std::string& address() const { return address_; }

  void SetLink(const LinkFault& fault) TW_EXCLUDES(mutex_);
  // A good link again. Connections that were cut stay cut.
  void Heal() { SetLink({}); }
  void CutConnections(Cut how) TW_EXCLUDES(mutex_);

  // Accepted so far.
  int64_t connections() const { return connections_.load(); }
  // Ended by a cut or refused so far.
  int64_t broken() const { return broken_.load(); }

 private:
  struct Piece {
    std::string bytes;
    int64_t due_ns = 0;  // goes out no sooner
  };
  // One direction of a connection.
  struct Stream {
    bool up = false;      // from client to server
    bool ended = false;   // the sender has said its last
    bool closed = false;  // and the receiver has been told
    std::deque<Piece> pieces;
    int64_t held_bytes = 0;
    int64_t last_due_ns = 0;
  };
  struct Connection {
    int client = -1;
    int server = -1;
    bool cut_next = false;  // Cut::kMidMessage is waiting for bytes
    bool silent = false;    // reads and forgets
    std::array<Stream, 2> streams;
  };

  FaultProxy(int listen_fd, int wake_fd, std::string address, std::string upstream, uint64_t seed);
  void Loop();
  int64_t PollOnce();
  void Accept() TW_REQUIRES(mutex_);
  // False when the connection is over.
  bool Receive(Connection* connection, Stream* stream) TW_REQUIRES(mutex_);
  bool Send(Connection* connection, Stream* stream, int64_t now_ns) TW_REQUIRES(mutex_);
  bool Stalled(const Stream& stream) const TW_REQUIRES(mutex_);
  void End(Connection* connection, bool reset_client, bool reset_server) TW_REQUIRES(mutex_);
  void Wake();

  const int listen_fd_;
  const int wake_fd_;
  const std::string address_;
  const std::string upstream_;
  support::SystemClock clock_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> connections_{0};
  std::atomic<int64_t> broken_{0};
  support::Mutex mutex_;
  support::Rng rng_ TW_GUARDED_BY(mutex_);
  LinkFault fault_ TW_GUARDED_BY(mutex_);
  std::list<Connection> open_ TW_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tilewright::tests
