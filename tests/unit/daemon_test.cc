// What every daemon shares: hosting, errors over the wire, artifacts, log, metrics.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "deploy/daemon/artifact_download.h"
#include "deploy/daemon/artifact_service.h"
#include "deploy/daemon/blob_store.h"
#include "deploy/daemon/certificate_watch.h"
#include "deploy/daemon/daemon_log.h"
#include "deploy/daemon/daemon_main.h"
#include "deploy/daemon/heap.h"
#include "deploy/daemon/metrics.h"
#include "deploy/daemon/metrics_endpoint.h"
#include "deploy/daemon/reload.h"
#include "deploy/daemon/server_host.h"
#include "deploy/daemon/systemd.h"
#include "deploy/daemon/wire.h"
#include "deploy/security/authority.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/measure_units.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"

namespace tilewright::daemon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A call by method name with raw bytes: what a client without our protos does.
grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, const char* method,
                     const std::string& request, std::string* response) {
  grpc::Slice slice(request);
  grpc::ByteBuffer in(&slice, 1);
  grpc::ByteBuffer out;
  grpc::ClientContext context;
  SetTimeout(&context, 5000);
  const grpc::internal::RpcMethod rpc(method, grpc::internal::RpcMethod::NORMAL_RPC);
  const grpc::Status status = grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
      channel.get(), rpc, &context, in, &out);
  std::vector<grpc::Slice> slices;
  if (status.ok() && out.Dump(&slices).ok()) {
    for (const grpc::Slice& s : slices) {
      response->append(reinterpret_cast<const char*>(s.begin()), s.size());
    }
  }
  return status;
}

std::string HealthRequest(const std::string& service) {
  return service.empty() ? "" : std::string("\x0a") + static_cast<char>(service.size()) + service;
}

class DaemonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
    auto blobs = BlobStore::Open(dir_->File("server"));
    ASSERT_TRUE(blobs.ok()) << blobs.status();
    blobs_ = *std::move(blobs);
    artifacts_ = std::make_unique<ArtifactServiceImpl>(blobs_.get(), ArtifactServiceOptions());
  }

  void StartHost(HostOptions options = {}) {
    host_ = std::make_unique<ServerHost>(options);
    host_->AddService(artifacts_.get(), kArtifactServiceName);
    const absl::Status status = host_->Start();
    ASSERT_TRUE(status.ok()) << status;
    ChannelOptions own;
    own.own_connection = true;
    channel_ = MakeChannel(host_->address(), own);
    stub_ = v1::ArtifactService::NewStub(channel_);
  }

  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<ArtifactServiceImpl> artifacts_;
  std::unique_ptr<ServerHost> host_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ArtifactService::Stub> stub_;
};

TEST_F(DaemonTest, HostAnswersHealthAndReflectionAndWritesItsPortFile) {
  HostOptions options;
  options.port_file = dir_->File("port");
  StartHost(options);
  EXPECT_EQ(*support::ReadFile(options.port_file, 100), host_->address() + "\n");
  std::string answer;
  EXPECT_TRUE(RawCall(channel_, "/grpc.health.v1.Health/Check", "", &answer).ok());
  EXPECT_EQ(answer, "\x08\x01") << "SERVING";
  answer.clear();
  EXPECT_TRUE(RawCall(channel_, "/grpc.health.v1.Health/Check", HealthRequest(kArtifactServiceName),
                      &answer)
                  .ok());
  EXPECT_EQ(answer, "\x08\x01");
  EXPECT_EQ(RawCall(channel_, "/grpc.health.v1.Health/Check", HealthRequest("no.Such"), &answer)
                .error_code(),
            grpc::NOT_FOUND);
  for (const char* reflection :
       {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    answer.clear();
    ASSERT_TRUE(RawCall(channel_, reflection, "\x3a\x01*", &answer).ok()) << reflection;
    EXPECT_THAT(answer, HasSubstr(kArtifactServiceName)) << reflection;
    EXPECT_THAT(answer, HasSubstr("grpc.health.v1.Health")) << reflection;
  }
  host_->SetServing(false);
  answer.clear();
  EXPECT_TRUE(RawCall(channel_, "/grpc.health.v1.Health/Check", "", &answer).ok());
  EXPECT_EQ(answer, "\x08\x02") << "NOT_SERVING";
  host_->Stop();
  EXPECT_FALSE(support::FileExists(options.port_file));
  EXPECT_EQ(RawCall(channel_, "/grpc.health.v1.Health/Check", "", &answer).error_code(),
            grpc::UNAVAILABLE);
}

TEST_F(DaemonTest, HostRefusesWhatItMustNotServe) {
  const auto start = [&](const std::string& listen, bool insecure) {
    HostOptions options;
    options.listen = listen;
    options.insecure = insecure;
    ServerHost host(options);
    host.AddService(artifacts_.get(), kArtifactServiceName);
    return host.Start();
  };
  EXPECT_EQ(support::Slug(start("0.0.0.0:0", false)), "daemon.listen.insecure");
  EXPECT_EQ(support::Slug(start("[::]:0", false)), "daemon.listen.insecure");
  EXPECT_TRUE(start("0.0.0.0:0", true).ok());
  EXPECT_EQ(support::Slug(start("127.0.0.1", false)), "daemon.listen.invalid");
  EXPECT_EQ(support::Slug(start("127.0.0.1:99999", false)), "daemon.listen.invalid");
  StartHost();
  EXPECT_EQ(support::Slug(start(host_->address(), false)), "daemon.listen.failed")
      << "two servers must never share a port";
}

TEST(DaemonAddressTest, OnlyRealLoopbackCounts) {
  EXPECT_TRUE(IsLoopbackHost("127.0.0.1"));
  EXPECT_TRUE(IsLoopbackHost("127.255.0.3"));
  EXPECT_TRUE(IsLoopbackHost("localhost"));
  EXPECT_TRUE(IsLoopbackHost("::1"));
  EXPECT_FALSE(IsLoopbackHost("127.0.0.1.example.org"));
  EXPECT_FALSE(IsLoopbackHost("127.0.0"));
  EXPECT_FALSE(IsLoopbackHost("0.0.0.0"));
  EXPECT_FALSE(IsLoopbackHost("10.0.0.1"));
  EXPECT_EQ(ParseHostPort("[::1]:7", "x")->host, "::1");
  EXPECT_EQ(ParseHostPort("host:7", "x")->port, 7);
  for (const char* bad : {"", ":7", "host", "host:", "host:x", "::1:7", "[::1:7", "host:-1"}) {
    EXPECT_FALSE(ParseHostPort(bad, "x").ok()) << bad;
  }
}

TEST_F(DaemonTest, ErrorsKeepCodeAndSlugOverTheWire) {
  StartHost();
  v1::ReadRequest request;
  *request.mutable_digest() = MakeDigest(support::Sha256Hex("nothing"), 0);
  grpc::ClientContext context;
  SetTimeout(&context, 5000);
  const auto reader = stub_->Read(&context, request);
  v1::Chunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  const absl::Status status = FromGrpc(reader->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(support::Slug(status), "artifact.read.not_found");
  const absl::Status long_one = support::Internal("a.b.c", std::string(100'000, 'x'));
  EXPECT_LT(ToGrpc(long_one).error_message().size(), 2000u);
  EXPECT_LT(ToGrpc(long_one).error_details().size(), 3000u);
  EXPECT_TRUE(FromGrpc(ToGrpc(absl::OkStatus())).ok());
  EXPECT_EQ(support::Slug(FromGrpc(grpc::Status(grpc::UNAVAILABLE, "gone"))), "rpc.unavailable");
  EXPECT_TRUE(IsRetryable(FromGrpc(grpc::Status(grpc::UNAVAILABLE, "gone"))));
  EXPECT_FALSE(IsRetryable(status));
}

TEST_F(DaemonTest, AClientFindsARestartedServerSoon) {
  constexpr double kSoonS = 3.5;  // typically 0.3; gRPC's own defaults take 5
  constexpr int kTries = 3;       // a machine may stand still for seconds, but not each time
  StartHost();
  ASSERT_TRUE(FindMissingArtifacts(stub_.get(), {}, 5000).ok());
  HostOptions options;
  options.listen = host_->address();
  support::SystemClock clock;
  double best_s = 1e9;
  for (int i = 0; i < kTries && best_s >= kSoonS; ++i) {
    host_.reset();
    const int64_t down_ns = clock.NowNs();
    while (clock.NowNs() - down_ns < 500'000'000) {  // refused again and again
      EXPECT_FALSE(FindMissingArtifacts(stub_.get(), {}, 5000).ok());
      support::SleepMs(10);
    }
    host_ = std::make_unique<ServerHost>(options);
    host_->AddService(artifacts_.get(), kArtifactServiceName);
    ASSERT_TRUE(host_->Start().ok());
    const int64_t up_ns = clock.NowNs();
    while (!FindMissingArtifacts(stub_.get(), {}, 5000).ok()) support::SleepMs(10);
    best_s = std::min(best_s, static_cast<double>(clock.NowNs() - up_ns) * 1e-9);
  }
  EXPECT_LT(best_s, kSoonS);
}

TEST(WireTest, OnlyErrorsThatMayPassSayWhenToComeAgain) {
  for (const bool passing : {false, true}) {
    const absl::Status status =
        passing ? support::Unavailable("x.away", "later") : support::NotFound("x.missing", "never");
    const std::string details = ToGrpc(status).error_details();
    EXPECT_THAT(details, HasSubstr("type.googleapis.com/google.rpc.ErrorInfo"));
    EXPECT_THAT(details, HasSubstr(passing ? "x.away" : "x.missing"));
    const size_t at = details.find("type.googleapis.com/google.rpc.RetryInfo");
    EXPECT_EQ(at != std::string::npos, passing);
    if (!passing) continue;
    // Any.value: RetryInfo { retry_delay { seconds: 1 } }, the last bytes of all.
    EXPECT_EQ(details.substr(details.size() - 6), std::string("\x12\x04\x0a\x02\x08\x01", 6));
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
  }
}

TEST_F(DaemonTest, ADownloadGoesOnWhereTheLastOneEnded) {
  StartHost();
  auto dir = support::TempDir::Create("download");
  ASSERT_TRUE(dir.ok());
  std::string bytes(3'500'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 4096);
  const std::string hex = support::Sha256Hex(bytes);
  ASSERT_TRUE(UploadArtifact(stub_.get(), hex, bytes, 20'000).ok());
  const std::string path = dir->File("model.tw");
  const std::string part = PartPath(path, hex);
  const auto fetch = [&] { return DownloadArtifact(stub_.get(), hex, path, 20'000); };
  const auto check = [&](int64_t resumed, int64_t moved, const char* what) {
    const auto stats = fetch();
    ASSERT_TRUE(stats.ok()) << what << stats.status();
    EXPECT_EQ(stats->resumed_bytes, resumed) << what;
    EXPECT_EQ(stats->moved_bytes, moved) << what;
    EXPECT_EQ(*support::ReadFile(path, 1 << 26), bytes) << what;
    EXPECT_FALSE(support::FileExists(part)) << what;
    ASSERT_TRUE(support::RemoveFile(path).ok());
  };
  const auto size = static_cast<int64_t>(bytes.size());
  check(0, size, "from nothing");
  ASSERT_TRUE(support::WriteFileAtomic(part, bytes.substr(0, 2'000'001)).ok());
  check(2'000'001, size - 2'000'001, "the rest");
  ASSERT_TRUE(support::WriteFileAtomic(part, bytes).ok());
  check(size, 0, "all was there");
  ASSERT_TRUE(support::WriteFileAtomic(part, std::string(1000, 'x')).ok());
  check(0, size, "a damaged part");
  ASSERT_TRUE(support::WriteFileAtomic(part, bytes + "more").ok());
  check(0, size, "a part that is too long");

  const std::string absent = support::Sha256Hex("absent");
  EXPECT_TRUE(absl::IsNotFound(DownloadArtifact(stub_.get(), absent, path, 20'000).status()));
  EXPECT_TRUE(support::ListDir(dir->path())->empty()) << "a failure leaves nothing behind";
}

TEST_F(DaemonTest, ArtifactsTravelInPiecesAndArriveWhole) {
  StartHost();
  auto local = BlobStore::Open(dir_->File("client"));
  ASSERT_TRUE(local.ok());
  std::vector<std::string> names;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1} << 20, (size_t{5} << 20) + 17}) {
    std::string data(size, '\0');
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<char>(i * 2654435761u >> 13);
    names.push_back(*(*local)->Put(data));
  }
  ASSERT_TRUE(UploadMissingArtifacts(stub_.get(), local->get(), names, 20'000).ok());
  EXPECT_TRUE(FindMissingArtifacts(stub_.get(), names, 5000)->empty());
  auto fetched = BlobStore::Open(dir_->File("agent"));
  ASSERT_TRUE(fetched.ok());
  for (const std::string& name : names) {
    const absl::Status status = FetchArtifact(stub_.get(), fetched->get(), name, 20'000);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(*(*fetched)->Get(name), *(*local)->Get(name));
    std::string streamed;
    ASSERT_TRUE(StreamArtifact(stub_.get(), name, 5000, [&](std::string_view piece) {
                  streamed += piece;
                  return absl::OkStatus();
                }).ok());
    EXPECT_EQ(support::Sha256Hex(streamed), name);
  }
  EXPECT_EQ(FetchArtifact(stub_.get(), fetched->get(), support::Sha256Hex("absent"), 5000).code(),
            absl::StatusCode::kNotFound);
}

TEST_F(DaemonTest, AnUploadThatIsNotItsDigestLeavesNothing) {
  StartHost();
  const absl::Status status =
      UploadArtifact(stub_.get(), support::Sha256Hex("promised"), "delivered", 5000);
  EXPECT_EQ(support::Slug(status), "artifact.write.digest_mismatch");
  EXPECT_EQ(blobs_->count(), 0);
  EXPECT_TRUE(support::ListDir(dir_->File("server/tmp"))->empty());
  v1::BatchWriteRequest batch;
  v1::InlineArtifact* artifact = batch.add_artifacts();
  *artifact->mutable_digest() = MakeDigest(support::Sha256Hex("a"), 1);
  artifact->set_data("b");
  v1::InlineArtifact* good = batch.add_artifacts();
  *good->mutable_digest() = MakeDigest(support::Sha256Hex("c"), 1);
  good->set_data("c");
  v1::BatchWriteResponse response;
  grpc::ClientContext context;
  SetTimeout(&context, 5000);
  ASSERT_TRUE(stub_->BatchWrite(&context, batch, &response).ok());
  EXPECT_EQ(response.statuses(0).code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(response.statuses(1).code(), 0);
  EXPECT_TRUE(blobs_->Contains(support::Sha256Hex("c")));
}

TEST_F(DaemonTest, UploadsOutOfOrderOrCutShortAreRefused) {
  StartHost();
  const auto write = [&](const std::vector<v1::WriteChunk>& chunks) {
    grpc::ClientContext context;
    SetTimeout(&context, 5000);
    v1::WriteResponse response;
    const auto writer = stub_->Write(&context, &response);
    for (const v1::WriteChunk& chunk : chunks) {
      if (!writer->Write(chunk)) break;
    }
    writer->WritesDone();
    return support::Slug(FromGrpc(writer->Finish()));
  };
  v1::WriteChunk first;
  *first.mutable_digest() = MakeDigest(support::Sha256Hex("abcdef"), 6);
  first.set_data("abc");
  v1::WriteChunk second;
  second.set_offset(4);
  second.set_data("def");
  second.set_finish(true);
  EXPECT_EQ(write({first, second}), "artifact.write.offset");
  EXPECT_EQ(write({first}), "artifact.write.incomplete");
  EXPECT_EQ(write({}), "artifact.write.incomplete");
  second.set_offset(3);
  EXPECT_EQ(write({second}), "artifact.digest.invalid");
  EXPECT_EQ(write({first, second}), "");
  EXPECT_EQ(*blobs_->Get(support::Sha256Hex("abcdef")), "abcdef");
  EXPECT_TRUE(support::ListDir(dir_->File("server/tmp"))->empty());
}

TEST_F(DaemonTest, ReadsOfARangeStayInTheRange) {
  StartHost();
  const std::string name = *blobs_->Put("0123456789");
  const auto read = [&](int64_t offset, int64_t limit, std::string* text) {
    v1::ReadRequest request;
    *request.mutable_digest() = MakeDigest(name, 10);
    request.set_offset(offset);
    request.set_limit(limit);
    grpc::ClientContext context;
    SetTimeout(&context, 5000);
    const auto reader = stub_->Read(&context, request);
    v1::Chunk chunk;
    while (reader->Read(&chunk)) *text += chunk.data();
    return support::Slug(FromGrpc(reader->Finish()));
  };
  std::string text;
  EXPECT_EQ(read(3, 4, &text), "");
  EXPECT_EQ(text, "3456");
  text.clear();
  EXPECT_EQ(read(8, 100, &text), "");
  EXPECT_EQ(text, "89");
  EXPECT_EQ(read(11, 0, &text), "artifact.read.range");
  EXPECT_EQ(read(-1, 0, &text), "artifact.read.range");
}

TEST_F(DaemonTest, ADamagedArtifactIsNeverServedAndHealsByUpload) {
  StartHost();
  const std::string name = *blobs_->Put("precious bytes");
  const std::string path = *blobs_->Path(name);
  ASSERT_TRUE(support::WriteFileAtomic(path, "precious bytez").ok());
  auto local = BlobStore::Open(dir_->File("client"));
  const absl::Status status = FetchArtifact(stub_.get(), local->get(), name, 5000);
  EXPECT_EQ(support::Slug(status), "artifact.read.corrupt");
  EXPECT_FALSE(blobs_->Contains(name));
  ASSERT_TRUE(UploadArtifact(stub_.get(), name, "precious bytes", 5000).ok());
  EXPECT_TRUE(FetchArtifact(stub_.get(), local->get(), name, 5000).ok());
}

TEST_F(DaemonTest, BlobStoreFindsItsBlobsAgainAndCollectsTheOldest) {
  const std::string a = *blobs_->Put("aaaa");
  const std::string b = *blobs_->Put("bbbb");
  const std::string c = *blobs_->Put("cccc");
  EXPECT_EQ(blobs_->total_bytes(), 12);
  EXPECT_EQ(*blobs_->Put("aaaa"), a);
  EXPECT_EQ(blobs_->count(), 3);
  ASSERT_TRUE(blobs_->Get(a).ok());  // now the most recently used
  EXPECT_EQ(blobs_->Collect(8, [&](const std::string& hex) { return hex == b; }), 1);
  EXPECT_FALSE(blobs_->Contains(c)) << "b is kept, a is younger";
  blobs_.reset();
  ASSERT_TRUE(support::WriteFileAtomic(dir_->File("server/tmp/half"), "half a blob").ok());
  auto again = BlobStore::Open(dir_->File("server"));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->count(), 2);
  EXPECT_EQ((*again)->total_bytes(), 8);
  EXPECT_FALSE(support::FileExists(dir_->File("server/tmp/half")));
  EXPECT_FALSE((*again)->Get("../../etc/passwd").ok());
}

// What a power cut may leave of a blob that was not synced.
TEST_F(DaemonTest, ABlobThatACacheLostIsSeenWhenItIsReadAndMadeAnew) {
  const std::string dir = dir_->File("cache");
  const std::string hex = *(*BlobStore::Open(dir, BlobStore::Durability::kCache))->Put("bytes");
  const std::string path = dir + "/objects/" + hex.substr(0, 2) + "/" + hex;
  ASSERT_TRUE(support::WriteFileAtomic(path, "").ok());
  auto cache = *BlobStore::Open(dir, BlobStore::Durability::kCache);
  EXPECT_EQ(cache->Get(hex).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(cache->Contains(hex));
  EXPECT_EQ(*cache->Put("bytes"), hex);
  EXPECT_EQ(*cache->Get(hex), "bytes");
}

TEST_F(DaemonTest, BlobsThatAreSyncedBehindAreThereAtOnceAndAfterwards) {
  const std::string dir = dir_->File("soon");
  std::vector<std::string> names;
  {
    auto store = *BlobStore::Open(dir, BlobStore::Durability::kSoon);
    for (int i = 0; i < 50; ++i) names.push_back(*store->Put("blob " + std::to_string(i)));
    EXPECT_EQ(*store->Get(names[49]), "blob 49");
    ASSERT_TRUE(store->Remove(names[0]).ok()) << "before or while it is synced";
  }
  auto again = *BlobStore::Open(dir, BlobStore::Durability::kSoon);
  EXPECT_EQ(again->count(), 49);
  for (size_t i = 1; i < names.size(); ++i) {
    EXPECT_EQ(*again->Get(names[i]), "blob " + std::to_string(i));
  }
}

sockaddr_in LoopbackAddress(const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(ParseHostPort(text, "x")->port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A connection to HOST:PORT on loopback.
int Dial(const std::string& address_text) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = LoopbackAddress(address_text);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

std::string ReadToEnd(int fd) {
  std::string page;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) page.append(buffer, n);
  close(fd);
  return page;
}

std::string Get(const std::string& address, const std::string& headers = "",
                const std::string& path = "/metrics") {
  const int fd = Dial(address);
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
  EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  return ReadToEnd(fd);
}

TEST_F(DaemonTest, MetricsAreServedWithCallCounts) {
  auto metrics = Metrics::Create("test", {"127.0.0.1:0"});
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  HostOptions options;
  options.metrics = metrics->get();
  StartHost(options);
  ASSERT_TRUE(FindMissingArtifacts(stub_.get(), {support::Sha256Hex("x")}, 5000).ok());
  (*metrics)->Counter("tilewright_things_total", "things", {{"kind", "odd"}}).Increment(3);
  const std::string page = Get((*metrics)->address());
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(page, HasSubstr("tilewright_things_total{kind=\"odd\"} 3"));
  EXPECT_THAT(page, HasSubstr("tilewright_build_info{service=\"test\""));
  EXPECT_THAT(page, HasSubstr("tilewright_rpc_calls_total{code=\"OK\",method=\"/tilewright.v1."
                              "ArtifactService/FindMissing\"} 1"));
  EXPECT_THAT(Get((*metrics)->address(), "", "/"), StartsWith("HTTP/1.1 404 "));
  EXPECT_EQ(support::Slug(Metrics::Create("t", {(*metrics)->address()}).status()),
            "daemon.metrics.failed");
}

// Off loopback metrics want TLS and a token, or a word of their own: --insecure of calls is not
// needed for them.
TEST_F(DaemonTest, MetricsOffLoopbackAreForThoseWhoMayReadThem) {
  const auto slug = [](const MetricsOptions& options) {
    return support::Slug(CheckMetrics(options));
  };
  const std::string token = dir_->File("token");
  ASSERT_TRUE(support::WriteFileAtomic(token, "0123456789abcdef\n", 0600).ok());
  const std::string all = "0.0.0.0:0";
  EXPECT_EQ(slug({.listen = all}), "daemon.metrics.insecure");
  support::SystemClock clock;
  const int64_t now_s = clock.WallMicros() / 1'000'000;
  const std::string lab = dir_->File("lab");
  ASSERT_TRUE(security::CreateAuthority(dir_->File("pki"), "Test", 3650, now_s).ok());
  security::LeafRequest leaf;
  leaf.peer = {security::CertificateKind::kTracker, "lab"};
  ASSERT_TRUE(security::IssueIdentity(dir_->File("pki"), leaf, lab, now_s).ok());
  EXPECT_EQ(slug({.listen = all, .identity = lab}), "daemon.metrics.insecure");
  EXPECT_EQ(slug({.listen = all, .token_file = token}), "daemon.metrics.insecure");
  EXPECT_EQ(slug({.identity = lab}), "daemon.metrics.incomplete");
  EXPECT_EQ(slug({.listen = all, .identity = lab, .token_file = token}), "");
  EXPECT_EQ(slug({.listen = all, .plain_text = true}), "");
  EXPECT_EQ(slug({.listen = "127.0.0.1:0", .token_file = dir_->File("none")}),
            "identity.file.missing");
  ASSERT_EQ(chmod(token.c_str(), 0644), 0);
  EXPECT_EQ(slug({.listen = "127.0.0.1:0", .token_file = token}), "identity.key.permissions");
  ASSERT_TRUE(support::WriteFileAtomic(token, "short\n", 0600).ok());
  EXPECT_EQ(slug({.listen = "127.0.0.1:0", .token_file = token}), "daemon.metrics.token");
}

TEST_F(DaemonTest, MetricsWantTheirToken) {
  const std::string token = dir_->File("token");
  ASSERT_TRUE(support::WriteFileAtomic(token, "0123456789abcdef\n", 0600).ok());
  MetricsEndpointOptions options{.listen = "127.0.0.1:0", .token_file = token};
  const auto endpoint = MetricsEndpoint::Start(options, [] { return "the page"; });
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const std::string& address = (*endpoint)->address();
  for (const char* header : {"", "Authorization: Bearer 0123456789abcdeg\r\n",
                             "Authorization: Basic 0123456789abcdef\r\n"}) {
    EXPECT_THAT(Get(address, header), StartsWith("HTTP/1.1 401 ")) << header;
    EXPECT_THAT(Get(address, header), Not(HasSubstr("the page"))) << header;
  }
  EXPECT_THAT(Get(address, "authorization: bearer 0123456789abcdef\r\n"), HasSubstr("the page"));
  // A new token counts without a restart.
  ASSERT_TRUE(support::WriteFileAtomic(token, "another-0123456789\n", 0600).ok());
  EXPECT_THAT(Get(address, "Authorization: Bearer 0123456789abcdef\r\n"),
              StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(Get(address, "Authorization: Bearer another-0123456789\r\n"), HasSubstr("the page"));
}

TEST_F(DaemonTest, SlowReadersOfMetricsKeepNobodyElseFromThem) {
  MetricsEndpointOptions options{.listen = "127.0.0.1:0"};
  options.max_connections = 4;
  options.time_limit_ms = 60'000;
  const std::string large(8 << 20, 'x');
  auto endpoint = MetricsEndpoint::Start(options, [&] { return large; });
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const std::string& address = (*endpoint)->address();
  std::vector<int> slow;
  const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
  for (int i = 0; i < 20; ++i) {
    slow.push_back(Dial(address));
    // Some say nothing, some half of a request, some do not read what they asked for.
    const size_t bytes = i % 3 == 0 ? 0 : i % 3 == 1 ? 10 : request.size();
    EXPECT_EQ(write(slow.back(), request.data(), bytes), static_cast<ssize_t>(bytes));
  }
  EXPECT_GT(Get(address).size(), large.size());
  for (const int fd : slow) close(fd);

  options.time_limit_ms = 50;
  endpoint = MetricsEndpoint::Start(options, [&] { return large; });
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_EQ(ReadToEnd(Dial((*endpoint)->address())), "") << "silent: closed when its time is over";
  const int much = Dial((*endpoint)->address());
  const std::string head = "GET /metrics HTTP/1.1\r\nx: " + std::string(9000, 'y');
  EXPECT_EQ(write(much, head.data(), head.size()), static_cast<ssize_t>(head.size()));
  EXPECT_THAT(ReadToEnd(much), StartsWith("HTTP/1.1 431 "));
}

TEST_F(DaemonTest, AConnectionThatNoDescriptorIsFreeForKeepsNoCoreBusy) {
  auto endpoint = MetricsEndpoint::Start({.listen = "127.0.0.1:0"}, [] { return "page"; });
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  std::vector<int> taken;
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit few = old;
  few.rlim_cur = static_cast<rlim_t>(fd + 1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  for (int one; (one = dup(fd)) >= 0;) taken.push_back(one);
  sockaddr_in address = LoopbackAddress((*endpoint)->address());
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const int64_t before_ns = support::ReadClockNs(CLOCK_PROCESS_CPUTIME_ID);
  support::SleepMs(500);
  EXPECT_LT(support::ReadClockNs(CLOCK_PROCESS_CPUTIME_ID) - before_ns, 100'000'000);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  for (const int one : taken) close(one);
  EXPECT_THAT(Get((*endpoint)->address()), HasSubstr("page"));
  close(fd);
}

// The gauge follows a renewal within a look, and any daemon with an identity has it.
TEST_F(DaemonTest, TheEndOfTheCertificateIsAMetricThatFollowsARenewal) {
  support::SystemClock clock;
  const int64_t now_s = clock.WallMicros() / 1'000'000;
  const std::string pki = dir_->File("pki");
  const std::string identity = dir_->File("bench");
  ASSERT_TRUE(security::CreateAuthority(pki, "Test", 3650, now_s).ok());
  security::LeafRequest leaf;
  leaf.peer = {security::CertificateKind::kAgent, "bench"};
  leaf.days = 90;
  ASSERT_TRUE(security::IssueIdentity(pki, leaf, identity, now_s).ok());
  auto metrics = *Metrics::Create("test");
  const CertificateWatch watch(identity, metrics.get(), &clock, 10);
  auto& gauge = metrics->Gauge("tilewright_certificate_expiry_timestamp_seconds",
                               "end of the daemon's own certificate, seconds since 1970");
  EXPECT_EQ(gauge.Value(), static_cast<double>(now_s + 90 * 86'400));
  ASSERT_TRUE(security::RenewIdentity(pki, identity, 200, now_s).ok());
  const int64_t end_ns = clock.NowNs() + int64_t{30} * 1'000'000'000;
  while (gauge.Value() != static_cast<double>(now_s + 200 * 86'400) && clock.NowNs() < end_ns) {
    support::SleepMs(5);
  }
  EXPECT_EQ(gauge.Value(), static_cast<double>(now_s + 200 * 86'400));
}

TEST(DaemonLogTest, LinesAreJsonWithTypedFields) {
  const std::string line = FormatLogLine("svc", LogLevel::kWarning, "lease.expired",
                                         {{"lease", "leases/1"},
                                          {"count", 3},
                                          {"ratio", 0.5},
                                          {"ok", true},
                                          {"bytes", std::string("\xff\"\n")}},
                                         1'700'000'000'123'456);
  const auto json = nlohmann::json::parse(line, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << line;
  EXPECT_EQ(json["ts"], "2023-11-14T22:13:20.123456Z");
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["service"], "svc");
  EXPECT_EQ(json["event"], "lease.expired");
  EXPECT_EQ(json["count"], 3);
  EXPECT_EQ(json["ratio"], 0.5);
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(DaemonWireTest, BackoffGrowsWithinItsBoundsAndStartsAgain) {
  Backoff backoff(support::Rng(1));
  int64_t ceiling = kReconnectMinMs;
  for (int i = 0; i < 12; ++i) {
    const int64_t pause = backoff.NextMs();
    EXPECT_LE(pause, ceiling);
    EXPECT_GE(pause, ceiling / 2);
    ceiling = std::min<int64_t>(ceiling * 2, kBackoffMaxMs);
  }
  backoff.Reset();
  EXPECT_LE(backoff.NextMs(), kReconnectMinMs);
}

TEST(DaemonWireTest, DigestsAndNames) {
  const std::string hex = support::Sha256Hex("x");
  EXPECT_EQ(*DigestToHex(MakeDigest(hex, 1)), hex);
  v1::Digest wrong = MakeDigest(hex, 1);
  wrong.set_algorithm("md5");
  EXPECT_EQ(support::Slug(DigestToHex(wrong).status()), "artifact.digest.invalid");
  EXPECT_EQ(ValueKindText(v1::VALUE_KIND_WALL_NS), "wall_ns");
  EXPECT_EQ(ValueKindText(v1::VALUE_KIND_SIMULATED_CYCLES), "simulated_cycles");
  EXPECT_EQ(ValueKindText(static_cast<v1::ValueKind>(77)), "unspecified");
  // The table of units has a row for each kind, under its name.
  const auto* kinds = v1::ValueKind_descriptor();
  ASSERT_EQ(support::MeasureUnits().size() + 1, static_cast<size_t>(kinds->value_count()));
  for (const support::MeasureUnit& unit : support::MeasureUnits()) {
    EXPECT_EQ(ValueKindText(static_cast<v1::ValueKind>(unit.kind)), unit.name);
  }
  EXPECT_EQ(OutcomeText(v1::WRONG_RESULT), "WRONG_RESULT");
  EXPECT_EQ(OutcomeText(static_cast<v1::Outcome>(77)), "OUTCOME_UNSPECIFIED");
}

// A socket like systemd's own.
class NotifySocket {
 public:
  NotifySocket() : dir_(*support::TempDir::Create()), fd_(socket(AF_UNIX, SOCK_DGRAM, 0)) {
    const std::string path = dir_.File("notify");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }
  ~NotifySocket() {
    unsetenv("NOTIFY_SOCKET");
    close(fd_);
  }
  // The next message; empty when there is none.
  std::string Next() const {
    char buffer[64];
    const ssize_t size = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    return size > 0 ? std::string(buffer, static_cast<size_t>(size)) : "";
  }

 private:
  support::TempDir dir_;
  int fd_;
};

TEST(DaemonMainTest, SystemdHearsThatTheDaemonIsReady) {
  const NotifySocket systemd;
  NotifySystemd("READY=1");
  EXPECT_EQ(systemd.Next(), "READY=1");
  unsetenv("NOTIFY_SOCKET");
  NotifySystemd("READY=1");  // no socket: nothing happens
  EXPECT_EQ(systemd.Next(), "");
}

TEST(DaemonMainTest, TheWatchdogIsFedFourTimesPerLimitAndNotMoreOften) {
  const NotifySocket systemd;
  setenv("WATCHDOG_USEC", "800000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  constexpr int64_t kEveryNs = 200'000'000;
  constexpr int kBeats = 5;
  support::SystemClock clock;
  support::SleepMs(kEveryNs / 1'000'000);  // the beats of an earlier repetition are past
  int beats = 0;
  int64_t last_begin_ns = 0;  // before and after the call that beat last
  int64_t last_end_ns = 0;
  while (beats < kBeats) {
    const int64_t begin_ns = clock.NowNs();
    BeatWatchdog();
    const int64_t end_ns = clock.NowNs();
    const bool beat = systemd.Next() == "WATCHDOG=1";
    // However long this machine lets a call wait: due is due, and not before.
    ASSERT_TRUE(beat || (beats > 0 && begin_ns - last_end_ns < kEveryNs)) << beats;
    ASSERT_FALSE(beat && beats > 0 && end_ns - last_begin_ns < kEveryNs) << beats;
    if (!beat) {
      support::SleepMs(1);
      continue;
    }
    ++beats;
    last_begin_ns = begin_ns;
    last_end_ns = end_ns;
  }
  unsetenv("WATCHDOG_USEC");
  unsetenv("WATCHDOG_PID");
}

TEST(DaemonMainTest, ASignalChangesTheLogLevelOfTheConfigurationFile) {
  const auto dir = support::TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string path = dir->File("daemon.conf");
  ASSERT_TRUE(support::WriteFileAtomic(path, "state-dir = /x\nlog-level = debug\n").ok());
  EXPECT_EQ(LogLevelOfConfig(path, LogLevel::kInfo).value(), LogLevel::kDebug);
  InitLog("test", LogLevel::kError);
  const auto reload = ReloadSignal::Install(path, LogLevel::kError);
  ASSERT_TRUE(reload.ok()) << reload.status();
  const auto logs_after_signal = [&] {
    ::testing::internal::CaptureStderr();
    const int64_t before = (*reload)->handled();
    raise(SIGHUP);
    for (int i = 0; i < 10'000 && (*reload)->handled() == before; ++i) support::SleepMs(1);
    LogInfo("is.it.there");
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(logs_after_signal(),
              ::testing::AllOf(HasSubstr("daemon.reload.done"), HasSubstr("is.it.there")));
  ASSERT_TRUE(support::WriteFileAtomic(path, "log-level = error\n").ok());
  EXPECT_THAT(logs_after_signal(), ::testing::Not(HasSubstr("is.it.there")));
  ASSERT_TRUE(support::WriteFileAtomic(path, "log-level = loud\n").ok());
  EXPECT_THAT(logs_after_signal(), HasSubstr("daemon.log_level.invalid"));
  ASSERT_TRUE(support::RemoveFile(path).ok());
  EXPECT_THAT(logs_after_signal(), HasSubstr("daemon.config.unreadable"));
  InitLog("test", LogLevel::kInfo);
}

TEST(DaemonMainTest, ASignalEndsTheWait) {
  auto stop = StopSignal::Install();
  ASSERT_TRUE(stop.ok());
  EXPECT_FALSE((*stop)->Wait(0));
  raise(SIGTERM);
  EXPECT_TRUE((*stop)->Wait(5000));
  EXPECT_TRUE((*stop)->requested());
}

TEST(DaemonMainTest, ExitCodesAreSysexits) {
  EXPECT_EQ(ExitCode(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCode(support::InvalidArgument("a", "")), 64);
  EXPECT_EQ(ExitCode(support::DataLoss("a", "")), 65);
  EXPECT_EQ(ExitCode(support::Unavailable("a", "")), 69);
  EXPECT_EQ(ExitCode(support::ResourceExhausted("a", "")), 74);
  EXPECT_EQ(ExitCode(support::PermissionDenied("a", "")), 77);
  EXPECT_EQ(ExitCode(support::FailedPrecondition("a", "")), 78);
}

}  // namespace
}  // namespace tilewright::daemon
