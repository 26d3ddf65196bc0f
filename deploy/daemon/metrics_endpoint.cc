#include "deploy/daemon/metrics_endpoint.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "deploy/daemon/daemon_log.h"
#include "deploy/daemon/server_host.h"
#include "deploy/security/identity.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::daemon {
namespace {

constexpr size_t kMaxHeadBytes = 8 << 10;
constexpr size_t kPieceBytes = 16 << 10;
constexpr size_t kMinTokenLength = 16;
constexpr uint64_t kMaxTokenBytes = 4096;
constexpr int kBacklog = 64;
constexpr int64_t kMsNs = 1'000'000;
constexpr int64_t kNoDescriptorPauseNs = 200 * kMsNs;

absl::Status CannotListen(const std::string& listen, const std::string& why) {
  return support::Unavailable("daemon.metrics.failed", listen + ": " + why);
}

std::string Response(std::string_view status, std::string_view headers, std::string_view body) {
  return support::StrCat("HTTP/1.1 ", status, "\r\nContent-Length: ", body.size(),
                         "\r\nConnection: close\r\n", headers, "\r\n", body);
}

std::string Problem(std::string_view status, std::string_view headers = "") {
  return Response(status, support::StrCat("Content-Type: text/plain\r\n", headers),
                  support::StrCat(status, "\n"));
}

// The value of a header, whose name is given in lower case; nullopt without it.
std::optional<std::string> Header(const std::string& head, std::string_view name) {
  for (const std::string& line : support::Split(head, '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || support::ToLower(line.substr(0, colon)) != name) continue;
    return std::string(support::Trim(std::string_view(line).substr(colon + 1)));
  }
  return std::nullopt;
}

absl::StatusOr<std::string> ReadPart(const std::string& identity, const char* name) {
  return support::ReadFile(support::PathJoin(identity, name), security::kMaxPemBytes);
}

absl::StatusOr<std::shared_ptr<const security::TlsServerContext>> ReadTls(
    const std::string& identity, const std::string& certificate) {
  TW_TRY(security::CheckPrivateFile(support::PathJoin(identity, security::kKeyFile)));
  TW_ASSIGN(const std::string key, ReadPart(identity, security::kKeyFile));
  return security::TlsServerContext::Create(certificate, key);
}

}  // namespace

absl::Status CheckMetricsIdentity(const std::string& identity) {
  TW_ASSIGN(const std::string certificate, ReadPart(identity, security::kCertificateFile));
  return ReadTls(identity, certificate).status();
}

absl::StatusOr<std::string> ReadMetricsToken(const std::string& path) {
  TW_TRY(security::CheckPrivateFile(path));
  TW_ASSIGN(const std::string text, support::ReadFile(path, kMaxTokenBytes));
  std::string token(support::Trim(text));
  if (token.size() >= kMinTokenLength) return token;
  return support::InvalidArgument(
      "daemon.metrics.token",
      support::StrCat("expected at least ", kMinTokenLength, " characters in ", path, ", found ",
                      token.size(), "; 'openssl rand -hex 32' makes good ones"));
}

struct MetricsEndpoint::Connection {
  int fd = -1;
  int64_t end_ns = 0;
  std::unique_ptr<security::TlsSession> tls;
  std::string head;       // of the request, so far
  std::string out;        // for the peer
  bool answered = false;  // `out` ends with the answer
  bool said_all = false;  // nothing more goes out; it waits for the peer to close
  bool over = false;

  ~Connection() {
    if (fd >= 0) close(fd);
  }
};

MetricsEndpoint::MetricsEndpoint(MetricsEndpointOptions options, std::function<std::string()> page)
    : options_(std::move(options)), page_(std::move(page)) {}

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    const MetricsEndpointOptions& options, std::function<std::string()> page) {
  std::unique_ptr<MetricsEndpoint> endpoint(new MetricsEndpoint(options, std::move(page)));
  if (!options.identity.empty()) TW_TRY(endpoint->LoadCertificate());
  if (!options.token_file.empty()) {
    TW_ASSIGN(endpoint->token_, ReadMetricsToken(options.token_file));
  }
  endpoint->stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (endpoint->stop_fd_ < 0) {
    return support::ErrnoError(errno, "daemon.metrics.failed", "eventfd");
  }
  TW_TRY(endpoint->Listen());
  endpoint->thread_ = std::thread([raw = endpoint.get()] { raw->Loop(); });
  return endpoint;
}

MetricsEndpoint::~MetricsEndpoint() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(stop_fd_, &one, sizeof(one));
    thread_.join();
  }
  if (listen_fd_ >= 0) close(listen_fd_);
  if (stop_fd_ >= 0) close(stop_fd_);
}

absl::Status MetricsEndpoint::Listen() {
  TW_ASSIGN(const HostPort where, ParseHostPort(options_.listen, "daemon.metrics.invalid"));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(where.host.c_str(), support::StrCat(where.port).c_str(), &hints, &found);
  if (code != 0) return CannotListen(options_.listen, gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  listen_fd_ = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int one = 1;
  if (listen_fd_ < 0 || setsockopt(listen_fd_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
      bind(listen_fd_, found->ai_addr, found->ai_addrlen) != 0 ||
      listen(listen_fd_, kBacklog) != 0) {
    return CannotListen(options_.listen, std::generic_category().message(errno));
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return CannotListen(options_.listen, std::generic_category().message(errno));
  }
  const bool v6 = bound.ss_family == AF_INET6;
  const uint16_t port = ntohs(v6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                 : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
  const bool brackets = where.host.find(':') != std::string::npos;
  address_ = support::StrCat(brackets ? "[" : "", where.host, brackets ? "]" : "", ":", port);
  return absl::OkStatus();
}

// A renewed certificate counts for the next connection.
absl::Status MetricsEndpoint::LoadCertificate() {
  TW_ASSIGN(std::string certificate, ReadPart(options_.identity, security::kCertificateFile));
  if (certificate == certificate_) return absl::OkStatus();
  TW_ASSIGN(tls_, ReadTls(options_.identity, certificate));
  certificate_ = std::move(certificate);
  return absl::OkStatus();
}

void MetricsEndpoint::Loop() {
  for (;;) {
    int64_t now_ns = clock_.NowNs();
    connections_.remove_if(
        [now_ns](const Connection& one) { return one.over || one.end_ns <= now_ns; });
    // Without a free descriptor a new connection would stay ready, and this loop keep a core busy.
    const int64_t pause_ms = (accept_from_ns_ - now_ns + kMsNs - 1) / kMsNs;
    std::vector<pollfd> polled = {{stop_fd_, POLLIN, 0},
                                  {pause_ms > 0 ? -1 : listen_fd_, POLLIN, 0}};
    int64_t wait_ms = pause_ms > 0 ? pause_ms : -1;
    for (const Connection& one : connections_) {
      const bool writes = !one.out.empty();
      polled.push_back({one.fd, static_cast<short>(writes ? POLLOUT : POLLIN), 0});
      const int64_t left_ms = (one.end_ns - now_ns) / kMsNs + 1;
      wait_ms = wait_ms < 0 ? left_ms : std::min(wait_ms, left_ms);
    }
    poll(polled.data(), polled.size(), static_cast<int>(wait_ms));
    if (polled[0].revents != 0) return;
    size_t i = 2;
    for (Connection& one : connections_) {
      const short events = polled[i++].revents;
      if (events == 0) continue;
      if (one.out.empty()) {
        Read(&one);
      } else {
        Write(&one);
      }
    }
    if (polled[1].revents != 0) Accept(clock_.NowNs());
  }
}

void MetricsEndpoint::Accept(int64_t now_ns) {
  const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE) accept_from_ns_ = now_ns + kNoDescriptorPauseNs;
    return;
  }
  if (connections_.size() >= options_.max_connections) connections_.pop_front();
  Connection& connection = connections_.emplace_back();
  connection.fd = fd;
  connection.end_ns = now_ns + options_.time_limit_ms * kMsNs;
  if (options_.identity.empty()) return;
  const absl::Status loaded = LoadCertificate();
  if (!loaded.ok()) {  // the one read last goes on counting
    LogWarning("daemon.metrics.certificate", {{"error", support::StatusText(loaded)}});
  }
  connection.tls = std::make_unique<security::TlsSession>(tls_);
}

void MetricsEndpoint::Read(Connection* connection) {
  char piece[kPieceBytes];
  const ssize_t got = recv(connection->fd, piece, sizeof(piece), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    connection->over = true;
    return;
  }
  if (connection->said_all) return;  // what comes after the answer is nobody's
  Take(connection, {piece, static_cast<size_t>(got)});
  Write(connection);
}

void MetricsEndpoint::Take(Connection* connection, std::string_view bytes) {
  security::TlsSession* tls = connection->tls.get();
  absl::Status status;
  if (tls == nullptr) {
    connection->head.append(bytes);
  } else {
    status = tls->Receive(bytes, &connection->head);
  }
  const bool complete = connection->head.find("\r\n\r\n") != std::string::npos;
  const bool large = !complete && connection->head.size() > kMaxHeadBytes;
  if (status.ok() && (complete || large)) {
    const std::string answer =
        large ? Problem("431 Request Header Fields Too Large") : Answer(connection->head);
    connection->answered = true;
    if (tls == nullptr) {
      connection->out += answer;
    } else {
      status = tls->Send(answer);
      tls->Close();
    }
  }
  if (tls != nullptr) connection->out += tls->TakeOutput();
  if (!status.ok()) connection->answered = true;  // with an alert at most
}

void MetricsEndpoint::Write(Connection* connection) {
  std::string& out = connection->out;
  while (!out.empty()) {
    const ssize_t sent = send(connection->fd, out.data(), out.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent <= 0) {
      connection->over = true;
      return;
    }
    out.erase(0, static_cast<size_t>(sent));
  }
  if (!connection->answered || connection->said_all) return;
  // The peer closes first: closing with unread bytes would reset the connection under the answer.
  connection->said_all = true;
  shutdown(connection->fd, SHUT_WR);
}

bool MetricsEndpoint::Admits(const std::string& head) {
  if (options_.token_file.empty()) return true;
  // While the file cannot be read, the token read last goes on counting.
  if (auto token = ReadMetricsToken(options_.token_file); token.ok()) token_ = *std::move(token);
  constexpr std::string_view kBearer = "bearer ";
  const std::string shown = Header(head, "authorization").value_or("");
  if (support::ToLower(shown.substr(0, kBearer.size())) != kBearer) return false;
  // Hashes: how long the comparison takes says nothing about the token.
  const std::string_view text = support::Trim(std::string_view(shown).substr(kBearer.size()));
  return support::Sha256Hex(text) == support::Sha256Hex(token_);
}

std::string MetricsEndpoint::Answer(const std::string& head) {
  const std::vector<std::string> words = support::Split(head.substr(0, head.find("\r\n")), ' ');
  if (words.size() != 3 || words[2].rfind("HTTP/1.", 0) != 0) return Problem("400 Bad Request");
  if (words[0] != "GET") return Problem("405 Method Not Allowed", "Allow: GET\r\n");
  if (!Admits(head)) {
    return Problem("401 Unauthorized", "WWW-Authenticate: Bearer realm=\"tilewright\"\r\n");
  }
  if (words[1].substr(0, words[1].find('?')) != "/metrics") return Problem("404 Not Found");
  return Response("200 OK", "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n", page_());
}

}  // namespace tilewright::daemon
