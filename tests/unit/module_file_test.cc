#include "deploy/module/module_file.h"

#include <cstring>
#include <string>

#include "deploy/module/memory_need.h"
#include "deploy/module/module_writer.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "gtest/gtest.h"
#include "tests/unit/module_fixture.h"

namespace tilewright::module {
namespace {

std::string Good() {
  auto bytes = SerializeModule(test::FormatModule());
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return *std::move(bytes);
}

bool IsRefusal(const absl::Status& status) {
  return status.code() == absl::StatusCode::kDataLoss ||
         status.code() == absl::StatusCode::kUnimplemented;
}

TEST(ModuleFileTest, WhatIsWrittenIsRead) {
  const ModuleParts parts = test::FormatModule();
  const auto file = ModuleFile::FromBytes(Good());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->manifest().name, parts.manifest.name);
  ASSERT_EQ(file->num_code(), 2u);
  EXPECT_EQ(file->code(0), parts.code[0]);
  EXPECT_EQ(file->code(1), parts.code[1]);
  EXPECT_EQ(file->constants(), std::string(parts.constants));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file->constants().data()) % 64, 0u);
  EXPECT_EQ(file->manifest().code[1].size, 5000);
  EXPECT_EQ(file->manifest_json(), *ManifestToJson(file->manifest()));
}

TEST(MemoryNeedTest, CountsEachPartOfWhatASessionHolds) {
  const auto file = ModuleFile::FromBytes(Good());
  ASSERT_TRUE(file.ok());
  const MemoryNeed need = NeedOf(file->manifest());
  EXPECT_EQ(need.weights, file->manifest().constants_bytes);
  EXPECT_EQ(need.arena, 512 + test::kRows * test::kColumns * 4);
  EXPECT_EQ(need.workspace, test::kRows * test::kColumns * 4);
  EXPECT_EQ(need.ends, test::kRows * test::kInner * 4 + test::kRows * test::kColumns * 4);
  int64_t code = 0;
  for (const CodeObject& object : file->manifest().code) code += object.size;
  EXPECT_EQ(need.code, code);
  EXPECT_GT(code, 5000);
  EXPECT_EQ(need.total(), need.weights + need.arena + need.workspace + need.ends + need.code);
}

TEST(ModuleFileTest, SamePartsGiveTheSameBytes) { EXPECT_EQ(Good(), Good()); }

TEST(ModuleFileTest, WritesAndMapsAFile) {
  const auto dir = support::TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string path = dir->File("model.tw");
  ASSERT_TRUE(WriteModule(path, test::FormatModule()).ok());
  const auto file = ModuleFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->bytes(), Good());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file->constants().data()) % 64, 0u);
  ModuleFile moved = ModuleFile::Open(path).value();
  const char* constants = moved.constants().data();
  ModuleFile target = std::move(moved);
  EXPECT_EQ(target.constants().data(), constants) << "moving keeps the views";
}

TEST(ModuleFileTest, MissingAndForeignFiles) {
  const auto dir = support::TempDir::Create();
  ASSERT_TRUE(dir.ok());
  EXPECT_EQ(ModuleFile::Open(dir->File("none.tw")).status().code(), absl::StatusCode::kNotFound);
  const std::string path = dir->File("text.tw");
  ASSERT_TRUE(support::WriteFileAtomic(path, "this is not a module at all").ok());
  const absl::Status status = ModuleFile::Open(path).status();
  EXPECT_EQ(support::Slug(status), "module.file.magic");
  EXPECT_NE(support::Detail(status).find(path), std::string::npos) << "the error names the file";
  ASSERT_TRUE(support::WriteFileAtomic(path, "").ok());
  EXPECT_FALSE(ModuleFile::Open(path).ok());
}

// Weights come in pieces that others own.
TEST(ModuleFileTest, WhatIsWrittenInPiecesIsTheSameFile) {
  const auto dir = support::TempDir::Create();
  ASSERT_TRUE(dir.ok());
  ModuleParts parts = test::FormatModule();
  const std::string whole(parts.constants);
  ASSERT_GT(whole.size(), 3U);
  parts.constants.Clear();
  for (size_t at = 0; at < whole.size(); at += 3) {
    const auto piece = std::make_shared<std::string>(whole.substr(at, 3));
    parts.constants.Append(absl::MakeCordFromExternal(*piece, [piece](absl::string_view) {}));
  }
  const auto written = WriteModule(dir->File("model.tw"), parts);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(*support::ReadFile(dir->File("model.tw"), 1 << 20), Good());
  EXPECT_EQ(written->bytes, Good().size());
  EXPECT_EQ(written->sha256, support::Sha256Hex(Good()));
}

TEST(ModuleFileTest, FailedWriteLeavesNothing) {
  const auto dir = support::TempDir::Create();
  ASSERT_TRUE(dir.ok());
  ModuleParts parts = test::FormatModule();
  parts.manifest.tensors[0].bytes = 3;
  EXPECT_FALSE(WriteModule(dir->File("model.tw"), parts).ok());
  EXPECT_TRUE(support::ListDir(dir->path())->empty());
  parts = test::FormatModule();
  parts.code.pop_back();
  EXPECT_EQ(support::Slug(WriteModule(dir->File("model.tw"), parts).status()),
            "module.file.code_count");
}

TEST(ModuleFileTest, EveryTruncationIsFound) {
  const std::string good = Good();
  for (size_t size = 0; size < good.size(); ++size) {
    const absl::Status status = ModuleFile::FromBytes(good.substr(0, size)).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << "cut at " << size << ": " << status;
  }
  EXPECT_FALSE(ModuleFile::FromBytes(good + '\0').ok()) << "bytes after the end";
}

TEST(ModuleFileTest, EveryChangedByteIsFound) {
  const std::string good = Good();
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    const absl::Status status = ModuleFile::FromBytes(bad).status();
    ASSERT_TRUE(IsRefusal(status)) << "byte " << at << ": " << status;
  }
}

TEST(ModuleFileTest, LaterVersionIsNamed) {
  std::string later = Good();
  later[8] = 2;
  EXPECT_EQ(support::Slug(ModuleFile::FromBytes(later).status()), "module.file.version");
}

TEST(ModuleFileTest, ConstantsCanBeVerifiedLater) {
  std::string bad = Good();
  bad.back() = static_cast<char>(bad.back() ^ 1);
  ReadOptions lazy;
  lazy.verify_constants = false;
  EXPECT_EQ(support::Slug(ModuleFile::FromBytes(bad).status()), "module.file.constants_digest");
  const auto file = ModuleFile::FromBytes(bad, lazy);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(support::Slug(file->VerifyConstants()), "module.file.constants_digest");
  EXPECT_TRUE(ModuleFile::FromBytes(Good(), lazy)->VerifyConstants().ok());
}

// The table with its digest made right again: what an attacker, not an accident, would write.
void RepairTable(std::string* bytes) {
  uint32_t count = 0;
  std::memcpy(&count, bytes->data() + 12, 4);
  if (64 + uint64_t{count} * 64 > bytes->size()) return;
  support::Sha256 hash;
  hash.Update(bytes->data() + 64, size_t{count} * 64);
  const support::Sha256::Digest digest = hash.Finish();
  std::memcpy(bytes->data() + 24, digest.data(), digest.size());
}

TEST(ModuleFileTest, ForgedTablesNeverCrash) {
  const std::string good = Good();
  constexpr uint64_t kSeed = 77;
  constexpr int kRounds = 20000;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  support::Rng rng(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    std::string bad = good;
    const auto edits = 1 + rng.Uniform(3);
    for (uint64_t e = 0; e < edits; ++e) {
      const size_t at = 8 + rng.Uniform(64 * 5 - 8);
      if (rng.Uniform(2) == 0) {
        bad[at] = static_cast<char>(rng.Uniform(256));
      } else {
        // A whole 64-bit field: zero, all ones, or a small number.
        const uint64_t values[] = {0, ~uint64_t{0}, uint64_t{1} << 63, rng.Uniform(20000)};
        std::memcpy(bad.data() + at / 8 * 8, &values[rng.Uniform(4)], 8);
      }
    }
    RepairTable(&bad);
    const absl::Status status = ModuleFile::FromBytes(bad).status();
    ASSERT_TRUE(IsRefusal(status) || (status.ok() && bad == good)) << round << ": " << status;
  }
}

TEST(ModuleFileTest, RandomBytesNeverCrash) {
  support::Rng rng(5);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(rng.Uniform(600), '\0');
    for (char& c : bytes) c = static_cast<char>(rng.Uniform(256));
    if (rng.Uniform(2) == 0 && bytes.size() >= 8) std::memcpy(bytes.data(), "TWMODULE", 8);
    ASSERT_TRUE(IsRefusal(ModuleFile::FromBytes(bytes).status()));
  }
}

}  // namespace
}  // namespace tilewright::module
