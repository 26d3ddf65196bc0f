// The private authority and its identities: what is written, what is refused, and how both change
// while they are in use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <string>

#include "deploy/security/authority.h"
#include "deploy/security/certificate_request.h"
#include "deploy/security/identity.h"
#include "deploy/security/issued_certificates.h"
#include "deploy/security/revocation.h"
#include "deploy/support/clock.h"
#include "deploy/support/file.h"

namespace tilewright::security {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kNow = 1'790'000'000;
constexpr int64_t kDay = 86'400;

uint32_t ModeOf(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

class CertsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
    pki_ = dir_->File("pki");
    const absl::Status made = CreateAuthority(pki_, "Test fleet", 3650, kNow);
    ASSERT_TRUE(made.ok()) << made;
  }

  absl::Status Issue(CertificateKind kind, const std::string& name, const std::string& folder,
                     std::vector<std::string> hosts = {}, int days = 90) {
    LeafRequest request;
    request.peer = {kind, name};
    request.hosts = std::move(hosts);
    request.days = days;
    return IssueIdentity(pki_, request, dir_->File(folder), kNow);
  }

  CertificateInfo Leaf(const std::string& folder) {
    const auto pem = support::ReadFile(dir_->File(folder + "/cert.pem"), 1 << 20);
    const auto infos = ReadCertificates(pem.value_or(""), folder);
    EXPECT_TRUE(infos.ok()) << infos.status();
    return infos.ok() ? infos->front() : CertificateInfo();
  }

  std::string LoadSlug(const std::string& folder, int64_t now_s = kNow) {
    return support::Slug(LoadIdentity(dir_->File(folder), now_s).status());
  }

  std::unique_ptr<support::TempDir> dir_;
  std::string pki_;
};

TEST_F(CertsTest, KeysAreForTheirOwnerAlone) {
  ASSERT_TRUE(Issue(CertificateKind::kAgent, "bench-3", "agent").ok());
  EXPECT_EQ(ModeOf(pki_), 0700u);
  EXPECT_EQ(ModeOf(pki_ + "/ca-key.pem"), 0600u);
  EXPECT_EQ(ModeOf(dir_->File("agent")), 0700u);
  EXPECT_EQ(ModeOf(dir_->File("agent/key.pem")), 0600u);
  ASSERT_EQ(chmod(dir_->File("agent/key.pem").c_str(), 0640), 0);
  EXPECT_EQ(LoadSlug("agent"), "identity.key.permissions");
  ASSERT_EQ(chmod((pki_ + "/ca-key.pem").c_str(), 0604), 0);
  EXPECT_EQ(support::Slug(Issue(CertificateKind::kAgent, "b", "b")), "identity.key.permissions");
}

TEST_F(CertsTest, ACertificateNamesItsHolderAndItsHosts) {
  ASSERT_TRUE(
      Issue(CertificateKind::kTracker, "lab", "tracker", {"tracker.example.org", "10.0.0.5"}).ok());
  const CertificateInfo info = Leaf("tracker");
  EXPECT_EQ(info.subject, "lab");
  EXPECT_EQ(info.issuer, "Test fleet");
  EXPECT_THAT(info.uris, ElementsAre("spiffe://tilewright/tracker/lab"));
  EXPECT_THAT(info.hosts,
              ElementsAre("tracker.example.org", "10.0.0.5", "localhost", "127.0.0.1", "::1"));
  EXPECT_EQ(info.not_after_s, kNow + 90 * kDay);
  EXPECT_LT(info.not_before_s, kNow) << "clocks differ a little";
  EXPECT_FALSE(info.authority);
  EXPECT_EQ(info.serial.size(), 32u);
  ASSERT_TRUE(Issue(CertificateKind::kClient, "ana", "client").ok());
  EXPECT_TRUE(Leaf("client").hosts.empty()) << "nobody dials a person";
  EXPECT_NE(Leaf("client").serial, info.serial);
  EXPECT_EQ((*ReadPeer(dir_->File("client")))->name, "ana");
  EXPECT_EQ(support::Slug(ReadPeer(dir_->File("nobody")).status()), "identity.file.missing");
  const Peer peer = *ParsePeerUri("spiffe://tilewright/agent/bench-3");
  EXPECT_EQ(peer.kind, CertificateKind::kAgent);
  EXPECT_EQ(peer.name, "bench-3");
  for (const char* foreign :
       {"", "spiffe://tilewright/agent", "spiffe://tilewright/agent/", "spiffe://other/agent/x",
        "spiffe://tilewright/king/x", "spiffe://tilewright/agent/x/y"}) {
    EXPECT_EQ(support::Slug(ParsePeerUri(foreign).status()), "certs.uri.foreign") << foreign;
  }
}

TEST_F(CertsTest, WhatAHandshakeWouldRefuseHasAReason) {
  ASSERT_TRUE(Issue(CertificateKind::kClient, "ana", "ana").ok());
  ASSERT_TRUE(Issue(CertificateKind::kClient, "bob", "bob").ok());
  EXPECT_EQ(LoadSlug("ana"), "");
  EXPECT_EQ(LoadSlug("ana", kNow + 90 * kDay), "");
  EXPECT_EQ(LoadSlug("ana", kNow + 90 * kDay + 1), "identity.certificate.expired");
  EXPECT_EQ(LoadSlug("ana", kNow - kDay), "identity.certificate.early");
  EXPECT_EQ(LoadSlug("nobody"), "identity.file.missing");
  const std::string other = *support::ReadFile(dir_->File("bob/key.pem"), 1 << 20);
  ASSERT_TRUE(support::WriteFileAtomic(dir_->File("ana/key.pem"), other, 0600).ok());
  EXPECT_EQ(LoadSlug("ana"), "identity.key.mismatch");
  ASSERT_TRUE(CreateAuthority(dir_->File("pki2"), "Test fleet", 3650, kNow).ok());
  const std::string stranger = *support::ReadFile(dir_->File("pki2/ca.pem"), 1 << 20);
  ASSERT_TRUE(support::WriteFileAtomic(dir_->File("bob/ca.pem"), stranger).ok());
  EXPECT_EQ(LoadSlug("bob"), "identity.certificate.untrusted");
  ASSERT_TRUE(support::WriteFileAtomic(dir_->File("bob/ca.pem"), "hello").ok());
  EXPECT_EQ(LoadSlug("bob"), "certs.file.invalid");
  ASSERT_TRUE(support::RemoveFile(dir_->File("bob/cert.pem")).ok());
  EXPECT_EQ(LoadSlug("bob"), "identity.file.missing");
}

TEST_F(CertsTest, BadRequestsLeaveNothing) {
  EXPECT_EQ(support::Slug(Issue(CertificateKind::kAgent, "../x", "bad")), "certs.name.invalid");
  EXPECT_EQ(support::Slug(Issue(CertificateKind::kAgent, "x/y", "bad")), "certs.name.invalid");
  EXPECT_EQ(support::Slug(Issue(CertificateKind::kTuner, "t", "bad", {"a,DNS:b"})),
            "certs.host.invalid")
      << "no second host in disguise";
  EXPECT_EQ(support::Slug(Issue(CertificateKind::kTuner, "t", "bad", {"host:80"})),
            "certs.host.invalid");
  EXPECT_EQ(support::Slug(Issue(CertificateKind::kTuner, "t", "bad", {}, 0)), "certs.days.invalid");
  EXPECT_FALSE(support::FileExists(dir_->File("bad")));
  EXPECT_EQ(support::Slug(CreateAuthority(pki_, "again", 10, kNow)), "certs.authority.exists");
  LeafRequest request;
  request.peer.name = "x";
  EXPECT_EQ(support::Slug(IssueIdentity(dir_->File("none"), request, dir_->File("bad"), kNow)),
            "certs.authority.missing");
  ASSERT_TRUE(Issue(CertificateKind::kClient, "ana", "ana").ok());
  EXPECT_EQ(support::Slug(Issue(CertificateKind::kClient, "ana", "ana")), "certs.identity.exists");
  EXPECT_EQ(support::Slug(ParseKind("king").status()), "certs.kind.invalid");
}

TEST_F(CertsTest, ACertificateNeverOutlivesItsAuthority) {
  ASSERT_TRUE(CreateAuthority(dir_->File("short"), "Short", 5, kNow).ok());
  LeafRequest request;
  request.peer = {CertificateKind::kClient, "ana"};
  ASSERT_TRUE(IssueIdentity(dir_->File("short"), request, dir_->File("ana"), kNow).ok());
  EXPECT_EQ(Leaf("ana").not_after_s, kNow + 5 * kDay);
  EXPECT_EQ(support::Slug(
                IssueIdentity(dir_->File("short"), request, dir_->File("late"), kNow + 6 * kDay)),
            "certs.authority.expired");
}

TEST_F(CertsTest, RenewalKeepsWhoAndWhereAndTheToken) {
  ASSERT_TRUE(Issue(CertificateKind::kTuner, "main", "tuner", {"tuner.example.org"}).ok());
  const CertificateInfo before = Leaf("tuner");
  const std::string key = *support::ReadFile(dir_->File("tuner/key.pem"), 1 << 20);
  ASSERT_TRUE(support::WriteFileAtomic(dir_->File("tuner/token"), "secret\n", 0600).ok());
  const int64_t later = kNow + 80 * kDay;
  ASSERT_TRUE(RenewIdentity(pki_, dir_->File("tuner"), 30, later).ok());
  const CertificateInfo after = Leaf("tuner");
  EXPECT_EQ(after.uris, before.uris);
  EXPECT_EQ(after.hosts, before.hosts);
  EXPECT_NE(after.serial, before.serial);
  EXPECT_EQ(after.not_after_s, later + 30 * kDay);
  EXPECT_NE(*support::ReadFile(dir_->File("tuner/key.pem"), 1 << 20), key);
  EXPECT_EQ(ModeOf(dir_->File("tuner/key.pem")), 0600u);
  EXPECT_EQ(ModeOf(dir_->File("tuner")), 0700u);
  EXPECT_EQ(*ReadToken(dir_->File("tuner")), "secret");
  EXPECT_EQ(ModeOf(dir_->File("tuner/token")), 0600u);
  EXPECT_EQ(LoadSlug("tuner", later), "");
  EXPECT_FALSE(support::FileExists(dir_->File("tuner.new")));
  ASSERT_EQ(chmod(dir_->File("tuner/token").c_str(), 0644), 0);
  EXPECT_EQ(support::Slug(ReadToken(dir_->File("tuner")).status()), "identity.key.permissions");
}

TEST_F(CertsTest, ANewAuthorityTakesOverStepByStep) {
  ASSERT_TRUE(Issue(CertificateKind::kClient, "old", "old").ok());
  ASSERT_TRUE(RotateAuthority(pki_, 3650, kNow).ok());
  ASSERT_TRUE(Issue(CertificateKind::kClient, "new", "new").ok());
  const std::string both = *support::ReadFile(dir_->File("new/ca.pem"), 1 << 20);
  EXPECT_EQ(ReadCertificates(both, "both")->size(), 2u);
  const std::string old_leaf = *support::ReadFile(dir_->File("old/cert.pem"), 1 << 20);
  const std::string old_key = *support::ReadFile(dir_->File("old/key.pem"), 1 << 20);
  EXPECT_TRUE(CheckCertificate(old_leaf, old_key, both, kNow).ok()) << "still trusted";
  ASSERT_TRUE(RetireAuthorities(pki_).ok());
  ASSERT_TRUE(RenewIdentity(pki_, dir_->File("new"), 90, kNow).ok());
  const std::string newest = *support::ReadFile(dir_->File("new/ca.pem"), 1 << 20);
  EXPECT_EQ(ReadCertificates(newest, "newest")->size(), 1u);
  EXPECT_EQ(LoadSlug("new"), "");
  EXPECT_EQ(support::Slug(CheckCertificate(old_leaf, old_key, newest, kNow)),
            "identity.certificate.untrusted");
}

TEST_F(CertsTest, RevokedCertificatesAreKnownByTheirSignedListWithinASecond) {
  ASSERT_TRUE(Issue(CertificateKind::kTracker, "lab", "lab").ok());
  ASSERT_TRUE(Issue(CertificateKind::kClient, "ana", "ana").ok());
  ASSERT_TRUE(Issue(CertificateKind::kClient, "bob", "bob").ok());
  const auto pem = [&](const char* who) {
    return *support::ReadFile(dir_->File(std::string(who) + "/cert.pem"), 1 << 20);
  };
  support::FakeClock clock;
  const std::string lab = dir_->File("lab");
  const auto list = RevocationList::Open(lab, &clock);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_TRUE((*list)->Check(pem("ana")).ok());

  ASSERT_TRUE(RevokeCertificates(pki_, {Leaf("ana").serial}, kNow).ok());
  const std::string signed_list = *support::ReadFile(pki_ + "/crl.pem", 1 << 20);
  ASSERT_TRUE(support::WriteFileAtomic(lab + "/crl.pem", signed_list).ok());
  clock.AdvanceNs(1'100'000'000);
  EXPECT_EQ(support::Slug((*list)->Check(pem("ana"))), "auth.certificate.revoked");
  EXPECT_TRUE((*list)->Check(pem("bob")).ok());
  // A new certificate of the same holder counts; the old one stays out.
  const std::string old = pem("ana");
  ASSERT_TRUE(RenewIdentity(pki_, dir_->File("ana"), 90, kNow).ok());
  EXPECT_TRUE((*list)->Check(pem("ana")).ok());
  EXPECT_EQ(support::Slug((*list)->Check(old)), "auth.certificate.revoked");

  // A list that is gone, torn or somebody else's changes nothing and is told.
  ASSERT_TRUE(CreateAuthority(dir_->File("pki2"), "Test fleet", 3650, kNow).ok());
  ASSERT_TRUE(RevokeCertificates(dir_->File("pki2"), {"0a"}, kNow).ok());
  const std::string foreign = *support::ReadFile(dir_->File("pki2/crl.pem"), 1 << 20);
  const std::vector<std::pair<std::string, const char*>> bad = {
      {signed_list.substr(0, signed_list.size() / 2), "certs.revocations.invalid"},
      {foreign, "certs.revocations.untrusted"}};
  for (const auto& [text, slug] : bad) {
    ASSERT_TRUE(support::WriteFileAtomic(lab + "/crl.pem", text).ok());
    clock.AdvanceNs(1'100'000'000);
    EXPECT_EQ(support::Slug((*list)->Check(old)), "auth.certificate.revoked") << slug;
    EXPECT_EQ(support::Slug((*list)->FileStatus()), slug);
    EXPECT_EQ(support::Slug(RevocationList::Open(lab, &clock).status()), slug)
        << "a daemon does not start without its list";
  }
  ASSERT_TRUE(support::RemoveFile(lab + "/crl.pem").ok());
  clock.AdvanceNs(1'100'000'000);
  EXPECT_EQ(support::Slug((*list)->Check(old)), "auth.certificate.revoked");
  EXPECT_EQ(support::Slug((*list)->FileStatus()), "certs.revocations.missing");
}

TEST_F(CertsTest, AnAuthorityKnowsWhatItHasSigned) {
  EXPECT_TRUE(ListIssued(pki_, kNow)->empty());
  EXPECT_EQ(support::Slug(ListIssued(dir_->File("none"), kNow).status()),
            "certs.authority.missing");
  ASSERT_TRUE(Issue(CertificateKind::kClient, "ana", "elsewhere").ok());
  ASSERT_TRUE(Issue(CertificateKind::kAgent, "bench", "bench").ok());
  ASSERT_TRUE(RenewIdentity(pki_, dir_->File("elsewhere"), 300, kNow).ok());
  // A key of the device's own, by request or ticket.
  ASSERT_TRUE(RequestIdentity(dir_->File("device")).ok());
  LeafRequest leaf;
  leaf.peer = {CertificateKind::kAgent, "device"};
  ASSERT_TRUE(
      SignRequest(pki_, *support::ReadFile(dir_->File("device/request.pem"), 1 << 20), leaf, kNow)
          .ok());
  ASSERT_TRUE(RevokeCertificates(pki_, {Leaf("bench").serial}, kNow).ok());
  // Made before issued.pem was: found where `certs issue` puts it.
  ASSERT_TRUE(Issue(CertificateKind::kTuner, "main", "pki/issued/main").ok());
  std::string pem = *support::ReadFile(pki_ + "/issued.pem", 1 << 20);
  pem.resize(pem.rfind("-----BEGIN"));
  ASSERT_TRUE(support::WriteFileAtomic(pki_ + "/issued.pem", pem).ok());
  const auto listed = ListIssued(pki_, kNow + 100 * kDay);
  ASSERT_TRUE(listed.ok()) << listed.status();
  std::vector<std::string> lines;
  for (const IssuedCertificate& one : *listed) {
    lines.push_back(KindText(one.peer.kind) + " " + one.peer.name + " " + StateText(one.state));
  }
  EXPECT_THAT(lines, ElementsAre("tuner main ended", "agent bench revoked", "agent device ended",
                                 "client ana valid", "client ana ended"));
}

TEST_F(CertsTest, RevocationsGrowAndOutliveTheirAuthority) {
  ASSERT_TRUE(Issue(CertificateKind::kClient, "ana", "ana").ok());
  ASSERT_TRUE(Issue(CertificateKind::kClient, "bob", "bob").ok());
  const std::string ana = Leaf("ana").serial;
  const std::string bob = Leaf("bob").serial;
  ASSERT_TRUE(RevokeCertificates(pki_, {ana}, kNow).ok());
  ASSERT_TRUE(RotateAuthority(pki_, 3650, kNow).ok());
  ASSERT_TRUE(RetireAuthorities(pki_).ok());
  const auto all = RevokeCertificates(pki_, {bob, ana}, kNow);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(*all, (std::set<std::string>{ana, bob}));
  ASSERT_TRUE(Issue(CertificateKind::kTracker, "lab", "lab").ok());
  const auto carried = ReadRevocations(*support::ReadFile(dir_->File("lab/crl.pem"), 1 << 20),
                                       *support::ReadFile(dir_->File("lab/ca.pem"), 1 << 20));
  ASSERT_TRUE(carried.ok()) << carried.status();
  EXPECT_EQ(*carried, *all) << "a new identity brings the list along";
  EXPECT_EQ(support::Slug(RevokeCertificates(pki_, {"not hex"}, kNow).status()),
            "certs.serial.invalid");
}

// The key is made where it is used and stays there; the request brings the key and no names.
TEST_F(CertsTest, ARequestIsSignedAndTheKeyStaysWhereItIs) {
  const std::string device = dir_->File("device");
  const auto fingerprint = RequestIdentity(device);
  ASSERT_TRUE(fingerprint.ok()) << fingerprint.status();
  EXPECT_EQ(ModeOf(device), 0700u);
  EXPECT_EQ(ModeOf(device + "/key.pem"), 0600u);
  const std::string request = *support::ReadFile(device + "/request.pem", 1 << 20);
  EXPECT_EQ(request.find("PRIVATE"), std::string::npos);
  LeafRequest leaf;
  leaf.peer = {CertificateKind::kAgent, "bench-3"};
  const std::string issued = dir_->File("issued");
  ASSERT_TRUE(SignRequest(pki_, request, leaf, issued, kNow).ok());
  EXPECT_FALSE(support::FileExists(issued + "/key.pem"));
  EXPECT_EQ(Leaf("issued").subject, "bench-3");
  EXPECT_THAT(Leaf("issued").uris, ElementsAre("spiffe://tilewright/agent/bench-3"));
  for (const char* file : {"/cert.pem", "/ca.pem"}) {
    const std::string text = *support::ReadFile(issued + file, 1 << 20);
    ASSERT_TRUE(support::WriteFileAtomic(device + file, text).ok());
  }
  EXPECT_EQ(LoadSlug("device"), "") << "the certificate fits the key that stayed";
  // Renewed with the same key; what was issued without a key cannot be renewed without a request.
  EXPECT_EQ(*RequestIdentity(device), *fingerprint);
  EXPECT_EQ(*RequestFingerprint(request), *fingerprint);
  EXPECT_EQ(support::Slug(RenewIdentity(pki_, issued, 90, kNow)), "certs.identity.keyless");
  const std::string first = Leaf("issued").serial;
  ASSERT_TRUE(SignRequest(pki_, request, leaf, issued, kNow + kDay).ok());
  EXPECT_NE(Leaf("issued").serial, first);
  // Refusals: nothing, a changed request, the folder of somebody with a key.
  EXPECT_EQ(support::Slug(SignRequest(pki_, "x", leaf, issued, kNow)), "certs.request.invalid");
  const std::string other_folder = dir_->File("other-device");
  ASSERT_TRUE(RequestIdentity(other_folder).ok());
  std::string der_changed = request;
  const size_t middle = der_changed.size() / 2;
  der_changed[middle] = der_changed[middle] == 'A' ? 'B' : 'A';
  EXPECT_EQ(support::Slug(SignRequest(pki_, der_changed, leaf, issued, kNow)),
            "certs.request.invalid");
  EXPECT_EQ(support::Slug(SignRequest(pki_, request, leaf, other_folder, kNow)),
            "certs.identity.exists");
}

}  // namespace
}  // namespace tilewright::security
