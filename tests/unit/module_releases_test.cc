#include "tuner_server/modules/module_releases.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/memory_log.h"

namespace tilewright::modules {
namespace {

using security::ModuleSignature;
using security::ModuleSigner;
using support::Slug;
using support::StrCat;

template <typename T>
T Value(absl::StatusOr<T> result) {
  TW_CHECK(result.ok()) << support::StatusText(result.status());
  return *std::move(result);
}

class ModuleReleasesTest : public testing::Test {
 protected:
  ModuleReleasesTest() {
    version_.module = "dqn";
    version_.sha256 = std::string(64, 'a');
    version_.target = "cpu,arch=x86_64";
    version_ = Value(log_->AddModuleVersion(version_));
  }

  std::unique_ptr<ModuleSigner> NewKey(const std::string& name) {
    Value(security::CreateSigningKey(dir_.File(name)));
    return Value(ModuleSigner::Load(dir_.File(name)));
  }
  std::unique_ptr<ModuleSigner> RegisteredKey(const std::string& name) {
    auto key = NewKey(name);
    Value(releases_.AddKey(Value(key->public_key()), name, 1, "root"));
    return key;
  }
  ModuleSignature Sign(const ModuleSigner& key) {
    return Value(key.Sign({version_.sha256, "dqn", version_.number, version_.target}));
  }
  absl::Status Add(const ModuleSignature& signature) {
    return releases_.Add(version_, signature, 5, "ana");
  }

  support::TempDir dir_ = Value(support::TempDir::Create("releases"));
  std::unique_ptr<log::TuningLog> log_ = log::MakeMemoryLog();
  ModuleReleases releases_{log_.get(), nullptr};
  log::ModuleVersionRow version_;
};

TEST_F(ModuleReleasesTest, OnlyRightSignaturesByRegisteredKeysAreKept) {
  const auto key = RegisteredKey("team");
  const auto stranger = NewKey("stranger");
  EXPECT_EQ(Slug(Add(Sign(*stranger))), "module.key.unregistered");
  EXPECT_EQ(Slug(Add({key->key_id(), std::string(64, '\0'), security::kReleaseFormat})),
            "signing.signature.wrong");
  EXPECT_EQ(Slug(Add({key->key_id(), Sign(*stranger).signature, security::kReleaseFormat})),
            "signing.signature.wrong");
  const ModuleSignature other = Value(key->Sign({version_.sha256, "dqn", 9, version_.target}));
  EXPECT_EQ(Slug(Add(other)), "signing.signature.wrong") << "of another version";
  EXPECT_TRUE(Value(releases_.List(version_)).valid.empty());
  ASSERT_TRUE(Add(Sign(*key)).ok());
  ASSERT_TRUE(Add(Sign(*key)).ok()) << "the same again";
  const VersionSignatures kept = Value(releases_.List(version_));
  ASSERT_EQ(kept.valid.size(), 1U);
  EXPECT_EQ(kept.valid[0].signature, support::HexEncode(Sign(*key).signature));
}

// The attack: before signatures were checked, 64 zero bytes under the key's id took its place.
TEST_F(ModuleReleasesTest, JunkOfOlderVersionsKeepsNoGoodSignatureAway) {
  const auto key = RegisteredKey("team");
  for (size_t i = 0; i <= kMaxSignatures; ++i) {
    ASSERT_TRUE(log_->AddModuleSignature({"dqn", version_.number, key->key_id(),
                                          support::HexEncode(std::string(64, static_cast<char>(i))),
                                          1, "ci", 2})
                    .ok());
  }
  ASSERT_TRUE(Add(Sign(*key)).ok());
  const std::string good = support::HexEncode(Sign(*key).signature);
  int found = 0;
  for (const auto& row : Value(releases_.List(version_)).valid) found += row.signature == good;
  EXPECT_EQ(found, 1);
}

TEST_F(ModuleReleasesTest, ARevokedSignatureStaysRevokedAndAnotherKeyCanRelease) {
  const auto key = RegisteredKey("team");
  const auto second = RegisteredKey("second");
  ASSERT_TRUE(Add(Sign(*key)).ok());
  ASSERT_TRUE(releases_.Revoke(version_, key->key_id(), {7, "root", "wrong"}).ok());
  EXPECT_EQ(Slug(Add(Sign(*key))), "module.signature.revoked");
  ASSERT_TRUE(Add(Sign(*second)).ok());
  const VersionSignatures rows = Value(releases_.List(version_));
  ASSERT_EQ(rows.valid.size(), 1U);
  EXPECT_EQ(rows.valid[0].key_id, second->key_id());
  ASSERT_EQ(rows.revoked.size(), 1U);
  EXPECT_EQ(rows.revoked[0].revoke_reason, "wrong");
}

TEST_F(ModuleReleasesTest, ARevokedKeyTakesAllItsReleasesWithIt) {
  const auto key = RegisteredKey("team");
  ASSERT_TRUE(Add(Sign(*key)).ok());
  Value(releases_.RevokeKey(key->key_id(), {7, "root", "stolen"}));
  const VersionSignatures rows = Value(releases_.List(version_));
  EXPECT_TRUE(rows.valid.empty());
  ASSERT_EQ(rows.revoked.size(), 1U);
  EXPECT_EQ(rows.revoked[0].revoke_reason, "stolen");
  EXPECT_EQ(rows.revoked[0].revoked_by, "root");
  EXPECT_EQ(Slug(Add(Sign(*key))), "module.key.revoked");
  EXPECT_EQ(Slug(releases_.AddKey(Value(key->public_key()), "team", 9, "eve").status()),
            "log.release_key.revoked");
}

TEST_F(ModuleReleasesTest, SignaturesOfAVersionAreBounded) {
  for (size_t i = 0; i < kMaxSignatures; ++i)
    ASSERT_TRUE(Add(Sign(*RegisteredKey(StrCat("k", i)))).ok());
  EXPECT_EQ(Slug(Add(Sign(*RegisteredKey("one more")))), "module.signature.too_many");
}

TEST_F(ModuleReleasesTest, TheServersOwnKeyIsRegisteredUnlessItWasRevoked) {
  const auto own = NewKey("own");
  ModuleReleases releases(log_.get(), own.get());
  ASSERT_TRUE(releases.RegisterOwnKey(1).ok());
  ASSERT_TRUE(releases.Sign(version_, 2, "ana").ok());
  Value(releases.RevokeKey(own->key_id(), {7, "root", "stolen"}));
  ASSERT_TRUE(releases.RegisterOwnKey(8).ok()) << "the next start";
  EXPECT_EQ(Slug(releases.Sign(version_, 9, "ana")), "module.key.revoked");
}

TEST_F(ModuleReleasesTest, OnlyPublicKeysWithNamesThatAreTextAreRegistered) {
  EXPECT_EQ(Slug(releases_.AddKey("short", "x", 1, "root").status()), "signing.key.kind");
  const std::string key = Value(NewKey("team")->public_key());
  EXPECT_EQ(Slug(releases_.AddKey(key, "a\nb", 1, "root").status()), "module.key.name");
  EXPECT_EQ(Slug(releases_.AddKey(key, std::string(81, 'x'), 1, "root").status()),
            "module.key.name");
}

}  // namespace
}  // namespace tilewright::modules
