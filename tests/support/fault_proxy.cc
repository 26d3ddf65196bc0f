#include "tests/support/fault_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "deploy/support/process.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {
namespace {

using support::MutexLock;

constexpr size_t kPieceBytes = 16 << 10;
// More than this on its way in one direction, and the sender has to wait, as with a full buffer.
constexpr int64_t kMostHeldBytes = 1 << 20;
constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kNever = INT64_MAX;

absl::Status SocketError(const char* what) {
  return support::ErrnoError(errno, "test.proxy.failed", what);
}

absl::StatusOr<sockaddr_in> ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const auto port =
      colon == std::string::npos ? std::nullopt : support::ParseInt64(text.substr(colon + 1));
  if (!port || inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1) {
    return support::InvalidArgument("test.proxy.address", "expected IPV4:PORT, found " + text);
  }
  address.sin_port = htons(static_cast<uint16_t>(*port));
  return address;
}

void NoDelay(int fd) {
  const int one = 1;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// With `reset` the peer gets RST instead of FIN, and what was on its way is lost.
void CloseSocket(int* fd, bool reset) {
  if (*fd < 0) return;
  const linger hard{1, 0};
  if (reset) (void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  close(*fd);
  *fd = -1;
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

absl::StatusOr<std::unique_ptr<FaultProxy>> FaultProxy::Start(const std::string& upstream,
                                                              uint64_t seed) {
  support::IgnoreSigpipe();
  TW_TRY(ParseAddress(upstream).status());
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return SocketError("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, any, size) != 0 || listen(fd, SOMAXCONN) != 0 || getsockname(fd, any, &size) != 0) {
    const absl::Status status = SocketError("listen");
    close(fd);
    return status;
  }
  const int wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake < 0) {
    close(fd);
    return SocketError("eventfd");
  }
  return std::unique_ptr<FaultProxy>(new FaultProxy(
      fd, wake, support::StrCat("127.0.0.1:", ntohs(address.sin_port)), upstream, seed));
}

FaultProxy::FaultProxy(int listen_fd, int wake_fd, std::string address, std::string upstream,
                       uint64_t seed)
    : listen_fd_(listen_fd),
      wake_fd_(wake_fd),
      address_(std::move(address)),
      upstream_(std::move(upstream)),
      rng_(seed),
      thread_([this] { Loop(); }) {}

FaultProxy::~FaultProxy() {
  stop_.store(true);
  Wake();
  thread_.join();
  MutexLock lock(mutex_);
  for (Connection& connection : open_) End(&connection, false, false);
  close(listen_fd_);
  close(wake_fd_);
}

void FaultProxy::Wake() {
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
}

void FaultProxy::SetLink(const LinkFault& fault) {
  {
    MutexLock lock(mutex_);
    fault_ = fault;
  }
  Wake();
}

void FaultProxy::CutConnections(Cut how) {
  {
    MutexLock lock(mutex_);
    for (Connection& connection : open_) {
      switch (how) {
        case Cut::kReset:
          End(&connection, true, true);
          break;
        case Cut::kMidMessage:
          connection.cut_next = true;
          break;
        case Cut::kServerOnly:
          CloseSocket(&connection.server, false);
          [[fallthrough]];
        case Cut::kSilent:
          connection.silent = true;
          for (Stream& stream : connection.streams) stream.pieces.clear();
          break;
      }
      ++broken_;
    }
  }
  Wake();
}

void FaultProxy::End(Connection* connection, bool reset_client, bool reset_server) {
  CloseSocket(&connection->client, reset_client);
  CloseSocket(&connection->server, reset_server);
}

void FaultProxy::Accept() {
  for (;;) {
    int client = accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client < 0) return;
    ++connections_;
    if (fault_.refuse) {
      ++broken_;
      CloseSocket(&client, true);
      continue;
    }
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto address = ParseAddress(upstream_);
    // On loopback a connection is there at once, or refused at once.
    if (server < 0 || !address.ok() ||
        connect(server, reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
      CloseSocket(&client, true);
      CloseSocket(&server, false);
      continue;
    }
    (void)fcntl(server, F_SETFL, O_NONBLOCK);
    NoDelay(client);
    NoDelay(server);
    Connection connection;
    connection.client = client;
    connection.server = server;
    connection.streams[0].up = true;
    open_.push_back(std::move(connection));
  }
}

bool FaultProxy::Stalled(const Stream& stream) const {
  return stream.up ? fault_.stall_up : fault_.stall_down;
}

bool FaultProxy::Receive(Connection* connection, Stream* stream) {
  const int from = stream->up ? connection->client : connection->server;
  std::string bytes(kPieceBytes, '\0');
  const ssize_t got = read(from, bytes.data(), bytes.size());
  if (got < 0) {
    if (WouldBlock()) return true;
    End(connection, true, true);  // a reset goes through
    return false;
  }
  if (connection->silent) {
    if (got == 0) End(connection, false, false);
    return got != 0;
  }
  if (got == 0) {
    stream->ended = true;
    return true;
  }
  bytes.resize(static_cast<size_t>(got));
  const int64_t now_ns = clock_.NowNs();
  const int64_t jitter_ns =
      fault_.jitter_ms > 0 ? rng_.UniformInt(0, fault_.jitter_ms * kNsPerMs) : 0;
  Piece piece;
  piece.due_ns = std::max(stream->last_due_ns, now_ns + fault_.delay_ms * kNsPerMs + jitter_ns);
  if (fault_.bytes_per_s > 0) piece.due_ns += got * 1'000'000'000 / fault_.bytes_per_s;
  stream->last_due_ns = piece.due_ns;
  stream->held_bytes += got;
  piece.bytes = std::move(bytes);
  stream->pieces.push_back(std::move(piece));
  return true;
}

bool FaultProxy::Send(Connection* connection, Stream* stream, int64_t now_ns) {
  const int to = stream->up ? connection->server : connection->client;
  while (!stream->pieces.empty() && !Stalled(*stream) && stream->pieces.front().due_ns <= now_ns) {
    std::string& bytes = stream->pieces.front().bytes;
    size_t size = bytes.size();
    if (connection->cut_next) size = rng_.Uniform(size);
    const ssize_t sent = size == 0 ? 0 : write(to, bytes.data(), size);
    if (sent < 0 && WouldBlock()) return true;
    if (sent < 0 || connection->cut_next) {
      End(connection, true, true);
      return false;
    }
    stream->held_bytes -= sent;
    bytes.erase(0, static_cast<size_t>(sent));
    if (!bytes.empty()) return true;
    stream->pieces.pop_front();
  }
  if (stream->ended && stream->pieces.empty() && !stream->closed) {
    stream->closed = true;
    (void)shutdown(to, SHUT_WR);
  }
  if (connection->streams[0].closed && connection->streams[1].closed) {
    End(connection, false, false);
    return false;
  }
  return true;
}

// Returns when the next piece is due.
int64_t FaultProxy::PollOnce() {
  MutexLock lock(mutex_);
  Accept();
  int64_t next_ns = kNever;
  for (auto it = open_.begin(); it != open_.end();) {
    Connection& connection = *it;
    bool alive = connection.client >= 0;
    for (Stream& stream : connection.streams) {
      const int from = stream.up ? connection.client : connection.server;
      if (alive && from >= 0 && !stream.ended && stream.held_bytes < kMostHeldBytes) {
        alive = Receive(&connection, &stream);
      }
      if (alive && !connection.silent) alive = Send(&connection, &stream, clock_.NowNs());
      if (alive && !stream.pieces.empty() && !Stalled(stream)) {
        next_ns = std::min(next_ns, stream.pieces.front().due_ns);
      }
    }
    it = alive ? std::next(it) : open_.erase(it);
  }
  return next_ns;
}

void FaultProxy::Loop() {
  while (!stop_.load()) {
    const int64_t next_ns = PollOnce();
    std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}, {listen_fd_, POLLIN, 0}};
    {
      MutexLock lock(mutex_);
      for (const Connection& connection : open_) {
        for (const Stream& stream : connection.streams) {
          const int from = stream.up ? connection.client : connection.server;
          const int to = stream.up ? connection.server : connection.client;
          const bool room = !stream.ended && stream.held_bytes < kMostHeldBytes;
          if (from >= 0 && room) fds.push_back({from, POLLIN, 0});
          // What is due but did not fit waits for the receiver.
          const bool due = !stream.pieces.empty() && stream.pieces.front().due_ns <= clock_.NowNs();
          if (to >= 0 && due && !Stalled(stream)) fds.push_back({to, POLLOUT, 0});
        }
      }
    }
    int timeout_ms = -1;
    if (next_ns != kNever) {
      const int64_t wait_ns = std::max<int64_t>(0, next_ns - clock_.NowNs());
      timeout_ms = static_cast<int>(std::min<int64_t>(1000, (wait_ns + kNsPerMs - 1) / kNsPerMs));
      if (wait_ns == 0) timeout_ms = 10;  // due, but the receiver's buffer is full
    }
    (void)poll(fds.data(), fds.size(), timeout_ms);
    uint64_t ignored = 0;
    (void)!read(wake_fd_, &ignored, sizeof ignored);
  }
}

}  // namespace tilewright::tests
