// Libraries of external kernels: a module says a file name, its caller which files may be loaded.
// That an allowed one computes: tests/e2e/custom_operators.py.
#include "deploy/runtime/external_library.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/scratch_folder.h"
#include "deploy/support/status.h"

namespace tilewright::runtime {
namespace {

std::string LoadSlug(std::string_view text, const std::vector<std::string>& allowed) {
  ExternalLibraries libraries;
  return support::Slug(libraries.Load(text, allowed).status());
}

TEST(ExternalLibrary, NothingIsLoadedThatTheCallerDoesNotAllow) {
  EXPECT_EQ(LoadSlug("libacme.so\nk = 1\n", {}), "runtime.load.library");
  EXPECT_EQ(LoadSlug("libacme.so\n", {"/tmp/libother.so", "/tmp/libacme.so.1"}),
            "runtime.load.library");
  // The folder is the caller's: a module that names one is damaged.
  for (const std::string name :
       {"/tmp/libacme.so", "../libacme.so", "", ".", "..", "lib acme.so", "lib\x01.so"}) {
    EXPECT_EQ(LoadSlug(name + "\n", {"/tmp/libacme.so", name}), "runtime.load.library_name")
        << name;
  }
  EXPECT_EQ(LoadSlug("libacme.so", {"/tmp/libacme.so"}), "runtime.load.library_name");
  EXPECT_EQ(LoadSlug(std::string(300, 'a') + "\n", {std::string(300, 'a')}),
            "runtime.load.library_name");
}

TEST(ExternalLibrary, FilesThatAreNoLibraryAreRefused) {
  auto folder = support::ScratchFolder::Create("tilewright-library");
  ASSERT_TRUE(folder.ok());
  const std::string path = folder->File("libacme.so");
  EXPECT_EQ(LoadSlug("libacme.so\n", {path}), "runtime.load.library_file");
  ASSERT_TRUE(support::WriteFileAtomic(path, "no library").ok());
  EXPECT_EQ(LoadSlug("libacme.so\n", {path}), "runtime.load.library_file");
  // Not looked for where the system has its libraries.
  EXPECT_EQ(LoadSlug("libm.so.6\n", {"libm.so.6"}), "runtime.load.library_file");
}

}  // namespace
}  // namespace tilewright::runtime
