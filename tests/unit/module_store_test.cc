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
#include "tuner_server/modules/module_releases.h"

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
    request.median_us = median_us_;
    return store_.Publish(request);
  }

  void ExpectNone(const ResolveRequest& request, const std::string& why) {
    const absl::Status status = store_.Resolve(request).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_TRUE(Slug(status).starts_with("module.not_found")) << status;
    EXPECT_THAT(StatusText(status), HasSubstr(why));
  }

  TempDir dir_ = Value(TempDir::Create("module-store"));
  std::unique_ptr<log::TuningLog> log_ = log::MakeMemoryLog();
  std::unique_ptr<daemon::BlobStore> blobs_ = Value(daemon::BlobStore::Open(dir_.File("blobs")));
  std::string recipe_;
  double median_us_ = 0;
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

TEST_F(ModuleStoreTest, ResolvesToTheBestThatFitsAndSaysWhy) {
  const std::string two = "cpu,arch=x86_64,cpu=znver4,threads=2";
  Value(Publish("m", "a", two));
  Value(Publish("m", "b", two));
  Value(Publish("m", "c", "cpu,arch=aarch64,cpu=cortex-a76,threads=2"));
  Choice got = Value(store_.Resolve({.module = "m", .wish = {.target = two}}));
  EXPECT_EQ(got.match, Match::kExact);
  EXPECT_EQ(got.version.number, 2);
  got = Value(store_.Resolve({.module = "m"}));
  EXPECT_EQ(got.version.number, 3);
  got = Value(store_.Resolve({.module = "m", .wish = {.target = two}, .number = 1}));
  EXPECT_EQ(got.version.number, 1);
  const std::string one = "cpu,arch=x86_64,cpu=znver4,threads=1";
  got = Value(store_.Resolve({.module = "m", .wish = {.target = one}}));
  EXPECT_EQ(got.match, Match::kCompatible);
  EXPECT_EQ(got.version.number, 2);
  EXPECT_THAT(got.explanation, HasSubstr(two));
  ExpectNone({.module = "m", .wish = {.target = one, .exact = true}}, two);
  got = Value(store_.Resolve({.model_sha256 = "m-m", .wish = {.target = two}}));
  EXPECT_EQ(got.match, Match::kExact);
  EXPECT_EQ(Value(store_.Resolve({.task_hash = "task-of-a"})).version.number, 1);
  ExpectNone({.module = "nope"}, "no version");
}

// Versions with these times, oldest first; what the others are like is in `row`.
std::vector<log::ModuleVersionRow> Versions(const std::vector<double>& medians_us,
                                            log::ModuleVersionRow row) {
  std::vector<log::ModuleVersionRow> rows;
  for (const double us : medians_us) {
    row.number = static_cast<int64_t>(rows.size()) + 1;
    row.median_us = us;
    rows.insert(rows.begin(), row);
  }
  return rows;
}

log::ModuleVersionRow RowFor(const std::string& target) {
  log::ModuleVersionRow row;
  row.module = "dqn";
  row.model_sha256 = "weights";
  row.target = target;
  return row;
}

std::string Threads(int threads) {
  return "cpu,arch=x86_64,cpu=znver4,threads=" + std::to_string(threads);
}

TEST(VersionChoiceTest, TheFastestWinsAndTheNewestAmongEquals) {
  const log::ModuleVersionRow row = RowFor(Threads(2));
  const auto chosen = [&](const std::vector<double>& medians_us, double ci_rel = 0) {
    log::ModuleVersionRow like = row;
    like.ci_rel = ci_rel;
    return Value(ChooseVersion(Versions(medians_us, like), {.target = row.target})).version.number;
  };
  EXPECT_EQ(chosen({107, 124}), 1) << "the newest is slower";
  EXPECT_EQ(chosen({124, 107}), 2);
  EXPECT_EQ(chosen({107, 109}), 2) << "2 % is noise";
  EXPECT_EQ(chosen({107, 111}), 1) << "4 % is not";
  EXPECT_EQ(chosen({107, 111}, 0.03), 2) << "unless both were measured no better";
  EXPECT_EQ(chosen({107, 124}, 0.5), 1) << "10 % is more than any noise";
  EXPECT_EQ(chosen({100, 102, 104}), 2) << "equal to the fastest, not to its neighbour";
  EXPECT_EQ(chosen({107, 0}), 1) << "one that was not measured is not faster";
  EXPECT_EQ(chosen({0, 0}), 2);
  const Choice choice = Value(ChooseVersion(Versions({107, 124}, row), {.target = row.target}));
  EXPECT_THAT(choice.explanation, HasSubstr("107.0 µs"));
  EXPECT_THAT(choice.explanation, HasSubstr("dqn/2, takes 124.0 µs"));
}

TEST(VersionChoiceTest, TimesOfOtherModelsAndDevicesAreNotCompared) {
  std::vector<log::ModuleVersionRow> rows = Versions({100, 200}, RowFor(Threads(2)));
  rows[0].model_sha256 = "trained again";
  EXPECT_EQ(Value(ChooseVersion(rows, {.target = Threads(2)})).version.number, 2);
  rows[0].model_sha256 = rows[1].model_sha256;
  rows[0].device_class = "laptop";
  EXPECT_EQ(Value(ChooseVersion(rows, {.target = Threads(2)})).version.number, 2);
  rows[0].device_class = rows[1].device_class;
  rows[0].target = "cpu,arch=aarch64,cpu=cortex-a76,threads=2";
  EXPECT_EQ(Value(ChooseVersion(rows, {})).version.number, 2) << "any target: the newest one's";
}

TEST(VersionChoiceTest, TimesOfOtherSizesAreNotCompared) {
  std::vector<log::ModuleVersionRow> rows = Versions({100, 800}, RowFor(Threads(2)));
  const log::ModelSizes eight = {.shapes = {{"batch", {8}}}};
  rows[0].sizes = eight.ToText();
  EXPECT_EQ(Value(ChooseVersion(rows, {.target = Threads(2)})).version.number, 2);
  rows[0].sizes = rows[1].sizes;
  EXPECT_EQ(Value(ChooseVersion(rows, {.target = Threads(2)})).version.number, 1);
}

TEST(VersionChoiceTest, VersionsTunedForTheWantedSizesComeBeforeThoseThatTakeThem) {
  const log::ModelSizes open = {.open = {{"batch", {1, 32}}}, .points = {{{"batch", 1}}}};
  const log::ModelSizes special = {.open = {{"batch", {1, 16}}}, .points = {{{"batch", 8}}}};
  const log::ModelSizes fixed = {.shapes = {{"batch", {4}}}};
  // Newest first: 4, 3, 2, 1; the sizes of 1 are not known.
  std::vector<log::ModuleVersionRow> rows = Versions({90, 80, 70, 60}, RowFor(Threads(2)));
  rows[2].sizes = fixed.ToText();
  rows[1].sizes = special.ToText();
  rows[0].sizes = open.ToText();
  const auto chosen = [&](const log::ModelSizes& wanted) {
    return Value(ChooseVersion(rows, {.target = Threads(2), .sizes = wanted})).version.number;
  };
  const auto batch = [](int64_t n) { return log::ModelSizes{.shapes = {{"batch", {n}}}}; };
  EXPECT_EQ(chosen({}), 4) << "the newest one's sizes";
  EXPECT_EQ(chosen(batch(1)), 4);
  EXPECT_EQ(chosen(batch(8)), 3) << "tuned there; 4 runs it in its kernels of all sizes";
  EXPECT_EQ(chosen(batch(4)), 2);
  EXPECT_EQ(chosen(batch(20)), 4);
  EXPECT_EQ(chosen({.open = {{"batch", {1, 16}}}}), 4);
  EXPECT_EQ(chosen({.open = {{"batch", {1, 16}}}, .points = {{{"batch", 8}}}}), 3);
  const absl::Status none =
      ChooseVersion(rows, {.target = Threads(2), .sizes = batch(64)}).status();
  EXPECT_EQ(Slug(none), "module.not_found");
  EXPECT_THAT(StatusText(none), HasSubstr("batch=64"));
  EXPECT_THAT(StatusText(none), HasSubstr("batch=1..32, specialised at batch=1"));
}

TEST(VersionChoiceTest, ModulesForFewerThreadsComeBeforeThoseForMore) {
  std::vector<log::ModuleVersionRow> rows;
  for (const auto& [threads, us] :
       std::vector<std::pair<int, double>>{{8, 40}, {2, 107}, {1, 200}, {2, 124}}) {
    log::ModuleVersionRow row = RowFor(Threads(threads));
    row.number = static_cast<int64_t>(rows.size()) + 1;
    row.median_us = us;
    rows.insert(rows.begin(), row);
  }
  const auto chosen = [&](int threads) {
    return Value(ChooseVersion(rows, {.target = Threads(threads)})).version.number;
  };
  EXPECT_EQ(chosen(4), 2) << "the fastest of those for at most four";
  EXPECT_EQ(chosen(1), 3);
  EXPECT_EQ(chosen(8), 1);
  rows.erase(rows.begin() + 1);
  EXPECT_EQ(chosen(1), 2) << "two threads are nearer than eight";
}

TEST(VersionChoiceTest, APreferenceChoosesTheTargetButNeverAnOlderModel) {
  const std::string board = "cpu,arch=aarch64,cpu=cortex-a76,threads=4";
  std::vector<log::ModuleVersionRow> rows = Versions({107, 124, 300}, RowFor(Threads(2)));
  rows[0].target = board;
  const VersionWish mine{.target = Threads(2), .preference = true};
  Choice got = Value(ChooseVersion(rows, mine));
  EXPECT_EQ(got.version.number, 1);
  EXPECT_EQ(got.match, Match::kExact);
  rows[0].model_sha256 = "trained again";
  got = Value(ChooseVersion(rows, mine));
  EXPECT_EQ(got.version.number, 3);
  EXPECT_EQ(got.match, Match::kFallback);
  EXPECT_THAT(got.explanation, HasSubstr(board));
}

TEST_F(ModuleStoreTest, LimitsOfTimeExcludeVersionsAndTheErrorSaysTheBest) {
  median_us_ = 107;
  Value(Publish("m", "a", Threads(2)));
  median_us_ = 124;
  const log::ModuleVersionRow slow = Value(Publish("m", "b", Threads(2)));
  const auto number = [&](ResolveRequest request) {
    request.module = "m";
    return Value(store_.Resolve(request)).version.number;
  };
  EXPECT_EQ(number({}), 1);
  EXPECT_EQ(number({.number = 2}), 2) << "a number names one version, whatever its time";
  EXPECT_EQ(number({.max_latency_us = 110}), 1);
  EXPECT_EQ(number({.limit_module = "m", .limit_number = 1}), 1);
  ExpectNone({.module = "m", .max_latency_us = 100}, "m/1, takes 107.0 µs");
  ExpectNone({.module = "m", .number = 2, .max_latency_us = 110}, "m/2, takes 124.0 µs");
  ExpectNone({.module = "m", .number = 2, .limit_module = "m", .limit_number = 1}, "of m/1");
  EXPECT_THAT(Value(store_.WhyNotDefault(slow)), HasSubstr("m without a number stays m/1"));
  median_us_ = 0;
  const log::ModuleVersionRow unknown = Value(Publish("n", "c", Threads(2)));
  EXPECT_EQ(Value(store_.WhyNotDefault(unknown)), "");
  EXPECT_EQ(Slug(store_.Resolve({.module = "n", .limit_module = "n", .limit_number = 1}).status()),
            "module.resolve.not_measured");
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
  ExpectNone({.module = "m", .alias = "nope"}, "no alias nope");
  for (const char* bad : {"", "Stable", "12", "a/b"}) {
    EXPECT_EQ(Slug(store_.SetAlias({"m", bad, 2, 1, ""})), "module.alias.bad") << bad;
  }
  ExpectNone({.module = "m", .device_class = "board"}, "device class board");

  const PruneReport would = Value(store_.Prune("", {.keep_versions = 1}, true, 9));
  ASSERT_EQ(would.pruned.size(), 1U);
  EXPECT_EQ(would.pruned[0].number, 1);
  EXPECT_TRUE(blobs_->Contains(would.pruned[0].sha256)) << "a dry run drops nothing";
  const PruneReport done = Value(store_.Prune("", {.keep_versions = 1}, false, 9));
  ASSERT_EQ(done.pruned.size(), 1U);
  EXPECT_EQ(done.freed_bytes, done.pruned[0].size);
  EXPECT_FALSE(blobs_->Contains(done.pruned[0].sha256));
  EXPECT_EQ(Value(store_.Resolve({.module = "m", .alias = "stable"})).version.number, 2);
  ExpectNone({.module = "m", .number = 1}, "pruned");
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

TEST_F(ModuleStoreTest, PublishingSignsNothingAndAReleaseSignsNameNumberAndTarget) {
  Value(Publish("m", "a", "cpu"));
  const log::ModuleVersionRow row = Value(Publish("m", "b", "cpu"));
  EXPECT_TRUE(Value(log_->ListModuleSignatures("m", row.number)).empty());
  EXPECT_EQ(Slug(ModuleReleases(log_.get(), nullptr).Sign(row, 7, "ana")), "module.release.no_key");

  const std::string key = dir_.File("release.key");
  Value(security::CreateSigningKey(key));
  const auto signer = Value(security::ModuleSigner::Load(key));
  ModuleReleases releases(log_.get(), signer.get());
  ASSERT_TRUE(releases.RegisterOwnKey(6).ok());
  ASSERT_TRUE(releases.Sign(row, 7, "engineer/ana").ok());
  const auto signatures = Value(log_->ListModuleSignatures("m", row.number));
  ASSERT_EQ(signatures.size(), 1U);
  EXPECT_EQ(signatures[0].created_by, "engineer/ana");
  EXPECT_EQ(signatures[0].format, security::kReleaseFormat);
  const auto verifier = Value(security::ModuleVerifier::Load(key + security::kPublicSuffix));
  const security::ModuleSignature made{
      signatures[0].key_id, *support::HexDecode(signatures[0].signature), security::kReleaseFormat};
  security::ModuleClaim claim{row.sha256, "m", row.number, "cpu"};
  EXPECT_TRUE(verifier->Verify(claim, made).ok());
  claim.version = 1;
  EXPECT_EQ(Slug(verifier->Verify(claim, made)), "signing.signature.wrong");
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
