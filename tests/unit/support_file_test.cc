#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "deploy/support/file.h"
#include "deploy/support/original_file.h"
#include "deploy/support/scratch_folder.h"
#include "deploy/support/state_folder.h"
#include "deploy/support/strings.h"
#include "tests/support/small_disk.h"

namespace tilewright::support {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FileTest : public testing::Test {
 protected:
  TempDir dir_ = *TempDir::Create("file-test");
};

TEST_F(FileTest, WritesAndReadsBackAndReplaces) {
  const std::string path = dir_.File("a");
  const std::string data("with\0zero", 9);
  ASSERT_TRUE(WriteFileAtomic(path, data, 0600).ok());
  EXPECT_EQ(*ReadFile(path, 100), data);
  struct stat info{};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_TRUE(WriteFileAtomic(path, "new").ok());
  EXPECT_EQ(*ReadFile(path, 3), "new");
  EXPECT_EQ(*FileSize(path), 3u);
  EXPECT_THAT(*ListDir(dir_.path()), ElementsAre("a"));
}

TEST_F(FileTest, ReadErrorsAreTold) {
  EXPECT_EQ(ReadFile(dir_.File("none"), 10).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadFile(dir_.path(), 10).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(WriteFileAtomic(dir_.File("a"), "12345").ok());
  const absl::Status too_large = ReadFile(dir_.File("a"), 4).status();
  EXPECT_EQ(Slug(too_large), "file.read.too_large");
  EXPECT_THAT(StatusText(too_large), HasSubstr(dir_.File("a")));
  // A file whose size the system does not know beforehand.
  EXPECT_THAT(*ReadFile("/proc/self/status", 1 << 20), HasSubstr("Name:"));
  EXPECT_EQ(Slug(ReadFile("/dev/zero", 1 << 20).status()), "file.read.too_large");
}

TEST_F(FileTest, FailedWriteLeavesNothingBehind) {
  ASSERT_TRUE(MakeDirs(dir_.File("target/child")).ok());
  // A folder with content cannot be replaced by a file: the rename fails after the write.
  EXPECT_FALSE(WriteFileAtomic(dir_.File("target"), "x").ok());
  EXPECT_THAT(*ListDir(dir_.path()), ElementsAre("target"));
  EXPECT_EQ(WriteFileAtomic(dir_.File("none/a"), "x").code(), absl::StatusCode::kNotFound);
}

TEST_F(FileTest, ReadersNeverSeeHalfAFile) {
  const std::string path = dir_.File("a");
  const std::string first(100'000, 'a');
  const std::string second(50'000, 'b');
  ASSERT_TRUE(WriteFileAtomic(path, first).ok());
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(WriteFileAtomic(path, i % 2 == 0 ? second : first).ok());
    }
    done = true;
  });
  int reads = 0;
  while (!done || reads == 0) {
    absl::StatusOr<std::string> data = ReadFile(path, 1 << 20);
    ASSERT_TRUE(data.ok());
    EXPECT_TRUE(*data == first || *data == second) << data->size();
    ++reads;
  }
  writer.join();
}

TEST_F(FileTest, FullDiskIsResourceExhaustedAndKeepsTheOldFile) {
  const std::unique_ptr<tests::SmallDisk> disk = tests::SmallDisk::Mount(64 << 10);
  if (disk == nullptr) GTEST_SKIP() << tests::kNoMountSkip;
  const std::string path = PathJoin(disk->path(), "a");
  EXPECT_TRUE(WriteFileAtomic(path, "old").ok());
  const absl::Status full = WriteFileAtomic(path, std::string(1 << 20, 'x'));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << StatusText(full);
  EXPECT_EQ(*ReadFile(path, 10), "old");
  EXPECT_THAT(*ListDir(disk->path()), ElementsAre("a"));
}

TEST_F(FileTest, RemoveTreeStaysInside) {
  ASSERT_TRUE(MakeDirs(dir_.File("tree/a/b")).ok());
  ASSERT_TRUE(MakeDirs(dir_.File("outside")).ok());
  ASSERT_TRUE(WriteFileAtomic(dir_.File("outside/keep"), "x").ok());
  ASSERT_TRUE(WriteFileAtomic(dir_.File("tree/a/b/c"), "x").ok());
  ASSERT_EQ(symlink(dir_.File("outside").c_str(), dir_.File("tree/link").c_str()), 0);
  ASSERT_TRUE(RemoveTree(dir_.File("tree")).ok());
  EXPECT_FALSE(FileExists(dir_.File("tree")));
  EXPECT_TRUE(FileExists(dir_.File("outside/keep")));
  EXPECT_TRUE(RemoveTree(dir_.File("tree")).ok());
  EXPECT_TRUE(RemoveFile(dir_.File("none")).ok());
}

TEST_F(FileTest, MakeDirsIsIdempotentAndRefusesFiles) {
  EXPECT_TRUE(MakeDirs(dir_.File("a/b/c")).ok());
  EXPECT_TRUE(MakeDirs(dir_.File("a/b/c")).ok());
  ASSERT_TRUE(WriteFileAtomic(dir_.File("file"), "x").ok());
  EXPECT_FALSE(MakeDirs(dir_.File("file/x")).ok());
  EXPECT_FALSE(MakeDirs(dir_.File("file")).ok());
}

TEST_F(FileTest, AMemoryFolderHasTheRoomThatWasAskedFor) {
  EXPECT_EQ(MemoryFolder(uint64_t{1} << 60), "") << "no machine has an exabyte of memory";
  const std::string folder = MemoryFolder(4096);
  if (folder.empty()) GTEST_SKIP() << "[SKIP] no folder in memory here";
  const TempDir scratch = *TempDir::Create("x", folder);
  EXPECT_TRUE(WriteFileAtomic(scratch.File("f"), std::string(4096, 'x')).ok());
}

TEST_F(FileTest, WhatIsNoFileIsWrittenToAndStays) {
  const std::string pipe = dir_.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(WriteFileAtomic(pipe, "hello").ok());
  char text[8] = {};
  EXPECT_EQ(read(reader, text, sizeof text), 5);
  EXPECT_STREQ(text, "hello");
  close(reader);
  struct stat info{};
  ASSERT_EQ(stat(pipe.c_str(), &info), 0);
  EXPECT_TRUE(S_ISFIFO(info.st_mode));
  EXPECT_TRUE(WriteFileAtomic("/dev/null", "gone").ok());
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
}

TEST_F(FileTest, AFileMovesToAnotherPlace) {
  const std::string from = dir_.File("from"), to = dir_.File("to");
  ASSERT_TRUE(WriteFileAtomic(from, "new").ok());
  ASSERT_TRUE(WriteFileAtomic(to, "old").ok());
  struct stat first{}, moved{};
  ASSERT_EQ(stat(from.c_str(), &first), 0);
  ASSERT_TRUE(MoveFile(from, to).ok());
  EXPECT_EQ(*ReadFile(to, 10), "new");
  EXPECT_FALSE(FileExists(from));
  ASSERT_EQ(stat(to.c_str(), &moved), 0);
  EXPECT_EQ(moved.st_ino, first.st_ino);  // nothing was copied
  ASSERT_TRUE(MoveFile(to, "/dev/null").ok());
  EXPECT_FALSE(FileExists(to));
  ASSERT_EQ(stat("/dev/null", &moved), 0);
  EXPECT_TRUE(S_ISCHR(moved.st_mode));
  EXPECT_FALSE(MoveFile(dir_.File("nothing"), to).ok());
}

TEST_F(FileTest, TempDirIsRemovedUnlessReleased) {
  std::string path;
  {
    TempDir temporary = *TempDir::Create("x", dir_.path());
    path = temporary.path();
    ASSERT_TRUE(WriteFileAtomic(temporary.File("a"), "1").ok());
    TempDir moved = std::move(temporary);
    EXPECT_TRUE(IsDirectory(path));
  }
  EXPECT_FALSE(FileExists(path));
  {
    path = TempDir::Create("x", dir_.path())->Release();
  }
  EXPECT_TRUE(IsDirectory(path));
  EXPECT_FALSE(TempDir::Create("x", dir_.File("none")).ok());
}

TEST_F(FileTest, LockExcludesAndNamesItsHolder) {
  const std::string path = dir_.File("lock");
  {
    absl::StatusOr<FileLock> lock = FileLock::TryLock(path);
    ASSERT_TRUE(lock.ok());
    const absl::Status held = FileLock::TryLock(path).status();
    EXPECT_EQ(held.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(Slug(held), "file.lock.held");
    EXPECT_THAT(StatusText(held), HasSubstr(StrCat("process ", getpid())));
  }
  EXPECT_TRUE(FileLock::TryLock(path).ok());
}

mode_t ModeOf(const std::string& path) {
  struct stat info{};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

TEST_F(FileTest, OnlyTheOwnerCanOpenALockAlsoAnOlderOne) {
  const std::string path = dir_.File("lock");
  const mode_t before = umask(0);
  EXPECT_TRUE(FileLock::TryLock(path).ok());
  EXPECT_EQ(ModeOf(path), 0600U);
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_TRUE(FileLock::TryLock(path).ok());
  EXPECT_EQ(ModeOf(path), 0600U);
  umask(before);
}

TEST_F(FileTest, ALockOfContentHoldsUnderEveryNameAndWritesNothing) {
  const std::string path = dir_.File("content");
  ASSERT_TRUE(WriteFileAtomic(path, "as it was").ok());
  ASSERT_TRUE(LinkFile(path, dir_.File("hard")).ok());
  ASSERT_EQ(symlink(path.c_str(), dir_.File("soft").c_str()), 0);
  {
    const auto lock = FileLock::LockContent(dir_.File("soft"), 0);
    ASSERT_TRUE(lock.ok()) << StatusText(lock.status());
    for (const char* name : {"content", "hard", "soft"}) {
      EXPECT_EQ(Slug(FileLock::LockContent(dir_.File(name), 0).status()), "file.lock.held") << name;
    }
  }
  EXPECT_TRUE(FileLock::LockContent(dir_.File("hard"), 0).ok());
  EXPECT_EQ(*ReadFile(path, 100), "as it was");
}

TEST_F(FileTest, AStateFolderIsForItsUserAloneAndAnOpenOneIsClosed) {
  const mode_t before = umask(0);
  const std::string path = dir_.File("deep/state");
  EXPECT_FALSE(*MakeStateFolder(path));
  EXPECT_EQ(ModeOf(path), 0700U);
  EXPECT_EQ(ModeOf(dir_.File("deep")), 0700U);
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  EXPECT_TRUE(*MakeStateFolder(path));
  EXPECT_EQ(ModeOf(path), 0700U);
  EXPECT_FALSE(*MakeStateFolder(path));
  umask(before);
}

TEST_F(FileTest, AFolderThatIsSharedOnPurposeIsNoStateFolder) {
  const std::string shared = dir_.File("like-tmp");
  ASSERT_TRUE(MakeDirs(shared).ok());
  ASSERT_EQ(chmod(shared.c_str(), 01777), 0);
  EXPECT_EQ(Slug(MakeStateFolder(shared).status()), "state.folder.shared");
  EXPECT_EQ(ModeOf(shared), 01777U);
}

TEST_F(FileTest, MappedFileShowsTheBytesEvenAfterRemoval) {
  const std::string path = dir_.File("a");
  ASSERT_TRUE(WriteFileAtomic(path, "mapped").ok());
  absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(RemoveFile(path).ok());
  MappedFile moved = *std::move(file);
  EXPECT_EQ(moved.view(), "mapped");
  ASSERT_TRUE(WriteFileAtomic(path, "").ok());
  EXPECT_THAT(MappedFile::Open(path)->view(), IsEmpty());
  EXPECT_EQ(MappedFile::Open(dir_.File("none")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Slug(MappedFile::Open(dir_.path()).status()), "file.map.not_a_file");
}

TEST_F(FileTest, AnOriginalFileIsToldFromItsCopies) {
  const std::string path = dir_.File("state/marks");
  ASSERT_TRUE(MakeDirs(dir_.File("state")).ok());
  EXPECT_TRUE(absl::IsNotFound(ReadOriginalFile(path, 100).status()));
  ASSERT_TRUE(WriteOriginalFile(path, "one\n").ok());
  EXPECT_EQ(*ReadOriginalFile(path, 100), "one\n");
  const std::string old = *ReadFile(path, 200);
  const auto copied = [](const std::string& file) {
    return Slug(ReadOriginalFile(file, 100).status());
  };
  const auto sh = [&](const std::string& command) {
    ASSERT_EQ(std::system(StrCat("cd ", dir_.path(), " && ", command).c_str()), 0) << command;
  };
  sh("cp -a state elsewhere");
  EXPECT_EQ(copied(dir_.File("elsewhere/marks")), "file.original.copy") << "a copied folder";
  ASSERT_TRUE(WriteOriginalFile(path, "two\n").ok());
  sh("cp -p elsewhere/marks state/marks");
  EXPECT_EQ(copied(path), "file.original.copy") << "copied over the newer one";
  ASSERT_TRUE(WriteOriginalFile(path, "three\n").ok());
  sh("rm -r elsewhere && cp -a state elsewhere && rm -r state && cp -a elsewhere state");
  EXPECT_EQ(copied(path), "file.original.copy") << "a folder that was put back";
  ASSERT_TRUE(WriteOriginalFile(path, "four\n").ok());
  sh("mv state moved && chmod 600 moved/marks");
  EXPECT_EQ(*ReadOriginalFile(dir_.File("moved/marks"), 100), "four\n") << "moved, not copied";
  ASSERT_TRUE(WriteFileAtomic(path.substr(0, path.find("state")) + "junk", old).ok());
  EXPECT_EQ(copied(dir_.File("junk")), "file.original.copy");
}

TEST(PathTest, JoinsAndSplits) {
  EXPECT_EQ(PathJoin("a", "b"), "a/b");
  EXPECT_EQ(PathJoin("a/", "b"), "a/b");
  EXPECT_EQ(PathJoin("", "b"), "b");
  EXPECT_EQ(PathJoin("a", "/b"), "/b");
  EXPECT_EQ(DirName("/a/b"), "/a");
  EXPECT_EQ(DirName("/a"), "/");
  EXPECT_EQ(DirName("a"), ".");
  EXPECT_EQ(DirName("a/b/"), "a");
  EXPECT_EQ(BaseName("/a/b"), "b");
  EXPECT_EQ(BaseName("a/b/"), "b");
  EXPECT_EQ(BaseName("/"), "/");
}

TEST(PathTest, FindsItselfButNoStranger) {
  EXPECT_TRUE(FindSibling("support_file_test").ok());
  EXPECT_EQ(Slug(FindSibling("no-such-binary").status()), "file.sibling.missing");
}

TEST_F(FileTest, ScratchOfKilledProcessesIsSwept) {
  const std::string parent = dir_.path();
  const pid_t child = fork();
  if (child == 0) {
    const auto left = ScratchFolder::Create("work", parent);
    (void)WriteFileAtomic(left->File("file"), "x");
    _exit(0);  // no destructor, as when it is killed
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  auto alive = ScratchFolder::Create("work", parent);
  ASSERT_TRUE(alive.ok()) << alive.status();
  const auto other = ScratchFolder::Create("else", parent);
  ASSERT_TRUE(WriteFileAtomic(dir_.File("work-file"), "x").ok());
  EXPECT_EQ(ListDir(parent)->size(), 4u);
  EXPECT_EQ(SweepScratchFolders("work", parent), 1);
  EXPECT_EQ(SweepScratchFolders("work", parent), 0);
  EXPECT_TRUE(IsDirectory(alive->path())) << "its process lives";
  EXPECT_TRUE(IsDirectory(other->path())) << "another prefix";
  EXPECT_TRUE(FileExists(dir_.File("work-file"))) << "no folder";
  const std::string path = alive->path();
  {
    const ScratchFolder gone = *std::move(alive);
  }
  EXPECT_FALSE(FileExists(path));
}

}  // namespace
}  // namespace tilewright::support
