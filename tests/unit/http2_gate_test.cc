// Http2Gate: good clients pass however their bytes are cut; abuse ends the connection early. Gates
// stand before gRPC's servers, in plain text and with TLS.
#include "deploy/daemon/http2_gate.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/blob_store.h"
#include "deploy/daemon/credentials.h"
#include "deploy/daemon/server_host.h"
#include "deploy/daemon/wire.h"
#include "deploy/security/authority.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "tests/support/patience.h"
#include "tilewright/v1/artifact.grpc.pb.h"

namespace tilewright::daemon {
namespace {

const std::string kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Http2Frame(int type, int flags, uint32_t stream, const std::string& payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift & 0xFF);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift & 0xFF);
  return frame + payload;
}

// Two calls, one of them with a message in many frames, pings, windows; headers in three parts.
std::string GoodClient() {
  std::string sent = kHttp2Preface + Http2Frame(4, 0, 0, std::string(18, '\1'));
  sent += Http2Frame(1, 0, 1, std::string(4000, 'h')) +
          Http2Frame(9, 0, 1, std::string(4000, 'h')) + Http2Frame(9, 4, 1, "h");
  for (int i = 0; i < 300; ++i) sent += Http2Frame(0, 0, 1, std::string(16'384, 'd'));
  sent += Http2Frame(0, 1, 1, "") + Http2Frame(6, 0, 0, "12345678") + Http2Frame(4, 1, 0, "");
  for (uint32_t call = 3; call < 6000; call += 2) {
    sent += Http2Frame(1, 4, call, std::string(200, 'h')) + Http2Frame(0, 1, call, "abc") +
            Http2Frame(8, 0, 0, std::string(4, '\1'));
  }
  return sent;
}

TEST(Http2GateTest, AGoodClientPassesHoweverItsBytesAreCut) {
  support::FakeClock clock;
  const std::string sent = GoodClient();
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{9}, size_t{8192}, sent.size()}) {
    Http2Gate gate(&clock);
    for (size_t at = 0; at < sent.size(); at += piece) {
      ASSERT_EQ(gate.Take(std::string_view(sent).substr(at, piece)), Http2Abuse::kNone)
          << at << " in pieces of " << piece;
    }
  }
}

TEST(Http2GateTest, AHeaderBlockIsLimitedInBytesAndParts) {
  support::FakeClock clock;
  Http2Gate long_block(&clock);
  const std::string part(Http2Gate::kMaxHeaderBlockBytes / 2, 'h');
  EXPECT_EQ(long_block.Take(kHttp2Preface + Http2Frame(1, 0, 1, part) + Http2Frame(9, 0, 1, part)),
            Http2Abuse::kNone);
  EXPECT_EQ(long_block.Take(Http2Frame(9, 0, 1, "h").substr(0, 9)), Http2Abuse::kLongHeaders)
      << "known from the head of the frame";
  EXPECT_EQ(long_block.Take(""), Http2Abuse::kLongHeaders) << "there is no way back";

  Http2Gate one_frame(&clock);
  EXPECT_EQ(one_frame.Take(kHttp2Preface + Http2Frame(1, 4, 1, part + part + "h")),
            Http2Abuse::kLongHeaders);

  Http2Gate parts(&clock);
  std::string block = kHttp2Preface + Http2Frame(1, 0, 1, "h");
  for (int i = 1; i < Http2Gate::kMaxHeaderParts; ++i) block += Http2Frame(9, 0, 1, "");
  EXPECT_EQ(parts.Take(block), Http2Abuse::kNone);
  EXPECT_EQ(parts.Take(Http2Frame(9, 4, 1, "")), Http2Abuse::kManyHeaderParts);
}

TEST(Http2GateTest, BlocksOfDifferentStreamsDoNotAddUp) {
  support::FakeClock clock;
  Http2Gate gate(&clock);
  const std::string half(Http2Gate::kMaxHeaderBlockBytes - 1, 'h');
  ASSERT_EQ(gate.Take(kHttp2Preface), Http2Abuse::kNone);
  for (uint32_t stream = 1; stream < 100; stream += 2) {
    EXPECT_EQ(gate.Take(Http2Frame(1, 4, stream, half)), Http2Abuse::kNone);
  }
}

// gRPC counts the calls of a connection only then.
TEST(Http2GateTest, OnlyAFewCallsComeBeforeTheSettingsAreAcknowledged) {
  support::FakeClock clock;
  for (const bool acknowledged : {false, true}) {
    Http2Gate gate(&clock);
    std::string sent = kHttp2Preface + (acknowledged ? Http2Frame(4, 1, 0, "") : "");
    uint32_t stream = 1;
    for (; stream < 2 * Http2Gate::kMaxEarlyCalls; stream += 2) {
      sent += Http2Frame(1, 4, stream, "h");
    }
    EXPECT_EQ(gate.Take(sent), Http2Abuse::kNone);
    EXPECT_EQ(gate.Take(Http2Frame(1, 4, stream, "h")),
              acknowledged ? Http2Abuse::kNone : Http2Abuse::kManyCalls);
  }
}

TEST(Http2GateTest, SettingsThatWereNotSentCannotBeAcknowledged) {
  support::FakeClock clock;
  Http2Gate gate(&clock);
  EXPECT_EQ(gate.Take(kHttp2Preface + Http2Frame(4, 0, 0, ""), false), Http2Abuse::kNone);
  EXPECT_EQ(gate.Take(Http2Frame(4, 1, 0, ""), false), Http2Abuse::kEarlyAck);
}

TEST(Http2GateTest, SmallFramesAreLimitedInTime) {
  const std::vector<std::string> small = {
      Http2Frame(4, 0, 0, ""),         Http2Frame(6, 0, 0, "12345678"), Http2Frame(3, 0, 1, "1234"),
      Http2Frame(2, 0, 1, "12345"),    Http2Frame(77, 0, 0, "x"),       Http2Frame(0, 0, 1, "z"),
      Http2Frame(7, 0, 0, "12345678"), Http2Frame(0, 0, 1, "")};
  for (const std::string& frame : small) {
    support::FakeClock clock;
    Http2Gate gate(&clock);
    ASSERT_EQ(gate.Take(kHttp2Preface), Http2Abuse::kNone);
    for (int i = 0; i < Http2Gate::kSmallFrameBurst; ++i) {
      ASSERT_EQ(gate.Take(frame), Http2Abuse::kNone);
    }
    EXPECT_EQ(gate.Take(frame), Http2Abuse::kSmallFrames);
  }
}

TEST(Http2GateTest, AsManySmallFramesPassInMoreTime) {
  support::FakeClock clock;
  Http2Gate gate(&clock);
  ASSERT_EQ(gate.Take(kHttp2Preface), Http2Abuse::kNone);
  for (int i = 0; i < 10 * Http2Gate::kSmallFrameBurst; ++i) {
    clock.AdvanceNs(Http2Gate::kSmallFrameWindowNs / Http2Gate::kSmallFrameBurst + 1);
    ASSERT_EQ(gate.Take(Http2Frame(6, 0, 0, "12345678")), Http2Abuse::kNone) << i;
  }
}

TEST(Http2GateTest, WhatIsNoHttp2IsLeftToOthers) {
  support::FakeClock clock;
  Http2Gate gate(&clock);
  EXPECT_EQ(gate.Take("PRI * HTTP/1.1"), Http2Abuse::kNone);
  EXPECT_EQ(gate.Take(Http2Frame(1, 0, 1, std::string(100'000, 'h'))), Http2Abuse::kNone);
}

TEST(Http2GateTest, EachAbuseHasAName) {
  EXPECT_EQ(Http2AbuseText(Http2Abuse::kLongHeaders), "long_headers");
  EXPECT_EQ(Http2AbuseText(Http2Abuse::kManyHeaderParts), "many_header_parts");
  EXPECT_EQ(Http2AbuseText(Http2Abuse::kSmallFrames), "small_frames");
  EXPECT_EQ(Http2AbuseText(Http2Abuse::kManyCalls), "many_calls");
  EXPECT_EQ(Http2AbuseText(Http2Abuse::kEarlyAck), "early_acknowledgement");
}

// A server in this process, and a client that sends what it likes.
class GatedServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
    auto dir = support::TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
    auto blobs = BlobStore::Open(dir_->File("blobs"));
    ASSERT_TRUE(blobs.ok()) << blobs.status();
    blobs_ = *std::move(blobs);
    artifacts_ = std::make_unique<ArtifactServiceImpl>(blobs_.get(), ArtifactServiceOptions());
  }

  void TearDown() override {
    SSL_free(session_);
    SSL_CTX_free(context_);
    if (fd_ >= 0) close(fd_);
  }

  void StartHost(HostOptions options = {}) {
    host_ = std::make_unique<ServerHost>(options);
    host_->AddService(artifacts_.get(), kArtifactServiceName);
    const absl::Status status = host_->Start();
    ASSERT_TRUE(status.ok()) << status;
  }

  void Connect() {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(ParseHostPort(host_->address(), "x")->port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{tests::Patiently(10'000) / 1000, 0};
    ASSERT_EQ(setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    ASSERT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }

  void ShakeHands() {
    context_ = SSL_CTX_new(TLS_client_method());
    constexpr unsigned char kH2[] = {2, 'h', '2'};
    ASSERT_EQ(SSL_CTX_set_alpn_protos(context_, kH2, sizeof(kH2)), 0);
    session_ = SSL_new(context_);
    ASSERT_EQ(SSL_set_fd(session_, fd_), 1);
    ASSERT_EQ(SSL_connect(session_), 1);
  }

  std::shared_ptr<grpc::ServerCredentials> TlsCredentials() {
    const int64_t now_s = clock_.WallMicros() / 1'000'000;
    EXPECT_TRUE(security::CreateAuthority(dir_->File("pki"), "Test", 10, now_s).ok());
    security::LeafRequest leaf;
    leaf.peer = {security::CertificateKind::kTracker, "lab"};
    EXPECT_TRUE(security::IssueIdentity(dir_->File("pki"), leaf, dir_->File("lab"), now_s).ok());
    auto credentials = TlsServerOnlyCredentials(dir_->File("lab"), &clock_);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    return *std::move(credentials);
  }

  // The server may have closed the connection before it has all.
  void Send(const std::string& bytes) {
    if (session_ != nullptr) {
      SSL_write(session_, bytes.data(), static_cast<int>(bytes.size()));
    } else {
      send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
  }

  // Whether the server closes the connection, instead of waiting for more.
  bool ServerCloses() {
    char buffer[4096];
    for (ssize_t got = 1; got > 0;) {
      got = recv(fd_, buffer, sizeof(buffer), 0);
      if (got < 0) return errno == ECONNRESET;
    }
    return true;
  }

  // More of one header block than gRPC accepts, and no end of it.
  static std::string EndlessHeaders() {
    std::string sent = kHttp2Preface + Http2Frame(4, 0, 0, "") + Http2Frame(1, 0, 1, "\x83\x86");
    for (int i = 0; i < 4; ++i) sent += Http2Frame(9, 0, 1, std::string(16'000, '\x82'));
    return sent;
  }

  support::SystemClock clock_;
  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<ArtifactServiceImpl> artifacts_;
  std::unique_ptr<ServerHost> host_;
  int fd_ = -1;
  SSL_CTX* context_ = nullptr;
  SSL* session_ = nullptr;
};

TEST_F(GatedServerTest, EndlessHeadersEndAConnectionInPlainText) {
  StartHost();
  Connect();
  Send(EndlessHeaders());
  EXPECT_TRUE(ServerCloses());
}

TEST_F(GatedServerTest, EndlessHeadersEndAConnectionWithTls) {
  HostOptions options;
  options.credentials = TlsCredentials();
  StartHost(options);
  Connect();
  ShakeHands();
  Send(EndlessHeaders());
  EXPECT_TRUE(ServerCloses());
}

TEST_F(GatedServerTest, AConnectionThatNeverShakesHandsIsClosed) {
  HostOptions options;
  options.credentials = TlsCredentials();
  options.handshake_timeout_ms = 200;
  StartHost(options);
  Connect();
  EXPECT_TRUE(ServerCloses()) << "it said nothing";
  close(fd_);
  Connect();
  Send("\x16\x03\x01");  // the begin of a TLS record
  EXPECT_TRUE(ServerCloses()) << "it began only";
}

// Calls that wait inside the server until they are let go.
class SlowAnswers final : public v1::ArtifactService::Service {
 public:
  grpc::Status FindMissing(grpc::ServerContext*, const v1::FindMissingRequest*,
                           v1::FindMissingResponse*) override {
    ++inside_;
    while (!over_) support::SleepMs(1);
    return grpc::Status::OK;
  }
  int inside() const { return inside_; }
  void LetGo() { over_ = true; }

 private:
  std::atomic<int> inside_{0};
  std::atomic<bool> over_{false};
};

// A stranger has 16 calls on a connection. One more waits until another one has ended.
TEST_F(GatedServerTest, AConnectionHasALimitOfCalls) {
  constexpr int kCalls = 16;
  SlowAnswers slow;
  HostOptions options;
  options.credentials = grpc::InsecureServerCredentials();
  host_ = std::make_unique<ServerHost>(options);
  host_->AddService(&slow, kArtifactServiceName);
  ASSERT_TRUE(host_->Start().ok());
  const auto stub = v1::ArtifactService::NewStub(MakeChannel(host_->address(), {true}));
  const auto call = [&](int64_t timeout_ms) {
    v1::FindMissingResponse response;
    grpc::ClientContext context;
    SetTimeout(&context, timeout_ms);
    return stub->FindMissing(&context, {}, &response).error_code();
  };
  const int64_t patience_ms = tests::Patiently(20'000);
  std::atomic<int> answered{0};
  std::vector<std::thread> calls;
  for (int i = 0; i < kCalls; ++i) {
    calls.emplace_back([&] { answered += call(patience_ms) == grpc::StatusCode::OK; });
  }
  for (int64_t waited = 0; slow.inside() < kCalls && waited < patience_ms; ++waited) {
    support::SleepMs(1);
  }
  EXPECT_EQ(slow.inside(), kCalls);
  EXPECT_EQ(call(500), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(slow.inside(), kCalls) << "the call too many reached the service";
  slow.LetGo();
  for (std::thread& one : calls) one.join();
  EXPECT_EQ(answered, kCalls);
  EXPECT_EQ(call(patience_ms), grpc::StatusCode::OK);
  host_->Stop();
}

// gRPC would inflate it before it looks at its size.
TEST_F(GatedServerTest, ACompressedMessageIsRefused) {
  StartHost();
  const auto stub = v1::ArtifactService::NewStub(MakeChannel(host_->address(), {true}));
  v1::BatchWriteRequest request;
  request.add_artifacts()->set_data(std::string(1 << 20, 'x'));
  for (const auto algorithm : {GRPC_COMPRESS_NONE, GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    v1::BatchWriteResponse response;
    grpc::ClientContext context;
    SetTimeout(&context, tests::Patiently(10'000));
    context.set_compression_algorithm(algorithm);
    const grpc::Status status = stub->BatchWrite(&context, request, &response);
    EXPECT_EQ(status.error_code() == grpc::UNIMPLEMENTED, algorithm != GRPC_COMPRESS_NONE)
        << algorithm << ": " << status.error_message();
  }
}

}  // namespace
}  // namespace tilewright::daemon
