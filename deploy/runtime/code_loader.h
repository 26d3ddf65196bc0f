// Loads code objects into the process and finds their symbols. A LoadedCode owns its object and
// unloads it when destroyed; const use is thread-safe.
#ifndef DEPLOY_RUNTIME_CODE_LOADER_H_
#define DEPLOY_RUNTIME_CODE_LOADER_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tilewright::runtime {

// Returns the format of the code objects that this build of the runtime loads: "elf-x86_64".
std::string_view NativeCodeFormat();

class LoadedCode {
 public:
  LoadedCode() = default;  // of nothing
  // Puts the shared object into anonymous memory and loads it from there, without a disk. Its
  // constructors run: load only code that you trust. DATA_LOSS `runtime.code.<reason>` if the bytes
  // are not a shared object for this machine, or the system's loader refuses them.
  static absl::StatusOr<LoadedCode> Load(std::string_view format, std::string_view image);

  LoadedCode(LoadedCode&& other) noexcept;
  LoadedCode& operator=(LoadedCode&& other) noexcept;
  ~LoadedCode();

  // NOT_FOUND `runtime.code.symbol`.
  absl::StatusOr<void*> Symbol(const std::string& name) const;

 private:
  LoadedCode(int fd, void* handle) : fd_(fd), handle_(handle) {}
  void Release();

  // Stays open as long as the object: the loader knows objects by the descriptor's path, so the
  // number must not be used again meanwhile.
  int fd_ = -1;
  void* handle_ = nullptr;
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_CODE_LOADER_H_
