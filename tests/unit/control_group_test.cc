// The rules of control_group.h in folders that look like a kernel's. What a kernel does with them:
// tests/long/units.py.
#include "device_agent/control_group.h"

#include <gtest/gtest.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

class ControlGroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto folder = support::TempDir::Create("tw_groups");
    ASSERT_TRUE(folder.ok()) << folder.status();
    folder_ = std::make_unique<support::TempDir>(*std::move(folder));
    files_ = {Path("own"), Path("root")};
  }

  std::string Path(std::string_view name) const { return folder_->File(name); }
  // As the kernel has them in each folder.
  void Group(const std::string& name) {
    ASSERT_TRUE(support::MakeDirs(Path("root/" + name)).ok());
    for (const char* file :
         {"cgroup.procs", "cgroup.subtree_control", "memory.max", "memory.swap.max", "pids.max"}) {
      ASSERT_TRUE(
          support::WriteFileAtomic(Path(support::StrCat("root/", name, "/", file)), "").ok());
    }
  }
  void Own(const std::string& text) {
    ASSERT_TRUE(support::WriteFileAtomic(files_.own, text).ok());
  }
  void Put(const std::string& file, const std::string& text) {
    ASSERT_TRUE(support::WriteFileAtomic(Path("root/" + file), text).ok());
  }
  std::string Text(const std::string& file) {
    return support::ReadFile(Path("root/" + file), 4096).value_or("?");
  }
  bool Delegate(const std::string& name) {
    return setxattr(Path("root/" + name).c_str(), "user.delegate", "1", 1, 0) == 0;
  }

  std::unique_ptr<support::TempDir> folder_;
  ControlGroupFiles files_;
};

TEST_F(ControlGroupTest, OnlyADelegatedGroupIsDivided) {
  Group("unit");
  Own("0::/unit\n");
  const auto divided = DivideControlGroup(files_);
  ASSERT_TRUE(divided.ok()) << divided.status();
  EXPECT_FALSE(*divided);
  EXPECT_FALSE(support::FileExists(Path("root/unit/agent")));
}

TEST_F(ControlGroupTest, AMachineWithoutVersion2HasNone) {
  Own("4:memory:/unit\n1:name=systemd:/unit\n");
  const auto divided = DivideControlGroup(files_);
  ASSERT_TRUE(divided.ok()) << divided.status();
  EXPECT_FALSE(*divided);
  EXPECT_FALSE(WorkerGroup::Enter(files_).has_value());
}

TEST_F(ControlGroupTest, TheAgentMovesAndLetsPartsBoundMemory) {
  Group("unit");
  Group("unit/agent");  // a kernel makes the files with the folder
  if (!Delegate("unit")) GTEST_SKIP() << "[SKIP] no extended attributes in the temporary folder";
  Own("4:memory:/elsewhere\n0::/unit\n");
  const auto divided = DivideControlGroup(files_);
  ASSERT_TRUE(divided.ok()) << divided.status();
  EXPECT_TRUE(*divided);
  EXPECT_EQ(Text("unit/agent/cgroup.procs"), "0");
  EXPECT_EQ(Text("unit/cgroup.subtree_control"), "+memory +pids");
}

TEST_F(ControlGroupTest, AGroupThatRefusesIsAnErrorThatNamesIt) {
  ASSERT_TRUE(support::MakeDirs(Path("root/unit")).ok());
  if (!Delegate("unit")) GTEST_SKIP() << "[SKIP] no extended attributes in the temporary folder";
  Own("0::/unit\n");
  const auto divided = DivideControlGroup(files_);
  EXPECT_EQ(support::Slug(divided.status()), "agent.control_group.refused");
  EXPECT_NE(divided.status().message().find("unit/agent"), std::string_view::npos);
}

TEST_F(ControlGroupTest, AWorkerGetsAGroupWithLimitsBesideTheAgents) {
  Group("unit");
  Group("unit/agent");
  const std::string worker = support::StrCat("unit/worker-", getpid());
  Group(worker);
  Put("unit/cgroup.subtree_control", "memory pids\n");
  Own("0::/unit/agent\n");
  const auto group = WorkerGroup::Enter(files_);
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(Text(worker + "/cgroup.procs"), "0");
  ASSERT_TRUE(group->Limit(int64_t{1} << 30));
  EXPECT_EQ(Text(worker + "/memory.max"),
            std::to_string((int64_t{2} << 30) + (int64_t{512} << 20)));
  EXPECT_EQ(Text(worker + "/memory.swap.max"), "0");
  EXPECT_NE(Text(worker + "/pids.max"), "");
  ASSERT_TRUE(group->Limit(0));
  EXPECT_EQ(Text(worker + "/memory.max").substr(0, 3), "max");
}

TEST_F(ControlGroupTest, NoWorkerGroupWhereTheAgentHasNotDividedItsOwn) {
  Group("unit");
  Group("unit/agent");
  Own("0::/unit/agent\n");  // of somebody else, who does not bound memory
  EXPECT_FALSE(WorkerGroup::Enter(files_).has_value());
  Own("0::/unit\n");
  Put("unit/cgroup.subtree_control", "memory pids\n");
  EXPECT_FALSE(WorkerGroup::Enter(files_).has_value());
}

TEST_F(ControlGroupTest, GroupsOfWorkersThatEndedAreRemoved) {
  Group("unit");
  Group("unit/agent");
  Put("unit/cgroup.subtree_control", "memory pids\n");
  Own("0::/unit/agent\n");
  ASSERT_TRUE(support::MakeDirs(Path("root/unit/worker-1")).ok());
  Group("unit/worker-2");  // not empty, as one with processes
  SweepWorkerGroups(files_);
  EXPECT_FALSE(support::FileExists(Path("root/unit/worker-1")));
  EXPECT_TRUE(support::FileExists(Path("root/unit/worker-2")));
  EXPECT_TRUE(support::FileExists(Path("root/unit/agent")));
}

}  // namespace
}  // namespace tilewright::device_agent
