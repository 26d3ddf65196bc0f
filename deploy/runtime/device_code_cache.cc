#include "deploy/runtime/device_code_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>
#include <vector>

#include "deploy/runtime/device_loader.h"
#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {
namespace {

using support::PathJoin;
using support::StrCat;

// A file: this line with the digest and the length of the key, the key, the binary. The digest is
// of key and binary.
constexpr std::string_view kMagic = "tilewright-device-code 1 ";
constexpr std::string_view kSuffix = ".code";

bool HasBinaries(const TwDevicePlugin& plugin) {
  constexpr size_t kEnd = offsetof(TwDevicePlugin, binary) + sizeof(plugin.binary);
  return plugin.struct_bytes >= kEnd && plugin.binary != nullptr && plugin.binary_format != nullptr;
}

// Everything that the binary depends on: the device and its driver are in the fingerprint, the
// driver's options in the name of the form.
std::string KeyOf(const TwDevicePlugin& plugin, std::string_view fingerprint,
                  const std::string& format, std::string_view image) {
  return StrCat("kind=", plugin.kind, "\nform=", plugin.binary_format, "\nformat=", format, "\n",
                fingerprint, "\n", image);
}

std::string Stored(const std::string& key, std::string_view binary) {
  const std::string content = StrCat(key, binary);
  return StrCat(kMagic, support::Sha256Hex(content), " ", key.size(), "\n", content);
}

// The binary of a file with this key; nullopt if the file is another's or damaged.
std::optional<std::string> BinaryOf(std::string_view file, const std::string& key) {
  const size_t line = file.find('\n');
  if (line == std::string_view::npos || !file.substr(line + 1).starts_with(key))
    return std::nullopt;
  const std::string binary(file.substr(line + 1 + key.size()));
  if (Stored(key, binary) != file) return std::nullopt;
  return binary;
}

// Code of another user would run as this one.
bool IsOwn(const std::string& path) {
  struct stat found{};
  return lstat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid();
}

std::optional<std::string> ReadBinary(const CodeCache& cache, const std::string& path,
                                      const std::string& key) {
  if (!IsOwn(path)) return std::nullopt;
  const auto file = support::ReadFile(path, static_cast<uint64_t>(cache.max_bytes));
  if (!file.ok()) return std::nullopt;
  std::optional<std::string> binary = BinaryOf(*file, key);
  // Its time is that of its last use.
  if (binary.has_value()) utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return binary;
}

// Removes the files that were not used for longest until the others fit.
void Trim(const CodeCache& cache) {
  struct Entry {
    int64_t used_ns, bytes;
    std::string path;
  };
  const auto names = support::ListDir(cache.folder);
  if (!names.ok()) return;
  std::vector<Entry> entries;
  int64_t total = 0;
  for (const std::string& name : *names) {
    if (!name.ends_with(kSuffix)) continue;
    const std::string path = PathJoin(cache.folder, name);
    struct stat found{};
    if (lstat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) continue;
    entries.push_back(
        {found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec, found.st_size, path});
    total += found.st_size;
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.used_ns, a.path) < std::tie(b.used_ns, b.path);
  });
  for (const Entry& entry : entries) {
    if (total <= cache.max_bytes) return;
    if (support::RemoveFile(entry.path).ok()) total -= entry.bytes;
  }
}

// Nobody but the user may put code there.
bool MakeFolder(const std::string& folder) {
  if (!support::MakeDirs(support::DirName(folder)).ok()) return false;
  mkdir(folder.c_str(), 0700);
  struct stat found{};
  return stat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
         (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

void Store(const CodeCache& cache, const std::string& path, const std::string& file) {
  if (static_cast<int64_t>(file.size()) > cache.max_bytes || !MakeFolder(cache.folder)) return;
  if (support::WriteFileAtomic(path, file, 0600).ok()) Trim(cache);
}

}  // namespace

std::string UserCodeCache() {
  if (const auto given = support::GetEnv("TILEWRIGHT_CODE_CACHE"); given.has_value()) return *given;
  std::string root = support::GetEnv("XDG_CACHE_HOME").value_or("");
  if (root.empty()) {
    const std::string home = support::GetEnv("HOME").value_or("");
    if (home.empty()) return "";
    root = PathJoin(home, ".cache");
  }
  return PathJoin(root, "tilewright/device-code");
}

absl::Status LoadCached(const CodeCache& cache, const TwDevicePlugin& plugin, TwDevice* device,
                        const std::string& format, std::string_view image, TwDeviceCode** code) {
  const auto load = [&](const char* form, std::string_view bytes) {
    return plugin.load(device, form, bytes.data(), bytes.size(), code);
  };
  TwDeviceInfo info{};
  info.struct_bytes = sizeof(info);
  const bool cached = !cache.folder.empty() && HasBinaries(plugin) &&
                      plugin.describe(device, &info) == TW_DEVICE_OK;
  if (!cached) return DeviceStatus(plugin, device, load(format.c_str(), image));
  const std::string key = KeyOf(plugin, info.fingerprint, format, image);
  const std::string path = PathJoin(cache.folder, StrCat(support::Sha256Hex(key), kSuffix));
  if (const std::optional<std::string> binary = ReadBinary(cache, path, key);
      binary.has_value() && load(plugin.binary_format, *binary) == TW_DEVICE_OK) {
    return absl::OkStatus();
  }
  TW_TRY(DeviceStatus(plugin, device, load(format.c_str(), image)));
  const void* bytes = nullptr;
  size_t count = 0;
  if (plugin.binary(device, *code, &bytes, &count) == TW_DEVICE_OK)
    Store(cache, path, Stored(key, {static_cast<const char*>(bytes), count}));
  return absl::OkStatus();
}

}  // namespace tilewright::runtime
