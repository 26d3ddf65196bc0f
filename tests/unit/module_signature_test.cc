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
  const ModuleSignature made = Value(Value(ModuleSigner::Load(key_))->Sign(digest_));
  EXPECT_EQ(made.key_id, id);
  for (const std::string& path : {key_ + kPublicSuffix, key_}) {
    const auto verifier = Value(ModuleVerifier::Load(path));
    EXPECT_EQ(verifier->key_id(), id);
    EXPECT_TRUE(verifier->Verify(digest_, made).ok());
    EXPECT_EQ(Slug(verifier->Verify(support::Sha256Hex("another"), made)),
              "signing.signature.wrong");
    for (size_t i = 0; i < made.signature.size(); ++i) {
      ModuleSignature bent = made;
      bent.signature[i] = static_cast<char>(bent.signature[i] ^ 1);
      EXPECT_EQ(Slug(verifier->Verify(digest_, bent)), "signing.signature.wrong") << i;
    }
    EXPECT_EQ(Slug(verifier->Verify(digest_, {id, ""})), "signing.signature.wrong");
  }
  const std::string other = dir_.File("other.key");
  Value(CreateSigningKey(other));
  const auto stranger = Value(ModuleVerifier::Load(other + kPublicSuffix));
  EXPECT_EQ(Slug(stranger->Verify(digest_, made)), "signing.signature.other_key");
  const ModuleSignature posing{stranger->key_id(), made.signature};
  EXPECT_EQ(Slug(stranger->Verify(digest_, posing)), "signing.signature.wrong");
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
  const ModuleSignature made = Value(Value(ModuleSigner::Load(key_))->Sign(digest_));
  const std::string text = SignatureFileText(digest_, made);
  const ModuleSignature read = Value(ParseSignatureFile(text, digest_));
  EXPECT_EQ(read.key_id, made.key_id);
  EXPECT_EQ(read.signature, made.signature);
  EXPECT_EQ(Slug(ParseSignatureFile(text, support::Sha256Hex("another")).status()),
            "signing.file.other_module");
  for (const char* bad :
       {"", "[]", "{}", "{\"schema\":1,\"algorithm\":\"ed25519\"}", "{\"schema\":2}"}) {
    EXPECT_EQ(Slug(ParseSignatureFile(bad, digest_).status()), "signing.file.malformed") << bad;
  }
  for (size_t cut = 0; cut + 2 < text.size(); cut += 7) {
    EXPECT_FALSE(ParseSignatureFile(text.substr(0, cut), digest_).ok());
  }
}

}  // namespace
}  // namespace tilewright::security
