// The parent's side of a builder: what the child is short of reaches the parent as a kind, and so
// does a child that was killed from outside.
#include "tuner_server/search/builder_client.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>

#include "deploy/support/file.h"
#include "deploy/support/shortage.h"
#include "tests/support/patience.h"
#include "tests/support/small_disk.h"
#include "tuner_server/search/builder_error.h"

namespace tilewright::search {
namespace {

using support::Shortage;
using support::ShortageOf;

constexpr int64_t kAnswerMs = 20'000;
constexpr int64_t kDiskBytes = 1 << 20;

std::unique_ptr<BuilderClient> StartFake(bool background = true) {
  BuilderOptions options;
  options.mode = "build";
  options.background = background;
  const auto program = support::FindSibling("tilewright_fake_builder");
  TW_CHECK(program.ok()) << support::StatusText(program.status());
  options.program = *program;
  auto client = BuilderClient::Start(options);
  TW_CHECK(client.ok()) << support::StatusText(client.status());
  return *std::move(client);
}

v1::BuilderRequest BuildInto(const std::string& folder) {
  v1::BuilderRequest request;
  request.mutable_build()->set_steps("split 1");
  request.mutable_build()->set_output_path(support::PathJoin(folder, "module.tw"));
  return request;
}

TEST(BuilderErrorTest, KeepsCodeTextAndShortage) {
  for (int i = 0; i < support::kShortages; ++i) {
    const absl::Status sent =
        support::MarkShortage(support::NotFound("a.b.c", "f"), static_cast<Shortage>(i));
    EXPECT_EQ(FromBuilderError(ToBuilderError(sent)), sent);
  }
  v1::BuilderError newer;  // of a builder that knows more kinds
  newer.set_code(8);
  ASSERT_TRUE(newer.MergeFromString("\x18\x63"));  // shortage 99
  EXPECT_EQ(ShortageOf(FromBuilderError(newer)), Shortage::kNone);
  EXPECT_FALSE(FromBuilderError(v1::BuilderError()).ok());
}

TEST(BuilderClientTest, OnlyBuildersInTheBackgroundGiveWay) {
  const auto niceness = [](const BuilderClient& client) {
    return getpriority(PRIO_PROCESS, static_cast<id_t>(client.pid()));
  };
  const int own = getpriority(PRIO_PROCESS, 0);
  EXPECT_EQ(niceness(*StartFake(/*background=*/false)), own);
  EXPECT_EQ(niceness(*StartFake()), std::min(19, own + 10));
}

TEST(BuilderClientTest, AFullDiskOfTheChildIsAKindAndItLivesOn) {
  const auto disk = tests::SmallDisk::Mount(kDiskBytes);
  if (disk == nullptr) GTEST_SKIP() << tests::kNoMountSkip;
  const std::unique_ptr<BuilderClient> client = StartFake();
  disk->Fill();
  const auto refused = client->Ask(BuildInto(disk->path()), tests::Patiently(kAnswerMs));
  EXPECT_EQ(ShortageOf(refused.status()), Shortage::kDiskFull) << refused.status();
  EXPECT_TRUE(client->alive());
  disk->Free();
  const auto built = client->Ask(BuildInto(disk->path()), tests::Patiently(kAnswerMs));
  EXPECT_TRUE(built.ok()) << built.status();
}

TEST(BuilderClientTest, AKillFromOutsideIsAKindAndOneByTheParentIsNot) {
  std::unique_ptr<BuilderClient> client = StartFake();
  ASSERT_EQ(kill(client->pid(), SIGKILL), 0);
  absl::Status died = client->Ask(BuildInto("/tmp"), tests::Patiently(kAnswerMs)).status();
  EXPECT_EQ(ShortageOf(died), Shortage::kKilled) << died;
  EXPECT_FALSE(client->alive());
  client = StartFake();
  client->Kill();
  died = client->Ask(BuildInto("/tmp"), tests::Patiently(kAnswerMs)).status();
  EXPECT_EQ(ShortageOf(died), Shortage::kNone) << died;
  // A crash of its own.
  client = StartFake();
  ASSERT_EQ(kill(client->pid(), SIGABRT), 0);
  died = client->Ask(BuildInto("/tmp"), tests::Patiently(kAnswerMs)).status();
  EXPECT_EQ(ShortageOf(died), Shortage::kNone) << died;
}

}  // namespace
}  // namespace tilewright::search
