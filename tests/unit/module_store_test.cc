#include "tuner_server/modules/module_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "deploy/daemon/blob_store.h"
#include "deploy/module/module_file.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tests/support/tiny_module.h"
#include "tuner_server/log/memory_log.h"

namespace tilewright::modules {
namespace {

using support::Slug;
using support::StatusText;
using support::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
T Value(absl::StatusOr<T> result) {
  TW_CHECK(result.ok()) << StatusText(result.status());
  return *std::move(result);
}

class ModuleStoreTest : public testing::Test {
 protected:
  // Publishes a module that differs by `text`.
  absl::StatusOr<log::ModuleVersionRow> Publish(const std::string& module, const std::string& text,
                                                const std::string& target,
                                                const std::string& job = "") {
    PublishRequest request;
    request.path = dir_.File("model.tw");
    TW_TRY(support::WriteFileAtomic(request.path, tests::TinyModule(text)));
    request.module = module;
    request.target = target;
    request.job = job;
    request.model_sha256 = "m-" + module;
    request.recipe = recipe_;
    return store_.Publish(request);
  }

  TempDir dir_ = Value(TempDir::Create("module-store"));
  std::unique_ptr<log::TuningLog> log_ = log::MakeMemoryLog();
  std::unique_ptr<daemon::BlobStore> blobs_ = Value(daemon::BlobStore::Open(dir_.File("blobs")));
  std::string recipe_;
  ModuleStore store_{log_.get(), blobs_.get()};
};

TEST_F(ModuleStoreTest, APublishedModuleIsFoundByNameAndByDigest) {
  const log::ModuleVersionRow row = Value(Publish("DQN v1!", "a", "cpu"));
  EXPECT_EQ(row.module, "dqn-v1");
  EXPECT_EQ(row.number, 1);
  EXPECT_THAT(row.task_hashes, ElementsAre("task-of-a"));
  EXPECT_EQ(Value(blobs_->Get(row.sha256)), tests::TinyModule("a"));
  const std::string manifest = Value(blobs_->Get(row.manifest_sha256));
  EXPECT_EQ(static_cast<int64_t>(manifest.size()), row.manifest_size);
  EXPECT_THAT(manifest, HasSubstr("task-of-a"));
  EXPECT_EQ(Value(store_.Get("projects/default/modules/dqn-v1/versions/1")), row);
  EXPECT_EQ(Slug(store_.Get("projects/default/modules/dqn-v1/versions/2").status()),
            "log.module_version.not_found");
}

TEST_F(ModuleStoreTest, WhatHasTheRecipeIsPublishedAgainAsItIs) {
  recipe_ = "r1";
  const log::ModuleVersionRow one = Value(Publish("net", "a", "cpu"));
  recipe_ = "r2";
  const log::ModuleVersionRow two = Value(Publish("net", "b", "cpu"));
  EXPECT_EQ(Value(store_.Reuse("", "Net", "r1")), one);
  EXPECT_EQ(Value(store_.Reuse("", "net", "r2")), two);
  constexpr char kNone[] = "log.module_version.not_found";
  EXPECT_EQ(Slug(store_.Reuse("", "other", "r1").status()), kNone);
  EXPECT_EQ(Slug(store_.Reuse("", "net", "").status()), kNone);
  EXPECT_EQ(Slug(store_.Reuse("", "net", "r3").status()), kNone);
  TW_CHECK(blobs_->Remove(one.sha256).ok());
  EXPECT_EQ(Slug(store_.Reuse("", "net", "r1").status()), "module.reuse.bytes");
  EXPECT_EQ(Value(log_->PruneModuleVersions({two}, 1)).size(), 1U);
  EXPECT_EQ(Slug(store_.Reuse("", "net", "r2").status()), kNone);
}

TEST_F(ModuleStoreTest, RefusesWhatIsNotTheModuleThatWasMeant) {
  PublishRequest request;
  request.path = dir_.File("bad.tw");
  request.module = "m";
  const std::string good = tests::TinyModule("a");
  for (size_t cut : {size_t{0}, size_t{10}, good.size() - 1}) {
    ASSERT_TRUE(support::WriteFileAtomic(request.path, good.substr(0, cut)).ok());
    EXPECT_EQ(store_.Publish(request).status().code(), absl::StatusCode::kDataLoss) << cut;
  }
  ASSERT_TRUE(support::WriteFileAtomic(request.path, good).ok());
  request.expected_sha256 = support::Sha256Hex("something else");
  EXPECT_EQ(Slug(store_.Publish(request).status()), "module.publish.digest_mismatch");
  request.path = dir_.File("missing.tw");
  EXPECT_TRUE(absl::IsNotFound(store_.Publish(request).status()));
  EXPECT_TRUE(Value(log_->ListModuleVersions({})).versions.empty());
  EXPECT_EQ(blobs_->count(), 0);
}

TEST_F(ModuleStoreTest, AJobPublishesOnce) {
  log::JobRow job;
  job.id = "j1";
  Value(log_->CreateJob(job));
  const log::ModuleVersionRow first = Value(Publish("m", "a", "cpu", "j1"));
  EXPECT_EQ(Value(Publish("m", "b", "cpu", "j1")), first);
  EXPECT_EQ(Value(Publish("m", "b", "cpu", "")).number, 2);
}

TEST_F(ModuleStoreTest, ResolvesToTheNewestThatFitsAndSaysHowWell) {
  const std::string two = "cpu,arch=x86_64,cpu=znver4,threads=2";
  Value(Publish("m", "a", two));
  Value(Publish("m", "b", two));
  Value(Publish("m", "c", "cpu,arch=aarch64,cpu=cortex-a76,threads=2"));
  Resolved got = Value(store_.Resolve({.module = "m", .target = two}));
  EXPECT_EQ(got.match, Match::kExact);
  EXPECT_EQ(got.version.number, 2);
  got = Value(store_.Resolve({.module = "m", .target = ""}));
  EXPECT_EQ(got.version.number, 3);
  got = Value(store_.Resolve({.module = "m", .target = two, .number = 1}));
  EXPECT_EQ(got.version.number, 1);
  const std::string one = "cpu,arch=x86_64,cpu=znver4,threads=1";
  got = Value(store_.Resolve({.module = "m", .target = one}));
  EXPECT_EQ(got.match, Match::kCompatible);
  EXPECT_EQ(got.version.number, 2);
  EXPECT_THAT(got.explanation, HasSubstr(two));
  got = Value(store_.Resolve({.module = "m", .target = one, .exact = true}));
  EXPECT_EQ(got.match, Match::kNone);
  EXPECT_THAT(got.explanation, HasSubstr(two));
  EXPECT_EQ(Value(store_.Resolve({.module = "", .model_sha256 = "m-m", .target = two})).match,
            Match::kExact);
  EXPECT_EQ(
      Value(store_.Resolve({.module = "", .task_hash = "task-of-a", .target = ""})).version.number,
      1);
  EXPECT_EQ(Value(store_.Resolve({.module = "nope", .target = ""})).match, Match::kNone);
}

TEST(ModuleNames, AreMadeFitAndParsed) {
  EXPECT_EQ(ModuleName("ResNet-18 (v1.5)"), "resnet-18-v1.5");
  EXPECT_EQ(ModuleName("///"), "model");
  EXPECT_EQ(ModuleName(std::string(200, 'x')).size(), 63U);
  EXPECT_EQ(Value(ParseModuleParent("projects/default/modules/m")), "m");
  EXPECT_EQ(Value(ParseModuleParent("projects/default/modules/-")), "");
  EXPECT_EQ(Value(ParseModuleParent("")), "");
  for (const char* bad : {"m", "projects/p", "projects/default/modules/",
                          "projects/default/modules/a/b", "projects/defaultx"}) {
    EXPECT_EQ(Slug(ParseModuleParent(bad).status()), "module.name.bad") << bad;
  }
}

TEST_F(ModuleStoreTest, ResolvesByAliasAndDeviceClassAndNeverToPrunedBytes) {
  for (const char* text : {"a", "b", "c"}) Value(Publish("m", text, "cpu"));
  ASSERT_TRUE(store_.SetAlias({"m", "stable", 2, 1, "ana"}).ok());
  EXPECT_EQ(Value(store_.Resolve({.module = "m", .alias = "stable"})).version.number, 2);
  const Resolved none = Value(store_.Resolve({.module = "m", .alias = "nope"}));
  EXPECT_EQ(none.match, Match::kNone);
  EXPECT_THAT(none.explanation, HasSubstr("no alias nope"));
  for (const char* bad : {"", "Stable", "12", "a/b"}) {
    EXPECT_EQ(Slug(store_.SetAlias({"m", bad, 2, 1, ""})), "module.alias.bad") << bad;
  }
  const Resolved elsewhere = Value(store_.Resolve({.module = "m", .device_class = "board"}));
  EXPECT_EQ(elsewhere.match, Match::kNone);
  EXPECT_THAT(elsewhere.explanation, HasSubstr("device class board"));

  const PruneReport would = Value(store_.Prune("", {.keep_versions = 1}, true, 9));
  ASSERT_EQ(would.pruned.size(), 1U);
  EXPECT_EQ(would.pruned[0].number, 1);
  EXPECT_TRUE(blobs_->Contains(would.pruned[0].sha256)) << "a dry run drops nothing";
  const PruneReport done = Value(store_.Prune("", {.keep_versions = 1}, false, 9));
  ASSERT_EQ(done.pruned.size(), 1U);
  EXPECT_EQ(done.freed_bytes, done.pruned[0].size);
  EXPECT_FALSE(blobs_->Contains(done.pruned[0].sha256));
  EXPECT_EQ(Value(store_.Resolve({.module = "m", .alias = "stable"})).version.number, 2);
  const Resolved gone = Value(store_.Resolve({.module = "m", .number = 1}));
  EXPECT_EQ(gone.match, Match::kNone);
  EXPECT_THAT(gone.explanation, HasSubstr("pruned"));
}

TEST_F(ModuleStoreTest, BytesThatAnotherVersionHasStayWhenOneIsPruned) {
  Value(Publish("m", "same", "cpu"));
  Value(Publish("m", "other", "cpu"));
  const log::ModuleVersionRow last = Value(Publish("m", "same", "cpu"));
  const PruneReport done = Value(store_.Prune("m", {.keep_versions = 1}, false, 9));
  EXPECT_EQ(done.pruned.size(), 2U);
  EXPECT_TRUE(blobs_->Contains(last.sha256));
  EXPECT_EQ(done.freed_bytes, done.pruned[1].size) << "the shared bytes are not counted";
}

TEST_F(ModuleStoreTest, ASignerSignsWhatIsPublished) {
  const std::string key = dir_.File("release.key");
  const std::string id = Value(security::CreateSigningKey(key));
  const auto signer = Value(security::ModuleSigner::Load(key));
  ModuleStore signing(log_.get(), blobs_.get(), signer.get());
  PublishRequest request;
  request.path = dir_.File("model.tw");
  ASSERT_TRUE(support::WriteFileAtomic(request.path, tests::TinyModule("a")).ok());
  request.module = "m";
  const log::ModuleVersionRow row = Value(signing.Publish(request));
  const auto signatures = Value(log_->ListModuleSignatures("m", row.number));
  ASSERT_EQ(signatures.size(), 1U);
  const auto verifier = Value(security::ModuleVerifier::Load(key + security::kPublicSuffix));
  EXPECT_TRUE(
      verifier
          ->Verify(row.sha256, {signatures[0].key_id, *support::HexDecode(signatures[0].signature)})
          .ok());
}

// What PlanPruning drops of versions named like "m3" (module m, number 3), newest first.
std::vector<std::string> Dropped(const std::vector<std::string>& versions,
                                 const std::vector<log::ModuleAliasRow>& aliases,
                                 const RetentionPolicy& policy) {
  std::vector<log::ModuleVersionRow> rows;
  for (const std::string& name : versions) {
    log::ModuleVersionRow row;
    row.module = name.substr(0, 1);
    row.number = name[1] - '0';
    row.sha256 = name;
    row.size = 10;
    rows.push_back(row);
  }
  std::vector<std::string> names;
  for (const log::ModuleVersionRow& row : PlanPruning(rows, aliases, policy).pruned) {
    names.push_back(row.module + std::to_string(row.number));
  }
  return names;
}

TEST(RetentionTest, KeepsAliasesAndTheNewestOfEachModuleWhateverTheLimits) {
  const std::vector<std::string> all = {"m4", "n2", "m3", "m2", "n1", "m1"};
  EXPECT_THAT(Dropped(all, {}, {}), ElementsAre());
  EXPECT_THAT(Dropped(all, {}, {.keep_versions = 2}), ElementsAre("m1", "m2"));
  EXPECT_THAT(Dropped(all, {{"m", "old", 1, 0, ""}}, {.keep_versions = 1}),
              ElementsAre("n1", "m2", "m3"));
  EXPECT_THAT(Dropped(all, {}, {.max_bytes = 45}), ElementsAre("m1", "n1"));
  EXPECT_THAT(Dropped(all, {{"m", "old", 1, 0, ""}}, {.max_bytes = 1}),
              ElementsAre("n1", "m2", "m3"));
  EXPECT_THAT(Dropped(all, {}, {.keep_versions = 3, .max_bytes = 40}), ElementsAre("m1", "n1"));
  log::ModuleVersionRow large;
  large.size = 10;
  EXPECT_FALSE(PlanPruning({large}, {}, {.max_bytes = 1}).within_limits);
}

}  // namespace
}  // namespace tilewright::modules
