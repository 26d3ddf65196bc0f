#include "tests/support/staged_programs.h"

#include <sys/stat.h>

#include <filesystem>
#include <utility>

#include "deploy/support/status.h"

namespace tilewright::tests {
namespace {

namespace fs = std::filesystem;

support::TempDir Folder() {
  auto folder = support::TempDir::Create("tw_staged");
  TW_CHECK(folder.ok()) << support::StatusText(folder.status());
  return *std::move(folder);
}

void Copy(const fs::path& from, const fs::path& to) {
  constexpr mode_t kForAll = 0755;
  std::error_code error;
  TW_CHECK(fs::copy_file(from, to, error)) << from << ": " << error.message();
  TW_CHECK(chmod(to.c_str(), kForAll) == 0) << to;
}

}  // namespace

StagedPrograms::StagedPrograms(const std::vector<std::string>& programs) : folder_(Folder()) {
  const fs::path build = support::DirName(*support::SelfExeDir());
  const fs::path staged = folder_.path();
  for (const fs::path& folder : {staged, staged / "bin", staged / "lib"}) {
    fs::create_directory(folder);
    fs::permissions(folder, fs::perms(0755));
  }
  for (const std::string& program : programs) {
    Copy(build / "bin" / program, staged / "bin" / program);
  }
  for (const auto& entry : fs::directory_iterator(build / "lib")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("libtilewright_test_") && name.ends_with(".so")) {
      Copy(entry.path(), staged / "lib" / name);
    }
  }
}

}  // namespace tilewright::tests
