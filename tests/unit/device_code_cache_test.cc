// The cache of compiled device code, with a driver that counts what it compiles: a second load
// compiles nothing, and whatever is not exactly what was stored is compiled anew.
#include "deploy/runtime/device_code_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <string>

#include "deploy/runtime/device_loader.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"

namespace tilewright::runtime {
namespace {

constexpr char kText[] = "text";
constexpr char kForm[] = "binary -O2";

struct Driver {
  int compiled = 0, loaded = 0;
  bool refuses = false;  // binaries
  std::string fingerprint = "driver=1\n";
};
Driver driver;

// Handles of the driver are addresses of these.
TwDeviceResult Load(TwDevice*, const char* format, const void* image, size_t bytes,
                    TwDeviceCode** code) {
  std::string text(static_cast<const char*>(image), bytes);
  if (std::strcmp(format, kForm) == 0) {
    if (driver.refuses || !text.starts_with("compiled ")) return TW_DEVICE_BAD_CODE;
    ++driver.loaded;
  } else {
    if (text == "broken") return TW_DEVICE_BAD_CODE;
    ++driver.compiled;
    text = "compiled " + text;
  }
  *code = reinterpret_cast<TwDeviceCode*>(new std::string(text));
  return TW_DEVICE_OK;
}
TwDeviceResult Binary(TwDevice*, TwDeviceCode* code, const void** bytes, size_t* count) {
  const auto& text = *reinterpret_cast<std::string*>(code);
  *bytes = text.data();
  *count = text.size();
  return TW_DEVICE_OK;
}
TwDeviceResult Describe(TwDevice*, TwDeviceInfo* info) {
  info->fingerprint = driver.fingerprint.c_str();
  return TW_DEVICE_OK;
}
const char* LastError(TwDevice*) { return "driver.build: broken"; }

class DeviceCodeCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    driver = {};
    table_ = *CpuDevicePlugin();
    table_.kind = "counting";
    table_.load = Load;
    table_.describe = Describe;
    table_.last_error = LastError;
    table_.binary_format = kForm;
    table_.binary = Binary;
    cache_.folder = temp_.File("code");
  }

  // What was loaded; "" after an error.
  std::string Loaded(const std::string& text) {
    TwDeviceCode* code = nullptr;
    status_ = LoadCached(cache_, table_, nullptr, kText, text, &code);
    if (code == nullptr) return "";
    auto* const loaded = reinterpret_cast<std::string*>(code);
    std::string result = *loaded;
    delete loaded;
    return result;
  }
  std::string OnlyFile() {
    const auto names = support::ListDir(cache_.folder);
    EXPECT_TRUE(names.ok() && names->size() == 1) << cache_.folder;
    return names.ok() && !names->empty() ? support::PathJoin(cache_.folder, names->front()) : "";
  }

  support::TempDir temp_ = *support::TempDir::Create();
  CodeCache cache_;
  TwDevicePlugin table_{};
  absl::Status status_;
};

TEST_F(DeviceCodeCacheTest, ASecondLoadCompilesNothing) {
  EXPECT_EQ(Loaded("a"), "compiled a");
  EXPECT_EQ(Loaded("a"), "compiled a");
  EXPECT_EQ(driver.compiled, 1);
  EXPECT_EQ(driver.loaded, 1);
  EXPECT_EQ(Loaded("b"), "compiled b");
  EXPECT_EQ(driver.compiled, 2);
}

TEST_F(DeviceCodeCacheTest, OtherDriversAndOptionsCompileTheirOwn) {
  Loaded("a");
  driver.fingerprint = "driver=2\n";
  Loaded("a");
  EXPECT_EQ(driver.compiled, 2);
  table_.binary_format = "binary -O3";
  Loaded("a");
  EXPECT_EQ(driver.compiled, 3);
  EXPECT_EQ(driver.loaded, 0);
}

TEST_F(DeviceCodeCacheTest, ADamagedFileIsCompiledAnewAndReplaced) {
  Loaded("a");
  const std::string path = OnlyFile();
  const std::string whole = *support::ReadFile(path, 1 << 20);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    ASSERT_TRUE(support::WriteFileAtomic(path, damaged, 0600).ok());
    const int before = driver.compiled;
    EXPECT_EQ(Loaded("a"), "compiled a");
    ASSERT_EQ(driver.compiled, before + 1) << "byte " << at;
  }
  for (const size_t length : {size_t{0}, size_t{10}, whole.size() - 1}) {
    ASSERT_TRUE(support::WriteFileAtomic(path, whole.substr(0, length), 0600).ok());
    const int before = driver.compiled;
    EXPECT_EQ(Loaded("a"), "compiled a");
    EXPECT_EQ(driver.compiled, before + 1) << length << " bytes";
  }
  EXPECT_EQ(*support::ReadFile(path, 1 << 20), whole);
}

// As if two keys had one hash.
TEST_F(DeviceCodeCacheTest, TheKeyIsComparedNotOnlyItsHash) {
  Loaded("a");
  const std::string of_a = OnlyFile();
  const std::string file = *support::ReadFile(of_a, 1 << 20);
  ASSERT_TRUE(support::RemoveFile(of_a).ok());
  Loaded("b");
  ASSERT_TRUE(support::WriteFileAtomic(OnlyFile(), file, 0600).ok());
  EXPECT_EQ(Loaded("b"), "compiled b");
  EXPECT_EQ(driver.compiled, 3);
}

TEST_F(DeviceCodeCacheTest, WhatTheDriverRefusesIsCompiledAnew) {
  Loaded("a");
  driver.refuses = true;
  EXPECT_EQ(Loaded("a"), "compiled a");
  EXPECT_EQ(driver.compiled, 2);
}

TEST_F(DeviceCodeCacheTest, ErrorsAreTheDriversAndNothingIsStored) {
  EXPECT_EQ(Loaded("broken"), "");
  EXPECT_EQ(support::Slug(status_), "runtime.device.bad_code");
  EXPECT_FALSE(support::IsDirectory(cache_.folder));
}

TEST_F(DeviceCodeCacheTest, WithoutAFolderOrBinariesEveryLoadCompiles) {
  const std::string folder = cache_.folder;
  cache_.folder = "";
  Loaded("a");
  Loaded("a");
  cache_.folder = folder;
  table_.struct_bytes = offsetof(TwDevicePlugin, binary_format);  // an older plug-in
  Loaded("a");
  Loaded("a");
  EXPECT_EQ(driver.compiled, 4);
  EXPECT_FALSE(support::IsDirectory(folder));
}

TEST_F(DeviceCodeCacheTest, AFolderThatOthersMayWriteIsNotUsed) {
  ASSERT_TRUE(support::MakeDirs(cache_.folder).ok());
  ASSERT_EQ(chmod(cache_.folder.c_str(), 0777), 0);
  Loaded("a");
  EXPECT_TRUE(support::ListDir(cache_.folder)->empty());
  EXPECT_TRUE(status_.ok());
}

TEST_F(DeviceCodeCacheTest, FilesThatWereNotUsedForLongestGo) {
  Loaded("a");
  const std::string of_a = OnlyFile();
  cache_.max_bytes = 2 * static_cast<int64_t>(*support::FileSize(of_a)) + 1;
  Loaded("b");
  // Both long ago: times of the same tick would be equal.
  const timespec old[2] = {{1000, 0}, {1000, 0}};
  const auto names = support::ListDir(cache_.folder);
  for (const std::string& name : *names) {
    const std::string path = support::PathJoin(cache_.folder, name);
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), old, 0), 0);
  }
  Loaded("a");  // used now
  Loaded("c");
  EXPECT_EQ(support::ListDir(cache_.folder)->size(), 2u);
  driver.compiled = 0;
  Loaded("a");
  EXPECT_EQ(driver.compiled, 0) << "a was used after b";
}

}  // namespace
}  // namespace tilewright::runtime
