// The proxy with which the fault tests break networks does what it says: bytes arrive whole and in
// order until a cut, late, slowly or not at all as asked.
#include "tests/support/fault_proxy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>

#include "deploy/support/clock.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {
namespace {

constexpr int64_t kMs = 1'000'000;

class FaultProxyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(bind(listener_, any, size), 0);
    ASSERT_EQ(listen(listener_, 10), 0);
    ASSERT_EQ(getsockname(listener_, any, &size), 0);
    auto proxy = FaultProxy::Start(support::StrCat("127.0.0.1:", ntohs(address.sin_port)), 7);
    ASSERT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
  }

  void TearDown() override {
    for (int* fd : {&client_, &server_, &listener_}) {
      if (*fd >= 0) close(*fd);
    }
  }

  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  static void SetReadTimeout(int fd, int64_t ms) {
    const timeval time{ms / 1000, (ms % 1000) * 1000};
    ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time), 0);
  }

  void Connect() {
    const std::string port = proxy_->address().substr(proxy_->address().rfind(':') + 1);
    const sockaddr_in address = Loopback(static_cast<int>(*support::ParseInt64(port)));
    client_ = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(client_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    SetReadTimeout(client_, 5000);
  }

  void ConnectBoth() {
    Connect();
    server_ = accept(listener_, nullptr, nullptr);
    ASSERT_GE(server_, 0);
    SetReadTimeout(server_, 5000);
  }

  // All that comes until `size` bytes, an end or a time-out.
  static std::string Read(int fd, size_t size) {
    std::string bytes;
    while (bytes.size() < size) {
      char piece[4096];
      const ssize_t got = read(fd, piece, std::min(sizeof piece, size - bytes.size()));
      if (got <= 0) break;
      bytes.append(piece, static_cast<size_t>(got));
    }
    return bytes;
  }

  static void Write(int fd, const std::string& bytes) {
    ASSERT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }

  // 0 at an orderly end, else errno: ECONNRESET after a reset, EAGAIN when nothing comes.
  static int EndOf(int fd) {
    char byte = 0;
    const ssize_t got = read(fd, &byte, 1);
    EXPECT_LE(got, 0);
    return got == 0 ? 0 : errno;
  }

  support::SystemClock clock_;
  int listener_ = -1;
  int client_ = -1;
  int server_ = -1;
  std::unique_ptr<FaultProxy> proxy_;
};

TEST_F(FaultProxyTest, AGoodLinkCarriesEverythingInOrder) {
  ConnectBoth();
  std::string sent;
  for (int i = 0; i < 20'000; ++i) sent += support::StrCat(i, " ");
  Write(client_, sent);
  EXPECT_EQ(Read(server_, sent.size()), sent);
  Write(server_, "answer");
  EXPECT_EQ(Read(client_, 6), "answer");
  shutdown(client_, SHUT_WR);
  EXPECT_EQ(EndOf(server_), 0);
  Write(server_, "late");
  EXPECT_EQ(Read(client_, 4), "late") << "one direction may end alone";
  EXPECT_EQ(proxy_->broken(), 0);
}

TEST_F(FaultProxyTest, DelayAndRateHoldBytesBackAndKeepTheirOrder) {
  ConnectBoth();
  proxy_->SetLink({.delay_ms = 60, .jitter_ms = 30});
  int64_t start_ns = clock_.NowNs();
  for (int i = 0; i < 10; ++i) Write(client_, std::to_string(i));
  EXPECT_EQ(Read(server_, 10), "0123456789");
  EXPECT_GE(clock_.NowNs() - start_ns, 60 * kMs);
  proxy_->SetLink({.bytes_per_s = 100'000});
  start_ns = clock_.NowNs();
  Write(client_, std::string(20'000, 'x'));
  EXPECT_EQ(Read(server_, 20'000).size(), 20'000u);
  EXPECT_GE(clock_.NowNs() - start_ns, 190 * kMs);
}

TEST_F(FaultProxyTest, AStallIsOfOneDirectionAndLosesNothing) {
  ConnectBoth();
  proxy_->SetLink({.stall_up = true});
  Write(client_, "held");
  Write(server_, "free");
  EXPECT_EQ(Read(client_, 4), "free");
  SetReadTimeout(server_, 100);
  EXPECT_EQ(EndOf(server_), EAGAIN);
  proxy_->Heal();
  SetReadTimeout(server_, 5000);
  EXPECT_EQ(Read(server_, 4), "held");
}

TEST_F(FaultProxyTest, CutsEndConnectionsAsNetworksDo) {
  ConnectBoth();
  proxy_->CutConnections(Cut::kReset);
  EXPECT_EQ(EndOf(client_), ECONNRESET);
  EXPECT_EQ(EndOf(server_), ECONNRESET);
  close(client_);
  close(server_);
  ConnectBoth();
  proxy_->CutConnections(Cut::kMidMessage);
  Write(client_, std::string(1000, 'm'));
  const std::string part = Read(server_, 1000);
  EXPECT_LT(part.size(), 1000u);
  EXPECT_EQ(EndOf(client_), ECONNRESET);
  close(client_);
  close(server_);
  ConnectBoth();
  proxy_->CutConnections(Cut::kServerOnly);
  EXPECT_EQ(EndOf(server_), 0);
  SetReadTimeout(client_, 100);
  EXPECT_EQ(EndOf(client_), EAGAIN);
  Write(client_, "into the void");
  close(client_);
  close(server_);
  ConnectBoth();
  proxy_->CutConnections(Cut::kSilent);
  Write(client_, "x");
  for (int fd : {client_, server_}) {
    SetReadTimeout(fd, 100);
    EXPECT_EQ(EndOf(fd), EAGAIN);
  }
  EXPECT_EQ(proxy_->connections(), 4);
}

TEST_F(FaultProxyTest, RefusedConnectionsAreResetUntilItHeals) {
  proxy_->SetLink({.refuse = true});
  Connect();
  EXPECT_EQ(EndOf(client_), ECONNRESET);
  close(client_);
  EXPECT_EQ(proxy_->broken(), 1);
  proxy_->Heal();
  ConnectBoth();
  Write(client_, "in");
  EXPECT_EQ(Read(server_, 2), "in");
}

}  // namespace
}  // namespace tilewright::tests
