// The agent's memory over crashes: what the spool promised is there after a cut at any byte, and
// the ledger neither loses nor repeats.
#include "device_agent/spool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/rng.h"
#include "deploy/support/strings.h"
#include "tests/support/small_disk.h"
#include "tests/support/test_seed.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;

Record GrantOf(int64_t token, const std::vector<std::string>& items) {
  Record record;
  record.grant.set_lease(StrCat("leases/d-", token));
  record.grant.set_device("devices/d");
  record.grant.set_fencing_token(token);
  for (const std::string& item : items) {
    v1::Work* work = record.grant.add_work();
    work->set_work_item(item);
    work->set_attempt(1);
  }
  return record;
}

Record Of(Record::Kind kind, const std::string& id) {
  Record record;
  record.kind = kind;
  record.result.set_measurement_id(id);
  if (kind == Record::Kind::kStarted) record.result.set_boot_id("boot");
  if (kind == Record::Kind::kResult) record.result.set_outcome(v1::OK);
  return record;
}

// Everything that can be seen of a ledger, as text.
std::string Describe(const Ledger& ledger) {
  std::string text;
  for (const auto& [name, lease] : ledger.leases()) {
    text += StrCat(name, " ", lease.device, " ", lease.token, ":");
    for (const LedgerItem& item : lease.items) {
      text +=
          StrCat(" ", MeasurementId(item.work), "=", static_cast<int>(item.state), item.boot_id);
    }
    text += "\n";
  }
  for (const auto& [id, result] : ledger.unacked()) text += "unacked " + id + "\n";
  return text + StrCat("token ", ledger.last_token("devices/d"), "\n");
}

std::vector<Record> Story() {
  using Kind = Record::Kind;
  return {GrantOf(1, {"a", "b", "c"}), Of(Kind::kStarted, "a/1"), Of(Kind::kResult, "a/1"),
          Of(Kind::kStarted, "b/1"),   Of(Kind::kAcked, "a/1"),   Of(Kind::kResult, "b/1"),
          Of(Kind::kDropped, "c/1"),   GrantOf(2, {"d"}),         Of(Kind::kAcked, "b/1"),
          Of(Kind::kStarted, "d/1"),   Of(Kind::kResult, "d/1"),  Of(Kind::kAcked, "d/1")};
}

class SpoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto dir = support::TempDir::Create("spool");
    ASSERT_TRUE(dir.ok()) << dir.status();
    dir_ = std::make_unique<support::TempDir>(*std::move(dir));
    path_ = dir_->File("spool");
  }

  std::unique_ptr<Spool> Open(Ledger* ledger) {
    auto spool = Spool::Open(path_, ledger);
    EXPECT_TRUE(spool.ok()) << spool.status();
    return spool.ok() ? *std::move(spool) : nullptr;
  }

  std::unique_ptr<support::TempDir> dir_;
  std::string path_;
};

TEST_F(SpoolTest, ALeaseIsForgottenWhenAllItsItemsAre) {
  Ledger ledger;
  for (const Record& record : Story()) ledger.Apply(record);
  EXPECT_EQ(Describe(ledger), "token 2\n");
}

TEST_F(SpoolTest, RepeatedAndStrangeRecordsChangeNothing) {
  Ledger ledger;
  const std::vector<Record> story = Story();
  for (size_t i = 0; i + 3 < story.size(); ++i) {
    ledger.Apply(story[i]);
    const std::string before = Describe(ledger);
    ledger.Apply(story[i]);
    ledger.Apply(Of(Record::Kind::kAcked, "nobody/1"));
    ledger.Apply(Of(Record::Kind::kDropped, "nobody/1"));
    ledger.Apply(Of(Record::Kind::kStarted, "nobody/1"));
    EXPECT_EQ(Describe(ledger), before) << "after record " << i;
  }
}

TEST_F(SpoolTest, ADropDoesNotReachAnItemThatRuns) {
  Ledger ledger;
  ledger.Apply(GrantOf(1, {"a"}));
  ledger.Apply(Of(Record::Kind::kStarted, "a/1"));
  ledger.Apply(Of(Record::Kind::kDropped, "a/1"));
  EXPECT_EQ(ledger.FindItem("a/1")->state, ItemState::kStarted);
}

TEST_F(SpoolTest, WhatWasAppendedIsThereAfterReopening) {
  Ledger expected;
  for (const Record& record : Story()) {
    Ledger ledger;
    const std::unique_ptr<Spool> spool = Open(&ledger);
    ASSERT_NE(spool, nullptr);
    EXPECT_EQ(Describe(ledger), Describe(expected));
    ASSERT_TRUE(spool->Append(record).ok());
    expected.Apply(record);
  }
  Ledger ledger;
  ASSERT_NE(Open(&ledger), nullptr);
  EXPECT_EQ(Describe(ledger), Describe(expected));
}

TEST_F(SpoolTest, ACutAtAnyByteLosesOnlyTheRecordThatWasBeingWritten) {
  std::vector<int64_t> ends;       // of the records
  std::vector<std::string> texts;  // the ledger after each
  {
    Ledger ledger;
    const std::unique_ptr<Spool> spool = Open(&ledger);
    ASSERT_NE(spool, nullptr);
    ends.push_back(spool->bytes());
    texts.push_back(Describe(ledger));
    for (const Record& record : Story()) {
      ASSERT_TRUE(spool->Append(record).ok());
      ledger.Apply(record);
      ends.push_back(spool->bytes());
      texts.push_back(Describe(ledger));
    }
  }
  const auto whole = support::ReadFile(path_, 1 << 20);
  ASSERT_TRUE(whole.ok());
  for (size_t cut = 0; cut <= whole->size(); ++cut) {
    ASSERT_TRUE(support::WriteFileAtomic(path_, whole->substr(0, cut)).ok());
    const auto kept = std::upper_bound(ends.begin(), ends.end(), static_cast<int64_t>(cut));
    const auto index = static_cast<size_t>(std::max<int64_t>(kept - ends.begin(), 1)) - 1;
    {
      Ledger ledger;
      const std::unique_ptr<Spool> spool = Open(&ledger);
      ASSERT_NE(spool, nullptr) << "cut at " << cut;
      EXPECT_EQ(Describe(ledger), texts[index]) << "cut at " << cut;
      // It goes on from there.
      ASSERT_TRUE(spool->Append(GrantOf(9, {"new"})).ok());
    }
    Ledger again;
    const std::unique_ptr<Spool> spool = Open(&again);
    ASSERT_NE(spool, nullptr);
    EXPECT_NE(again.FindItem("new/1"), nullptr) << "cut at " << cut;
    EXPECT_EQ(spool->dropped_bytes(), 0) << "the torn end is still there after a cut at " << cut;
  }
}

// Acknowledgements are not synced one by one: a power cut may lose one and keep the next.
TEST_F(SpoolTest, AnAcknowledgementBehindATornOneIsNoDamage) {
  size_t torn = 0;
  {
    Ledger ledger;
    const std::unique_ptr<Spool> spool = Open(&ledger);
    ASSERT_NE(spool, nullptr);
    ASSERT_TRUE(spool->Append(GrantOf(1, {"a", "b"})).ok());
    for (const char* id : {"a/1", "b/1"}) {
      ASSERT_TRUE(spool->Append(Of(Record::Kind::kResult, id)).ok());
    }
    torn = static_cast<size_t>(spool->bytes()) + 2;
    for (const char* id : {"a/1", "b/1"}) {
      ASSERT_TRUE(spool->Append(Of(Record::Kind::kAcked, id), false).ok());
    }
  }
  std::string bytes = support::ReadFile(path_, 1 << 20).value();
  bytes[torn] = static_cast<char>(bytes[torn] ^ 1);
  ASSERT_TRUE(support::WriteFileAtomic(path_, bytes).ok());
  Ledger ledger;
  const std::unique_ptr<Spool> spool = Open(&ledger);
  ASSERT_NE(spool, nullptr);
  EXPECT_EQ(ledger.unacked().size(), 2u) << "asked again";
}

TEST_F(SpoolTest, DamageInTheMiddleIsToldAndNothingIsChanged) {
  {
    Ledger ledger;
    const std::unique_ptr<Spool> spool = Open(&ledger);
    ASSERT_NE(spool, nullptr);
    for (const Record& record : Story()) ASSERT_TRUE(spool->Append(record).ok());
  }
  std::string bytes = support::ReadFile(path_, 1 << 20).value();
  bytes[30] = static_cast<char>(bytes[30] ^ 0x10);
  ASSERT_TRUE(support::WriteFileAtomic(path_, bytes).ok());
  Ledger ledger;
  const auto spool = Spool::Open(path_, &ledger);
  ASSERT_FALSE(spool.ok());
  EXPECT_EQ(support::Slug(spool.status()), "spool.file.damaged");
  EXPECT_EQ(support::ReadFile(path_, 1 << 20).value(), bytes);
  ASSERT_TRUE(support::WriteFileAtomic(path_, "something else").ok());
  EXPECT_EQ(support::Slug(Spool::Open(path_, &ledger).status()), "spool.file.damaged");
}

// Any ledger survives its own snapshot, and a rewritten file reads like the long one.
TEST_F(SpoolTest, CompactionKeepsTheLedger) {
  const uint64_t seed = tests::TestSeed(3);
  for (int64_t round = 0; round < tests::TestRounds(50); ++round) {
    support::Rng rng = support::Rng(seed).Split(static_cast<uint64_t>(round));
    Ledger ledger;
    ASSERT_TRUE(support::RemoveFile(path_).ok());
    Ledger nothing;
    const std::unique_ptr<Spool> spool = Open(&nothing);
    ASSERT_NE(spool, nullptr);
    std::vector<std::string> ids;
    for (int64_t step = 0; step < 60; ++step) {
      Record record;
      if (ids.empty() || rng.Bernoulli(0.15)) {
        const std::string name = StrCat("w", step);
        record = GrantOf(step + 1, {name, name + "x"});
        ids.push_back(name + "/1");
        ids.push_back(name + "x/1");
      } else {
        constexpr Record::Kind kKinds[] = {Record::Kind::kStarted, Record::Kind::kResult,
                                           Record::Kind::kAcked, Record::Kind::kDropped};
        record = Of(kKinds[rng.Uniform(4)], rng.Choice(ids));
      }
      ASSERT_TRUE(spool->Append(record, false).ok());
      ledger.Apply(record);
    }
    Ledger copy;
    for (const Record& record : ledger.Snapshot()) copy.Apply(record);
    ASSERT_EQ(Describe(copy), Describe(ledger)) << "seed " << seed << " round " << round;
    const int64_t before = spool->bytes();
    ASSERT_TRUE(spool->Rewrite(ledger.Snapshot()).ok());
    EXPECT_LE(spool->bytes(), before);
    ASSERT_TRUE(spool->Append(GrantOf(1000, {"z"})).ok());
    ledger.Apply(GrantOf(1000, {"z"}));
    Ledger reread;
    ASSERT_NE(Open(&reread), nullptr);
    ASSERT_EQ(Describe(reread), Describe(ledger)) << "seed " << seed << " round " << round;
  }
}

TEST_F(SpoolTest, AFullDiskRefusesARecordAndKeepsTheOthers) {
  const auto disk = tests::SmallDisk::Mount(256 << 10);
  if (disk == nullptr) GTEST_SKIP() << tests::kNoMountSkip;
  path_ = support::PathJoin(disk->path(), "spool");
  Ledger ledger;
  std::unique_ptr<Spool> spool = Open(&ledger);
  ASSERT_NE(spool, nullptr);
  ASSERT_TRUE(spool->Append(GrantOf(1, {"a"})).ok());
  Record big = Of(Record::Kind::kResult, "a/1");
  big.result.set_error_detail(std::string(1 << 20, 'x'));
  const absl::Status refused = spool->Append(big);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  // A smaller one fits again: nothing of the big one is left behind.
  EXPECT_TRUE(spool->Append(Of(Record::Kind::kStarted, "a/1")).ok());
  Ledger reread;
  spool = Open(&reread);
  ASSERT_NE(spool, nullptr);
  EXPECT_EQ(spool->dropped_bytes(), 0);
  ASSERT_NE(reread.FindItem("a/1"), nullptr);
  EXPECT_EQ(reread.FindItem("a/1")->state, ItemState::kStarted);
}

}  // namespace
}  // namespace tilewright::device_agent
