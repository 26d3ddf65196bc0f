#include "deploy/runtime/external_library.h"

#include <dlfcn.h>

#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {

using support::Quote;
using support::StrCat;

constexpr size_t kMaxName = 255;

bool IsLibraryName(std::string_view name) {
  if (name.empty() || name.size() > kMaxName || name == "." || name == "..") return false;
  for (const char c : name) {
    if (c <= ' ' || c > '~' || c == '/' || c == '"' || c == '\\') return false;
  }
  return true;
}

ExternalLibraries::~ExternalLibraries() {
  for (const auto& [path, handle] : handles_) dlclose(handle);
}

absl::StatusOr<ExternalLibraries::Use> ExternalLibraries::Load(
    std::string_view text, std::span<const std::string> allowed) {
  const size_t line = text.find('\n');
  const std::string name(text.substr(0, line));
  if (line == std::string_view::npos || !IsLibraryName(name)) {
    return support::DataLoss("runtime.load.library_name",
                             "expected the file name of a library, found " + Quote(name, 60));
  }
  const auto is_it = [&](const std::string& path) { return support::BaseName(path) == name; };
  for (const std::string& path : allowed) {
    if (!is_it(path)) continue;
    void*& handle = handles_[path];
    // A path without a folder would be looked for where the system has its libraries.
    const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
    if (handle == nullptr) handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* why = dlerror();
      handles_.erase(path);
      return support::NotFound("runtime.load.library_file",
                               why != nullptr ? why : "the loader gave no reason");
    }
    return Use{handle, name, std::string(text.substr(line + 1))};
  }
  return support::FailedPrecondition(
      "runtime.load.library", StrCat("the module calls functions of the library ", Quote(name),
                                     ", which is not among those that the caller allows [",
                                     support::Join(allowed, ", "), "]"));
}

absl::StatusOr<TwExternalKernel> ExternalLibraries::Find(const Use& use,
                                                         const std::string& function) {
  void* symbol = dlsym(use.handle, function.c_str());
  if (symbol != nullptr) return reinterpret_cast<TwExternalKernel>(symbol);
  return support::NotFound(
      "runtime.load.library_function",
      StrCat("expected a function ", function, " in ", use.name, ", found none of this name"));
}

}  // namespace tilewright::runtime
