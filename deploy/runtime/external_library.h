// Libraries of external kernels: which a module asks for, and whether its caller allows them. A
// code object of the format "library" is text: the library's file name on the first line, the
// operator's attributes behind it.
#ifndef DEPLOY_RUNTIME_EXTERNAL_LIBRARY_H_
#define DEPLOY_RUNTIME_EXTERNAL_LIBRARY_H_

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "deploy/runtime/external_kernel.h"

namespace tilewright::runtime {

inline constexpr std::string_view kLibraryFormat = "library";

// The file name that a module may ask for: a last part of a path.
bool IsLibraryName(std::string_view name);

class ExternalLibraries {
 public:
  struct Use {
    void* handle = nullptr;
    std::string name, attributes;
  };

  ExternalLibraries() = default;
  ExternalLibraries(const ExternalLibraries&) = delete;
  ExternalLibraries& operator=(const ExternalLibraries&) = delete;
  ~ExternalLibraries();

  // Loads the library that the text names, from the one of these paths that ends with its name: its
  // constructors run. FAILED_PRECONDITION `runtime.load.library` if none does; NOT_FOUND
  // `runtime.load.library_file` if the system's loader refuses the file; DATA_LOSS for other texts.
  absl::StatusOr<Use> Load(std::string_view text, std::span<const std::string> allowed);
  // NOT_FOUND `runtime.load.library_function`.
  static absl::StatusOr<TwExternalKernel> Find(const Use& use, const std::string& function);

 private:
  std::map<std::string, void*> handles_;  // by path
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_EXTERNAL_LIBRARY_H_
