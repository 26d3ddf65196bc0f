#include "deploy/runtime/code_loader.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "deploy/runtime/elf_check.h"
#include "deploy/support/status.h"

namespace tilewright::runtime {
namespace {

using support::DataLoss;

#if defined(__x86_64__)
constexpr std::string_view kFormat = "elf-x86_64";
constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr std::string_view kFormat = "elf-aarch64";
constexpr int kMachine = EM_AARCH64;
#else
#error "code_loader: no code object format for this architecture"
#endif

absl::Status CheckImage(std::string_view format, std::string_view image) {
  if (format != kFormat) {
    return support::FailedPrecondition(
        "runtime.code.format",
        "expected " + std::string(kFormat) + ", found " + std::string(format.substr(0, 64)));
  }
  return CheckSharedObject(image, kMachine);
}

absl::Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return support::ErrnoError(errno, "runtime.code.memory", "anonymous file");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view NativeCodeFormat() { return kFormat; }

absl::StatusOr<LoadedCode> LoadedCode::Load(std::string_view format, std::string_view image) {
  TW_TRY(CheckImage(format, image));
  const int fd = memfd_create("tilewright_code", MFD_CLOEXEC);
  if (fd < 0) return support::ErrnoError(errno, "runtime.code.memory", "memfd_create");
  LoadedCode code(fd, nullptr);
  TW_TRY(WriteAll(fd, image));
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  code.handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (code.handle_ == nullptr) {
    const char* why = dlerror();
    return DataLoss("runtime.code.load", why != nullptr ? why : "the loader gave no reason");
  }
  return code;
}

LoadedCode::LoadedCode(LoadedCode&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), handle_(std::exchange(other.handle_, nullptr)) {}

LoadedCode& LoadedCode::operator=(LoadedCode&& other) noexcept {
  if (this == &other) return *this;
  Release();
  fd_ = std::exchange(other.fd_, -1);
  handle_ = std::exchange(other.handle_, nullptr);
  return *this;
}

LoadedCode::~LoadedCode() { Release(); }

void LoadedCode::Release() {
  if (handle_ != nullptr) dlclose(handle_);
  if (fd_ >= 0) close(fd_);
  handle_ = nullptr;
  fd_ = -1;
}

absl::StatusOr<void*> LoadedCode::Symbol(const std::string& name) const {
  void* symbol = dlsym(handle_, name.c_str());
  if (symbol == nullptr) {
    return support::NotFound("runtime.code.symbol", "the code object has no '" + name + "'");
  }
  return symbol;
}

}  // namespace tilewright::runtime
