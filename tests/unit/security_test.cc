// Tokens, the guard that every call passes, rate limits, the audit log: without a network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "deploy/security/access.h"
#include "deploy/security/audit_log.h"
#include "deploy/security/call_guard.h"
#include "deploy/security/rate_limiter.h"
#include "deploy/security/token_file.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/rng.h"
#include "deploy/support/strings.h"
#include "tests/support/test_seed.h"

namespace tilewright::security {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSync[] = "/tilewright.v1.AgentService/Sync";
constexpr char kCreateJob[] = "/tilewright.v1.JobService/CreateJob";
constexpr char kDrain[] = "/tilewright.v1.FleetAdminService/SetDeviceAdminState";
constexpr char kResolve[] = "/tilewright.v1.ModuleService/ResolveModule";
constexpr char kHealth[] = "/grpc.health.v1.Health/Check";
constexpr char kClient[] = "spiffe://tilewright/client/ana-laptop";
constexpr char kOtherAgent[] = "spiffe://tilewright/agent/bench-9";
constexpr int64_t kSecond = 1'000'000'000;

class SecurityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
    path_ = dir_->File("tokens");
  }

  int64_t NowS() { return clock_.WallMicros() / 1'000'000; }

  NewToken Create(Role role, const std::string& name, int days = 30) {
    auto made = CreateToken(path_, role, name, days, NowS());
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  void OpenGuard(Listener listener = Listener::kTuner) {
    auto guard = CallGuard::Open(path_, listener, &clock_);
    ASSERT_TRUE(guard.ok()) << guard.status();
    guard_ = *std::move(guard);
  }

  absl::StatusOr<Caller> Admit(const std::string& token, const char* method,
                               const char* uri = kClient) {
    const std::string header = "Bearer " + token;
    return guard_->Admit({method, header, {uri}});
  }
  std::string Slug(const std::string& token, const char* method, const char* uri = kClient) {
    return support::Slug(Admit(token, method, uri).status());
  }

  support::FakeClock clock_;
  std::unique_ptr<support::TempDir> dir_;
  std::string path_;
  std::unique_ptr<CallGuard> guard_;
};

TEST_F(SecurityTest, TheFileKnowsTokensOnlyByTheirHash) {
  const NewToken ana = Create(Role::kEngineer, "ana");
  const NewToken agent = Create(Role::kAgent, "bench-3");
  struct stat info{};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const std::string text = *support::ReadFile(path_, 1 << 20);
  const TokenText parts = *ParseToken(ana.token);
  EXPECT_THAT(text, Not(HasSubstr(parts.secret)));
  EXPECT_THAT(text, HasSubstr(support::Sha256Hex(parts.secret)));
  const auto rows = LoadTokens(path_);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].id, parts.id);
  EXPECT_EQ((*rows)[1].name, "bench-3");
  EXPECT_EQ((*rows)[1].role, Role::kAgent);
  EXPECT_EQ((*rows)[0].expires_s, NowS() + 30 * 86'400);
  EXPECT_NE(ana.token, agent.token);
}

TEST_F(SecurityTest, ATypingMistakeIsToldFromAnUnknownToken) {
  const std::string token = Create(Role::kEngineer, "ana").token;
  OpenGuard();
  EXPECT_TRUE(Admit(token, kCreateJob).ok());
  for (size_t at : {size_t{0}, size_t{5}, size_t{20}, token.size() - 1}) {
    std::string wrong = token;
    wrong[at] = wrong[at] == 'a' ? 'b' : 'a';
    EXPECT_EQ(Slug(wrong, kCreateJob), "auth.token.malformed") << at;
  }
  EXPECT_EQ(Slug("", kCreateJob), "auth.token.malformed");
  EXPECT_EQ(support::Slug(guard_->Admit({kCreateJob, "", {kClient}}).status()),
            "auth.token.missing");
  EXPECT_EQ(support::Slug(guard_->Admit({kCreateJob, token, {kClient}}).status()),
            "auth.token.malformed")
      << "without a scheme";
  for (const char* scheme : {"Bearer ", "bearer ", "BEARER "}) {
    EXPECT_TRUE(guard_->Admit({kCreateJob, scheme + token, {kClient}}).ok()) << scheme;
  }
  const auto stranger = CreateToken(dir_->File("other"), Role::kAdmin, "eve", 30, NowS());
  EXPECT_EQ(Slug(stranger->token, kCreateJob), "auth.token.unknown");
  EXPECT_THAT(std::string(Admit(stranger->token, kCreateJob).status().message()),
              Not(HasSubstr("eve")));
}

TEST_F(SecurityTest, RevocationAndExpiryCountWithinASecond) {
  const NewToken ana = Create(Role::kEngineer, "ana", 1);
  const NewToken bob = Create(Role::kEngineer, "bob");
  OpenGuard();
  EXPECT_TRUE(Admit(ana.token, kCreateJob).ok());
  ASSERT_TRUE(RevokeToken(path_, bob.row.id, NowS()).ok());
  clock_.AdvanceNs(kSecond + 1);
  EXPECT_EQ(Slug(bob.token, kCreateJob), "auth.token.revoked");
  EXPECT_TRUE(RevokeToken(path_, bob.row.id, NowS()).ok()) << "once more is harmless";
  EXPECT_EQ(support::Slug(RevokeToken(path_, "000000000000", NowS())), "tokens.id.unknown");
  clock_.AdvanceNs(86'400 * kSecond);
  EXPECT_EQ(Slug(ana.token, kCreateJob), "auth.token.expired");
  const NewToken late = Create(Role::kEngineer, "late", 0);
  clock_.AdvanceNs(kSecond + 1);
  EXPECT_TRUE(Admit(late.token, kCreateJob).ok()) << "a new one is known without a restart";
}

// A handler, and the audit when a call ends, may ask hours after the call was admitted.
TEST_F(SecurityTest, WhoWasAdmittedIsNamedThoughTheTokenEndedSince) {
  const NewToken ana = Create(Role::kEngineer, "ana", 1);
  const NewToken bob = Create(Role::kEngineer, "bob");
  OpenGuard();
  ASSERT_TRUE(RevokeToken(path_, bob.row.id, NowS()).ok());
  clock_.AdvanceNs(2 * 86'400 * kSecond);
  EXPECT_EQ(Slug(ana.token, kCreateJob), "auth.token.expired");
  EXPECT_EQ(Slug(bob.token, kCreateJob), "auth.token.revoked");
  for (const NewToken& token : {ana, bob}) {
    const std::string header = "Bearer " + token.token;
    const auto caller = guard_->Identify({kCreateJob, header, {kClient}});
    ASSERT_TRUE(caller.ok()) << caller.status();
    EXPECT_EQ(caller->name, token.row.name);
    EXPECT_EQ(caller->token_id, token.row.id);
    EXPECT_EQ(support::Slug(guard_->Identify({kCreateJob, header, {kOtherAgent}}).status()),
              "auth.certificate.mismatch");
  }
}

TEST_F(SecurityTest, RotationLeavesTimeToChange) {
  const NewToken old = Create(Role::kCi, "nightly");
  OpenGuard();
  const auto fresh = RotateToken(path_, old.row.id, 30, 3600, NowS());
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  clock_.AdvanceNs(kSecond + 1);
  EXPECT_TRUE(Admit(old.token, kResolve).ok());
  EXPECT_TRUE(Admit(fresh->token, kResolve).ok());
  EXPECT_EQ(fresh->row.name, "nightly");
  clock_.AdvanceNs(3600 * kSecond);
  EXPECT_EQ(Slug(old.token, kResolve), "auth.token.expired");
  EXPECT_TRUE(Admit(fresh->token, kResolve).ok());
  EXPECT_EQ(support::Slug(RotateToken(path_, old.row.id, 30, 0, NowS()).status()),
            "tokens.id.revoked");
}

TEST_F(SecurityTest, AdministratorsAtTheSameTimeLoseNothing) {
  std::vector<std::thread> administrators;
  for (int i = 0; i < 4; ++i) {
    administrators.emplace_back([this, i] {
      for (int j = 0; j < 5; ++j) {
        EXPECT_TRUE(CreateToken(path_, Role::kCi, support::StrCat("ci-", i, "-", j), 1, 1).ok());
      }
    });
  }
  for (std::thread& administrator : administrators) administrator.join();
  EXPECT_EQ(LoadTokens(path_)->size(), 20u);
}

TEST_F(SecurityTest, ADamagedFileStopsNobodyAndAdmitsNobodyNew) {
  const NewToken ana = Create(Role::kEngineer, "ana");
  OpenGuard();
  const std::string good = *support::ReadFile(path_, 1 << 20);
  const std::vector<std::string> damaged = {"what is this\n", "3f9a0c2b71de king ana 00 1 2 3\n",
                                            good.substr(0, good.size() - 5)};
  for (const std::string& bad : damaged) {
    EXPECT_EQ(support::Slug(ParseTokenRows(bad).status()), "tokens.file.invalid") << bad;
    ASSERT_TRUE(support::WriteFileAtomic(path_, bad).ok());
    clock_.AdvanceNs(2 * kSecond);
    EXPECT_TRUE(Admit(ana.token, kCreateJob).ok()) << "what was read last goes on counting";
    EXPECT_EQ(support::Slug(guard_->FileStatus()), "tokens.file.invalid");
  }
  EXPECT_EQ(support::Slug(CallGuard::Open(path_, Listener::kTuner, &clock_).status()),
            "tokens.file.invalid");
  ASSERT_TRUE(support::WriteFileAtomic(path_, good, 0666).ok());
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  EXPECT_EQ(support::Slug(CallGuard::Open(path_, Listener::kTuner, &clock_).status()),
            "tokens.file.permissions")
      << "anybody could add a token";
  EXPECT_EQ(support::Slug(CallGuard::Open(dir_->File("none"), Listener::kTuner, &clock_).status()),
            "tokens.file.missing");
}

TEST_F(SecurityTest, MutatedTokensAndFilesAreErrorsOrMeanSomething) {
  const uint64_t seed = tests::TestSeed(5);
  support::Rng rng(seed);
  const std::string token = Create(Role::kAdmin, "root").token;
  Create(Role::kAgent, "bench-3");
  const std::string file = *support::ReadFile(path_, 1 << 20);
  OpenGuard();
  const int64_t rounds = 20'000 * tests::TestRounds(1);
  int64_t rows_read = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    std::string text = i % 2 == 0 ? file : token;
    for (int64_t changes = rng.UniformInt(1, 3); changes > 0; --changes) {
      const auto at = static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(text.size()) - 1));
      text[at] = static_cast<char>(rng.UniformInt(0, 255));
    }
    if (i % 2 == 0) {
      const auto rows = ParseTokenRows(text);
      if (!rows.ok()) continue;
      ++rows_read;
      for (const TokenRow& row : *rows) EXPECT_TRUE(CheckName(row.name).ok());
    } else if (text != token) {
      EXPECT_FALSE(ParseToken(text).ok()) << "seed " << seed << " round " << i;
    }
  }
  EXPECT_GT(rows_read, 0) << "some mutations only change a name or a time";
}

// Every role against every row, on both listeners, against a second, independent statement of who
// may what.
TEST_F(SecurityTest, EachRoleMayOnlyItsOwn) {
  const auto expected = [](const std::string& method, Listener listener, Role role) {
    const bool person = role == Role::kEngineer || role == Role::kAdmin;
    const auto is = [&](const char* part) { return method.find(part) != std::string::npos; };
    if (is("Health/")) return true;
    if (is("ServerReflection")) return true;
    if (listener == Listener::kTracker) {
      if (is("AgentService/")) return role == Role::kAgent;
      if (is("DispatchService/")) return role == Role::kTuner;
      if (is("SetDeviceAdminState") || is("ResetDevice") || is("ForgetDevice")) {
        return role == Role::kTuner || role == Role::kAdmin;
      }
      if (is("FleetAdminService/")) return role == Role::kTuner || person;
      if (is("ArtifactService/Read")) return role == Role::kTuner || role == Role::kAgent;
      if (is("ArtifactService/")) return role == Role::kTuner;
      return false;
    }
    if (is("SetDeviceAdminState") || is("ResetDevice") || is("ForgetDevice")) {
      return role == Role::kAdmin;
    }
    if (is("PruneModules") || is("ImportLog") || is("AddReleaseKey") || is("RevokeReleaseKey")) {
      return role == Role::kAdmin;
    }
    if (is("SetModuleAlias") || is("ModuleSignature") || is("ReleaseModule")) return person;
    if (is("ModuleService/") || is("ArtifactService/Read")) return person || role == Role::kCi;
    if (is("JobService/") || is("FleetAdminService/") || is("ArtifactService/")) return person;
    return false;
  };
  std::set<std::string> seen;
  for (const MethodRule& rule : MethodRules()) {
    EXPECT_TRUE(seen.insert(std::string(rule.method)).second) << "twice: " << rule.method;
    EXPECT_EQ(FindRule(rule.method)->method, rule.method);
    for (const Listener listener : {Listener::kTracker, Listener::kTuner}) {
      for (const Role role :
           {Role::kAgent, Role::kTuner, Role::kCi, Role::kEngineer, Role::kAdmin}) {
        EXPECT_EQ(Allows(rule, listener, role), expected(std::string(rule.method), listener, role))
            << rule.method << " " << RoleText(role)
            << (listener == Listener::kTracker ? " on the tracker" : " on the tuner");
      }
    }
  }
  EXPECT_EQ(FindRule("/tilewright.v1.JobService/EraseAll"), nullptr);
  EXPECT_EQ(FindRule(""), nullptr);
}

TEST_F(SecurityTest, RefusalsAreTyped) {
  const NewToken engineer = Create(Role::kEngineer, "ana");
  const NewToken ci = Create(Role::kCi, "nightly");
  const NewToken agent = Create(Role::kAgent, "bench-3");
  OpenGuard();
  EXPECT_EQ(Admit(engineer.token, kCreateJob)->Text(), "engineer/ana");
  EXPECT_EQ(Slug(engineer.token, kDrain), "auth.role.denied");
  EXPECT_EQ(Slug(ci.token, kCreateJob), "auth.role.denied");
  EXPECT_EQ(Admit(ci.token, kCreateJob).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(Admit(ci.token, kResolve).ok());
  EXPECT_EQ(Slug(engineer.token, "/tilewright.v1.JobService/EraseAll"), "auth.method.unknown");
  EXPECT_EQ(Slug("nonsense", "/tilewright.v1.JobService/EraseAll"), "auth.token.malformed")
      << "an outsider does not learn what there is";
  EXPECT_EQ(Slug(agent.token, kHealth, "spiffe://tilewright/agent/bench-3"), "");
  EXPECT_EQ(Slug(agent.token, kSync, "spiffe://tilewright/agent/bench-3"), "auth.role.denied")
      << "agents talk to the tracker";
  OpenGuard(Listener::kTracker);
  EXPECT_EQ(Slug(agent.token, kSync, "spiffe://tilewright/agent/bench-3"), "");
  EXPECT_EQ(Slug(engineer.token, kCreateJob), "auth.role.denied") << "jobs are the tuner's";
}

TEST_F(SecurityTest, ATokenIsWorthNothingWithAnothersCertificate) {
  const NewToken engineer = Create(Role::kEngineer, "ana");
  const NewToken agent = Create(Role::kAgent, "bench-3");
  const NewToken tuner = Create(Role::kTuner, "main");
  OpenGuard(Listener::kTracker);
  const auto slug = [&](const NewToken& token, const char* uri) {
    return Slug(token.token, kHealth, uri);
  };
  EXPECT_EQ(slug(agent, "spiffe://tilewright/agent/bench-3"), "");
  EXPECT_EQ(slug(agent, "spiffe://tilewright/agent/bench-4"), "auth.certificate.mismatch");
  EXPECT_EQ(slug(agent, kClient), "auth.certificate.mismatch");
  EXPECT_EQ(slug(engineer, "spiffe://tilewright/agent/bench-3"), "auth.certificate.mismatch");
  EXPECT_EQ(slug(engineer, "spiffe://tilewright/tuner/main"), "auth.certificate.mismatch");
  EXPECT_EQ(slug(tuner, "spiffe://tilewright/tuner/main"), "");
  EXPECT_EQ(slug(tuner, "spiffe://tilewright/tuner/other"), "auth.certificate.mismatch");
  EXPECT_EQ(slug(tuner, "spiffe://tilewright/tracker/lab"), "auth.certificate.mismatch");
}

// A certificate of a company's authority that names no member of the fleet must not go with every
// token.
TEST_F(SecurityTest, ACertificateMustNameExactlyOneMemberOfTheFleet) {
  using std::string_literals::operator""s;
  const NewToken engineer = Create(Role::kEngineer, "ana");
  OpenGuard();
  const std::string header = "Bearer " + engineer.token;
  const auto slug = [&](std::vector<std::string> uris) {
    const CallFacts facts{kHealth, header, std::move(uris)};
    EXPECT_EQ(guard_->Identify(facts).status(), guard_->Admit(facts).status());
    return support::Slug(guard_->Admit(facts).status());
  };
  EXPECT_EQ(slug({kClient}), "");
  const std::vector<std::vector<std::string>> refused = {
      {},                                         // no URI
      {""},                                       //
      {kClient, kOtherAgent},                     // two members
      {kClient, kClient},                         //
      {kClient, "https://example.org/"},          // a member and something else
      {"spiffe://example.org/client/ana"},        // foreign
      {"spiffe://tilewright/king/ana"},           // unknown kind
      {"spiffe://tilewright/Client/ana"},         //
      {"spiffe://tilewright/client/"},            // no name
      {"spiffe://tilewright/client/ana\0.eve"s},  // NUL
      {"spiffe://tilewright/client\0/ana"s},      //
      {"spiffe://tilewright/client/ana\n"},       //
      {"spiffe://tilewright/client/ana/x"},
  };
  for (const auto& uris : refused) {
    EXPECT_EQ(slug(uris), "auth.certificate.unnamed") << support::Join(uris, " ");
  }
}

TEST_F(SecurityTest, OneTokenCannotCrowdOutTheOthers) {
  const NewToken ana = Create(Role::kEngineer, "ana");
  const NewToken bob = Create(Role::kEngineer, "bob");
  OpenGuard();
  const RateLimit limit = LimitOf(Role::kEngineer);
  int admitted = 0;
  while (Admit(ana.token, kCreateJob).ok()) ++admitted;
  EXPECT_EQ(admitted, static_cast<int>(limit.burst));
  EXPECT_EQ(Slug(ana.token, kCreateJob), "auth.rate.exceeded");
  EXPECT_EQ(Admit(ana.token, kCreateJob).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Admit(bob.token, kCreateJob).ok());
  clock_.AdvanceNs(kSecond / 2);
  admitted = 0;
  while (Admit(ana.token, kCreateJob).ok()) ++admitted;
  EXPECT_NEAR(admitted, limit.per_second / 2, 1);
}

TEST_F(SecurityTest, TheLimiterForgetsThoseWhoRest) {
  RateLimiter limiter(&clock_, 3);
  for (const char* key : {"a", "b", "c"}) EXPECT_TRUE(limiter.Take(key, {1, 2}));
  EXPECT_FALSE(limiter.Take("d", {1, 2})) << "full, and nobody rests";
  clock_.AdvanceNs(2 * kSecond);
  EXPECT_TRUE(limiter.Take("d", {1, 2}));
}

class AuditTest : public SecurityTest {
 protected:
  void SetUp() override {
    SecurityTest::SetUp();
    path_ = dir_->File("audit.jsonl");
    Open();
  }
  void Open() {
    auto log = AuditLog::Open(path_, &clock_);
    ASSERT_TRUE(log.ok()) << log.status();
    log_ = *std::move(log);
  }
  void Append(const std::string& who) {
    AuditEntry entry;
    entry.who = who;
    entry.method = kDrain;
    entry.what = "devices/bench-3-cpu";
    entry.outcome = "OK";
    ASSERT_TRUE(log_->Append(entry).ok());
  }
  std::vector<std::string> Lines() {
    std::ifstream file(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  void Write(const std::vector<std::string>& lines) {
    ASSERT_TRUE(support::WriteFileAtomic(path_, support::Join(lines, "\n") + "\n").ok());
  }
  std::string VerifySlug() { return support::Slug(VerifyAuditFile(path_).status()); }

  std::unique_ptr<AuditLog> log_;
};

TEST_F(AuditTest, LinesSayWhoDidWhatFromWhere) {
  AuditEntry entry{"engineer/ana", "3f9a0c2b71de", kClient,     "10.0.0.9",          "",
                   kDrain,         "devices/d1",   "NOT_FOUND", "device.get.missing"};
  ASSERT_TRUE(log_->Append(entry).ok());
  const auto line = nlohmann::json::parse(Lines().front());
  EXPECT_EQ(line["ts"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(line["who"], "engineer/ana");
  EXPECT_EQ(line["token"], "3f9a0c2b71de");
  EXPECT_EQ(line["from"], "10.0.0.9");
  EXPECT_EQ(line["method"], kDrain);
  EXPECT_EQ(line["what"], "devices/d1");
  EXPECT_EQ(line["outcome"], "NOT_FOUND");
  EXPECT_EQ(line["detail"], "device.get.missing");
  EXPECT_FALSE(line.contains("on_behalf_of"));
  struct stat info{};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(AuditTest, AChangedMissingOrNewLineShows) {
  for (const char* who : {"a", "b", "c", "d"}) Append(who);
  EXPECT_EQ(VerifyAuditFile(path_)->lines, 4);
  const std::vector<std::string> good = Lines();
  std::vector<std::string> lines = good;
  lines[1].replace(lines[1].find("\"b\""), 3, "\"x\"");
  Write(lines);
  EXPECT_EQ(VerifySlug(), "audit.chain.broken");
  Write({good[0], good[2], good[3]});
  EXPECT_EQ(VerifySlug(), "audit.chain.broken");
  Write({good[0], good[1], good[1], good[2], good[3]});
  EXPECT_EQ(VerifySlug(), "audit.chain.broken");
  Write({good[0], "noise", good[1]});
  EXPECT_EQ(VerifySlug(), "audit.file.invalid");
  Write(good);
  EXPECT_EQ(VerifySlug(), "");
}

TEST_F(AuditTest, TheChainGoesOnOverRestartsAndRotation) {
  Append("a");
  Append("b");
  Open();  // a restart
  Append("c");
  const auto whole = VerifyAuditFile(path_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->last_seq, 3);
  ASSERT_EQ(rename(path_.c_str(), dir_->File("audit.1").c_str()), 0);
  Append("d");
  const auto next = VerifyAuditFile(path_);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->first_seq, 4);
  const std::vector<std::string> moved =
      support::Split(*support::ReadFile(dir_->File("audit.1"), 1 << 20), '\n');
  EXPECT_EQ(nlohmann::json::parse(Lines().front())["prev"], support::Sha256Hex(moved[2]))
      << "the next file goes on where the moved one ends";
}

TEST_F(AuditTest, WhatAPowerCutLeavesIsDroppedAndADamagedFileIsKeptAside) {
  Append("a");
  Append("b");
  const std::string whole = *support::ReadFile(path_, 1 << 20);
  for (const std::string& rest : {std::string("{\"ts\":\"20"), std::string(100, '\0')}) {
    ASSERT_TRUE(support::WriteFileAtomic(path_, whole + rest, 0600).ok());
    Open();
    EXPECT_EQ(log_->damaged(), "");
    EXPECT_EQ(*support::ReadFile(path_, 1 << 20), whole);
  }
  Append("c");
  EXPECT_EQ(VerifyAuditFile(path_)->last_seq, 3);
  ASSERT_TRUE(support::WriteFileAtomic(path_, "{").ok());
  Open();
  Append("first");
  EXPECT_EQ(VerifyAuditFile(path_)->lines, 1) << "a torn first line";
  Write({"not ours"});
  Open();
  EXPECT_EQ(*support::ReadFile(log_->damaged(), 100), "not ours\n");
  Append("first");
  EXPECT_EQ(VerifyAuditFile(path_)->first_seq, 1);
}

TEST_F(AuditTest, BeingRefusedFillsNoDisk) {
  AuditEntry entry;
  entry.certificate = kClient;
  entry.outcome = "UNAUTHENTICATED";
  for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(log_->AppendRefusal(entry).ok());
  const size_t written = Lines().size();
  EXPECT_LE(written, 60u);
  EXPECT_GE(written, 10u);
  Append("a");
  const auto line = nlohmann::json::parse(Lines().back());
  EXPECT_EQ(line["suppressed"], 10'000 - static_cast<int64_t>(written)) << "counted all the same";
  EXPECT_EQ(VerifySlug(), "");
}

}  // namespace
}  // namespace tilewright::security
