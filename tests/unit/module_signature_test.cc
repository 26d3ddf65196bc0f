#include "deploy/security/module_signature.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "deploy/security/authority.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"

namespace tilewright::security {
namespace {

using support::Slug;

template <typename T>
T Value(absl::StatusOr<T> result) {
  TW_CHECK(result.ok()) << support::StatusText(result.status());
  return *std::move(result);
}

class ModuleSignatureTest : public testing::Test {
 protected:
  support::TempDir dir_ = Value(support::TempDir::Create("signing"));
  const std::string key_ = dir_.File("release.key");
  const std::string digest_ = support::Sha256Hex("a module");
};

TEST_F(ModuleSignatureTest, ASignatureFitsItsBytesAndItsKeyOnly) {
  const std::string id = Value(CreateSigningKey(key_));
  EXPECT_EQ(id.size(), 16U);
  const ModuleSignature made = Value(Value(ModuleSigner::Load(key_))->Sign({digest_}));
  EXPECT_EQ(made.key_id, id);
  EXPECT_EQ(made.format, kBytesFormat);
  for (const std::string& path : {key_ + kPublicSuffix, key_}) {
    const auto verifier = Value(ModuleVerifier::Load(path));
    EXPECT_EQ(verifier->key_id(), id);
    EXPECT_TRUE(verifier->Verify({digest_}, made).ok());
    EXPECT_EQ(Slug(verifier->Verify({support::Sha256Hex("another")}, made)),
              "signing.signature.wrong");
    for (size_t i = 0; i < made.signature.size(); ++i) {
      ModuleSignature bent = made;
      bent.signature[i] = static_cast<char>(bent.signature[i] ^ 1);
      EXPECT_EQ(Slug(verifier->Verify({digest_}, bent)), "signing.signature.wrong") << i;
    }
    EXPECT_EQ(Slug(verifier->Verify({digest_}, {id, ""})), "signing.signature.wrong");
  }
  const std::string other = dir_.File("other.key");
  Value(CreateSigningKey(other));
  const auto stranger = Value(ModuleVerifier::Load(other + kPublicSuffix));
  EXPECT_EQ(Slug(stranger->Verify({digest_}, made)), "signing.signature.other_key");
  const ModuleSignature posing{stranger->key_id(), made.signature};
  EXPECT_EQ(Slug(stranger->Verify({digest_}, posing)), "signing.signature.wrong");
}

TEST_F(ModuleSignatureTest, AReleaseCoversNameVersionTargetAndBytes) {
  Value(CreateSigningKey(key_));
  const auto signer = Value(ModuleSigner::Load(key_));
  const auto verifier = Value(ModuleVerifier::Load(key_));
  const ModuleClaim claim{digest_, "dqn", 3, "cpu,arch=x86_64,cpu=znver4,threads=2"};
  const ModuleSignature made = Value(signer->Sign(claim));
  EXPECT_EQ(made.format, kReleaseFormat);
  EXPECT_TRUE(verifier->Verify(claim, made).ok());
  const auto refused = [&](const ModuleClaim& other) {
    EXPECT_EQ(Slug(verifier->Verify(other, made)), "signing.signature.wrong");
  };
  refused({support::Sha256Hex("another"), claim.module, claim.version, claim.target});
  refused({digest_, "resnet", claim.version, claim.target});
  refused({digest_, claim.module, 4, claim.target});
  refused({digest_, claim.module, claim.version, "cpu,arch=x86_64,cpu=znver4,threads=1"});
  // Neither format passes for the other, and a format of tomorrow is no reason to trust.
  EXPECT_EQ(Slug(verifier->Verify(claim, {made.key_id, made.signature, kBytesFormat})),
            "signing.signature.wrong");
  const ModuleSignature bytes = Value(signer->Sign({digest_}));
  EXPECT_TRUE(verifier->Verify(claim, bytes).ok()) << "of the old format only the bytes count";
  EXPECT_EQ(Slug(verifier->Verify(claim, {made.key_id, bytes.signature, kReleaseFormat})),
            "signing.signature.wrong");
  EXPECT_EQ(Slug(verifier->Verify(claim, {made.key_id, made.signature, 3})),
            "signing.signature.format");
}

TEST_F(ModuleSignatureTest, AClaimThatCouldBeReadInTwoWaysIsNotSigned) {
  Value(CreateSigningKey(key_));
  const auto signer = Value(ModuleSigner::Load(key_));
  for (const ModuleClaim& bad :
       {ModuleClaim{""}, ModuleClaim{digest_ + "\n"}, ModuleClaim{digest_, "dqn", 0, "cpu"},
        ModuleClaim{digest_, "dqn", 1, ""}, ModuleClaim{digest_, "dqn\nversion 2", 1, "cpu"},
        ModuleClaim{digest_, "dqn", 1, "cpu\nsha256 " + digest_}}) {
    EXPECT_EQ(Slug(signer->Sign(bad).status()), "signing.claim.bad");
  }
}

TEST_F(ModuleSignatureTest, KeysAreNeverOverwrittenAndNeverReadByOthers) {
  Value(CreateSigningKey(key_));
  EXPECT_EQ(Slug(CreateSigningKey(key_).status()), "signing.key.exists");
  struct stat info{};
  ASSERT_EQ(stat(key_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  ASSERT_EQ(chmod(key_.c_str(), 0644), 0);
  EXPECT_EQ(Slug(ModuleSigner::Load(key_).status()), "identity.key.permissions");
  EXPECT_TRUE(absl::IsNotFound(ModuleVerifier::Load(dir_.File("missing")).status()));
}

TEST_F(ModuleSignatureTest, AKeyOfAnotherKindIsRefused) {
  ASSERT_TRUE(CreateAuthority(dir_.File("pki"), "test", 10, 1'700'000'000).ok());
  EXPECT_EQ(Slug(ModuleSigner::Load(dir_.File("pki/ca-key.pem")).status()), "signing.key.kind");
  EXPECT_EQ(Slug(ModuleVerifier::Load(dir_.File("pki/ca-key.pem")).status()), "signing.key.kind");
  ASSERT_TRUE(support::WriteFileAtomic(dir_.File("junk"), "junk", 0600).ok());
  EXPECT_FALSE(ModuleVerifier::Load(dir_.File("junk")).ok());
}

TEST_F(ModuleSignatureTest, ADetachedSignatureIsAboutOneModule) {
  Value(CreateSigningKey(key_));
  for (const ModuleClaim& claim : {ModuleClaim{digest_}, ModuleClaim{digest_, "dqn", 3, "cpu"}}) {
    const ModuleSignature made = Value(Value(ModuleSigner::Load(key_))->Sign(claim));
    const std::string text = SignatureFileText({claim, made});
    const DetachedSignature read = Value(ParseSignatureFile(text, digest_));
    EXPECT_EQ(read.claim, claim);
    EXPECT_EQ(read.signature.key_id, made.key_id);
    EXPECT_EQ(read.signature.signature, made.signature);
    EXPECT_EQ(read.signature.format, made.format);
    EXPECT_EQ(Slug(ParseSignatureFile(text, support::Sha256Hex("another")).status()),
              "signing.file.other_module");
    for (size_t cut = 0; cut + 2 < text.size(); cut += 7) {
      EXPECT_FALSE(ParseSignatureFile(text.substr(0, cut), digest_).ok());
    }
  }
  for (const char* bad : {"", "[]", "{}", "{\"schema\":1,\"algorithm\":\"ed25519\"}",
                          "{\"schema\":2}", "{\"schema\":3,\"algorithm\":\"ed25519\"}"}) {
    EXPECT_EQ(Slug(ParseSignatureFile(bad, digest_).status()), "signing.file.malformed") << bad;
  }
  const std::string nameless =
      "{\"schema\":2,\"algorithm\":\"ed25519\",\"key_id\":\"a\",\"sha256\":\"" + digest_ +
      "\",\"signature\":\"" + std::string(128, '0') + "\"}";
  EXPECT_EQ(Slug(ParseSignatureFile(nameless, digest_).status()), "signing.file.malformed");
}

}  // namespace
}  // namespace tilewright::security
